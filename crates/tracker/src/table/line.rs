//! One cache line of the table: a lock, five slots, and how many blocks have passed by.
//!
//! Rule for neighbours: `keys` and `values` change only under the line's lock and may be read without it by who holds
//! the lock of the block's home; `passing` is the number of blocks whose home is this line or one before and that live
//! in a line behind it.

use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::lock::relax;

/// Blocks of a line.
pub(super) const SLOTS: usize = 5;
const ALL: u8 = (1 << SLOTS) - 1;

/// Bytes of a line.
pub(super) const LINE_BYTES: usize = 64;
const _: () = assert!(size_of::<Line>() == LINE_BYTES);

/// Zeroed memory is an empty, open line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Line {
    lock: AtomicU8,
    occupied: AtomicU8,
    passing: AtomicU16,
    keys: [AtomicU32; SLOTS],
    values: [AtomicU64; SLOTS],
}

/// A slot of a line: always less than [`SLOTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u8);

/// A set of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots(u8);

impl Slots {
    #[inline]
    pub(super) fn first(self) -> Option<Slot> {
        if self.0 == 0 { None } else { Some(Slot(self.0.trailing_zeros() as u8)) }
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

impl Line {
    /// Waits for the line's lock.
    #[inline]
    pub(super) fn lock(&self) -> LineGuard<'_> {
        // Acquire: what the last holder wrote is seen. A swap, since a read first would fetch the cache line twice
        // when another core has it.
        if self.lock.swap(1, Ordering::Acquire) != 0 {
            self.lock_slow();
        }
        LineGuard(self)
    }

    /// Locks a line that no other thread can want.
    #[inline]
    pub(super) fn lock_alone(&self) -> LineGuard<'_> {
        self.lock.store(1, Ordering::Relaxed);
        LineGuard(self)
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        let mut spins = 0;
        loop {
            relax(&mut spins);
            if self.lock.load(Ordering::Relaxed) == 0 && self.lock.swap(1, Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    /// The guard of a line whose lock the caller keeps, see [`LineGuard::keep`].
    pub(super) fn kept(&self) -> ManuallyDrop<LineGuard<'_>> {
        ManuallyDrop::new(LineGuard(self))
    }

    /// Opens a line whose lock was taken with [`LineGuard::keep`].
    #[inline]
    pub(super) fn unlock(&self) {
        // Release: the next holder sees what was written.
        self.lock.store(0, Ordering::Release);
    }

    /// Fetches the line to be written.
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch has no effect that a program can see.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(
                core::ptr::from_ref(self).cast(),
            );
        }
    }

    /// Blocks in the line at some recent instant.
    pub(super) fn peek_occupied(&self) -> usize {
        self.occupied.load(Ordering::Relaxed).count_ones() as usize
    }

    /// Whether there was no free slot at some recent instant.
    #[inline]
    pub(super) fn peek_full(&self) -> bool {
        self.occupied.load(Ordering::Relaxed) == ALL
    }

    /// Whether blocks of this line's home, or of one before, live behind this line.
    #[inline]
    pub(super) fn is_passed(&self) -> bool {
        self.passing.load(Ordering::Relaxed) != 0
    }

    /// One more block lives behind this line. Needs the lock of that block's home only.
    #[inline]
    pub(super) fn pass(&self) {
        self.passing.fetch_add(1, Ordering::Relaxed);
    }

    /// One block less lives behind this line. Needs the lock of that block's home only.
    #[inline]
    pub(super) fn unpass(&self) {
        self.passing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Forgets who passes. Only for who holds every lock of the shard.
    pub(super) fn forget_passing(&self) {
        self.passing.store(0, Ordering::Relaxed);
    }

    /// Slots with this key. Without the line's lock: only candidates.
    #[inline]
    pub(super) fn with_key(&self, key: u32) -> Slots {
        let mut mask = 0u8;
        for (i, candidate) in self.keys.iter().enumerate() {
            mask |= u8::from(candidate.load(Ordering::Relaxed) == key) << i;
        }
        Slots(mask & self.occupied.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn key(&self, slot: Slot) -> u32 {
        // SAFETY: a slot is less than SLOTS.
        unsafe { self.keys.get_unchecked(usize::from(slot.0)) }.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn value(&self, slot: Slot) -> u64 {
        // SAFETY: a slot is less than SLOTS.
        unsafe { self.values.get_unchecked(usize::from(slot.0)) }.load(Ordering::Relaxed)
    }
}

/// A locked line; dropping it opens the lock.
#[derive(Debug)]
pub(super) struct LineGuard<'a>(&'a Line);

impl LineGuard<'_> {
    #[inline]
    pub(super) fn occupied(&self) -> Slots {
        Slots(self.0.occupied.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn vacant(&self) -> Slots {
        Slots(!self.0.occupied.load(Ordering::Relaxed) & ALL)
    }

    #[inline]
    pub(super) fn put(&self, slot: Slot, key: u32, value: u64) {
        // SAFETY: a slot is less than SLOTS.
        unsafe { self.0.keys.get_unchecked(usize::from(slot.0)) }.store(key, Ordering::Relaxed);
        self.set_value(slot, value);
        self.0.occupied.store(self.occupied().0 | (1 << slot.0), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn set_value(&self, slot: Slot, value: u64) {
        // SAFETY: a slot is less than SLOTS.
        unsafe { self.0.values.get_unchecked(usize::from(slot.0)) }.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn vacate(&self, slot: Slot) {
        self.0.occupied.store(self.occupied().0 & !(1 << slot.0), Ordering::Relaxed);
    }

    /// Leaves the line locked until [`Line::unlock`].
    pub(super) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Deref for LineGuard<'_> {
    type Target = Line;

    #[inline]
    fn deref(&self) -> &Line {
        self.0
    }
}

impl Drop for LineGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}
