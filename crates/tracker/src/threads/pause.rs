//! The pause: who closes the gate, waits for the others, and opens it again. See [`super`].

use core::ptr;
use core::sync::atomic::{Ordering, fence};

use super::{CLOSED, NEWCOMER, PAUSE_STACK_BYTES, ThreadState, Threads, places, words};
use crate::lock::{sleep, wait_round};
use crate::mmap::Errno;
use crate::stack;

/// Sleeps of somebody who reads figures, until another reader is done: 2.5 seconds at least.
const SLEEPS_FOR_TURN: u32 = 50_000;
/// Sleeps of a pauser until all have finished what they are recording: a quarter of a second at least.
const SLEEPS_FOR_OTHERS: u32 = 5_000;
/// What lies on the stack between a pause and whoever wants it.
const CALLERS_BYTES: usize = 4096;
/// Looks at the others before somebody inside malloc goes on without.
pub(super) const LOOKS: u32 = 100;

impl Threads {
    /// Waits until nobody is busy and keeps it so until the answer is dropped. `own` is the caller's state, which
    /// becomes busy: what the caller allocates meanwhile is not tracked. `None` if the caller is busy already or writes an event
    /// down, which it has interrupted, or if somebody else does not finish within seconds.
    pub fn pause<'a>(&'a self, own: &'a ThreadState) -> Option<Paused<'a>> {
        self.pause_for(own, SLEEPS_FOR_TURN)
    }

    /// As [`Threads::pause`], but sleeps at most about `sleeps` times 50 µs (a signal handler must not hang).
    pub fn pause_for<'a>(&'a self, own: &'a ThreadState, sleeps: u32) -> Option<Paused<'a>> {
        stack::touch::<PAUSE_STACK_BYTES>();
        if own.is_busy() {
            self.look_whether_torn(own, stack::pointer());
            return None;
        }
        if own.is_noting() || !self.take_turn(own, sleeps) {
            return None;
        }
        // The pause outlives this function's part of the stack.
        own.busy.store(stack::pointer().wrapping_add(CALLERS_BYTES), Ordering::Relaxed);
        if self.still(own, sleeps.min(SLEEPS_FOR_OTHERS)) {
            return Some(Paused { threads: self, own });
        }
        self.give_up(own);
        None
    }

    /// Becomes the pauser. `false`: somebody else stays it, or the caller is it already, interrupted by a signal handler.
    pub(super) fn take_turn(&self, own: &ThreadState, sleeps: u32) -> bool {
        let own = ptr::from_ref(own).cast_mut();
        let mut rounds = 0;
        loop {
            // Who reads all the time must not keep a fork waiting.
            if self.forks_to_come.load(Ordering::Relaxed) > 0 && !wait_round(&mut rounds, sleeps) {
                return false;
            }
            match self.pausing.compare_exchange(ptr::null_mut(), own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) if now == own || !wait_round(&mut rounds, sleeps) => return false,
                Err(_) => {}
            }
        }
    }

    /// Closes the gate, and waits until all others have finished what they are recording. The caller is the pauser.
    pub(super) fn still(&self, own: &ThreadState, sleeps: u32) -> bool {
        self.gate.fetch_or(CLOSED, Ordering::SeqCst);
        self.barrier();
        let mut rounds = 0;
        while !self.is_still(own) {
            if !wait_round(&mut rounds, sleeps) {
                return false;
            }
        }
        true
    }

    /// Whether nobody else is busy.
    pub(super) fn is_still(&self, own: &ThreadState) -> bool {
        // Acquire: what that thread did while busy is seen.
        self.states().all(|state| ptr::eq(state, own) || state.busy.load(Ordering::Acquire) == 0)
    }

    /// The pauser goes away without having had the world to itself: the gate stays closed if something was written down.
    pub(super) fn give_up(&self, own: &ThreadState) {
        own.busy.store(0, Ordering::Release);
        self.leave(ptr::from_ref(own).cast_mut());
    }

    pub(super) fn end_turn(&self, own: &ThreadState) {
        own.busy.store(0, Ordering::Release);
        self.pausing.store(ptr::null_mut(), Ordering::Release);
    }

    /// Opens the gate if whoever closed it has gone and nobody is busy. Does not wait, but for some looks.
    pub(super) fn open_if_abandoned(&self, own: &ThreadState, looks: u32) -> bool {
        stack::touch::<PAUSE_STACK_BYTES>();
        let pointer = ptr::from_ref(own).cast_mut();
        // A look first, which costs nothing.
        if own.is_noting()
            || !self.pausing.load(Ordering::Relaxed).is_null()
            || self
                .pausing
                .compare_exchange(ptr::null_mut(), pointer, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        if self.gate.load(Ordering::Acquire) == 0 {
            // Somebody else has opened it. Otherwise it stays closed from here on: only the pauser opens it.
            self.pausing.store(ptr::null_mut(), Ordering::Release);
            return true;
        }
        own.busy.store(stack::pointer(), Ordering::Relaxed);
        self.barrier();
        let is_still = (0..looks).any(|_| {
            core::hint::spin_loop();
            self.is_still(own)
        });
        if is_still {
            self.open(own);
        }
        self.end_turn(own);
        is_still
    }

    /// Records what was written down, and opens the gate. The caller is the pauser, and nobody else is busy.
    pub(super) fn open(&self, own: &ThreadState) {
        let mut gate = self.gate.load(Ordering::Acquire);
        while gate != 0 {
            self.settle().settle();
            self.deferred.read(places(gate), |event, path| self.settle().record(own, event, path));
            self.deferred.tidy(places(gate), words(gate));
            // A newcomer's wish has been fulfilled, unless it comes only now: then this fails.
            match self.gate.compare_exchange(gate, 0, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => {
                    // A signal handler may have closed it again at once, and forked.
                    self.deferred.restart(self.gate.load(Ordering::Relaxed) == 0);
                    return self.take_back_leaving();
                }
                Err(now) => gate = now,
            }
        }
    }

    /// Brings home what threads that have ended could not, once their last events are recorded.
    fn take_back_leaving(&self) {
        for state in self.states().filter(|state| state.leaving.load(Ordering::Acquire)) {
            self.take_back(state);
            state.leaving.store(false, Ordering::Relaxed);
            // Release: the next owner sees a clean state.
            state.owned.store(false, Ordering::Release);
        }
    }

    /// Has the others know of a thread that is about to record for the first time: closes the gate until somebody has called
    /// [`super::Settle::settle`]. Does not wait for that.
    #[cold]
    pub fn announce(&self, own: &ThreadState) {
        self.gate.fetch_or(CLOSED | NEWCOMER, Ordering::SeqCst);
        self.open_if_abandoned(own, LOOKS);
    }

    /// Waits a moment until nothing is left to be recorded: for who reads figures of their own.
    pub fn catch_up(&self, own: &ThreadState) {
        let mut rounds = 0;
        while self.is_closed() && !own.is_busy() && !self.open_if_abandoned(own, LOOKS) {
            if !wait_round(&mut rounds, LOOKS) {
                return;
            }
        }
    }

    /// Makes all other threads' stores visible, and ours to them. Where the kernel no longer does that (a seccomp filter
    /// that came later), every operation pays for a fence of its own from here on, and what is under way is given time.
    pub(super) fn barrier(&self) {
        if self.fences.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
            return;
        }
        let _errno = Errno::save();
        // SAFETY: membarrier touches no memory of ours.
        let answer =
            unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) };
        if answer != 0 {
            self.fences.store(true, Ordering::SeqCst);
            // A processor's stores become visible within microseconds.
            sleep(5_000_000);
        }
    }
}

/// While it lives, no other thread is busy.
#[derive(Debug)]
pub struct Paused<'a> {
    threads: &'a Threads,
    own: &'a ThreadState,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let errno = Errno::save();
        self.threads.open(self.own);
        self.threads.end_turn(self.own);
        drop(errno);
    }
}
