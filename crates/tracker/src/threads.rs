//! Per-thread state, and the pause that makes a reading exact.
//!
//! A thread is *busy* while it changes the table or its counters, and stores that in a word of its own. A thread that
//! wants to pause the world closes the gate, issues a process-wide memory barrier (`membarrier`, Linux 4.14) and
//! waits until no thread is busy. So the fast path has no fence and no shared write; only the pauser pays.
//!
//! Being busy also prevents re-entry: allocations of a busy thread are not tracked.
//!
//! **No thread waits at the gate inside malloc.** The caller may hold any lock of the program or libc, and the thread
//! that has closed the gate may be waiting for that lock: `fork` does. Events while the gate is closed are written
//! down ([`crate::deferred`]), and the thread that opens the gate records them first.
//!
//! | word | who writes it | says |
//! |---|---|---|
//! | [`ThreadState`]'s `busy` | its thread | it is in the middle of recording |
//! | `gate` | anybody closes it, only the pauser opens it | whether to record or to write down, and how much has been |
//! | `pausing` | any thread, while it is free | the thread that is the pauser |
//!
//! If the other threads do not finish in time, the pauser gives up, and leaves the gate closed if something has been
//! written down. The next thread that comes to such a gate becomes the pauser, if no thread is busy then.
//!
//! Rules for neighbours: never block, allocate or call foreign code that may do so while busy; never pause while
//! busy. States are never unmapped: the state of a thread that has ended is reused for the next thread.

mod fast;
mod forks;
mod note;
mod owners;
mod pause;
mod starved;
mod traffic;

use core::cell::{Cell, UnsafeCell};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};

use crate::births::Measuring;
use crate::counters::CounterCache;
use crate::deferred::{Deferred, Effort, Event};
use crate::estimate::Estimate;
use crate::lock::{SpinLock, wait_round};
use crate::mmap::Errno;
use crate::sampler::Sampler;
use crate::sites::{SiteCache, StackCache};
use crate::stack;
pub use forks::Held;
pub use note::Noted;
pub use pause::Paused;
pub use traffic::{Traffic, bump};

/// How often a reader reads again when figures are being reset.
const MOST_TRIES: u32 = 10_000;
/// Stack that the hook may need to record an event.
const STACK_BYTES: usize = 1024;
/// Stack that a pause may need, with what is recorded at its end.
const PAUSE_STACK_BYTES: usize = 2048;

/// Bits of the gate: closed; closed by a thread that must not record before others know of it; the number of events
/// that were written down (24 bits) and of words of their paths (32 bits).
const CLOSED: u64 = 1 << 63;
const NEWCOMER: u64 = 1 << 62;
const PLACE_SHIFT: u32 = 32;
const PLACE_MASK: u64 = (1 << 24) - 1;

/// Number of events that were written down, from the gate.
fn places(gate: u64) -> u32 {
    (gate >> PLACE_SHIFT & PLACE_MASK) as u32
}

/// Number of words of paths, from the gate.
fn words(gate: u64) -> u32 {
    gate as u32
}

/// The state of a thread. All-zero memory is a valid state without an owner.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ThreadState {
    /// 0, or the stack pointer when its thread became busy.
    busy: AtomicUsize,
    owned: AtomicBool,
    /// Its thread has ended, and could not release the state.
    leaving: AtomicBool,
    /// Its owner does not exist in this process, which was forked. What it has counted is the next owner's to take back.
    left: AtomicBool,
    /// 0, or the stack pointer when its thread began to write an event down.
    noting: AtomicUsize,
    /// The kernel's number of its thread.
    tid: AtomicU32,
    /// Number of nested forks of its thread (by signal handlers), and how the outermost one found the world.
    pub forks: Cell<u32>,
    /// See [`ThreadState::forks`].
    pub held: Cell<Held>,
    /// Depth of nested untracked sections.
    pub untracked: Cell<u32>,
    /// The stack pointer at the outermost call into an allocator function that itself calls another one (operator new
    /// calls malloc); 0: there is none.
    pub nested: Cell<usize>,
    /// The call site, plus 1, and the size of a block that has been taken out while the allocator moves it; zeroes: there is
    /// none.
    moving: Cell<[u64; 2]>,
    next: AtomicPtr<ThreadState>,
    /// The figures of all threads that have had this state, since the last start or clear. They only grow, so that
    /// sums can be read at any time: a thread's figures stay here when it ends.
    pub traffic: Traffic,
    /// The part of it that former owners have added.
    pub inherited: Traffic,
    /// The state of sampling.
    pub sampler: Sampler,
    /// The owner's sampled blocks since the last start or clear.
    pub estimate: Estimate,
    /// The address of the owner's thread-local distance, while it exists.
    pub distance: Cell<*mut u64>,
    /// Cache of site numbers.
    pub sites: SiteCache,
    /// Counters that are not added to the sites yet.
    pub counters: CounterCache,
    /// Its measurements.
    pub measuring: Measuring,
    /// Cache of the site numbers of whole stacks.
    pub stacks: StackCache,
}

impl ThreadState {
    /// Clears what the next owner must not find.
    fn forget_owner(&self) {
        self.sites.discard();
        self.stacks.discard();
        self.measuring.forget_owner();
        self.sampler.forget();
        self.estimate.reset();
        self.forget_words();
    }

    /// The part of it that other threads may look at.
    fn forget_words(&self) {
        self.untracked.set(0);
        self.nested.set(0);
        self.distance.set(ptr::null_mut());
        self.noting.store(0, Ordering::Relaxed);
        self.end_move();
        self.forks.set(0);
        self.held.set(Held::NotPaused);
    }

    /// Whether a thread owns it now.
    pub fn is_owned(&self) -> bool {
        self.owned.load(Ordering::Acquire)
    }

    /// The calling thread owns it.
    fn is_of_this_thread(&self) {
        // SAFETY: a plain system call that cannot fail.
        self.tid.store(unsafe { libc::syscall(libc::SYS_gettid) } as u32, Ordering::Relaxed);
    }

    /// Whether its thread has ended, and could not release the state.
    fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Whether its thread is recording, or pausing the world. Called by that thread only.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) != 0
    }

    /// The thread is no longer busy. Called by that thread only.
    #[inline(always)]
    pub fn leave(&self) {
        compiler_fence(Ordering::SeqCst);
        // Release: the pauser sees all that was done while busy.
        self.busy.store(0, Ordering::Release);
    }

    /// Whether allocations of its thread are to be recorded as they come: it is in no untracked section, and not inside
    /// an allocator function that calls another one. Called by that thread only.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.nested.get() | self.untracked.get() as usize == 0
    }

    /// A block has been taken out while the allocator moves it, until [`ThreadState::end_move`].
    #[inline]
    pub fn begin_move(&self, site: u32, size: u64) {
        self.moving.set([u64::from(site).wrapping_add(1), size]);
    }

    /// The outcome of the move has been recorded.
    #[inline]
    pub fn end_move(&self) {
        self.moving.set([0; 2]);
    }

    /// That block, if there is one.
    pub fn moving(&self) -> Option<(u32, u64)> {
        let [site, size] = self.moving.get();
        Some((site.checked_sub(1)? as u32, size))
    }

    /// Whether its thread is writing an event down: if it opened the gate now, it would wait for itself. Called by
    /// that thread only, which may have left the write by `longjmp`.
    fn is_noting(&self) -> bool {
        let noting = self.noting.load(Ordering::Relaxed);
        noting != 0 && !stack::is_gone(noting, stack::pointer())
    }
}

/// Work of a thread before it opens the gate, with the world paused and no other pauser.
///
/// The C ABI says that nothing unwinds through these calls. So no function inside malloc needs an unwind table for
/// clean-up, and a thread that is cancelled there asynchronously is unwound as through any other C function.
#[allow(improper_ctypes_definitions, reason = "all callers are Rust's, of the same build")]
pub trait Settle: Sync {
    /// Does the work, apart from events, that had to wait while the gate was closed.
    extern "C" fn settle(&self);
    /// Adds the counters of a thread that has ended to the sites.
    extern "C" fn flush(&self, counters: &CounterCache);
    /// Whether anything is unusual, so that no thread may record by the shortest way. It is asked at the end of each
    /// pause.
    extern "C" fn is_unusual(&self) -> bool;
    /// A thread will never finish what it was recording, and it is not known what is half done.
    extern "C" fn torn(&self);
    /// Records an event that was written down, for the thread of `own`, with the path of its call site if it has one.
    extern "C" fn record(&self, own: &ThreadState, event: &Event, path: &[u8]);
}

/// Does nothing: for tests and examples.
#[derive(Debug)]
pub struct NothingToSettle;

#[allow(improper_ctypes_definitions, reason = "see the trait")]
impl Settle for NothingToSettle {
    extern "C" fn settle(&self) {}
    extern "C" fn is_unusual(&self) -> bool {
        false
    }
    extern "C" fn flush(&self, _counters: &CounterCache) {}
    extern "C" fn torn(&self) {}
    extern "C" fn record(&self, _own: &ThreadState, _event: &Event, _path: &[u8]) {}
}

/// All threads' states.
pub struct Threads {
    first: AtomicPtr<ThreadState>,
    gate: AtomicU64,
    pausing: AtomicPtr<ThreadState>,
    /// Number of threads that are forking, for which the world is paused.
    forks: AtomicU32,
    /// Number of threads that wait for the pause.
    forks_to_come: AtomicU32,
    /// The pauser is a fork that waits for a lock of libc's, as libc's fork itself does, and has not closed
    /// the gate yet.
    fork_awaits_libc: AtomicBool,
    fences: AtomicBool,
    /// What was written down is being recorded, and more was written down meanwhile.
    opening: AtomicBool,
    /// Not 0: something is unusual, or each operation executes a fence of its own.
    unusual: AtomicU32,
    /// Counts the beginnings and ends of resets. It is odd while figures are being set to zero.
    resets: AtomicU32,
    /// Events while the gate is closed.
    pub deferred: Deferred,
    /// Held by a thread that reads the thread-local words of others, and by a thread that ends while it removes its
    /// own.
    pub words: SpinLock<()>,
    settle: UnsafeCell<&'static dyn Settle>,
}

impl core::fmt::Debug for Threads {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Threads").field("gate", &self.gate).finish_non_exhaustive()
    }
}

// SAFETY: the cells of a state are touched by its owner, or by the thread that has paused the world.
unsafe impl Sync for Threads {}

impl Threads {
    /// Without threads, and with nothing to do before the gate opens.
    #[allow(clippy::new_without_default, reason = "it belongs into a static")]
    pub const fn new() -> Self {
        Self {
            first: AtomicPtr::new(ptr::null_mut()),
            gate: AtomicU64::new(0),
            pausing: AtomicPtr::new(ptr::null_mut()),
            forks: AtomicU32::new(0),
            forks_to_come: AtomicU32::new(0),
            fork_awaits_libc: AtomicBool::new(false),
            fences: AtomicBool::new(true),
            opening: AtomicBool::new(false),
            unusual: AtomicU32::new(1),
            resets: AtomicU32::new(0),
            deferred: Deferred::new(),
            words: SpinLock::new(()),
            settle: UnsafeCell::new(&NothingToSettle),
        }
    }

    /// Sets what is called before the gate opens, from here on.
    ///
    /// # Safety
    /// No thread has a state yet, and none gets one meanwhile.
    pub const unsafe fn settle_with(&self, settle: &'static dyn Settle) {
        // SAFETY: no other thread reads it, by the caller's promise.
        unsafe { *self.settle.get() = settle };
    }

    #[inline]
    fn settle(&self) -> &'static dyn Settle {
        // SAFETY: the caller has a state or has paused those that do; it was written before any of them came.
        unsafe { *self.settle.get() }
    }

    /// Sets all figures to zero. The world is paused.
    pub fn reset_traffic(&self) {
        self.resets.fetch_add(1, Ordering::SeqCst);
        for state in self.states() {
            state.traffic.reset();
            state.inherited.reset();
            state.estimate.reset();
        }
        self.resets.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the result of `read` when no reset happened in between, because figures from before and after a reset
    /// do not belong together. A thread that has interrupted a reset gets the present figures, after some tries.
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
            wait_round(&mut spins, 0);
        }
        read()
    }

    /// Asks the kernel for process-wide barriers. Without them (old kernels, strict seccomp filters) each operation
    /// executes a fence of its own. To be called again in a forked child.
    pub fn register(&self) {
        let errno = Errno::save();
        // SAFETY: membarrier touches no memory of ours.
        let answer = unsafe {
            libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)
        };
        drop(errno);
        self.set_fences(answer != 0);
    }

    fn set_fences(&self, on: bool) {
        self.fences.store(on, Ordering::SeqCst);
        if on {
            self.make_unusual();
        }
    }

    /// Becomes busy. `None`: this thread is busy already ([`ThreadState::is_busy`]), or the gate is closed and the
    /// event must be written down ([`Threads::note`]).
    #[inline(always)]
    pub fn enter<'a>(&self, state: &'a ThreadState) -> Option<Busy<'a>> {
        // The guard belongs to the caller's stack frame, which is busy until it drops the guard. What it calls is
        // deeper.
        let frame = stack::pointer();
        if state.is_busy() {
            self.look_whether_torn(state, frame);
            return None;
        }
        stack::touch::<STACK_BYTES>();
        state.busy.store(frame, Ordering::Relaxed);
        // The pauser's membarrier makes this order visible to it. The compiler must keep the order, too.
        compiler_fence(Ordering::SeqCst);
        if self.fences.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
        if self.gate.load(Ordering::Relaxed) != 0 {
            return self.meet_gate(state, frame);
        }
        Some(Busy { state })
    }

    /// Ends the fast paths until a pause finds all of their assumptions valid. For changes without a pause.
    pub fn make_unusual(&self) {
        self.unusual.store(1, Ordering::SeqCst);
    }

    /// A busy thread records nothing. But it may only seem busy, because it has left what it was recording by
    /// `longjmp`.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_whether_torn(&self, own: &ThreadState, now: usize) {
        if stack::is_gone(own.busy.load(Ordering::Relaxed), now) {
            self.tear(own);
        }
    }

    /// The calling thread will never finish what it was recording, or its pause. From here on it is not busy.
    #[cold]
    pub fn tear(&self, own: &ThreadState) {
        self.settle().torn();
        own.noting.store(0, Ordering::Relaxed);
        // Release: the next pauser sees that the figures must not be changed.
        own.busy.store(0, Ordering::Release);
        if self.is_pauser(own) {
            self.leave(ptr::from_ref(own).cast_mut());
        }
    }

    /// The gate is closed. If its pauser has given up, the caller opens it.
    #[cold]
    #[inline(never)]
    fn meet_gate<'a>(&self, state: &'a ThreadState, frame: usize) -> Option<Busy<'a>> {
        // Release: the pauser sees all that was done while busy.
        state.busy.store(0, Ordering::Release);
        if self.gate.load(Ordering::Acquire) != 0 && !self.open_if_abandoned(state, 1, Effort::Brief) {
            return None;
        }
        state.busy.store(frame, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.gate.load(Ordering::Acquire) != 0 {
            state.busy.store(0, Ordering::Release);
            return None;
        }
        Some(Busy { state })
    }

    /// Whether the gate is closed. Then a lookup by a thread that is not busy may be incomplete.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Acquire: a thread that sees it open sees what was recorded before.
        self.gate.load(Ordering::Acquire) != 0
    }

    /// All states, owned or not. Their cells may be read only during a pause.
    pub fn states(&self) -> impl Iterator<Item = &ThreadState> {
        let mut next = self.first.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: states are never unmapped.
            let state = unsafe { next.as_ref() }?;
            next = state.next.load(Ordering::Acquire);
            Some(state)
        })
    }
}

/// While this lives, its thread is busy.
#[derive(Debug)]
pub struct Busy<'a> {
    state: &'a ThreadState,
}

impl<'a> Busy<'a> {
    /// Takes over from a caller that has become busy ([`Threads::enter_fast`]) and ends with the calling function.
    #[inline(always)]
    #[must_use]
    pub fn taken_over(state: &'a ThreadState) -> Self {
        // What the function calls is deeper than its own frame, and perhaps not deeper than its caller's.
        state.busy.store(stack::pointer(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Self { state }
    }
}

impl Drop for Busy<'_> {
    #[inline]
    fn drop(&mut self) {
        self.state.leave();
    }
}
