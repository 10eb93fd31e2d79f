//! How many objects there were when this process was forked, and how many of them were old: what the collector writes to
//! afterwards is no longer shared.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rb_sys::VALUE;

/// Names of Ruby's figures, interned before a fork.
static NAMES: OnceLock<[VALUE; 2]> = OnceLock::new();
static PID: AtomicUsize = AtomicUsize::new(0);
static FIGURES: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// Called in the parent, under the GVL.
pub(super) fn prepare() {
    NAMES.get_or_init(|| {
        [c"heap_live_slots", c"old_objects"].map(|name| {
            // SAFETY: terminated names. Symbols of names that were interned are there for good.
            unsafe { rb_sys::rb_id2sym(rb_sys::rb_intern(name.as_ptr())) }
        })
    });
}

/// Called in the child, under the GVL, before the program has done much.
pub(super) fn note(pid: usize) {
    let Some(names) = NAMES.get() else { return };
    for (figure, name) in FIGURES.iter().zip(names) {
        // SAFETY: the symbol of a figure that every Ruby has; reads a counter.
        figure.store(unsafe { rb_sys::rb_gc_stat(*name) } as usize, Ordering::Relaxed);
    }
    PID.store(pid, Ordering::Release);
}

/// Live and old ones; `None` in a process that was not forked, or whose parent did not listen.
pub(super) fn objects() -> Option<(usize, usize)> {
    if PID.load(Ordering::Acquire) != std::process::id() as usize {
        return None;
    }
    let [live, old] = [&FIGURES[0], &FIGURES[1]].map(|figure| figure.load(Ordering::Relaxed));
    Some((live, old))
}
