//! The pause that threads share which fork at the same time. See [`super`].

use core::ptr;
use core::sync::atomic::Ordering;

use super::{CLOSED, PAUSE_STACK_BYTES, ThreadState, Threads, places};
use crate::lock::wait_round;
use crate::stack;

/// How the world is while a thread forks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// Somebody did not finish in time. All-zero memory says so.
    #[default]
    NotPaused,
    /// Paused for all threads that fork now; the last one ends it.
    Paused,
    /// Paused. A signal handler forks that interrupted its thread while that recorded. Nobody takes part in this pause: in the
    /// child of another thread, the recording would never come to its end.
    OverRecording,
    /// Paused. A signal handler forks that interrupted its thread in a pause, which is for that to end.
    OverPause,
}

impl Held {
    /// Whether the pause is there for forks, and for them to end.
    #[must_use]
    pub fn is_for_forks(self) -> bool {
        matches!(self, Self::Paused | Self::OverRecording)
    }
}

impl Threads {
    /// Before a fork, if others fork already: takes part in their pause. It is left to them that nobody waits for the end of it
    /// for long: not if so much has been written down meanwhile that it should come to one.
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

    /// Whether this thread is the pauser: asked by itself.
    pub fn is_pauser(&self, own: &ThreadState) -> bool {
        ptr::eq(self.pausing.load(Ordering::Relaxed), own)
    }

    /// Before a fork: pauses the world, sleeping at most so many times 50 µs for another's pause and for what others record.
    /// Unlike [`Threads::pause`] it may be called by a signal handler on top of anything; and the forking thread is
    /// not busy: what it does meanwhile is written down as everybody's.
    pub fn hold_for_fork(&self, own: &ThreadState, sleeps: u32) -> Held {
        stack::touch::<PAUSE_STACK_BYTES>();
        if self.is_pauser(own) {
            return if self.still(own, sleeps) { Held::OverPause } else { Held::NotPaused };
        }
        self.forks_to_come.fetch_add(1, Ordering::Relaxed);
        let held = self.take_turn_for_forks(own, sleeps);
        self.forks_to_come.fetch_sub(1, Ordering::Relaxed);
        held
    }

    fn take_turn_for_forks(&self, own: &ThreadState, sleeps: u32) -> Held {
        let forkers = self.forkers();
        let mut rounds = 0;
        while self
            .pausing
            .compare_exchange(ptr::null_mut(), forkers, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            if self.join_forks() {
                return Held::Paused;
            }
            if !wait_round(&mut rounds, sleeps) {
                return Held::NotPaused;
            }
        }
        if self.still(own, sleeps) {
            if own.is_busy() {
                return Held::OverRecording;
            }
            // Release: who joins finds the world paused.
            self.forks.store(1, Ordering::Release);
            return Held::Paused;
        }
        self.leave(forkers);
        Held::NotPaused
    }

    /// After a fork, in either process: ends what [`Threads::hold_for_fork`] or [`Threads::join_forks`] began. `last` is called
    /// by the last one, before the world goes on.
    pub fn release_after_fork(&self, own: &ThreadState, held: Held, last: impl FnOnce()) {
        let is_last = match held {
            Held::Paused => self.forks.fetch_sub(1, Ordering::AcqRel) == 1,
            held => held == Held::OverRecording,
        };
        if !is_last {
            return;
        }
        last();
        let forkers = self.forkers();
        if own.is_busy() || own.is_noting() {
            // It was interrupted while recording or writing down: whoever comes later records what was written down.
            return self.leave(forkers);
        }
        own.busy.store(stack::pointer(), Ordering::Relaxed);
        self.open(own);
        self.end_turn(own);
    }

    /// Who is the pauser while threads fork: nobody's state.
    fn forkers(&self) -> *mut ThreadState {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The pauser goes away: the gate stays closed if something was written down.
    pub(super) fn leave(&self, pauser: *mut ThreadState) {
        let _ = self.gate.compare_exchange(CLOSED, 0, Ordering::SeqCst, Ordering::Relaxed);
        let _ = self.pausing.compare_exchange(pauser, ptr::null_mut(), Ordering::Release, Ordering::Relaxed);
    }

    /// In a forked child, before [`Threads::release_after_fork`]: only its own thread is left. The others' counters come
    /// home, and their states are free for reuse.
    pub fn forget_others(&self, own: Option<&ThreadState>, held: Held) {
        self.words.force_open();
        for state in self.states() {
            if own.is_some_and(|own| ptr::eq(state, own)) || !state.owned.load(Ordering::Relaxed) {
                continue;
            }
            self.take_back(state);
            state.busy.store(0, Ordering::Relaxed);
            state.leaving.store(false, Ordering::Relaxed);
            state.owned.store(false, Ordering::Release);
        }
        self.deferred.orphan(places(self.gate.load(Ordering::Relaxed)));
        self.forks.store(u32::from(held == Held::Paused), Ordering::Relaxed);
        self.forks_to_come.store(0, Ordering::Relaxed);
        let pauser = self.pausing.load(Ordering::Relaxed);
        // Whoever else was the pauser, or about to be, is not here.
        let is_own_turn = own.is_some_and(|own| ptr::eq(pauser, own));
        if !held.is_for_forks() && !is_own_turn {
            self.resets.fetch_and(!1, Ordering::Relaxed);
            self.pausing.store(ptr::null_mut(), Ordering::Release);
        }
        if held == Held::NotPaused {
            // What was written down would be recorded under locks whose holders are not here.
            self.deferred.forget();
            if !is_own_turn {
                self.gate.store(0, Ordering::SeqCst);
            }
        }
    }
}
