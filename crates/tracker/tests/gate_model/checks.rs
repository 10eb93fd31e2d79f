//! What holds whenever a thread of the twin records, reads, or has the turn.

use crate::twin::Model;
use crate::words::{At, Frame, HANDLER, Held, Thread, World};

impl Model {
    /// No other thread reads or changes the data that this thread records.
    pub(crate) fn check_recording(&self, world: &World, me: usize) {
        let is_below = |frame: &Frame| {
            matches!(frame.at, At::Recording | At::CatchesUp | At::Reading | At::Drains | At::Tries)
        };
        assert!(!world.threads[me].below.as_ref().is_some_and(is_below), "recorded on top: {world:?}");
        let others = world.threads.iter().enumerate().filter(|(other, _)| *other != me);
        for (_, other) in others {
            let mut frames = other.frames();
            let is_looking =
                frames.any(|frame| matches!(frame.at, At::CatchesUp | At::Reading | At::Drains | At::Tries));
            assert!(!is_looking, "recorded during a pause: {world:?}");
            assert!(!other.is_forking || other.held == Held::NotPaused, "recorded during a fork: {world:?}");
        }
        let at_once = world.threads.iter().flat_map(Thread::frames).filter(|frame| frame.at == At::Recording);
        let is_alone = at_once.clone().count() == 1;
        assert!(is_alone || at_once.clone().all(|frame| frame.locked), "recorded without locks: {world:?}");
    }

    /// No thread is in the middle of recording while another one reads. This includes the reader's own thread.
    pub(crate) fn check_pause(&self, world: &World, me: usize) {
        let is_below = |frame: &Frame| frame.at == At::Recording;
        assert!(!world.threads[me].below.as_ref().is_some_and(is_below), "recorded on top: {world:?}");
        let is_recorded = world.threads.iter().flat_map(Thread::frames).any(is_below);
        assert!(!is_recorded, "looked during a recording: {world:?}");
    }

    /// A reading has all events that its own thread has ended.
    pub(crate) fn check_figures(&self, world: &World, me: usize) {
        let (owner, ended) = self.event(world, me);
        let known = world.recorded.iter().chain(&world.dropped).filter(|(other, _)| *other == owner).count();
        let skipped = if owner >= HANDLER { world.threads[me].skipped as usize } else { 0 };
        assert!(known + skipped >= ended as usize, "read without what came before: {world:?}");
    }
}
