//! How long the array of a heap page is: as long as its blocks need, longer where more are on their way or many were a moment
//! ago. And which open heap pages may be about to close, or their arrays to become shorter.
//!
//! A heap page of which little is left is not closed at once: the next blocks often come to where the last ones went. And a
//! sweep of Ruby's takes most blocks of a heap page in a row: an array that followed would be copied for every few of them.
//! So a heap page waits ([`Idle`]) until another one wants its place.
//!
//! Rule for neighbours: arrays are those of heap pages that the caller holds.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::arena::{self, Arena};
use super::array::Array;
use super::budget::Budget;
use super::cell;
use super::page_map::{HEAP_PAGE_SHIFT, Word};

/// How much longer an array becomes at once where more blocks are expected.
const MOST_GROWTH: usize = 4;

/// From so many cells on an array grows further than it must: up to 14 bytes a cell.
const MANY: usize = 14;

/// Whether a heap page may have to close, or its array is longer than it should be. Short ones are held closer, for
/// there are many of them.
#[inline]
pub(super) fn is_to_settle(word: Word) -> bool {
    let (used, len) = (word.used(), word.len());
    (used * 2 <= len || (len <= 20 && used * 4 + 4 <= len * 3)) && (used <= 2 || snug(word).is_some())
}

/// The length that an array should have with what it holds, if that is less.
pub(super) fn snug(word: Word) -> Option<usize> {
    let used = word.used();
    arena::length_for(used + used / 6 + 1).filter(|len| *len < word.len())
}

/// The length that an array grows to for so many cells.
fn grown_length(used: usize) -> Option<usize> {
    let least = arena::length_for(used)?;
    if used < MANY { Some(least) } else { Some(arena::length_within(used * 7 / 4)?.max(least)) }
}

impl Arena {
    /// The array of an open heap page.
    #[inline]
    pub(super) fn array(&self, word: Word) -> Array {
        // SAFETY: a word names an array of its length in the arena, which is its heap page's own and never full.
        unsafe { Array::new(self.cells(word.array()), word.len()) }
    }

    /// How many cells a heap page will have whose blocks come upwards, one behind the other, if it goes on as it began; 0 for
    /// any other heap page. Without that its array would be copied a dozen times until it has its length.
    pub(super) fn expected(&self, word: Word, cell: u64) -> usize {
        if word.used() < arena::room(word.len()) {
            return 0;
        }
        let new = cell::granule(cell::tag(cell));
        let (mut first, mut last) = (new, 0);
        for (_, cell) in self.array(word).cells() {
            let granule = cell::granule(cell::tag(cell));
            (first, last) = (first.min(granule), last.max(granule));
        }
        if new <= last {
            return 0;
        }
        let (span, whole) = (new - first, (1 << cell::TAG_BITS) - first);
        let wanted = (word.used() * whole).checked_div(span).unwrap_or(0);
        wanted.min(word.used() * MOST_GROWTH)
    }

    /// Room for some cells more, and for as many as are expected if it is not there anyway. Without memory the eighth that
    /// should stay empty is used, but for the last place.
    pub(super) fn ensure(
        &self,
        word: Word,
        address: usize,
        cells: usize,
        expected: usize,
        budget: &Budget,
    ) -> Option<Word> {
        let used = word.used() + cells;
        if used <= arena::room(word.len()) {
            return Some(word);
        }
        let longer = |cells| arena::length_for(cells).and_then(|len| self.resize(word, address, len, budget));
        let ahead = if expected > used { longer(expected) } else { None };
        let grown = ahead
            .or_else(|| self.resize(word, address, grown_length(used)?, budget))
            .or_else(|| longer(used));
        if grown.is_none() && used < word.len() { Some(word) } else { grown }
    }

    /// Moves the cells of a held heap page into an array of another length.
    #[cold]
    #[inline(never)]
    pub(super) fn resize(&self, word: Word, address: usize, len: usize, budget: &Budget) -> Option<Word> {
        let new = Word::new(self.take(address, len, budget)?, len, word.used());
        let (from, to) = (self.array(word), self.array(new));
        to.empty();
        to.fill(from);
        self.give(address, word.array(), word.len(), budget);
        Some(new)
    }
}

const PLACES: usize = 256;

/// Heap pages with their addresses, each in the place that its address says.
#[derive(Debug)]
pub(super) struct Idle([AtomicUsize; PLACES]);

impl Idle {
    pub(super) const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; PLACES])
    }

    /// Notes the heap page around `address` and answers the one that had its place.
    // Relaxed: who acts on an answer takes hold of the heap page first.
    pub(super) fn wait(&self, address: usize) -> Option<usize> {
        let heap_page = address >> HEAP_PAGE_SHIFT;
        let place = self.0.get(heap_page % PLACES)?;
        if place.load(Ordering::Relaxed) == heap_page {
            return None;
        }
        let before = place.swap(heap_page, Ordering::Relaxed);
        (before != heap_page && before != 0).then_some(before << HEAP_PAGE_SHIFT)
    }
}
