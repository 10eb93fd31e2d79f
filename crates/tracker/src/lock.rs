//! A lock that cannot allocate and that ld.so and Ruby know nothing of.
//!
//! Its sections are a few dozen instructions long, or they map memory. So it spins shortly, then yields, then sleeps in
//! short pieces. Its holder never waits for anything of the program's; but a signal handler may run on top of the holder, for
//! as long as it likes. Therefore nobody inside malloc waits for ever: [`SpinLock::lock_in_time`] gives up, and the event
//! goes unrecorded. [`SpinLock::lock`] is for those who have paused all recording, so that nobody holds it.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::mmap::Errno;

/// Rounds of a wait in which the processor is only told that this is one.
const SPINS: u32 = 200;
/// Rounds after these in which the scheduler may run somebody else: few, for each may take a time slice of everybody.
const YIELDS: u32 = 4;
/// Sleeps after these: at least a tenth of a second. They are counted, not timed: in a process that was stopped, or whose
/// container has used its share of the processors up, the holder did not run either.
const SLEEPS: u32 = 1000;
/// The same, once somebody has waited in vain, until a wait succeeds again.
const FEW_SLEEPS: u32 = 10;
const SLEEP_NS: libc::c_long = 50_000;

/// Waits that were given up.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);
/// What [`Patience`] is at present: 1 after a wait in vain.
static SHORT_OF_PATIENCE: AtomicU32 = AtomicU32::new(0);

/// Number of waits inside malloc that were given up since the process began.
#[must_use]
pub fn given_up() -> u64 {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// How long somebody inside malloc waits for another thread's few instructions.
#[derive(Debug, Default)]
pub struct Patience {
    rounds: u32,
}

impl Patience {
    /// Nothing waited yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { rounds: 0 }
    }

    /// Waits one round; `false` when there have been enough. `errno` stays as it was.
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

    /// What was waited for has come.
    pub fn rewarded(&self) {
        if self.rounds > 0 && SHORT_OF_PATIENCE.load(Ordering::Relaxed) != 0 {
            SHORT_OF_PATIENCE.store(0, Ordering::Relaxed);
        }
    }
}

/// One round of waiting for at most so many short sleeps; `false` when they are over. `errno` stays as it was.
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

/// Sleeps for so many nanoseconds, or until a signal comes. `errno` stays as it was.
///
/// By the bare system call: libc's `nanosleep` is a cancellation point, and malloc is none.
#[cold]
pub fn sleep(nanoseconds: libc::c_long) {
    let _errno = Errno::save();
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: reads a local; the rest of an interrupted sleep is of no interest.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, core::ptr::null_mut::<libc::timespec>()) };
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

    /// Waits for the lock, however long that takes: for whoever has paused all recording.
    pub fn lock(&self) -> SpinGuard<'_, T> {
        let mut rounds = 0;
        while !self.take() {
            if !wait_round(&mut rounds, u32::MAX) {
                rounds = 0;
            }
        }
        SpinGuard { lock: self }
    }

    /// Waits for the lock as long as somebody inside malloc may. `None`: its holder does not get on.
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

    /// Opens the lock whoever holds it: in a forked child, whose holder is not there.
    pub fn force_open(&self) {
        self.held.store(false, Ordering::Release);
    }

    #[inline]
    fn take(&self) -> bool {
        // Acquire: what the last holder wrote is seen.
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Opens the lock when dropped.
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
        // Release: the next holder sees what was written.
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
