//! Per-thread state, and the pause that makes a reading exact.
//!
//! A thread is *busy* while it changes the table or its counters. It says so with a plain store; whoever wants the
//! world to stand still closes the gate, issues a process-wide memory barrier (`membarrier`, Linux 4.14) and waits
//! until nobody is busy. So the fast path has no fence and no shared write, and the pauser pays for both.
//!
//! Being busy is also the guard against re-entry: what a thread allocates while it is busy is not tracked.
//!
//! Rules for neighbours: never block, allocate or call foreign code that may do so while busy; never pause while
//! busy. States are never given back to the kernel: a dead thread's state serves the next thread.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

use crate::counters::CounterCache;
use crate::estimate::Estimate;
use crate::lock::relax;
use crate::mmap::{self, Errno};
use crate::sampler::Sampler;
use crate::sites::SiteCache;

/// How often a reader looks again when figures are being reset.
const MOST_TRIES: u32 = 10_000;

/// What one thread did.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes asked for.
    pub allocated_bytes: AtomicU64,
    /// Bytes of tracked blocks given back.
    pub freed_bytes: AtomicU64,
    /// Allocations.
    pub allocations: AtomicU64,
    /// Frees of tracked blocks.
    pub frees: AtomicU64,
    /// Frees found missing.
    pub missed_frees: AtomicU64,
    /// Allocations that could not be followed.
    pub dropped: AtomicU64,
}

impl Traffic {
    fn all(&self) -> [&AtomicU64; 6] {
        [
            &self.allocated_bytes,
            &self.freed_bytes,
            &self.allocations,
            &self.frees,
            &self.missed_frees,
            &self.dropped,
        ]
    }

    /// Makes the figures those of `other`, as they are now.
    fn copy(&self, other: &Self) {
        for (to, from) in self.all().into_iter().zip(other.all()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// All zero again.
    fn reset(&self) {
        for figure in self.all() {
            figure.store(0, Ordering::Relaxed);
        }
    }
}

/// Adds to a figure that only the calling thread writes: a load and a store, no locked instruction.
#[inline]
pub fn bump(figure: &AtomicU64, amount: u64) {
    figure.store(figure.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// What a thread carries. All-zero memory is a valid, unowned state.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ThreadState {
    busy: AtomicBool,
    owned: AtomicBool,
    /// Depth of "do not track my allocations".
    pub untracked: Cell<u32>,
    /// Depth of calls into an allocator function that itself calls one (operator new calls malloc).
    pub nested: Cell<u32>,
    next: AtomicPtr<ThreadState>,
    /// The traffic of all threads that have had this state, since the last start or clear. It only grows, so that
    /// sums can be read at any time: a thread's figures do not move when it ends.
    pub traffic: Traffic,
    /// What of it is from the owner's predecessors.
    pub inherited: Traffic,
    /// Sampling.
    pub sampler: Sampler,
    /// The owner's sampled blocks since the last start or clear.
    pub estimate: Estimate,
    /// The owner's thread-local distance, while it has one.
    pub distance: Cell<*mut u64>,
    /// Shortcut to site numbers.
    pub sites: SiteCache,
    /// Counters not yet shared.
    pub counters: CounterCache,
}

impl ThreadState {
    /// What the next owner must not find.
    fn forget_owner(&self) {
        self.sites.discard();
        self.untracked.set(0);
        self.nested.set(0);
        self.sampler.forget();
        self.estimate.reset();
        self.distance.set(ptr::null_mut());
    }

    /// Whether a thread has it now.
    pub fn is_owned(&self) -> bool {
        self.owned.load(Ordering::Acquire)
    }
}

/// All threads' states.
#[derive(Debug)]
pub struct Threads {
    first: AtomicPtr<ThreadState>,
    gate: AtomicU32,
    pausing: AtomicBool,
    fences: AtomicBool,
    /// Counts the beginnings and ends of resets: odd while figures are being set to zero.
    resets: AtomicU32,
}

// SAFETY: the cells of a state are touched by its owner, or by whoever has paused the world.
unsafe impl Sync for Threads {}

impl Threads {
    /// No threads yet.
    pub const fn new() -> Self {
        Self {
            first: AtomicPtr::new(ptr::null_mut()),
            gate: AtomicU32::new(0),
            pausing: AtomicBool::new(false),
            fences: AtomicBool::new(true),
            resets: AtomicU32::new(0),
        }
    }

    /// Sets all traffic to zero. The world is paused.
    pub fn reset_traffic(&self) {
        self.resets.fetch_add(1, Ordering::SeqCst);
        for state in self.states() {
            state.traffic.reset();
            state.inherited.reset();
            state.estimate.reset();
        }
        self.resets.fetch_add(1, Ordering::SeqCst);
    }

    /// What `read` answers when no reset came between: figures of two lives do not belong together. Who has interrupted
    /// a reset gets what there is, after some tries.
    pub fn between_resets<R>(&self, read: impl Fn() -> R) -> R {
        let mut spins = 0;
        while spins < MOST_TRIES {
            let before = self.resets.load(Ordering::Acquire);
            let answer = read();
            // The figures are read before the counter is read again.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.resets.load(Ordering::Relaxed) == before {
                return answer;
            }
            relax(&mut spins);
        }
        read()
    }

    /// Asks the kernel for process-wide barriers. Without them (old kernels, strict seccomp filters) every
    /// operation pays for a fence of its own. To be called again in a forked child.
    pub fn register(&self) {
        let errno = Errno::save();
        // SAFETY: membarrier touches no memory of ours.
        let answer = unsafe {
            libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)
        };
        drop(errno);
        self.fences.store(answer != 0, Ordering::SeqCst);
    }

    /// A state for the calling thread: a dead thread's, else a new one. `None` when there is no memory.
    #[cold]
    pub fn acquire(&self) -> Option<NonNull<ThreadState>> {
        let mut next = self.first.load(Ordering::Acquire);
        while let Some(state) = NonNull::new(next) {
            // SAFETY: states are never unmapped.
            let state_ref = unsafe { state.as_ref() };
            // Acquire: what the last owner left is seen.
            if state_ref.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                state_ref.inherited.copy(&state_ref.traffic);
                return Some(state);
            }
            next = state_ref.next.load(Ordering::Acquire);
        }
        let state: NonNull<ThreadState> = mmap::map(size_of::<ThreadState>())?.cast();
        // SAFETY: freshly mapped zeroes are a valid state.
        let state_ref = unsafe { state.as_ref() };
        state_ref.owned.store(true, Ordering::Relaxed);
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            state_ref.next.store(first, Ordering::Relaxed);
            // Release: whoever walks the list sees a complete state.
            match self.first.compare_exchange_weak(
                first,
                state.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(state),
                Err(now) => first = now,
            }
        }
    }

    /// Gives a state back when its thread ends. Its counters go to the shared ones through `flush`.
    pub fn release(&self, state: &ThreadState, flush: impl FnOnce(&CounterCache)) {
        let Some(busy) = self.enter(state) else { return };
        flush(&state.counters);
        state.forget_owner();
        drop(busy);
        // Release: the next owner sees a clean state.
        state.owned.store(false, Ordering::Release);
    }

    /// Becomes busy, or answers `None` if this thread already is.
    #[inline]
    pub fn enter<'a>(&self, state: &'a ThreadState) -> Option<Busy<'a>> {
        if state.busy.load(Ordering::Relaxed) {
            return None;
        }
        state.busy.store(true, Ordering::Relaxed);
        // The pauser's membarrier makes this order visible; the compiler must keep it too.
        compiler_fence(Ordering::SeqCst);
        if self.fences.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
        if self.gate.load(Ordering::Relaxed) != 0 {
            self.wait_at_gate(state);
        }
        Some(Busy { state })
    }

    #[cold]
    fn wait_at_gate(&self, state: &ThreadState) {
        let errno = Errno::save();
        loop {
            // Release: the pauser sees all that was done while busy.
            state.busy.store(false, Ordering::Release);
            // SAFETY: the word lives as long as the process; a spurious return only goes round the loop.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.gate.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    1,
                    ptr::null::<libc::timespec>(),
                );
            }
            state.busy.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.gate.load(Ordering::Acquire) == 0 {
                break;
            }
        }
        drop(errno);
    }

    /// Waits until nobody is busy and keeps it so until the answer is dropped. `own` is the caller's state, which
    /// becomes busy: what the caller allocates meanwhile is not tracked. `None` if the caller is busy already.
    pub fn pause<'a>(&'a self, own: &'a ThreadState) -> Option<Paused<'a>> {
        self.pause_for(own, u32::MAX)
    }

    /// As [`Threads::pause`], but gives up after about `rounds` rounds of waiting (a signal handler must not hang).
    pub fn pause_for<'a>(&'a self, own: &'a ThreadState, rounds: u32) -> Option<Paused<'a>> {
        if own.busy.load(Ordering::Relaxed) {
            return None;
        }
        let errno = Errno::save();
        let mut waited = 0u32;
        let mut spins = 0u32;
        while self.pausing.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            relax(&mut spins);
            waited = waited.saturating_add(1);
            if waited > rounds {
                return None;
            }
        }
        own.busy.store(true, Ordering::Relaxed);
        self.gate.store(1, Ordering::SeqCst);
        if self.fences.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        } else {
            // SAFETY: membarrier touches no memory of ours.
            unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) };
        }
        let paused = Paused { threads: self, own };
        for state in self.states() {
            // Acquire: what that thread did while busy is seen.
            while !ptr::eq(state, own) && state.busy.load(Ordering::Acquire) {
                relax(&mut spins);
                waited = waited.saturating_add(1);
                if waited > rounds {
                    return None;
                }
            }
        }
        drop(errno);
        Some(paused)
    }

    /// Every state there is, owned or not. Its cells may be read only while paused.
    pub fn states(&self) -> impl Iterator<Item = &ThreadState> {
        let mut next = self.first.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: states are never unmapped.
            let state = unsafe { next.as_ref() }?;
            next = state.next.load(Ordering::Acquire);
            Some(state)
        })
    }

    /// In a forked child, if the world was not paused by the forking thread: whoever paused it is not here.
    pub fn forget_pause(&self) {
        self.resets.fetch_and(!1, Ordering::Relaxed);
        self.gate.store(0, Ordering::Release);
        self.pausing.store(false, Ordering::Release);
    }

    /// In a forked child only its own thread is left: the others' states are emptied and free for reuse.
    pub fn forget_others(&self, own: Option<&ThreadState>, mut flush: impl FnMut(&CounterCache)) {
        for state in self.states() {
            if own.is_some_and(|own| ptr::eq(state, own)) || !state.owned.load(Ordering::Relaxed) {
                continue;
            }
            flush(&state.counters);
            state.forget_owner();
            state.busy.store(false, Ordering::Relaxed);
            state.owned.store(false, Ordering::Release);
        }
    }
}

impl Default for Threads {
    fn default() -> Self {
        Self::new()
    }
}

/// While it lives, its thread is busy.
#[derive(Debug)]
pub struct Busy<'a> {
    state: &'a ThreadState,
}

impl Drop for Busy<'_> {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        // Release: the pauser sees all that was done while busy.
        self.state.busy.store(false, Ordering::Release);
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
        self.own.busy.store(false, Ordering::Release);
        // Release: whoever passes the gate sees what was changed during the pause.
        self.threads.gate.store(0, Ordering::Release);
        // SAFETY: waking waiters of a word that lives as long as the process.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.threads.gate.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
            );
        }
        self.threads.pausing.store(false, Ordering::Release);
        drop(errno);
    }
}
