//! fork: the world is paused before it and goes on after it, in both processes.
//!
//! Only the forking thread lives on in the child; the counters of the others are brought home there, because what
//! they had allocated is still allocated. These handlers also run for C's fork and for `Process.daemon`; a vfork
//! runs none and needs none, its child shares the memory and ends or execs.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use memintro_tracker::threads::Paused;

use crate::state::{self, PID, SITES, THREADS};
use crate::{patch, sampling, thread};

/// What the forking thread holds meanwhile.
struct Held {
    paused: Option<Paused<'static>>,
    patches: bool,
    changes: bool,
}

struct DuringFork(UnsafeCell<Held>);
// SAFETY: libc runs the handlers of one fork at a time, or the world is paused by the thread that touches it.
unsafe impl Sync for DuringFork {}

static DURING_FORK: DuringFork =
    DuringFork(UnsafeCell::new(Held { paused: None, patches: false, changes: false }));

pub(crate) fn init() {
    // SAFETY: the handlers are plain functions that live as long as the process.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

unsafe extern "C" fn before() {
    // In this order, as start and stop take them.
    let changes = state::hold_changes();
    let patches = patch::before_fork();
    // Also while nothing is tracked: another thread may just be starting, or reading what was collected, and the child
    // must not inherit a pause that nobody ends. In a process that never tracked there is nothing to hold.
    let paused = if THREADS.states().next().is_some() {
        thread::own().and_then(|own| THREADS.pause(own.state()))
    } else {
        None
    };
    // SAFETY: the world is paused by this thread, or there is nothing to hold.
    unsafe { *DURING_FORK.0.get() = Held { paused, patches, changes } };
}

unsafe extern "C" fn in_parent() {
    // SAFETY: as in `before`.
    let held = unsafe { &mut *DURING_FORK.0.get() };
    let patches = core::mem::take(&mut held.patches);
    drop(held.paused.take());
    if patches {
        patch::after_fork();
    }
    if core::mem::take(&mut held.changes) {
        state::forget_changes();
    }
}

unsafe extern "C" fn in_child() {
    // SAFETY: a plain system call.
    PID.store(unsafe { libc::getpid() }.unsigned_abs(), Ordering::Relaxed);
    THREADS.register();
    state::forget_changes();
    // SAFETY: this is the only thread of the child.
    let held = unsafe { &mut *DURING_FORK.0.get() };
    held.changes = false;
    // Whether or not the world was paused: whoever was busy is not here, and nobody is to wait for them.
    THREADS.forget_others(thread::kept(), |counters| counters.flush(|id| SITES.counters(id)));
    thread::is_alone();
    if let Some(own) = thread::kept() {
        sampling::in_child(own, PID.load(Ordering::Relaxed));
    }
    match held.paused.take() {
        Some(paused) => drop(paused),
        None => THREADS.forget_pause(),
    }
    if core::mem::take(&mut held.patches) {
        patch::after_fork();
    } else {
        patch::abandoned_by_fork();
    }
}
