//! Pauses the world before a fork, and resumes it afterwards in both processes.
//!
//! Only the forking thread exists in the child. The counters of the others are added to the sites there, because what
//! they had allocated is still allocated. These handlers also run for C's fork and for `Process.daemon`. A vfork runs
//! none and needs none: its child shares the memory and ends or execs.
//!
//! Between the first handler and the fork itself libc takes its own locks. Other threads that hold one of them may be
//! in malloc, and must not wait for the fork there ([`crate::defer`]). Threads that fork at the same time share one
//! pause. A fork waits for starts, stops and readings to end, but only a fraction of a second for each: a signal
//! handler that forks may have interrupted its own thread anywhere in the hook. If the world could not be paused, the
//! child cannot trust its figures, and stops tracking.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use memintro_tracker::deferred::Effort;
use memintro_tracker::stack;
use memintro_tracker::threads::{Held, ThreadState};

use crate::changes::{self, Changes, UNUSED_FORKS};
use crate::patch::{self, walkers};
use crate::pending::Pending;
use crate::real::call;
use crate::shared::{self, BIRTHS, PID, THREADS};
use crate::{callers, object_samples, sampling, thread};

/// Sleeps of 50 µs for which a fork waits for patching and for recording to end.
const SLEEPS: u32 = 3_000;
/// Sleeps for which it waits for a start or stop, and for a reading: each of them waits for recording, too, and then
/// works.
const SLEEPS_FOR_WORK: u32 = 3 * SLEEPS;
/// Sleeps for which a signal handler waits that has interrupted its own thread while that was recording.
const SLEEPS_ON_TOP: u32 = 20;

/// Stack that a fork may need.
const STACK_BYTES: usize = 3072;

/// What is held for all forking threads, besides the world.
#[unsafe(link_section = ".data.fork")]
static HOLDS_CHANGES: AtomicBool = AtomicBool::new(false);
#[unsafe(link_section = ".data.fork")]
static HOLDS_PATCHES: AtomicBool = AtomicBool::new(false);

pub(crate) fn init() {
    LOCK_STREAMS.store(patch::look_up(c"_IO_list_lock").cast_mut().cast(), Ordering::Relaxed);
    UNLOCK_STREAMS.store(patch::look_up(c"_IO_list_unlock").cast_mut().cast(), Ordering::Relaxed);
    IS_ALONE.store(patch::look_up(c"__libc_single_threaded").cast_mut().cast(), Ordering::Relaxed);
    // SAFETY: the handlers are plain functions that live as long as the process.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Whether this process has tracked or read figures. If not, there is nothing to hold for a fork.
fn is_used() -> bool {
    changes::has_changed() || THREADS.states().next().is_some()
}

unsafe extern "C" fn before() {
    // Touches the stack for these handlers and for libc's steps after them: a stack overflow there would leave the
    // world paused.
    stack::touch::<STACK_BYTES>();
    before_tracked();
    // This comes last, because a start, stop or refresh for which this waits above may be about to walk the
    // list.
    walkers::before_fork();
}

fn before_tracked() {
    // This comes first: either this fork sees a start, or the start waits for this fork.
    UNUSED_FORKS.enter();
    // A thread whose destructors have run keeps no state, so its child cannot trust what it gets.
    if !(changes::is_wanted() || is_used()) || thread::own().is_none() {
        return;
    }
    let Some(own) = thread::kept() else { return };
    UNUSED_FORKS.leave();
    let depth = own.forks.get();
    own.forks.set(depth.wrapping_add(1));
    if depth > 0 {
        // A signal handler forks during a fork of this thread, which holds everything already.
        return;
    }
    own.held.set(hold(own));
}

fn hold(own: &ThreadState) -> Held {
    // The order is that of start and stop. This is done also while nothing is tracked: another thread may be starting
    // or reading, and the child must not inherit a pause that never ends.
    if THREADS.is_pauser(own) {
        // Other forks may be waiting for this pause while they hold everything else.
        return THREADS.hold_for_fork(own, 0, 0, || {});
    }
    // While this thread is recording, no other thread can pause the world, so waiting is of no use.
    let (sleeps, sleeps_for_work) =
        if own.is_busy() { (SLEEPS_ON_TOP, SLEEPS_ON_TOP) } else { (SLEEPS, SLEEPS_FOR_WORK) };
    let changes = changes::hold_changes(sleeps_for_work, || THREADS.join_forks());
    if changes == Changes::Joined {
        return Held::Paused;
    }
    let patches = patch::before_fork(sleeps);
    let streams = Streams::default();
    let world = THREADS.hold_for_fork(own, sleeps_for_work, sleeps, || streams.lock());
    drop(streams);
    if world.is_for_forks() {
        HOLDS_CHANGES.fetch_or(changes == Changes::Held, Ordering::Relaxed);
        HOLDS_PATCHES.fetch_or(patches, Ordering::Relaxed);
    } else {
        // Either the child stops tracking, or this thread has interrupted its own code that holds the lock.
        let_go(changes == Changes::Held, patches);
    }
    world
}

/// libc's functions for the lock on its list of streams, which fork takes; null where it has none.
static LOCK_STREAMS: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static UNLOCK_STREAMS: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// libc's word on whether the process has one thread only; null where it does not say.
static IS_ALONE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// The lock of libc's list of streams. fork waits for it after the handlers, while events are queued, as long
/// as other threads flush and read, and those threads allocate. So the handler takes the lock before it
/// closes the gate, and releases it just before fork takes it. (It must not keep the lock: other libraries'
/// handlers may wait for a thread that wants it.) The lock is recursive.
///
/// In a process of one thread, fork does not take the lock, and the handler must not take it either: if a
/// signal handler forks, its thread may have been about to take or release the lock.
#[derive(Default)]
struct Streams(Cell<bool>);

impl Streams {
    fn lock(&self) {
        let is_known =
            [&LOCK_STREAMS, &UNLOCK_STREAMS].iter().all(|it| !it.load(Ordering::Relaxed).is_null());
        let is_alone = IS_ALONE.load(Ordering::Relaxed);
        // SAFETY: a byte of libc's, which lives as long as the process.
        if !is_known || !is_alone.is_null() && unsafe { is_alone.read_volatile() } != 0 {
            return;
        }
        // SAFETY: libc's own function, which takes nothing.
        unsafe { call!(LOCK_STREAMS, fn())() };
        self.0.set(true);
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if self.0.get() {
            // SAFETY: as above; this thread has the lock.
            unsafe { call!(UNLOCK_STREAMS, fn())() };
        }
    }
}

fn let_go(changes: bool, patches: bool) {
    if patches {
        patch::after_fork();
    }
    if changes {
        changes::forget_changes();
    }
}

fn let_go_of_all() {
    let changes = HOLDS_CHANGES.swap(false, Ordering::Relaxed);
    let_go(changes, HOLDS_PATCHES.swap(false, Ordering::Relaxed));
}

/// Ends one fork of this thread. For the outermost of nested forks, returns the state that the fork found.
fn end(own: &ThreadState) -> Option<Held> {
    let depth = own.forks.get().wrapping_sub(1);
    own.forks.set(depth);
    (depth == 0).then(|| own.held.take())
}

unsafe extern "C" fn in_parent() {
    walkers::after_fork();
    let Some(own) = thread::kept().filter(|own| own.forks.get() > 0) else { return UNUSED_FORKS.leave() };
    if let Some(held) = end(own) {
        THREADS.release_after_fork(own, held, Effort::Brief, let_go_of_all);
    }
}

unsafe extern "C" fn in_child() {
    walkers::in_child();
    UNUSED_FORKS.forget();
    // SAFETY: a plain system call.
    PID.store(unsafe { libc::getpid() }.unsigned_abs(), Ordering::Relaxed);
    THREADS.register();
    let own = thread::kept();
    let held = own.filter(|own| own.forks.get() > 0).map_or(Held::NotPaused, |own| own.held.get());
    THREADS.forget_others(own, held);
    thread::is_alone();
    callers::in_child();
    BIRTHS.in_child(own.map(|own| &own.measuring));
    if let Some(own) = own {
        sampling::in_child(own, PID.load(Ordering::Relaxed));
        object_samples::reseed(u64::from(PID.load(Ordering::Relaxed)));
    }
    // As long as there was no start, there are no figures.
    if held == Held::NotPaused && changes::has_changed() {
        shared::give_up();
        Pending::forget_all();
    }
    if !held.is_for_forks() || !HOLDS_CHANGES.load(Ordering::Relaxed) {
        changes::forget_changes();
    }
    if !held.is_for_forks() || !HOLDS_PATCHES.load(Ordering::Relaxed) {
        patch::abandoned_by_fork();
    }
    let Some(own) = own.filter(|own| own.forks.get() > 0) else { return };
    // If a signal handler forked during another fork, that outer fork goes on in this process, too, and releases what
    // it holds.
    if let Some(held) = end(own) {
        let was_busy = own.is_busy();
        THREADS.release_after_fork(own, held, Effort::Whole, let_go_of_all);
        if held == Held::Paused && !was_busy {
            // Everything that was written down has been recorded, or never will be.
            Pending::forget_all();
        }
    }
}
