//! How long the array of a heap page is: as long as its blocks need, or longer if more blocks are expected or if many
//! were there a moment ago. It also lists the open heap pages that may have to close or to get a shorter array.
//!
//! A nearly empty heap page is not closed at once, because the next blocks often come to the addresses of those that
//! were freed last. Ruby's sweep frees most blocks of a heap page in a row: an array that followed at once would be
//! copied again and again. So the heap page waits ([`Idle`]) until another one takes its place there.
//!
//! Rule for neighbours: the caller holds the heap pages whose arrays it passes.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::arena::{self, Arena};
use super::array::Array;
use super::budget::Budget;
use super::cell;
use super::page_map::{HEAP_PAGE_SHIFT, Word};

/// Greatest factor by which an array grows at once if more blocks are expected.
const MOST_GROWTH: usize = 4;

/// From this many cells on, an array grows further than it must: up to 14 bytes a cell.
const MANY: usize = 14;

/// Whether a heap page may have to close, or its array is longer than it should be. Short arrays are checked more
/// strictly, because there are many of them. Each free asks this, so it is a look at a word of the code.
#[inline(always)]
pub(super) fn is_to_settle(word: Word) -> bool {
    let (used, len) = (word.used(), word.len());
    match SHORT.get(len / 2) {
        Some(most) => used <= usize::from(*most),
        None => used * 2 <= len,
    }
}

/// Cells with which arrays of at most 20 are to settle, by half of their length.
const SHORT: [u8; 11] = {
    let mut most = [0; 11];
    let mut len = 0;
    while len <= 20 {
        let mut used = 0;
        while used <= len {
            if settles(used, len) {
                most[len / 2] = used as u8;
            }
            used += 1;
        }
        len += 2;
    }
    most
};

/// What [`is_to_settle`] asks, with all that it says.
const fn settles(used: usize, len: usize) -> bool {
    let is_roomy = used * 2 <= len || (len <= 20 && used * 4 + 4 <= len * 3);
    is_roomy && (used <= 2 || has_shorter(used, len))
}

/// Whether an array of this length would become shorter.
const fn has_shorter(used: usize, len: usize) -> bool {
    matches!(arena::length_for(wanted(used)), Some(snug) if snug < len)
}

/// What an array is meant to have room for that holds so many cells.
const fn wanted(used: usize) -> usize {
    used + used / 6 + 1
}

/// The length that an array should have for its present cells, if that is less than its length.
pub(super) fn snug(word: Word) -> Option<usize> {
    let used = word.used();
    arena::length_for(wanted(used)).filter(|len| *len < word.len())
}

/// The length that an array gets when it grows to hold this many cells.
fn grown_length(used: usize) -> Option<usize> {
    let least = arena::length_for(used)?;
    if used < MANY { Some(least) } else { Some(arena::length_within(used * 7 / 4)?.max(least)) }
}

impl Arena {
    /// The array of an open heap page.
    #[inline(always)]
    pub(super) fn array(&self, word: Word) -> Array {
        // SAFETY: an open heap page's word names an array in the arena with its length. The array belongs to this
        // heap page and is never full.
        unsafe { Array::new(self.cells(word.array()), word.len()) }
    }

    /// Prefetches the cell that a block at `address` may have, whose heap page has this word.
    #[inline(always)]
    pub(super) fn prefetch(&self, word: Word, address: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            let array = self.array(word);
            let home = if array.is_short() { 0 } else { array.home(cell::tag_at(address)) };
            // SAFETY: a prefetch has no effect on the program's state.
            unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(
                    self.cells(word.array()).wrapping_add(home).cast(),
                );
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (word, address);
    }

    /// Predicts how many cells a heap page will have if its blocks so far lie one behind the other, upwards, and go
    /// on like that; 0 for any other heap page. Without this, its array would be copied a dozen times before it has
    /// its final length.
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

    /// Makes room for `cells` more, and for as many as are expected if the array must grow anyway. If there is no
    /// memory, the eighth that should stay empty is used, except the last place.
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

/// Addresses of heap pages, each at the place that the address determines.
#[derive(Debug)]
pub(super) struct Idle([AtomicUsize; PLACES]);

impl Idle {
    pub(super) const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; PLACES])
    }

    /// Stores the heap page around `address`, and returns the one that was at its place.
    // Relaxed: a caller locks the returned heap page before it acts on it.
    #[inline]
    pub(super) fn wait(&self, address: usize) -> Option<usize> {
        let heap_page = address >> HEAP_PAGE_SHIFT;
        let place = self.0.get(heap_page % PLACES)?;
        if place.load(Ordering::Relaxed) == heap_page { None } else { Self::replace(place, heap_page) }
    }

    /// Whether the heap page around `address` is at its place.
    #[inline(always)]
    pub(super) fn waits(&self, address: usize) -> bool {
        let heap_page = address >> HEAP_PAGE_SHIFT;
        // The remainder keeps the index inside the array, so that no bounds check (and no panic) is left.
        self.0[heap_page % PLACES].load(Ordering::Relaxed) == heap_page
    }

    #[cold]
    #[inline(never)]
    fn replace(place: &AtomicUsize, heap_page: usize) -> Option<usize> {
        let before = place.swap(heap_page, Ordering::Relaxed);
        (before != heap_page && before != 0).then_some(before << HEAP_PAGE_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_to_settle_with_just_the_cells_that_its_length_says() {
        for len in arena::lengths() {
            for used in 0..=len {
                let word = Word::new(1, len, used);
                assert_eq!(is_to_settle(word), settles(used, len), "{used} of {len}");
                assert!(used <= 2 || !settles(used, len) || snug(word).is_some(), "{used} of {len}");
            }
        }
    }
}
