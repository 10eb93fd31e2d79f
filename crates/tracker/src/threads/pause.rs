//! The pause: closing the gate, waiting for the other threads, and opening it again. See [`super`].

use core::ptr;
use core::sync::atomic::{Ordering, fence};

use super::starved::Wait;
use super::{CLOSED, NEWCOMER, PAUSE_STACK_BYTES, ThreadState, Threads, places, words};
use crate::deferred::Effort;
use crate::lock::{sleep, wait_briefly, wait_round};
use crate::mmap::Errno;
use crate::stack;

/// Sleeps of a reader of figures until another reader is done: 2.5 seconds at least.
const SLEEPS_FOR_TURN: u32 = 50_000;
/// Sleeps of a pauser until all threads have finished what they are recording: a quarter of a second at least.
const SLEEPS_FOR_OTHERS: u32 = 5_000;
/// The same for each event that another thread is about to write down: a second at least. After that it counts as dropped.
const SLEEPS_FOR_WRITERS: u32 = 20_000;
/// Sleeps of a thread that reads its own figures until all events are recorded: a twentieth of a second at least.
const SLEEPS_TO_CATCH_UP: u32 = 1_000;
/// Stack between a pause and the caller that wants it.
const CALLERS_BYTES: usize = 4096;
/// Number of times that a thread inside malloc checks the other threads before it goes on without opening the gate.
pub(super) const CHECKS: u32 = 100;

impl Threads {
    /// Waits until no thread is busy, and keeps it so until the result is dropped. `own` is the caller's state, which
    /// becomes busy, so the caller's allocations are not tracked meanwhile. `None` if the caller is busy already, if
    /// it has interrupted its own thread while that wrote an event down, or if another thread does not finish within
    /// seconds.
    pub fn pause<'a>(&'a self, own: &'a ThreadState) -> Option<Paused<'a>> {
        self.pause_for(own, SLEEPS_FOR_TURN)
    }

    /// As [`Threads::pause`], but with at most about `sleeps` sleeps of 50 µs, because a signal handler must not
    /// hang.
    pub fn pause_for<'a>(&'a self, own: &'a ThreadState, sleeps: u32) -> Option<Paused<'a>> {
        stack::touch::<PAUSE_STACK_BYTES>();
        if own.is_busy() {
            self.look_whether_torn(own, stack::pointer());
            return None;
        }
        if own.is_noting() || !self.take_turn(own, sleeps) {
            return None;
        }
        // The pause outlives this function's stack frame.
        own.busy.store(stack::pointer().wrapping_add(CALLERS_BYTES), Ordering::Relaxed);
        // What an earlier pauser has left belongs to the figures.
        let effort =
            if sleeps == 0 { Effort::Whole } else { Effort::Patient(sleeps.min(SLEEPS_FOR_WRITERS)) };
        if self.still(own, sleeps.min(SLEEPS_FOR_OTHERS))
            && self.record_written(own, self.gate.load(Ordering::Acquire), effort)
        {
            return Some(Paused { threads: self, own, opens: true });
        }
        self.give_up(own);
        None
    }

    /// As [`Threads::pause`] in a frozen copy of the process, which has this thread alone. `None` if another thread was
    /// recording at the copy's instant: it never ends that. What was written down is recorded, and the gate stays as it is:
    /// no other thread is there to come through it, and the thread that opens it may have to call the allocator.
    pub fn pause_in_copy<'a>(&'a self, own: &'a ThreadState) -> Option<Paused<'a>> {
        stack::touch::<PAUSE_STACK_BYTES>();
        if own.is_noting() || !self.is_still(own) {
            return None;
        }
        own.busy.store(stack::pointer().wrapping_add(CALLERS_BYTES), Ordering::Relaxed);
        let gate = self.gate.load(Ordering::Acquire);
        // A thread that has not written to its place yet never will.
        self.deferred.orphan(places(gate));
        self.record_written(own, gate, Effort::Whole);
        Some(Paused { threads: self, own, opens: false })
    }

    /// Becomes the pauser. `false`: another thread stays the pauser, or the caller is a signal handler that has
    /// interrupted the pauser.
    pub(super) fn take_turn(&self, own: &ThreadState, sleeps: u32) -> bool {
        let own = ptr::from_ref(own).cast_mut();
        let mut rounds = 0;
        loop {
            // A thread that reads all the time must not keep a fork waiting.
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

    /// Closes the gate, and waits until all other threads have finished what they are recording. The caller is the
    /// pauser.
    pub(super) fn still(&self, own: &ThreadState, sleeps: u32) -> bool {
        self.gate.fetch_or(CLOSED, Ordering::SeqCst);
        self.barrier();
        let mut wait = Wait::new(self, own, sleeps);
        while !self.is_still(own) {
            if !wait.round(wait_briefly) {
                return false;
            }
        }
        true
    }

    /// Whether no other thread is busy.
    pub(super) fn is_still(&self, own: &ThreadState) -> bool {
        // Acquire: what that thread did while busy is seen.
        self.states().all(|state| ptr::eq(state, own) || state.busy.load(Ordering::Acquire) == 0)
    }

    /// The pauser gives up without having paused the world. The gate stays closed if something was written down.
    pub(super) fn give_up(&self, own: &ThreadState) {
        own.busy.store(0, Ordering::Release);
        self.leave(ptr::from_ref(own).cast_mut());
    }

    pub(super) fn end_turn(&self, own: &ThreadState) {
        own.busy.store(0, Ordering::Release);
        self.pausing.store(ptr::null_mut(), Ordering::Release);
    }

    /// Opens the gate if its pauser has left it closed and no thread is busy. Does not wait, apart from `checks` checks,
    /// unless the queue is full.
    pub(super) fn open_if_abandoned(&self, own: &ThreadState, checks: u32, effort: Effort) -> bool {
        stack::touch::<PAUSE_STACK_BYTES>();
        let pointer = ptr::from_ref(own).cast_mut();
        // A plain read comes first, because it costs nothing.
        if own.is_noting()
            || !self.pausing.load(Ordering::Relaxed).is_null()
            || self
                .pausing
                .compare_exchange(ptr::null_mut(), pointer, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        let gate = self.gate.load(Ordering::Acquire);
        if gate == 0 || self.deferred.is_held_up(places(gate), effort) {
            // Another thread may have opened the gate. If not, it stays closed from here on, because only the pauser
            // opens it.
            self.pausing.store(ptr::null_mut(), Ordering::Release);
            return gate == 0;
        }
        own.busy.store(stack::pointer(), Ordering::Relaxed);
        self.barrier();
        let is_still = (0..checks).any(|_| {
            core::hint::spin_loop();
            self.is_still(own)
        });
        let is_open = is_still && self.open(own, effort);
        self.end_turn(own);
        is_open
    }

    /// Records what was written down, and opens the gate. `false`: some of it is left to the next thread that comes, and the
    /// gate stays closed. The caller is the pauser, and no other thread is busy.
    pub(super) fn open(&self, own: &ThreadState, effort: Effort) -> bool {
        let mut gate = self.gate.load(Ordering::Acquire);
        while gate != 0 {
            if !self.record_written(own, gate, effort) {
                self.opening.store(false, Ordering::Relaxed);
                return false;
            }
            self.deferred.tidy(places(gate), words(gate));
            let is_unusual = self.fences.load(Ordering::Relaxed) || self.settle().is_unusual();
            self.unusual.store(u32::from(is_unusual), Ordering::Relaxed);
            // The request of a new thread has been met, unless it is made only now: then this fails.
            match self.gate.compare_exchange(gate, 0, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => {
                    self.opening.store(false, Ordering::Relaxed);
                    // A signal handler may have closed the gate again at once, and forked.
                    self.deferred.restart(self.gate.load(Ordering::Relaxed) == 0);
                    self.take_back_leaving();
                    return true;
                }
                Err(now) => {
                    // Threads that write events down as fast as they are recorded would keep this one for long.
                    self.opening.store(true, Ordering::Relaxed);
                    gate = now;
                }
            }
        }
        true
    }

    /// Records what was written down so far, as far as the caller goes with that. `false`: there is more. The caller is the
    /// pauser, and no other thread is busy.
    fn record_written(&self, own: &ThreadState, gate: u64, effort: Effort) -> bool {
        self.settle().settle();
        self.deferred.read(places(gate), effort, |event, path| self.settle().record(own, event, path))
    }

    /// Adds the counters of threads that have ended and could not do so, after their last events have been recorded.
    fn take_back_leaving(&self) {
        for state in self.states().filter(|state| state.is_leaving()) {
            self.take_back(state);
            state.leaving.store(false, Ordering::Relaxed);
            // Release: the next owner sees a clean state.
            state.owned.store(false, Ordering::Release);
        }
    }

    /// Tells the other threads of a thread that is about to record for the first time: closes the gate until a thread
    /// has called [`super::Settle::settle`]. Does not wait for that.
    #[cold]
    pub fn announce(&self, own: &ThreadState) {
        self.gate.fetch_or(CLOSED | NEWCOMER, Ordering::SeqCst);
        self.open_if_abandoned(own, CHECKS, Effort::Brief);
    }

    /// Waits a moment until all events are recorded, for a thread that reads its own figures.
    pub fn catch_up(&self, own: &ThreadState) {
        let mut rounds = 0;
        while self.is_closed() && !own.is_busy() && !self.open_if_abandoned(own, CHECKS, Effort::Whole) {
            if !wait_round(&mut rounds, SLEEPS_TO_CATCH_UP) {
                return;
            }
        }
    }

    /// Makes all other threads' stores visible to this one, and its stores to them. If the kernel no longer does that
    /// (because a seccomp filter was added), each operation executes a fence of its own from here on, and operations
    /// under way get some time to finish.
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
            self.set_fences(true);
            // A processor's stores become visible within microseconds.
            sleep(5_000_000);
        }
    }
}

/// While this lives, no other thread is busy.
#[derive(Debug)]
pub struct Paused<'a> {
    threads: &'a Threads,
    own: &'a ThreadState,
    /// False in a copy of the process.
    opens: bool,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if !self.opens {
            return;
        }
        let errno = Errno::save();
        self.threads.open(self.own, Effort::Whole);
        self.threads.end_turn(self.own);
        drop(errno);
    }
}
