//! A lock that does not allocate, and that ld.so and Ruby do not use.
//!
//! Its sections are a few dozen instructions long, or map memory. So a waiting thread spins shortly, then yields,
//! then sleeps for short times. The holder never waits for the program, but a signal handler may interrupt the holder
//! for any length of time. Therefore no thread waits for ever inside malloc: [`SpinLock::lock_in_time`] gives up, and
//! the event is not recorded. [`SpinLock::lock`] is for threads that have paused all recording, so that no other
//! thread holds it.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::mmap::Errno;

/// Rounds of a wait that only spin, with a hint to the processor.
const SPINS: u32 = 200;
/// Rounds after these that yield to the scheduler. They are few, because each may take a time slice of all other
/// threads.
const YIELDS: u32 = 4;
/// Sleeps after these: at least a tenth of a second. They are counted instead of timed, because the holder does not
/// run either in a process that was stopped, or whose container has used up its share of the processors.
const SLEEPS: u32 = 1000;
/// The same after a wait in vain, until a wait succeeds again.
const FEW_SLEEPS: u32 = 10;
/// How long each takes.
pub const SLEEP_NS: libc::c_long = 50_000;

/// Number of waits that were given up.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);
/// Which limit [`Patience`] uses now: 1 after a wait in vain.
static SHORT_OF_PATIENCE: AtomicU32 = AtomicU32::new(0);

/// Number of waits inside malloc that were given up since the process began.
#[inline(always)]
#[must_use]
pub fn given_up() -> u64 {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// How long a thread inside malloc waits for another thread's few instructions.
#[derive(Debug, Default)]
pub struct Patience {
    rounds: u32,
}

impl Patience {
    /// A wait that has not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self { rounds: 0 }
    }

    /// Waits one round; `false` when there were enough. `errno` stays as it was.
    #[cold]
    pub fn wait(&mut self) -> bool {
        let sleeps = if SHORT_OF_PATIENCE.load(Ordering::Relaxed) == 0 { SLEEPS } else { FEW_SLEEPS };
        let go_on = wait_round(&mut self.rounds, sleeps);
        if !go_on {
            GIVEN_UP.fetch_add(1, Ordering::Relaxed);
            SHORT_OF_PATIENCE.store(1, Ordering::Relaxed);
        }
        go_on
    }

    /// The wait was successful.
    pub fn rewarded(&self) {
        if self.rounds > 0 && SHORT_OF_PATIENCE.load(Ordering::Relaxed) != 0 {
            SHORT_OF_PATIENCE.store(0, Ordering::Relaxed);
        }
    }
}

/// Waits one round, of at most so many short sleeps; `false` when there were enough. `errno` stays as it was.
#[cold]
pub fn wait_round(rounds: &mut u32, sleeps: u32) -> bool {
    *rounds = rounds.saturating_add(1);
    if *rounds <= SPINS {
        core::hint::spin_loop();
    } else if *rounds <= SPINS + YIELDS {
        // SAFETY: sched_yield has no preconditions and cannot fail on Linux.
        unsafe { libc::sched_yield() };
    } else if *rounds <= (SPINS + YIELDS).saturating_add(sleeps) {
        sleep(SLEEP_NS);
    } else {
        return false;
    }
    true
}

/// The same without a yield: the holder may have been preempted, and this thread is to run as soon as it has finished. (A
/// yield takes a time slice of each other thread.)
#[cold]
pub fn wait_briefly(rounds: &mut u32, sleeps: u32) -> bool {
    if *rounds == SPINS {
        *rounds = SPINS + YIELDS;
    }
    wait_round(rounds, sleeps)
}

/// Sleeps for so many nanoseconds, or until a signal arrives. `errno` stays as it was.
///
/// It waits for a word of its own: libc's `nanosleep` is a cancellation point, and malloc must not be one; and
/// no filter of system calls refuses this one.
#[cold]
pub fn sleep(nanoseconds: libc::c_long) {
    let _errno = Errno::save();
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let word = AtomicU32::new(0);
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: reads locals; the rest of an interrupted sleep is of no interest.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wait, 0, &raw const time) };
}

/// A value behind a spinning lock.
#[derive(Debug)]
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached only through a guard, and there is one guard at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock without a limit. Only for a thread that has paused all recording.
    pub fn lock(&self) -> SpinGuard<'_, T> {
        let mut rounds = 0;
        while !self.take() {
            if !wait_round(&mut rounds, u32::MAX) {
                rounds = 0;
            }
        }
        SpinGuard { lock: self }
    }

    /// Waits for the lock as long as a thread inside malloc may. `None`: the holder did not release it in time.
    #[inline]
    pub fn lock_in_time(&self) -> Option<SpinGuard<'_, T>> {
        if self.take() { Some(SpinGuard { lock: self }) } else { self.lock_patiently() }
    }

    #[cold]
    #[inline(never)]
    fn lock_patiently(&self) -> Option<SpinGuard<'_, T>> {
        let mut patience = Patience::new();
        while patience.wait() {
            if !self.held.load(Ordering::Relaxed) && self.take() {
                patience.rewarded();
                return Some(SpinGuard { lock: self });
            }
        }
        None
    }

    /// Releases the lock, any holder's, and returns whether it was held. For a process in which the holder does not
    /// exist, such as a forked child.
    pub fn force_open(&self) -> bool {
        self.held.swap(false, Ordering::AcqRel)
    }

    #[inline]
    fn take(&self) -> bool {
        // Acquire: the last holder's writes are seen.
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Releases the lock when dropped.
#[derive(Debug)]
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        // Release: the next holder sees these writes.
        self.lock.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_holder_does_not_get_on_is_given_up_and_then_sooner() {
        let lock = SpinLock::new(1);
        let held = lock.lock();
        let before = given_up();
        let start = std::time::Instant::now();
        assert!(lock.lock_in_time().is_none());
        let first = start.elapsed();
        assert!(first.as_millis() >= 50, "{first:?}");
        let start = std::time::Instant::now();
        assert!(lock.lock_in_time().is_none());
        assert!(start.elapsed() < first / 2, "{:?} after {first:?}", start.elapsed());
        assert!(given_up() >= before + 2);
        drop(held);
        assert_eq!(lock.lock_in_time().map(|value| *value), Some(1));
    }

    #[test]
    fn a_lock_that_comes_free_while_one_waits_is_had() {
        let lock = &SpinLock::new(0);
        std::thread::scope(|scope| {
            let held = lock.lock();
            let waiter = scope.spawn(move || lock.lock_in_time().map(|mut value| *value += 1));
            std::thread::sleep(std::time::Duration::from_millis(5));
            drop(held);
            assert_eq!(waiter.join().ok().flatten(), Some(()));
        });
        assert_eq!(*lock.lock(), 1);
    }
}
