//! Memory that the host and the copies share: how far they have come.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::copy;
use crate::heap::FrozenPage;

/// Copies that write lines: the first one, and a second one where there are processors for it.
pub(super) const WRITERS: usize = 2;

/// All zero at the beginning.
#[repr(C)]
#[derive(Debug)]
pub(super) struct State {
    /// The progress of each copy.
    pub(super) writers: [Progress; WRITERS],
    /// The status of the tool's end, as `waitpid` has it; -1 before.
    pub(super) tool: AtomicI32,
    /// Not 0: all lines were written, and the tool has ended well. Nothing is to be done but to end.
    pub(super) answered: AtomicU32,
    /// Not 0: a copy got no memory, and the tool no whole heap.
    pub(super) no_memory: AtomicU32,
    /// A number of `errno`: why the tool could not be started.
    pub(super) error: AtomicI32,
    /// Id of the second copy, until the first one has waited for its end; 0 otherwise.
    pub(super) second_pid: AtomicI32,
    /// Not 0: the second copy is to end.
    pub(super) over: AtomicU32,
    /// The first page of the heap that no copy has taken.
    next_page: AtomicUsize,
}

/// How far a copy has come. No two are in one line of the processor's cache.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Progress {
    /// Grows with each step. If it stands still although nothing is waited for, the copy hangs.
    pub(super) beat: AtomicU64,
    pub(super) objects: AtomicU64,
    /// Written to the tool.
    pub(super) bytes: AtomicU64,
    /// See [`Stage`].
    stage: AtomicU32,
    /// What tells the type of the data object whose functions run now; 0 while none do.
    pub(super) data_type: AtomicUsize,
}

/// What the copy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Stage {
    /// It has not begun.
    Made = 0,
    /// It walks over the heap.
    Walking = 1,
    /// It waits for the tool to take lines, or for the second copy.
    Writing = 2,
    /// It has written the last line, and waits for the tool's end.
    Written = 3,
    /// The tool has ended; of the second copy: all its lines are with the tool.
    Done = 4,
}

impl State {
    /// The progress of the first copy, which starts the tool and waits for it.
    pub(super) fn first(&self) -> &Progress {
        &self.writers[0]
    }

    pub(super) fn second(&self) -> &Progress {
        &self.writers[1]
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) != 0
    }

    /// In the first copy: the tool has ended well.
    pub(super) fn answer(&self) {
        self.answered.store(1, Ordering::Release);
        copy::wake(self.answered.as_ptr());
    }

    /// In the host: sleeps until the copy has answered, or for so long.
    pub(super) fn wait_for_answer(&self, time: Duration) {
        copy::wait_while(&self.answered, 0, time);
    }

    /// Written so far.
    pub(super) fn objects(&self) -> u64 {
        self.writers.iter().map(|writer| writer.objects.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of lines so far.
    pub(super) fn bytes(&self) -> u64 {
        self.writers.iter().map(|writer| writer.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Pages that no other copy writes, `None` at the end. Those whose addresses differ only in the lower 16 bits stay
    /// together, so that their objects do in the file.
    pub(super) fn take(&self, pages: &[FrozenPage]) -> Option<Range<usize>> {
        const TOGETHER: u32 = 16;
        let mut from = self.next_page.load(Ordering::Relaxed);
        loop {
            let rest = pages.get(from..)?;
            let number = rest.first()?.start >> TOGETHER;
            let count = rest.iter().take_while(|page| page.start >> TOGETHER == number).count();
            let to = from + count;
            match self.next_page.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(from..to),
                Err(other) => from = other,
            }
        }
    }
}

impl Progress {
    pub(super) fn set(&self, stage: Stage) {
        self.stage.store(stage as u32, Ordering::Release);
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Made,
            1 => Stage::Walking,
            2 => Stage::Writing,
            3 => Stage::Written,
            _ => Stage::Done,
        }
    }
}
