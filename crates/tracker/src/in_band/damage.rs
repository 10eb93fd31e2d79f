//! Damaged records: how many there were, and the addresses at which stale ones may be left.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Most addresses that are kept. The table takes over before there are so many.
const MOST: usize = 128;

#[derive(Debug)]
pub(super) struct Damage {
    count: AtomicU64,
    escapes: AtomicU64,
    /// Addresses at which the record of a block that is gone may be left. It lies where that block ended.
    addresses: [AtomicUsize; MOST],
    /// How many there are, or would be.
    len: AtomicUsize,
}

impl Damage {
    pub(super) const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            escapes: AtomicU64::new(0),
            addresses: [const { AtomicUsize::new(0) }; MOST],
            len: AtomicUsize::new(0),
        }
    }

    /// A record was damaged, or belongs to another block.
    pub(super) fn found(&self, address: usize) {
        self.lost(1);
        self.escaped();
        self.doubt(address);
    }

    /// So many records are lost.
    pub(super) fn lost(&self, records: u64) {
        self.count.fetch_add(records, Ordering::Relaxed);
    }

    /// A free was missed.
    pub(super) fn escaped(&self) {
        self.escapes.fetch_add(1, Ordering::Relaxed);
    }

    /// A record may be left there.
    pub(super) fn doubt(&self, address: usize) {
        let place = self.len.fetch_add(1, Ordering::Relaxed);
        if let Some(kept) = self.addresses.get(place) {
            kept.store(address, Ordering::Relaxed);
        }
    }

    /// Whether one may be there.
    pub(super) fn may_be_at(&self, address: usize) -> bool {
        let len = self.len.load(Ordering::Relaxed);
        self.addresses
            .get(..len)
            .is_none_or(|kept| kept.iter().any(|kept| kept.load(Ordering::Relaxed) == address))
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn escapes(&self) -> u64 {
        self.escapes.load(Ordering::Relaxed)
    }

    /// Counts from 0 again.
    pub(super) fn forget_count(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// Nothing was damaged, and nothing is left anywhere. The world is paused.
    pub(super) fn forget(&self) {
        self.forget_count();
        self.escapes.store(0, Ordering::Relaxed);
        self.len.store(0, Ordering::Relaxed);
    }
}
