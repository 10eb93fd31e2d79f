//! Counts the threads inside a section. Other threads wait, for a limited time, until they have left it.

use core::sync::atomic::{AtomicU32, Ordering};

use memintro_tracker::lock::wait_round;

/// Sequentially consistent: if two threads each enter one count and then read the other's, at least one of them sees
/// the other.
#[derive(Debug)]
pub(crate) struct Count(AtomicU32);

impl Count {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Adds one.
    pub(crate) fn enter(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Subtracts one. In the child of a fork it does nothing, because the count was reset there.
    pub(crate) fn leave(&self) {
        // The count may be 0 already, after a fork. Then nothing needs to be done.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }

    pub(crate) fn now(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until the count is 0, for at most this many sleeps of 50 µs.
    pub(crate) fn wait_for_none(&self, sleeps: u32) {
        let mut rounds = 0;
        while self.now() != 0 && wait_round(&mut rounds, sleeps) {}
    }

    /// Resets the count in the child of a fork, where no other thread exists.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_leaves_who_is_forgotten() {
        let count = Count::new();
        count.enter();
        count.enter();
        assert_eq!(count.now(), 2);
        count.leave();
        assert_eq!(count.now(), 1);
        count.wait_for_none(1);
        count.forget();
        count.leave();
        count.wait_for_none(u32::MAX);
        assert_eq!(count.now(), 0);
    }
}
