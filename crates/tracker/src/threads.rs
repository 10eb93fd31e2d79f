//! Per-thread state, and the pause that makes a reading exact.
//!
//! A thread is *busy* while it changes the table or its counters. It says so with a plain store; whoever wants the
//! world to stand still closes the gate, issues a process-wide memory barrier (`membarrier`, Linux 4.14) and waits
//! until nobody is busy. So the fast path has no fence and no shared write, and the pauser pays for both.
//!
//! Being busy is also the guard against re-entry: what a thread allocates while it is busy is not tracked.
//!
//! **Nobody inside malloc waits at the gate.** The caller may hold any lock of the program's or libc's, and who has closed
//! the gate may be waiting for just that one: `fork` does. What happens while the gate is closed is written down
//! ([`crate::deferred`]), and whoever opens the gate records it first.
//!
//! | word | who writes it | says |
//! |---|---|---|
//! | [`ThreadState`]'s `busy` | its thread | it is in the middle of recording |
//! | `gate` | anybody closes it, only the pauser opens it | whether to record or to write down, and how much has been |
//! | `pausing` | whoever takes it while it is nobody's | the thread that is the pauser |
//!
//! A pauser who does not get the others to finish in time goes away and leaves the gate closed, if something has been
//! written down. Whoever comes to such a gate becomes the pauser, if nobody is busy then.
//!
//! Rules for neighbours: never block, allocate or call foreign code that may do so while busy; never pause while
//! busy. States are never given back to the kernel: a dead thread's state serves the next thread.

mod forks;
mod note;
mod pause;

use core::cell::{Cell, UnsafeCell};
use core::ptr::{self, NonNull};
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};

use crate::counters::CounterCache;
use crate::deferred::{Deferred, Event};
use crate::estimate::Estimate;
use crate::lock::{SpinLock, wait_round};
use crate::mmap::{self, Errno};
use crate::sampler::Sampler;
use crate::sites::SiteCache;
use crate::stack;
pub use forks::Held;
pub use note::Noted;
pub use pause::Paused;

/// How often a reader looks again when figures are being reset.
const MOST_TRIES: u32 = 10_000;
/// Stack that the hook may use to record an event.
const STACK_BYTES: usize = 1024;
/// Stack that a pause may use, with what is recorded at its end.
const PAUSE_STACK_BYTES: usize = 2048;

/// Bits of the gate: closed; closed by a thread that must not record before others know of it; how many events were written
/// down (24 bits) and how many words of paths (32 bits).
const CLOSED: u64 = 1 << 63;
const NEWCOMER: u64 = 1 << 62;
const PLACE_SHIFT: u32 = 32;
const PLACE_MASK: u64 = (1 << 24) - 1;

/// How many events the gate says were written down.
fn places(gate: u64) -> u32 {
    (gate >> PLACE_SHIFT & PLACE_MASK) as u32
}

/// How many words of paths.
fn words(gate: u64) -> u32 {
    gate as u32
}

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
    /// 0, or where its stack ended when its thread became busy.
    busy: AtomicUsize,
    owned: AtomicBool,
    /// Its thread has ended, and could not give it back.
    leaving: AtomicBool,
    /// 0, or where the stack ended when its thread began to write an event down.
    noting: Cell<usize>,
    /// How many forks of its thread lie on top of each other, by signal handlers; and how the first one found the world.
    pub forks: Cell<u32>,
    /// See [`ThreadState::forks`].
    pub held: Cell<Held>,
    /// Depth of "do not track my allocations".
    pub untracked: Cell<u32>,
    /// Where the stack ended at the first of the calls into an allocator function that itself calls one (operator new calls
    /// malloc); 0: in none.
    pub nested: Cell<usize>,
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
        self.noting.set(0);
        self.forks.set(0);
        self.held.set(Held::NotPaused);
    }

    /// Whether a thread has it now.
    pub fn is_owned(&self) -> bool {
        self.owned.load(Ordering::Acquire)
    }

    /// Whether its thread is in the middle of recording, or of a pause: asked by that thread itself.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) != 0
    }

    /// Whether its thread is in the middle of writing an event down: who opens the gate on top of that would wait for itself.
    /// Asked by that thread itself, which may have left it by `longjmp`.
    fn is_noting(&self) -> bool {
        self.noting.get() != 0 && !stack::is_gone(self.noting.get(), stack::pointer())
    }
}

/// What whoever opens the gate does before: with the world paused, and nobody else at it.
///
/// C's calling convention says that nothing unwinds through these calls. So no function inside malloc needs a table of what to
/// clean up, and a thread that is cancelled there, asynchronously, is unwound like through any other C function.
#[allow(improper_ctypes_definitions, reason = "all callers are Rust's, of the same build")]
pub trait Settle: Sync {
    /// Makes good what could not be done while the gate was closed, but for events.
    extern "C" fn settle(&self);
    /// Brings the counters of a thread home that has ended.
    extern "C" fn flush(&self, counters: &CounterCache);
    /// A thread will never end what it was recording: nobody knows what is half done.
    extern "C" fn torn(&self);
    /// Records an event that was written down, as `own`'s thread, with the path of its call site if it has one.
    extern "C" fn record(&self, own: &ThreadState, event: &Event, path: &[u8]);
}

/// Does nothing: for tests and examples.
#[derive(Debug)]
pub struct NothingToSettle;

#[allow(improper_ctypes_definitions, reason = "see the trait")]
impl Settle for NothingToSettle {
    extern "C" fn settle(&self) {}
    extern "C" fn flush(&self, _counters: &CounterCache) {}
    extern "C" fn torn(&self) {}
    extern "C" fn record(&self, _own: &ThreadState, _event: &Event, _path: &[u8]) {}
}

/// All threads' states.
pub struct Threads {
    first: AtomicPtr<ThreadState>,
    gate: AtomicU64,
    pausing: AtomicPtr<ThreadState>,
    /// How many threads fork, for which the world is paused.
    forks: AtomicU32,
    /// How many wait to have it paused.
    forks_to_come: AtomicU32,
    fences: AtomicBool,
    /// Counts the beginnings and ends of resets: odd while figures are being set to zero.
    resets: AtomicU32,
    /// What happens while the gate is closed.
    pub deferred: Deferred,
    /// Held by who reads the others' thread-local words, and by a thread that ends while it takes its own away.
    pub words: SpinLock<()>,
    settle: UnsafeCell<&'static dyn Settle>,
}

impl core::fmt::Debug for Threads {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Threads").field("gate", &self.gate).finish_non_exhaustive()
    }
}

// SAFETY: the cells of a state are touched by its owner, or by whoever has paused the world.
unsafe impl Sync for Threads {}

impl Threads {
    /// No threads yet, and nothing to settle.
    #[allow(clippy::new_without_default, reason = "it belongs into a static")]
    pub const fn new() -> Self {
        Self {
            first: AtomicPtr::new(ptr::null_mut()),
            gate: AtomicU64::new(0),
            pausing: AtomicPtr::new(ptr::null_mut()),
            forks: AtomicU32::new(0),
            forks_to_come: AtomicU32::new(0),
            fences: AtomicBool::new(true),
            resets: AtomicU32::new(0),
            deferred: Deferred::new(),
            words: SpinLock::new(()),
            settle: UnsafeCell::new(&NothingToSettle),
        }
    }

    /// What whoever opens the gate calls from here on.
    ///
    /// # Safety
    /// No thread has a state yet, and none gets one meanwhile.
    pub const unsafe fn settle_with(&self, settle: &'static dyn Settle) {
        // SAFETY: nobody else looks, by the caller's promise.
        unsafe { *self.settle.get() = settle };
    }

    #[inline]
    fn settle(&self) -> &'static dyn Settle {
        // SAFETY: whoever calls this has a state or has paused those that do; it was written before any of them came.
        unsafe { *self.settle.get() }
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
            wait_round(&mut spins, 0);
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
                self.between_resets(|| state_ref.inherited.copy(&state_ref.traffic));
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

    /// Gives a state back when its thread ends. Its counters go to the shared ones.
    pub fn release(&self, state: &ThreadState) {
        match self.enter(state) {
            Some(busy) => {
                self.take_back(state);
                drop(busy);
                // Release: the next owner sees a clean state.
                state.owned.store(false, Ordering::Release);
            }
            // Whoever opens the gate does that.
            None => state.leaving.store(true, Ordering::Release),
        }
    }

    fn take_back(&self, state: &ThreadState) {
        self.settle().flush(&state.counters);
        state.forget_owner();
    }

    /// Becomes busy, or answers `None`: this thread already is ([`ThreadState::is_busy`]), or the gate is closed, and
    /// what happens is to be written down ([`Threads::note`]).
    #[inline(always)]
    pub fn enter<'a>(&self, state: &'a ThreadState) -> Option<Busy<'a>> {
        // This is a part of the caller, who is busy until it drops the answer: what it calls is deeper.
        let frame = stack::pointer();
        if state.is_busy() {
            self.look_whether_torn(state, frame);
            return None;
        }
        stack::touch::<STACK_BYTES>();
        state.busy.store(frame, Ordering::Relaxed);
        // The pauser's membarrier makes this order visible; the compiler must keep it too.
        compiler_fence(Ordering::SeqCst);
        if self.fences.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
        if self.gate.load(Ordering::Relaxed) != 0 {
            return self.meet_gate(state, frame);
        }
        Some(Busy { state })
    }

    /// A thread that is busy already records nothing. But perhaps it only seems to be: it has left what it was doing by `longjmp`.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_whether_torn(&self, own: &ThreadState, now: usize) {
        if stack::is_gone(own.busy.load(Ordering::Relaxed), now) {
            self.tear(own);
        }
    }

    /// The calling thread will never end what it was recording, or its pause. From here on it is not busy.
    #[cold]
    pub fn tear(&self, own: &ThreadState) {
        self.settle().torn();
        own.noting.set(0);
        // Release: whoever pauses next sees that nothing may be touched.
        own.busy.store(0, Ordering::Release);
        if self.is_pauser(own) {
            self.leave(ptr::from_ref(own).cast_mut());
        }
    }

    /// The gate is closed. If nobody is behind it any more, the caller opens it.
    #[cold]
    #[inline(never)]
    fn meet_gate<'a>(&self, state: &'a ThreadState, frame: usize) -> Option<Busy<'a>> {
        // Release: the pauser sees all that was done while busy.
        state.busy.store(0, Ordering::Release);
        if self.gate.load(Ordering::Acquire) != 0 && !self.open_if_abandoned(state, 1) {
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

    /// Whether the gate is closed: what is looked up without being busy may not be complete.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Acquire: whoever sees it open sees what was recorded before.
        self.gate.load(Ordering::Acquire) != 0
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
        self.state.busy.store(0, Ordering::Release);
    }
}
