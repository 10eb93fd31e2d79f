//! What others than a block's owner do with records, while the world is paused: list them, and move them to a table. Meanwhile
//! an owner may claim its block ([`Tails::claim`]): it is whose clearing of the bit succeeds.

use core::ops::Range;
use core::sync::atomic::Ordering;

use super::{GENERATIONS, GRANULE_SHIFT, LEAF_SHIFT, Leaf, Tails, WORD_SHIFT, decode, usable_by};
use crate::mmap;
use crate::table::{Block, Inserted, Removed, Table};

const PAGE: usize = 4096;
const PAGE_WORDS: usize = PAGE / 8;

impl Tails {
    /// Moves blocks to `table` whose age is at least `least`; their records are void then. The world is paused. `dropped` gets
    /// those that the table does not take.
    ///
    /// # Safety
    /// `read` reads the process' own memory.
    #[inline(always)]
    pub unsafe fn move_to(
        &self,
        table: &Table,
        now: u32,
        least: u32,
        read: impl FnMut(usize) -> Option<u64>,
        mut dropped: impl FnMut(Removed),
    ) {
        self.for_each(now, read, |address, block| {
            // Its owner may be taking it out at this moment ([`Tails::claim`]).
            if block.age < least || !self.forget(address) {
                return;
            }
            let Removed { site, size, age } = block;
            let again = Block { site, size, generation: now.wrapping_sub(age) };
            match table.insert(address, again, now) {
                Inserted::New => {}
                // Its own free was missed, too.
                Inserted::Replaced(stale) => dropped(stale),
                Inserted::Full => dropped(block),
            }
        });
        self.looked.store(now, Ordering::Relaxed);
    }

    /// Moves blocks that will soon be too old for their records. See [`Tails::move_to`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn move_old(
        &self,
        table: &Table,
        now: u32,
        read: impl FnMut(usize) -> Option<u64>,
        dropped: impl FnMut(Removed),
    ) {
        // SAFETY: the caller's.
        unsafe { self.move_to(table, now, GENERATIONS, read, dropped) };
    }

    /// Visits all blocks with a record that is whole, in no order. The world is paused. `read` reads a word
    /// of memory, or says that there is none: a block whose free was missed may be gone.
    #[inline(always)]
    pub fn for_each(
        &self,
        now: u32,
        mut read: impl FnMut(usize) -> Option<u64>,
        mut visit: impl FnMut(usize, Removed),
    ) {
        for (index, leaf) in self.known() {
            // SAFETY: leaves are never unmapped.
            let leaf = unsafe { &*leaf };
            for (number, word) in leaf.0.iter().enumerate() {
                let mut bits = word.load(Ordering::Relaxed);
                while bits != 0 {
                    let granule = bits.trailing_zeros() as usize;
                    bits &= bits.wrapping_sub(1);
                    let address = index << LEAF_SHIFT | number << WORD_SHIFT | granule << GRANULE_SHIFT;
                    let usable = read(address.wrapping_sub(8)).and_then(usable_by);
                    let record =
                        usable.and_then(|usable| read(address.wrapping_add(usable as usize).wrapping_sub(8)));
                    if let Some(found) =
                        usable.zip(record).and_then(|(usable, record)| decode(address, usable, record, now))
                    {
                        visit(address, found);
                    }
                }
            }
        }
    }

    /// Gives back what of the bitmap holds nothing: also pages that were only looked at are resident. The world is paused.
    pub fn tidy(&self) {
        for (_, leaf) in self.known() {
            // SAFETY: leaves are never unmapped.
            let pages = unsafe { &*leaf }.0.chunks_exact(PAGE_WORDS);
            let mut empty = 0..0;
            for (number, page) in pages.enumerate() {
                if page.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
                    give_back(leaf, &empty);
                    empty = 0..0;
                } else if empty.is_empty() {
                    empty = number..number.wrapping_add(1);
                } else {
                    empty.end = number.wrapping_add(1);
                }
            }
            give_back(leaf, &empty);
        }
    }
}

/// Gives these pages of a leaf back, which are all zeroes.
fn give_back(leaf: *mut Leaf, pages: &Range<usize>) {
    if !pages.is_empty() {
        let from = leaf.cast::<u8>().wrapping_add(pages.start.wrapping_mul(PAGE));
        mmap::discard(from, pages.len().wrapping_mul(PAGE));
    }
}
