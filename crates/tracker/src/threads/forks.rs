//! The pause that threads share which fork at the same time. See [`super`].

use core::ptr;
use core::sync::atomic::Ordering;

use super::starved::Wait;
use super::{CLOSED, PAUSE_STACK_BYTES, ThreadState, Threads, places};
use crate::deferred::Effort;
use crate::lock::wait_round;
use crate::stack;

/// The state of the world while a thread forks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// Not paused, because a thread did not finish in time. All-zero memory means this.
    #[default]
    NotPaused,
    /// Paused for all threads that fork now. The last one ends the pause.
    Paused,
    /// Paused by a signal handler that forks and has interrupted its thread while that recorded. No other thread
    /// joins this pause, because in the child of another thread the recording would never be finished.
    OverRecording,
    /// Paused already: a signal handler that forks has interrupted its thread in a pause, which that thread ends.
    OverPause,
}

impl Held {
    /// Whether the pause belongs to the forks, which must end it.
    #[must_use]
    pub fn is_for_forks(self) -> bool {
        matches!(self, Self::Paused | Self::OverRecording)
    }
}

impl Threads {
    /// Called before a fork: joins the pause of other forks, if there is one. It does not join if very many events
    /// have been written down, so that the pause can end and they are recorded.
    pub fn join_forks(&self) -> bool {
        let mut forks = self.forks.load(Ordering::Acquire);
        while forks > 0 && places(self.gate.load(Ordering::Relaxed)) < self.deferred.many() {
            match self.forks.compare_exchange_weak(forks, forks + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => forks = now,
            }
        }
        false
    }

    /// Whether this thread is the pauser. Called by that thread only.
    pub fn is_pauser(&self, own: &ThreadState) -> bool {
        ptr::eq(self.pausing.load(Ordering::Relaxed), own)
    }

    /// Called before a fork: pauses the world, with at most `turn_sleeps` sleeps of 50 µs for another thread's pause
    /// to end, and `sleeps` of them for recording. Unlike [`Threads::pause`] it may be called by a signal handler that
    /// has interrupted anything. The forking thread is not busy, so its events are written down like those of other
    /// threads. `first` is called before the gate is closed.
    pub fn hold_for_fork(
        &self,
        own: &ThreadState,
        turn_sleeps: u32,
        sleeps: u32,
        first: impl FnOnce(),
    ) -> Held {
        stack::touch::<PAUSE_STACK_BYTES>();
        if self.is_pauser(own) {
            return if self.still(own, sleeps) { Held::OverPause } else { Held::NotPaused };
        }
        self.forks_to_come.fetch_add(1, Ordering::Relaxed);
        let held = self.take_turn_for_forks(own, turn_sleeps, sleeps, first);
        self.forks_to_come.fetch_sub(1, Ordering::Relaxed);
        held
    }

    fn take_turn_for_forks(
        &self,
        own: &ThreadState,
        turn_sleeps: u32,
        sleeps: u32,
        first: impl FnOnce(),
    ) -> Held {
        let forkers = self.forkers();
        let (mut wait, mut rounds_for_libc) = (Wait::new(self, own, turn_sleeps), 0);
        while self
            .pausing
            .compare_exchange(ptr::null_mut(), forkers, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            if self.join_forks() {
                return Held::Paused;
            }
            if self.fork_awaits_libc.load(Ordering::Relaxed) {
                // This fork would wait for the same lock next.
                let _ = wait_round(&mut rounds_for_libc, u32::MAX);
            } else if !wait.round(wait_round) {
                return Held::NotPaused;
            }
        }
        self.fork_awaits_libc.store(true, Ordering::Relaxed);
        first();
        self.fork_awaits_libc.store(false, Ordering::Relaxed);
        if self.still(own, sleeps) {
            if own.is_busy() {
                return Held::OverRecording;
            }
            // Release: a thread that joins finds the world paused.
            self.forks.store(1, Ordering::Release);
            return Held::Paused;
        }
        self.leave(forkers);
        Held::NotPaused
    }

    /// Called after a fork, in both processes: ends what [`Threads::hold_for_fork`] or [`Threads::join_forks`] began.
    /// The last one calls `last` before the pause ends, and goes so far with what was written down meanwhile.
    pub fn release_after_fork(&self, own: &ThreadState, held: Held, effort: Effort, last: impl FnOnce()) {
        let is_last = match held {
            Held::Paused => self.forks.fetch_sub(1, Ordering::AcqRel) == 1,
            held => held == Held::OverRecording,
        };
        if !is_last {
            return;
        }
        last();
        let forkers = self.forkers();
        let is_quiet =
            self.gate.load(Ordering::Acquire) == CLOSED && !self.states().any(ThreadState::is_leaving);
        if own.is_busy() || own.is_noting() || is_quiet {
            // No event was written down. Or this thread was interrupted while it recorded or wrote an event
            // down, so a later thread records the written ones.
            return self.leave(forkers);
        }
        own.busy.store(stack::pointer(), Ordering::Relaxed);
        self.open(own, effort);
        self.end_turn(own);
    }

    /// The pauser while threads fork, which is no thread's state.
    fn forkers(&self) -> *mut ThreadState {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The pauser gives up. The gate stays closed if something was written down.
    pub(super) fn leave(&self, pauser: *mut ThreadState) {
        let _ = self.gate.compare_exchange(CLOSED, 0, Ordering::SeqCst, Ordering::Relaxed);
        let _ = self.pausing.compare_exchange(pauser, ptr::null_mut(), Ordering::Release, Ordering::Relaxed);
    }

    /// Called in a forked child, before [`Threads::release_after_fork`]: only the forking thread exists. The states of the
    /// others are free for reuse. What they have counted stays there, as all counters are added to the sites before figures are
    /// read: each page that is written costs the child a copy.
    pub fn forget_others(&self, own: Option<&ThreadState>, held: Held) {
        self.words.force_open();
        if let Some(own) = own {
            own.is_of_this_thread();
        }
        for state in self.states() {
            if own.is_some_and(|own| ptr::eq(state, own)) || !state.owned.load(Ordering::Relaxed) {
                continue;
            }
            state.forget_words();
            state.left.store(true, Ordering::Relaxed);
            state.busy.store(0, Ordering::Relaxed);
            state.leaving.store(false, Ordering::Relaxed);
            state.owned.store(false, Ordering::Release);
        }
        self.deferred.orphan(places(self.gate.load(Ordering::Relaxed)));
        self.forks.store(u32::from(held == Held::Paused), Ordering::Relaxed);
        self.forks_to_come.store(0, Ordering::Relaxed);
        self.fork_awaits_libc.store(false, Ordering::Relaxed);
        let pauser = self.pausing.load(Ordering::Relaxed);
        // Another pauser, or a thread about to become one, does not exist here.
        let is_own_turn = own.is_some_and(|own| ptr::eq(pauser, own));
        if !held.is_for_forks() && !is_own_turn {
            self.resets.fetch_and(!1, Ordering::Relaxed);
            self.pausing.store(ptr::null_mut(), Ordering::Release);
        }
        if held == Held::NotPaused {
            // Recording what was written down would need locks whose holders do not exist here.
            self.deferred.forget();
            if !is_own_turn {
                self.gate.store(0, Ordering::SeqCst);
            }
        }
    }
}
