//! The common case of an insertion and of a removal, without a call of another function and without a wait: the heap page
//! is open and free, the array has room, a new block's home is empty or the place behind it, if it has one.
//!
//! A caller inside malloc that needs nothing else then keeps no registers for later. Wherever anything is unusual, nothing
//! has changed, and the caller calls [`Table::insert`] or [`Table::remove`].

use super::cell::{self, is_granule};
use super::{Block, Removed, Table, arena};
use crate::order::{as_whole, here};

impl Table {
    /// Inserts a block, as [`Table::insert`]; its site is at most [`super::MAX_SITE`]. `false`: nothing was done.
    #[inline(always)]
    #[must_use]
    pub fn insert_fast(&self, address: usize, block: &Block, now: u32) -> bool {
        if self.clock.is_due(now) || block.size >= cell::SHORT || !is_granule(address) {
            return false;
        }
        let tag = cell::tag_at(address);
        // So neither the site nor the generation takes a register any longer.
        let cell = here(cell::cells(tag, block.site, block.generation, block.size).0);
        let Some(leaf) = self.dense.leaves.get(address) else { return false };
        let heap_page = as_whole(leaf.heap_page(address));
        let Some(word) = heap_page.hold_fast(self.is_shared()) else { return false };
        let array = self.dense.arena.array(word);
        let (place, is_free) = if array.is_short() {
            (word.used(), array.lists_none(tag))
        } else {
            let home = array.home(tag);
            let other = array.get(home);
            // Behind another block, if that place is empty: then the array holds no more blocks of this home.
            let place = if other == 0 { home } else { array.next(home) };
            (place, other == 0 || array.get(place) == 0 && cell::tag(other) != tag)
        };
        if !is_free || word.used() >= arena::room(word.len()) {
            heap_page.put(word);
            return false;
        }
        array.set(place, cell);
        heap_page.put(word.with_more());
        true
    }

    /// Inserts a block where [`Table::insert_fast`] would not, because its home is taken: by the order of homes, into an
    /// array that has room. `false`: nothing was done.
    #[inline(always)]
    #[must_use]
    pub fn insert_in_order(&self, address: usize, block: &Block, now: u32) -> bool {
        if self.clock.is_due(now) || block.size >= cell::SHORT || !is_granule(address) {
            return false;
        }
        let tag = cell::tag_at(address);
        let Some(leaf) = self.dense.leaves.get(address) else { return false };
        let heap_page = leaf.heap_page(address);
        let Some(word) = heap_page.hold_fast(self.is_shared()) else { return false };
        let mut array = self.dense.arena.array(word);
        let has_place = word.used() < arena::room(word.len()) && array.find(tag).is_none();
        if has_place {
            array.put(cell::cells(tag, block.site, block.generation, block.size).0);
        }
        heap_page.put(array.word());
        has_place
    }

    /// Removes the block at `address`, as [`Table::remove`], if `ready` returns something for it. The last value returned
    /// says whether [`Table::tidy`] has to be called. `None`: nothing was done.
    #[inline(always)]
    pub fn remove_fast<R>(
        &self,
        address: usize,
        now: u32,
        ready: impl FnOnce(&Removed) -> Option<R>,
    ) -> Option<(Removed, R, bool)> {
        if self.clock.is_due(now) || !is_granule(address) {
            return None;
        }
        let heap_page = as_whole(self.dense.leaves.get(address)?.heap_page(address));
        let word = heap_page.hold_fast(self.is_shared())?;
        let mut array = self.dense.arena.array(word);
        let mut removed = None;
        if let Some((place, cell)) = array.find_short(cell::tag_at(address)) {
            let block = cell::decode_short(cell, now);
            if let Some(ready) = ready(&block) {
                array.take(place);
                removed = Some((block, ready));
            }
        }
        heap_page.put(array.word());
        let (block, ready) = removed?;
        let is_to_tidy = arena::is_roomy(array.word()) && !self.dense.waiting.holds(address);
        Some((block, ready, is_to_tidy))
    }
}
