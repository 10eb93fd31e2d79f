//! The common case of an insertion and of a removal, without a call of another function and without a wait: the heap page
//! is open and free, the array has room, a new block's home is empty or the place behind it, if it has one.
//!
//! A caller inside malloc that needs nothing else then keeps no registers for later. Wherever anything is unusual, nothing
//! has changed, and the caller calls [`Table::insert`] or [`Table::remove`].

use super::cell::{self, is_granule};
use super::lengths::is_to_settle;
use super::page_map::Word;
use super::{Block, Removed, Table, arena};
use crate::order::{as_whole, here};

impl Table {
    /// Inserts a block, as [`Table::insert`]; its site is at most [`super::MAX_SITE`]. `false`: nothing was done.
    #[inline(always)]
    #[must_use]
    pub fn insert_at_once(&self, address: usize, block: &Block, now: u32) -> bool {
        if self.clock.is_due(now) || block.size >= cell::SHORT || !is_granule(address) {
            return false;
        }
        let tag = cell::tag_at(address);
        // So neither the site nor the generation takes a register any longer.
        let cell = here(cell::cells(tag, block.site, block.generation, block.size).0);
        let Some(leaf) = self.dense.leaves.get(address) else { return false };
        let heap_page = as_whole(leaf.heap_page(address));
        let Some(word) = heap_page.hold_at_once(self.is_shared()) else { return false };
        let array = self.dense.arena.array(word);
        let used = word.used();
        let (place, has_room) = if array.is_short() {
            (used, used < word.len() && array.first_listed(tag) >= used)
        } else {
            let home = array.home(tag);
            let other = array.get(home);
            // Behind another block, if that place is empty: then the array holds no more blocks of this home.
            let place = if other == 0 { home } else { array.next(home) };
            let is_free = other == 0 || array.get(place) == 0 && cell::tag(other) != tag;
            (place, is_free && used < arena::room(word.len()))
        };
        if !has_room {
            heap_page.put(word);
            return false;
        }
        array.set(place, cell);
        heap_page.put(word.with_more(1));
        true
    }

    /// Inserts a block where [`Table::insert_at_once`] would not, because its home is taken: by the order of homes, into an
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
        let Some(word) = heap_page.hold_at_once(self.is_shared()) else { return false };
        let array = self.dense.arena.array(word);
        let gap = match array.is_short() || word.used() >= arena::room(word.len()) {
            true => None,
            false => array.seek(tag).missing(),
        };
        let Some(gap) = gap else {
            heap_page.put(word);
            return false;
        };
        let way = array.put_into(gap, cell::cells(tag, block.site, block.generation, block.size).0);
        heap_page.put(self.dense.shorten_ways(word.with_more(1), address, way, &self.budget));
        true
    }

    /// Removes the block at `address`, as [`Table::remove`], if `ready` returns something for it. The last value returned
    /// says whether [`Table::tidy`] has to be called. `None`: nothing was done.
    #[inline(always)]
    pub fn remove_at_once<R>(
        &self,
        address: usize,
        now: u32,
        ready: impl FnOnce(&Removed) -> Option<R>,
    ) -> Option<(Removed, R, bool)> {
        if self.clock.is_due(now) || !is_granule(address) {
            return None;
        }
        let heap_page = as_whole(self.dense.leaves.get(address)?.heap_page(address));
        let word = heap_page.hold_at_once(self.is_shared())?;
        let array = self.dense.arena.array(word);
        let (tag, used) = (cell::tag_at(address), word.used());
        let found = if array.is_short() { array.find_listed(tag, used) } else { array.find_short(tag) };
        let mut removed = None;
        if let Some((place, cell)) = found {
            let block = cell::decode_short(cell, now);
            if let Some(ready) = ready(&block) {
                if array.is_short() {
                    array.take_listed(place, used);
                } else {
                    array.take(place);
                }
                removed = Some((block, ready));
            }
        }
        let left = if removed.is_some() { word.with_fewer(1) } else { word };
        heap_page.put(left);
        let (block, ready) = removed?;
        Some((block, ready, self.is_to_tidy(address, left)))
    }

    #[inline(always)]
    fn is_to_tidy(&self, address: usize, left: Word) -> bool {
        is_to_settle(left) && !self.dense.roomy.waits(address)
    }
}
