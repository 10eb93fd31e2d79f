//! How long the array of a plot is: as long as its blocks need, longer where more are on their way or many were a moment
//! ago.
//!
//! Rule for neighbours: all of this is for plots that the caller holds, but for [`Near::trim`], which takes hold of one itself:
//! it is called while no plot is held.

use super::budget::Budget;
use super::cell;
use super::near::{Near, granule};
use super::plot::Word;
use super::store;

/// How much longer an array becomes at once where more blocks are expected.
const MOST_GROWTH: usize = 4;

/// From so many cells on an array grows further than it must: up to 14 bytes a cell.
const MANY: usize = 14;

/// Whether a plot may have to close, or its array is longer than it should be. Short ones are held closer, for there are many
/// of them.
#[inline]
pub(super) fn is_to_settle(word: Word) -> bool {
    let (used, len) = (word.used(), word.len());
    (used * 2 <= len || (len <= 20 && used * 4 + 4 <= len * 3)) && (used <= 2 || snug(word).is_some())
}

/// The length that an array should have with what it holds, if that is less.
pub(super) fn snug(word: Word) -> Option<usize> {
    let used = word.used();
    store::length_for(used + used / 6 + 1).filter(|len| *len < word.len())
}

/// The length that an array grows to for so many cells.
fn grown_length(used: usize) -> Option<usize> {
    let least = store::length_for(used)?;
    if used < MANY { Some(least) } else { Some(store::length_within(used * 7 / 4)?.max(least)) }
}

impl Near {
    /// How many cells a plot will have whose blocks come upwards, one behind the other, if it goes on as it began; 0 for
    /// any other plot. Without that its array would be copied a dozen times until it has its length.
    pub(super) fn expected(&self, word: Word, cell: u64) -> usize {
        if word.used() < store::room(word.len()) {
            return 0;
        }
        let new = granule(cell::tag(cell));
        let (mut first, mut last) = (new, 0);
        for (_, cell) in self.array(word).cells() {
            let granule = granule(cell::tag(cell));
            (first, last) = (first.min(granule), last.max(granule));
        }
        if new <= last {
            return 0;
        }
        let (span, whole) = (new - first, (1 << cell::TAG_BITS) - first);
        let wanted = (word.used() * whole).checked_div(span).unwrap_or(0);
        wanted.min(word.used() * MOST_GROWTH)
    }

    /// Makes the array at `address` as short as its blocks allow: they have not come as expected.
    #[cold]
    #[inline(never)]
    pub(super) fn trim(&self, address: usize, shared: bool, budget: &Budget) {
        let Some(leaf) = self.leaves.get(address) else { return };
        let plot = leaf.plot(address);
        let Some(mut word) = plot.hold(shared).open() else { return };
        if let Some(len) = snug(word)
            && let Some(trimmed) = self.resize(word, address, len, budget)
        {
            word = trimmed;
        }
        plot.put(word);
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
        if used <= store::room(word.len()) {
            return Some(word);
        }
        let longer = |cells| store::length_for(cells).and_then(|len| self.resize(word, address, len, budget));
        let ahead = if expected > used { longer(expected) } else { None };
        let grown = ahead
            .or_else(|| self.resize(word, address, grown_length(used)?, budget))
            .or_else(|| longer(used));
        if grown.is_none() && used < word.len() { Some(word) } else { grown }
    }

    /// Moves the cells of a held plot into an array of another length.
    #[cold]
    #[inline(never)]
    pub(super) fn resize(&self, word: Word, address: usize, len: usize, budget: &Budget) -> Option<Word> {
        let new = Word::new(self.store.take(address, len, budget)?, len, word.used());
        let (from, to) = (self.array(word), self.array(new));
        to.empty();
        to.fill(from);
        self.store.give(address, word.array(), word.len(), budget);
        Some(new)
    }
}
