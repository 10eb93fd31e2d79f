//! Blocks whose home bucket is full: overflow entries of 16 bytes, chained to the bucket.
//!
//! Rule for neighbours: an overflow entry belongs to the bucket that links to it and is guarded by that bucket's lock;
//! free overflow entries are guarded by the lock of the shard's [`Pool`], which is taken last. A link is an index
//! plus one; 0 means none.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::bucket::LINKS;

/// Bytes of an overflow entry.
pub(super) const OVERFLOW_BYTES: usize = 16;
const _: () = assert!(size_of::<Overflow>() == OVERFLOW_BYTES);

/// A block in a chain.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Overflow {
    value: AtomicU64,
    key: AtomicU32,
    next: AtomicU32,
}

impl Overflow {
    pub(super) fn key(&self) -> u32 {
        self.key.load(Ordering::Relaxed)
    }

    pub(super) fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    pub(super) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, key: u32, value: u64, next: u32) {
        self.key.store(key, Ordering::Relaxed);
        self.set_value(value);
        self.set_next(next);
    }

    pub(super) fn set_value(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
    }

    pub(super) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Relaxed);
    }
}

/// The free overflow entries of a shard.
#[derive(Debug)]
pub(super) struct Pool {
    /// Link to the first entry that was used and given back.
    free: u32,
    /// Number of overflow entries that were ever used. Further ones have no memory yet.
    pub(super) touched: u32,
    /// Number of overflow entries in chains.
    pub(super) used: u32,
    /// Number of insertions into full homes until growing is tried again.
    pub(super) patience: u32,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self { free: 0, touched: 0, used: 0, patience: 0 }
    }

    /// Takes an overflow entry and returns its link. If the pool needs memory, it calls `more` with the number of
    /// overflow entries that must then be usable.
    pub(super) fn take<'a>(
        &mut self,
        overflow: impl Fn(u32) -> Option<&'a Overflow>,
        more: impl FnOnce(usize) -> bool,
    ) -> Option<u32> {
        let link = self.free;
        if let Some(overflow) = overflow(link) {
            self.free = overflow.next();
            self.used = self.used.wrapping_add(1);
            return Some(link);
        }
        let link = self.touched.wrapping_add(1);
        if link > LINKS || !more(link as usize) {
            return None;
        }
        self.touched = link;
        self.used = self.used.wrapping_add(1);
        Some(link)
    }

    /// Gives an overflow entry back.
    pub(super) fn give(&mut self, link: u32, overflow: &Overflow) {
        overflow.set_next(self.free);
        self.free = link;
        self.used = self.used.wrapping_sub(1);
    }
}
