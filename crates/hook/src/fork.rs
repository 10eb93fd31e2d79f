//! fork: the world is paused before it and goes on after it, in both processes.
//!
//! Only the forking thread lives on in the child; the counters of the others are brought home there, because what
//! they had allocated is still allocated. These handlers also run for C's fork and for `Process.daemon`; a vfork
//! runs none and needs none, its child shares the memory and ends or execs.
//!
//! Between the first handler and the fork itself libc takes its own locks, and other threads that hold one of them may be
//! in malloc: nobody waits for us there ([`crate::defer`]). Threads that fork at the same time share one pause. We wait
//! for starts, stops and readings to come to an end, but never longer than a fraction of a second each: a signal handler
//! that forks may have interrupted its own thread in the middle of anything of ours. Where the world could not be paused,
//! the child cannot trust what it got, and tracks no more.

use core::sync::atomic::{AtomicBool, Ordering};

use memintro_tracker::stack;
use memintro_tracker::threads::{Held, ThreadState};

use crate::changes::{self, Changes, UNUSED_FORKS};
use crate::patch::{self, walkers};
use crate::pending::Pending;
use crate::shared::{self, PID, THREADS};
use crate::{sampling, thread};

/// Sleeps of 50 µs until somebody has ended what is patched, a pause, what is recorded.
const SLEEPS: u32 = 3_000;
/// The same of a start or stop, which does all of these.
const SLEEPS_FOR_CHANGES: u32 = 3 * SLEEPS;
/// The same for a signal handler that has interrupted its thread while that was recording.
const SLEEPS_ON_TOP: u32 = 20;

/// Stack that a fork may use.
const STACK_BYTES: usize = 3072;

/// What is held for all threads that fork, besides the world.
static HOLDS_CHANGES: AtomicBool = AtomicBool::new(false);
static HOLDS_PATCHES: AtomicBool = AtomicBool::new(false);

pub(crate) fn init() {
    // SAFETY: the handlers are plain functions that live as long as the process.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Whether this process has ever tracked: otherwise a child has got nothing that could be wrong.
fn is_used() -> bool {
    changes::has_changed() || THREADS.states().next().is_some()
}

unsafe extern "C" fn before() {
    // Of our handlers and of libc's own steps, which come after them: a stack overflow there would leave the world paused.
    stack::touch::<STACK_BYTES>();
    before_tracked();
    // Last: a start, stop or refresh that is awaited above may be about to walk.
    walkers::before_fork();
}

fn before_tracked() {
    // First of all: either we see a start, or that waits for us.
    UNUSED_FORKS.enter();
    // A thread whose destructors have run keeps no state: its child cannot trust what it gets.
    if !(changes::is_wanted() || is_used()) || thread::own().is_none() {
        return;
    }
    let Some(own) = thread::kept() else { return };
    UNUSED_FORKS.leave();
    let depth = own.forks.get();
    own.forks.set(depth.wrapping_add(1));
    if depth > 0 {
        // A handler forks on top of a fork of this thread, which holds everything already.
        return;
    }
    own.held.set(hold(own));
}

fn hold(own: &ThreadState) -> Held {
    // In this order, as start and stop take them. Also while nothing is tracked: another thread may just be starting, or
    // reading what was collected, and the child must not inherit a pause that nobody ends.
    if THREADS.is_pauser(own) {
        // Others may be waiting for this very pause, with all else in their hands.
        return THREADS.hold_for_fork(own, 0);
    }
    // While this thread is recording, nobody else can pause the world: it is no use to wait for that.
    let (sleeps, sleeps_for_changes) =
        if own.is_busy() { (SLEEPS_ON_TOP, SLEEPS_ON_TOP) } else { (SLEEPS, SLEEPS_FOR_CHANGES) };
    let changes = changes::hold_changes(sleeps_for_changes, || THREADS.join_forks());
    if changes == Changes::Joined {
        return Held::Paused;
    }
    let patches = patch::before_fork(sleeps);
    let world = THREADS.hold_for_fork(own, sleeps);
    if world.is_for_forks() {
        HOLDS_CHANGES.fetch_or(changes == Changes::Held, Ordering::Relaxed);
        HOLDS_PATCHES.fetch_or(patches, Ordering::Relaxed);
    } else {
        // The child gives up, or this thread itself is in the middle of what it holds.
        let_go(changes == Changes::Held, patches);
    }
    world
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

/// One fork of this thread less; answers how it found the world if it was the last of those on top of each other.
fn end(own: &ThreadState) -> Option<Held> {
    let depth = own.forks.get().wrapping_sub(1);
    own.forks.set(depth);
    (depth == 0).then(|| own.held.take())
}

unsafe extern "C" fn in_parent() {
    walkers::after_fork();
    let Some(own) = thread::kept().filter(|own| own.forks.get() > 0) else { return UNUSED_FORKS.leave() };
    if let Some(held) = end(own) {
        THREADS.release_after_fork(own, held, let_go_of_all);
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
    if let Some(own) = own {
        sampling::in_child(own, PID.load(Ordering::Relaxed));
    }
    if held == Held::NotPaused && is_used() {
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
    // A fork below, that a handler's fork lies on top of, goes on in this process, too, and ends what it holds.
    if let Some(held) = end(own) {
        let was_busy = own.is_busy();
        THREADS.release_after_fork(own, held, let_go_of_all);
        if held == Held::Paused && !was_busy {
            // All that was written down has been recorded, or never will be.
            Pending::forget_all();
        }
    }
}
