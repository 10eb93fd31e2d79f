//! Walks over the loader's list and forks, which must not meet.
//!
//! glibc keeps its list locked while it is walked over, and forgets about that lock in the child of a fork: a thread that
//! walked just then is not there to unlock it, and whatever loads a library in the child waits for ever. So a fork waits until
//! nobody of ours walks, and who is about to walk waits until the fork is over. Neither waits long, and neither for itself.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use memintro_tracker::lock::wait_round;

/// Sleeps of 50 µs until nobody walks, or forks: a second. A walk is over within some milliseconds of its thread's time; what
/// waits so long has another cause, such as a fork of a very large process, or a thread that is stopped.
const SLEEPS: u32 = 20_000;

/// Threads that walk now.
static WALKERS: AtomicU32 = AtomicU32::new(0);
/// `pthread_self` of the last one that has begun.
static LAST: AtomicUsize = AtomicUsize::new(0);
/// Threads that are about to fork, or do.
static FORKERS: AtomicU32 = AtomicU32::new(0);

fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

fn wait_while(count: &AtomicU32) {
    let mut rounds = 0;
    while count.load(Ordering::SeqCst) != 0 && wait_round(&mut rounds, SLEEPS) {}
}

/// One less; none in a child, which has forgotten the threads that it did not get.
fn take_one(count: &AtomicU32) {
    // It is an error to have none, and means just that.
    let _ = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

/// While it lives, forks wait.
pub(super) struct Walking(());

impl Walking {
    pub(super) fn begin() -> Self {
        // Sequentially consistent on both sides: one of the two sees the other.
        WALKERS.fetch_add(1, Ordering::SeqCst);
        if FORKERS.load(Ordering::SeqCst) != 0 {
            take_one(&WALKERS);
            wait_while(&FORKERS);
            WALKERS.fetch_add(1, Ordering::SeqCst);
        }
        LAST.store(this_thread(), Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Walking {
    fn drop(&mut self) {
        take_one(&WALKERS);
    }
}

/// The last thing before a fork: nobody walks from here on, unless somebody does not come to an end.
pub(crate) fn before_fork() {
    FORKERS.fetch_add(1, Ordering::SeqCst);
    // A signal handler may have interrupted its own thread in a walk.
    let is_own = WALKERS.load(Ordering::SeqCst) == 1 && LAST.load(Ordering::Relaxed) == this_thread();
    if !is_own {
        wait_while(&WALKERS);
    }
}

/// The first thing after it, in the parent.
pub(crate) fn after_fork() {
    take_one(&FORKERS);
}

/// The same in the child, where there is nobody else.
pub(crate) fn in_child() {
    FORKERS.store(0, Ordering::SeqCst);
    WALKERS.store(0, Ordering::SeqCst);
}
