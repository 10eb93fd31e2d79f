//! Walks over the loader's list and forks, which must not meet.
//!
//! glibc keeps its list locked while it is walked over, and forgets about that lock in the child of a fork: a thread that
//! walked just then is not there to unlock it, and whatever loads a library in the child waits for ever. So a fork waits until
//! nobody of ours walks, and who is about to walk waits until the fork is over. Neither waits long, and neither for itself.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::count::Count;
use crate::tls;

/// Sleeps of 50 µs until nobody walks, or forks: a second. A walk is over within some milliseconds of its thread's time; what
/// waits so long has another cause, such as a fork of a very large process, or a thread that is stopped.
const SLEEPS: u32 = 20_000;

/// Threads that walk now.
static WALKERS: Count = Count::new();
/// The last one that has begun.
static LAST: AtomicUsize = AtomicUsize::new(0);
/// Threads that are about to fork, or do.
static FORKERS: Count = Count::new();

/// While it lives, forks wait.
pub(super) struct Walking(());

impl Walking {
    pub(super) fn begin() -> Self {
        // Either a fork sees us, or we see it.
        WALKERS.enter();
        if FORKERS.now() != 0 {
            WALKERS.leave();
            FORKERS.wait_for_none(SLEEPS);
            WALKERS.enter();
        }
        LAST.store(tls::number(), Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Walking {
    fn drop(&mut self) {
        WALKERS.leave();
    }
}

/// The last thing before a fork: nobody walks from here on, unless somebody does not come to an end.
pub(crate) fn before_fork() {
    FORKERS.enter();
    // A signal handler may have interrupted its own thread in a walk.
    let is_own = WALKERS.now() == 1 && LAST.load(Ordering::Relaxed) == tls::number();
    if !is_own {
        WALKERS.wait_for_none(SLEEPS);
    }
}

/// The first thing after it, in the parent.
pub(crate) fn after_fork() {
    FORKERS.leave();
}

/// The same in the child, where there is nobody else.
pub(crate) fn in_child() {
    FORKERS.forget();
    WALKERS.forget();
}
