//! How many threads are at something that others wait for, though not for ever.

use core::sync::atomic::{AtomicU32, Ordering};

use memintro_tracker::lock::wait_round;

/// Sequentially consistent: of two threads that each enter a count, and then look at the other's, one sees the other.
#[derive(Debug)]
pub(crate) struct Count(AtomicU32);

impl Count {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// One more.
    pub(crate) fn enter(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// One less; none in the child of a fork, which has forgotten the threads that it did not get.
    pub(crate) fn leave(&self) {
        // It is an error to have none, and means just that.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }

    pub(crate) fn now(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until nobody is at it, but sleeps at most so many times 50 µs.
    pub(crate) fn wait_for_none(&self, sleeps: u32) {
        let mut rounds = 0;
        while self.now() != 0 && wait_round(&mut rounds, sleeps) {}
    }

    /// In the child of a fork, where there is nobody else.
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
