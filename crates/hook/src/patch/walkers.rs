//! Keeps walks over the loader's list and forks apart.
//!
//! glibc keeps its list locked during a walk, and does not reset that lock in the child of a fork. If a thread walked
//! during the fork, the lock stays taken in the child, and the first thread there that loads a library waits for
//! ever. So a fork waits for walks of this library, and a walk waits for forks. Both waits are short, and no thread
//! waits for itself.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::count::Count;
use crate::tls;

/// Sleeps of 50 µs until a walk or a fork is over: a second. A walk takes some milliseconds of its thread's time. A
/// longer wait has another cause, such as a fork of a very large process, or a stopped thread.
const SLEEPS: u32 = 20_000;

/// Threads that walk now.
#[unsafe(link_section = ".data.fork")]
static WALKERS: Count = Count::new();
/// The thread that began to walk last.
#[unsafe(link_section = ".data.fork")]
static LAST: AtomicUsize = AtomicUsize::new(0);
/// Threads that are about to fork, or are forking.
#[unsafe(link_section = ".data.fork")]
static FORKERS: Count = Count::new();

/// While it lives, forks wait.
pub(super) struct Walking(());

impl Walking {
    pub(super) fn begin() -> Self {
        // Either a fork sees this walk, or this walk sees the fork.
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

/// The last step before a fork: no walk begins from here on, and those under way are awaited for a limited time.
pub(crate) fn before_fork() {
    FORKERS.enter();
    // A signal handler may have interrupted its own thread in a walk.
    let is_own = WALKERS.now() == 1 && LAST.load(Ordering::Relaxed) == tls::number();
    if !is_own {
        WALKERS.wait_for_none(SLEEPS);
    }
}

/// The first step after a fork, in the parent.
pub(crate) fn after_fork() {
    FORKERS.leave();
}

/// The same in the child, where no other thread exists.
pub(crate) fn in_child() {
    FORKERS.forget();
    WALKERS.forget();
}
