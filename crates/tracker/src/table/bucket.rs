//! One cache line of the table: a lock, five slots, and a link to the blocks that did not fit into the slots. Those are in
//! overflow entries of 16 bytes, chained to the bucket.
//!
//! Rule for neighbours: the blocks of a bucket, including those in its chain, are read and changed only under the bucket's
//! lock. No operation holds two of these locks, except one that holds all locks of a shard. Free overflow entries are
//! guarded by the lock of the shard's [`Pool`], which is taken last. A link is an index plus one; 0 means none.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::lock::{Patience, wait_round};

/// Blocks of a bucket.
pub(super) const SLOTS: usize = 5;

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = 64;
const _: () = assert!(size_of::<Bucket>() == BUCKET_BYTES);

const LOCKED: u32 = 1;
const OCCUPIED_SHIFT: u32 = 1;
const OCCUPIED: u32 = 0b11111;
const BLOOM_SHIFT: u32 = 6;
const BLOOM: u32 = 0xFF;
const CHAIN_SHIFT: u32 = 14;

/// Greatest link that a bucket can hold: 18 bits. 0 means no link.
pub(super) const LINKS: u32 = u32::MAX >> CHAIN_SHIFT;

/// Zeroed memory is an empty, open bucket.
///
/// | bits of `word` | what |
/// |---|---|
/// | 0 | locked |
/// | 1–5 | occupied slots |
/// Bloom bits: which of eight kinds of keys the chain may hold
/// | 14–31 | link to the first overflow entry of the chain, or 0 |
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    word: AtomicU32,
    keys: [AtomicU32; SLOTS],
    values: [AtomicU64; SLOTS],
}

/// A slot of a bucket: always less than [`SLOTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

/// A set of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots(u32);

impl Slots {
    #[inline]
    pub(super) fn first(self) -> Option<Slot> {
        if self.0 == 0 { None } else { Some(Slot(self.0.trailing_zeros())) }
    }

    #[inline]
    pub(super) fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl Iterator for Slots {
    type Item = Slot;

    #[inline]
    fn next(&mut self) -> Option<Slot> {
        let slot = self.first()?;
        self.0 &= self.0.wrapping_sub(1);
        Some(slot)
    }
}

impl Bucket {
    /// Waits for the bucket's lock as long as a thread inside malloc may. Returns `None` if its holder does not
    /// release it in time.
    #[inline]
    pub(super) fn lock_in_time(&self) -> Option<BucketGuard<'_>> {
        if self.take() || self.take_patiently() { Some(self.held()) } else { None }
    }

    /// Waits for the bucket's lock without a time limit, for a thread that has paused all recording.
    pub(super) fn lock(&self) -> BucketGuard<'_> {
        let mut rounds = 0;
        while !self.take() {
            if !wait_round(&mut rounds, u32::MAX) {
                rounds = 0;
            }
        }
        self.held()
    }

    // Acquire: makes visible what the last holder wrote. The first access is already a locked instruction: a read
    // before it would fetch the cache line twice if another core has it.
    #[inline]
    fn take(&self) -> bool {
        self.word.fetch_or(LOCKED, Ordering::Acquire) & LOCKED == 0
    }

    #[cold]
    #[inline(never)]
    fn take_patiently(&self) -> bool {
        let mut patience = Patience::new();
        while patience.wait() {
            if self.word.load(Ordering::Relaxed) & LOCKED == 0 && self.take() {
                patience.rewarded();
                return true;
            }
        }
        false
    }

    /// The guard of a bucket whose lock the caller holds, or that no other thread can use.
    #[inline]
    pub(super) fn held(&self) -> BucketGuard<'_> {
        BucketGuard { bucket: self, word: self.word.load(Ordering::Relaxed) & !LOCKED }
    }

    /// Releases the lock, any holder's; `false` if it was open.
    pub(super) fn force_open(&self) -> bool {
        let held = self.word.load(Ordering::Relaxed) & LOCKED != 0;
        if held {
            self.word.fetch_and(!LOCKED, Ordering::Relaxed);
        }
        held
    }

    /// Whether the bucket had no blocks at a recent instant.
    pub(super) fn peek_empty(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !LOCKED == 0
    }

    /// Whether the lock was held at a recent instant.
    #[cfg(test)]
    pub(super) fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Prefetches the bucket for writing.
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch has no effect on the program's state.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(
                core::ptr::from_ref(self).cast(),
            );
        }
    }
}

/// A locked bucket. It works on a copy of the bucket's word. Dropping it writes the copy back, which also releases
/// the lock.
#[derive(Debug)]
pub(super) struct BucketGuard<'a> {
    bucket: &'a Bucket,
    word: u32,
}

impl BucketGuard<'_> {
    #[inline]
    pub(super) fn occupied(&self) -> Slots {
        Slots((self.word >> OCCUPIED_SHIFT) & OCCUPIED)
    }

    #[inline]
    pub(super) fn vacant(&self) -> Slots {
        Slots((!self.word >> OCCUPIED_SHIFT) & OCCUPIED)
    }

    /// Occupied slots with this key.
    #[inline]
    pub(super) fn with_key(&self, key: u32) -> Slots {
        let mut mask = 0;
        for (i, candidate) in self.bucket.keys.iter().enumerate() {
            mask |= u32::from(candidate.load(Ordering::Relaxed) == key) << i;
        }
        Slots(mask & self.occupied().0)
    }

    #[inline]
    pub(super) fn key(&self, slot: Slot) -> u32 {
        // SAFETY: a slot is less than SLOTS.
        unsafe { self.bucket.keys.get_unchecked(slot.0 as usize) }.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn value(&self, slot: Slot) -> u64 {
        // SAFETY: a slot is less than SLOTS.
        unsafe { self.bucket.values.get_unchecked(slot.0 as usize) }.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn put(&mut self, slot: Slot, key: u32, value: u64) {
        // SAFETY: a slot is less than SLOTS.
        unsafe { self.bucket.keys.get_unchecked(slot.0 as usize) }.store(key, Ordering::Relaxed);
        self.set_value(slot, value);
        self.word |= 1 << (OCCUPIED_SHIFT + slot.0);
    }

    #[inline]
    pub(super) fn set_value(&self, slot: Slot, value: u64) {
        // SAFETY: a slot is less than SLOTS.
        unsafe { self.bucket.values.get_unchecked(slot.0 as usize) }.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn vacate(&mut self, slot: Slot) {
        self.word &= !(1 << (OCCUPIED_SHIFT + slot.0));
    }

    /// Link to the first overflow entry of the chain, or 0.
    #[inline]
    pub(super) fn chain(&self) -> u32 {
        self.word >> CHAIN_SHIFT
    }

    /// Makes `link` the head of the chain. 0 means no chain; then all Bloom bits are cleared.
    pub(super) fn set_chain(&mut self, link: u32) {
        self.word = (self.word & ((1 << CHAIN_SHIFT) - 1)) | (link << CHAIN_SHIFT);
        if link == 0 {
            self.clear_bloom_bits();
        }
    }

    /// Whether the chain may hold this key.
    #[inline]
    pub(super) fn may_chain(&self, key: u32) -> bool {
        self.word & bloom_bit(key) != 0
    }

    /// Records that the chain may hold this key.
    pub(super) fn set_bloom_bit(&mut self, key: u32) {
        self.word |= bloom_bit(key);
    }

    /// How many kinds of keys the chain may hold.
    pub(super) fn bloom_bits(&self) -> u32 {
        ((self.word >> BLOOM_SHIFT) & BLOOM).count_ones()
    }

    /// Replaces the Bloom bits: the caller lists the keys that the chain holds.
    pub(super) fn clear_bloom_bits(&mut self) {
        self.word &= !(BLOOM << BLOOM_SHIFT);
    }

    /// Forgets all blocks.
    pub(super) fn empty(&mut self) {
        self.word = 0;
    }

    /// Writes the word back and leaves the bucket locked.
    pub(super) fn keep(self) {
        self.bucket.word.store(self.word | LOCKED, Ordering::Relaxed);
        core::mem::forget(self);
    }
}

impl Drop for BucketGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: makes visible to the next holder what was written.
        self.bucket.word.store(self.word, Ordering::Release);
    }
}

#[inline]
fn bloom_bit(key: u32) -> u32 {
    // The lowest bit of nearly all keys is 0.
    1 << (BLOOM_SHIFT + ((key >> 1) & 7))
}

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
