//! A quick filter for frees: it says which pages of the tracked heap hold no followed block.
//!
//! In sampled mode very few blocks are followed, and a free must find out with one load whether its block is
//! one of them. So there is a count for each page of 4 KiB, of the followed blocks that begin in it. Counts
//! of neighbouring pages are neighbours: 256 KiB of heap share a cache line, so a program that frees where it
//! allocates uses few of them. Addresses 4 GiB apart share a count, which only costs a needless lookup in the
//! table.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::mmap;

/// Addresses with the same bits from this one on share a count.
pub const PAGE_SHIFT: u32 = 12;
// The hook's stubs take the counts' bits with those of a register of 32.
const COUNTS: usize = 1 << (32 - PAGE_SHIFT);
/// A count that has reached this value stays, because the true number is no longer known.
const FULL: u8 = u8::MAX;
const PAGE: usize = 4096;
const WORDS: usize = COUNTS / PAGE / 64;

/// The counts. One lives in the hook.
#[derive(Debug)]
pub struct Filter {
    counts: AtomicPtr<AtomicU8>,
    /// Pages of the counts that were ever written.
    touched: [AtomicU64; WORDS],
}

impl Filter {
    /// Without memory: it reports no block anywhere.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "made to be part of a static")]
    pub const fn new() -> Self {
        Self { counts: AtomicPtr::new(ptr::null_mut()), touched: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// Reserves the address space. `false` if the kernel has none.
    pub fn init(&self) -> bool {
        if !self.counts.load(Ordering::Acquire).is_null() {
            return true;
        }
        let Some(counts) = mmap::reserve(COUNTS) else { return false };
        // Release: a thread that sees the memory sees zeroes.
        self.counts.store(counts.as_ptr().cast(), Ordering::Release);
        true
    }

    /// Whether a followed block may begin at `address`. It may be true for a block that is not followed, but never
    /// false for one that is.
    #[inline(always)]
    pub fn may_hold(&self, address: usize) -> bool {
        self.count(address).is_some_and(|count| count.load(Ordering::Relaxed) != 0)
    }

    /// Counts a block that is followed from now on. The caller ensures that one thread at a time changes counts.
    pub fn add(&self, address: usize) {
        let Some(count) = self.count(address) else { return };
        let now = count.load(Ordering::Relaxed);
        count.store(now.saturating_add(1), Ordering::Relaxed);
        let page = index(address) / PAGE;
        if let Some(word) = self.touched.get(page / 64) {
            word.store(word.load(Ordering::Relaxed) | 1 << (page % 64), Ordering::Relaxed);
        }
    }

    /// Subtracts a block that is no longer followed. The caller ensures the same as for [`Filter::add`].
    pub fn remove(&self, address: usize) {
        let Some(count) = self.count(address) else { return };
        let now = count.load(Ordering::Relaxed);
        if now != FULL {
            count.store(now.saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// Sets all counts to 0.
    pub fn clear(&self) {
        let counts = self.counts.load(Ordering::Acquire);
        if !counts.is_null() {
            mmap::discard(counts.cast(), COUNTS);
        }
        self.touched.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Where the counts begin; null before [`Filter::init`]. They stay there.
    pub fn start(&self) -> *mut u8 {
        self.counts.load(Ordering::Acquire).cast()
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        self.touched.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum::<usize>()
            * PAGE
    }

    #[inline(always)]
    fn count(&self, address: usize) -> Option<&AtomicU8> {
        let counts = self.counts.load(Ordering::Acquire);
        if counts.is_null() {
            return None;
        }
        // SAFETY: the mapping has COUNTS bytes, and is never unmapped.
        Some(unsafe { &*counts.add(index(address)) })
    }
}

#[inline(always)]
fn index(address: usize) -> usize {
    (address >> PAGE_SHIFT) & (COUNTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn filter() -> Filter {
        let filter = Filter::new();
        assert!(!filter.may_hold(0x1000));
        assert!(filter.init() && filter.init());
        filter
    }

    #[test]
    fn a_count_that_is_full_never_says_no() {
        let filter = filter();
        (0..300).for_each(|_| filter.add(0x5000));
        (0..300).for_each(|_| filter.remove(0x5010));
        assert!(filter.may_hold(0x5ff0));
        assert_eq!(filter.resident_bytes(), PAGE);
        filter.clear();
        assert!(!filter.may_hold(0x5ff0));
        assert_eq!(filter.resident_bytes(), 0);
    }

    proptest! {
        #[test]
        fn there_is_never_a_false_no(steps in proptest::collection::vec((0usize..1 << 16, any::<bool>()), 0..400)) {
            let filter = filter();
            let mut pages: HashMap<usize, usize> = HashMap::new();
            for (granule, add) in steps {
                let address = granule << 4;
                let count = pages.entry(address >> PAGE_SHIFT).or_default();
                if add {
                    filter.add(address);
                    *count += 1;
                } else if *count > 0 {
                    filter.remove(address);
                    *count -= 1;
                }
                prop_assert_eq!(filter.may_hold(address), *count > 0);
            }
        }
    }
}
