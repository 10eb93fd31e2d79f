//! A lock that cannot allocate and that ld.so and Ruby know nothing of.
//!
//! It spins shortly and then yields: its sections are a few dozen instructions long, or they map memory.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

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

    /// Waits for the lock.
    pub fn lock(&self) -> SpinGuard<'_, T> {
        let mut spins = 0u32;
        // Acquire: what the last holder wrote is seen.
        while self.held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            relax(&mut spins);
        }
        SpinGuard { lock: self }
    }
}

/// One round of waiting: a pause instruction, and a yield to the scheduler every 64th time.
#[inline]
pub fn relax(spins: &mut u32) {
    *spins = spins.wrapping_add(1);
    if spins.is_multiple_of(64) {
        // SAFETY: sched_yield has no preconditions and cannot fail on Linux.
        unsafe { libc::sched_yield() };
    } else {
        core::hint::spin_loop();
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
