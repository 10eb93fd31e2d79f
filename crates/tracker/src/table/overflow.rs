//! Blocks that find their home bucket full: overflow entries of 16 bytes, chained to the bucket.
//!
//! Rule for neighbours: an overflow entry belongs to the bucket that links to it and is guarded by that bucket's lock;
//! free overflow entries are guarded by the lock of the shard's [`Pool`], which is taken last. Links are indices plus
//! one, 0 is none.

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

/// Which overflow entries of a shard are free.
#[derive(Debug)]
pub(super) struct Pool {
    /// First of those that were used once.
    free: u32,
    /// Overflow entries that were ever used: those behind have no memory yet.
    pub(super) touched: u32,
    /// Overflow entries in chains.
    pub(super) used: u32,
    /// Full homes to go until growing is tried again.
    pub(super) patience: u32,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self { free: 0, touched: 0, used: 0, patience: 0 }
    }

    /// Takes an overflow entry: its link. `more` is asked for memory whenever the pool needs some, with the number of
    /// overflow entries that must be usable then.
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

    /// Takes an overflow entry back.
    pub(super) fn give(&mut self, link: u32, overflow: &Overflow) {
        overflow.set_next(self.free);
        self.free = link;
        self.used = self.used.wrapping_sub(1);
    }
}
