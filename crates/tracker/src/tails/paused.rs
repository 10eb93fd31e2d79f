//! What others than a block's owner do with records, while the world is paused: list them, and move them to a table. Meanwhile
//! an owner may claim its block ([`Tails::claim`]): it is whose clearing of the bit succeeds.

use core::ops::Range;
use core::sync::atomic::Ordering;

use super::record::usable_by;
use super::{GENERATIONS, GRANULE_SHIFT, LEAF_SHIFT, Leaf, Tails, WORD_SHIFT, decode};
use crate::mmap;
use crate::table::{Block, Inserted, Removed, Table};

const PAGE: usize = 4096;
const PAGE_WORDS: usize = PAGE / 8;

/// Words of the bitmap that count as one block for [`Tails::step`].
const WORDS_A_BLOCK: usize = 64;

impl Tails {
    /// Goes on with a pass over all blocks, and moves some to `table`: all if they are to leave ([`Tails::leave`]), else those
    /// that will soon be too old for their records. Their records are void then. Visits about `most` blocks; `true`: the pass is
    /// done. The world is paused, but may go on between two steps. `read` reads a word of memory, or says that there is none.
    /// `dropped` gets those that the table does not take. A damaged record of a block that is to leave counts as damaged.
    #[inline(always)]
    pub fn step(
        &self,
        table: &Table,
        now: u32,
        mut read: impl FnMut(usize) -> Option<u64>,
        mut dropped: impl FnMut(Removed),
        most: usize,
    ) -> bool {
        let least = if self.is_leaving() { 0 } else { GENERATIONS };
        let mut left = most;
        let [in_leaves, in_words] = &self.reached;
        let (first, mut from) = (in_leaves.load(Ordering::Relaxed), in_words.load(Ordering::Relaxed));
        for (place, (index, leaf)) in self.known().enumerate().skip(first) {
            // SAFETY: leaves are never unmapped.
            let words = unsafe { &*leaf }.0.iter().enumerate().skip(from);
            for (number, word) in words {
                if left == 0 {
                    self.reach(place, number);
                    return false;
                }
                left = left.saturating_sub(usize::from(number.is_multiple_of(WORDS_A_BLOCK)));
                for address in addresses(index, number, word.load(Ordering::Relaxed)) {
                    left = left.saturating_sub(1);
                    let found = self.read_record(address, now, &mut read);
                    if found.is_some_and(|block| block.age < least) || found.is_none() && least != 0 {
                        continue;
                    }
                    // Its owner may be taking it out at this moment ([`Tails::claim`]).
                    if !self.forget(address) {
                        continue;
                    }
                    let Some(block) = found else {
                        self.damage.lost(1);
                        continue;
                    };
                    let Removed { site, size, age } = block;
                    let again = Block { site, size, generation: now.wrapping_sub(age) };
                    match table.insert(address, again, now) {
                        Inserted::New => {}
                        // Its own free was missed, too.
                        Inserted::Replaced(stale) => dropped(stale),
                        Inserted::Full => dropped(block),
                    }
                }
            }
            from = 0;
        }
        self.reach(0, 0);
        self.looked.store(now, Ordering::Relaxed);
        true
    }

    /// No block has a record from here on, because nobody may read them: each counts as damaged. The world is paused.
    pub fn give_up(&self) {
        let bits = |leaf: *mut Leaf| {
            // SAFETY: leaves are never unmapped.
            unsafe { &*leaf }
                .0
                .iter()
                .map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()))
                .sum::<u64>()
        };
        let lost = self.known().map(|(_, leaf)| bits(leaf)).sum();
        self.damage.lost(lost);
        self.end();
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
                for address in addresses(index, number, word.load(Ordering::Relaxed)) {
                    if let Some(found) = self.read_record(address, now, &mut read) {
                        visit(address, found);
                    }
                }
            }
        }
    }

    /// What a block's record says, as it is read from outside; `None`: it is damaged.
    #[inline(always)]
    fn read_record(
        &self,
        address: usize,
        now: u32,
        read: &mut impl FnMut(usize) -> Option<u64>,
    ) -> Option<Removed> {
        let usable = read(address.wrapping_sub(8)).and_then(usable_by)?;
        let record = read(address.wrapping_add(usable as usize).wrapping_sub(8))?;
        decode(address, usable, record, now, self.salt())
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

/// The addresses of the blocks that a word of the bitmap stands for.
#[inline(always)]
fn addresses(index: usize, number: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let granule = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits.wrapping_sub(1);
        Some(index << LEAF_SHIFT | number << WORD_SHIFT | granule << GRANULE_SHIFT)
    })
}

/// Gives these pages of a leaf back, which are all zeroes.
fn give_back(leaf: *mut Leaf, pages: &Range<usize>) {
    if !pages.is_empty() {
        let from = leaf.cast::<u8>().wrapping_add(pages.start.wrapping_mul(PAGE));
        mmap::discard(from, pages.len().wrapping_mul(PAGE));
    }
}
