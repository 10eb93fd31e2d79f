//! What one thread has allocated and freed.

use core::sync::atomic::{AtomicU64, Ordering};

/// The figures of one thread.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes asked for.
    pub allocated_bytes: AtomicU64,
    /// Bytes of tracked blocks that were freed.
    pub freed_bytes: AtomicU64,
    /// Allocations.
    pub allocations: AtomicU64,
    /// Frees of tracked blocks.
    pub frees: AtomicU64,
    /// Missed frees.
    pub missed_frees: AtomicU64,
    /// Allocations that could not be followed.
    pub dropped: AtomicU64,
}

impl Traffic {
    /// Counts a tracked block that the thread was handed out. Only the calling thread writes these figures.
    #[inline(always)]
    pub fn born(&self, size: u64) {
        bump(&self.allocations, 1);
        bump(&self.allocated_bytes, size);
    }

    /// Counts a tracked block that the thread has freed, in the same way.
    #[inline(always)]
    pub fn died(&self, size: u64) {
        bump(&self.frees, 1);
        bump(&self.freed_bytes, size);
    }

    fn all(&self) -> [&AtomicU64; 6] {
        [
            &self.allocated_bytes,
            &self.freed_bytes,
            &self.allocations,
            &self.frees,
            &self.missed_frees,
            &self.dropped,
        ]
    }

    /// Sets the figures to those of `other`.
    pub(super) fn copy(&self, other: &Self) {
        for (to, from) in self.all().into_iter().zip(other.all()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// All zero again.
    pub(super) fn reset(&self) {
        for figure in self.all() {
            figure.store(0, Ordering::Relaxed);
        }
    }
}

/// Adds to a figure that only the calling thread writes, by a load and a store, without a locked instruction.
#[inline]
pub fn bump(figure: &AtomicU64, amount: u64) {
    figure.store(figure.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}
