//! A plot on its way from the lines to cells.

use super::budget::Budget;
use super::leaf::Leaf;
use super::near::{Near, tag};
use super::plot::Word;
use super::{Removed, cell};

/// A plot that is being opened by this thread; nobody else touches its blocks meanwhile.
pub(super) struct Opening<'a> {
    pub(super) near: &'a Near,
    pub(super) leaf: &'a Leaf,
    pub(super) address: usize,
    pub(super) word: Word,
    pub(super) complete: bool,
}

impl Opening<'_> {
    /// Takes in a block from the lines, which holds it until all are in.
    pub(super) fn take_in(&mut self, address: usize, block: Removed, now: u32, budget: &Budget) {
        let birth = now.wrapping_sub(block.age);
        let (cell, extension) = cell::cells(tag(address), block.site, birth, block.size);
        match self.near.ensure(self.word, self.address, if extension == 0 { 1 } else { 2 }, 0, budget) {
            Some(word) => (self.word, _) = self.near.put(word, cell, extension),
            None => self.complete = false,
        }
    }

    /// Whether all blocks found room.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The plot is open from now on, or closed again if not all blocks found room.
    pub(super) fn done(self, budget: &Budget) {
        let plot = self.leaf.plot(self.address);
        if self.complete {
            plot.put(self.word);
        } else {
            self.near.end(self.leaf, self.address, self.word, budget);
        }
    }
}
