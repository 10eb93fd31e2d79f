//! How much memory the table has taken, and may take.

use core::sync::atomic::{AtomicUsize, Ordering};

pub(super) const PAGE_SHIFT: u32 = 12;
/// The unit in which the kernel gives memory. Memory that neighbours share is counted in it.
pub(super) const PAGE: usize = 1 << PAGE_SHIFT;
/// Size of a huge page.
pub(super) const HUGE: usize = 2 << 20;

/// Bytes taken, and their limit.
#[derive(Debug)]
pub(super) struct Budget {
    limit: AtomicUsize,
    taken: AtomicUsize,
}

// Relaxed throughout: figures that guard no other memory.
impl Budget {
    pub(super) const fn new() -> Self {
        Self { limit: AtomicUsize::new(0), taken: AtomicUsize::new(0) }
    }

    pub(super) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes taken to this value.
    pub(super) fn restart(&self, bytes: usize) {
        self.taken.store(bytes, Ordering::Relaxed);
    }

    /// Accounts for `bytes` more, if the limit allows it.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        let allowed = taken <= self.limit.load(Ordering::Relaxed);
        if !allowed {
            self.give(bytes);
        }
        allowed
    }

    /// Accounts for `bytes` more, even beyond the limit.
    pub(super) fn take_anyway(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Accounts for `bytes` less. Memory that was taken before a restart does not count.
    pub(super) fn give(&self, bytes: usize) {
        let _ = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| Some(taken.saturating_sub(bytes)));
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}
