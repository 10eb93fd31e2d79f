//! Routing: blocks in dense parts of the heap live in cells ([`super::dense`]), all others in buckets.
//!
//! This is decided for each heap page, 8 KiB of the heap: all blocks of an open heap page are in cells, all blocks of
//! a closed one in buckets. A heap page is closed at first and opens when enough blocks live in it; then its blocks
//! are moved. It closes again when none is left and another heap page waits in its place
//! ([`super::dense::Waiting`]). The hash keeps the blocks of 4 KiB together, so not all buckets
//! need to be searched for them.
//!
//! Rule for neighbours: a thread that has found a heap page closed locks the bucket of the block and checks the heap
//! page once more. A thread that opens a heap page first marks it as opening, and then locks these buckets one by one. So no thread works on a block that is being moved.
//!
//! Blocks whose addresses are not multiples of 16 always live in the buckets.

use core::ops::{ControlFlow, Range};

use super::budget::Budget;
use super::cell::{self, is_granule};
use super::dense::{self, Dense, Placed};
use super::hash::{self, Hash};
use super::operations::Accept;
use super::page_map::{HEAP_PAGE_SHIFT, HeapPage, Word};
use super::shards::Overflows;
use super::{Block, Inserted, Removed, Table, packed};

const _: () = assert!(hash::UNIT_SHIFT <= HEAP_PAGE_SHIFT);

/// The units of the heap page around `address`.
fn units(address: usize) -> Range<usize> {
    let first = (address >> HEAP_PAGE_SHIFT) << (HEAP_PAGE_SHIFT - hash::UNIT_SHIFT);
    first..first + (1 << (HEAP_PAGE_SHIFT - hash::UNIT_SHIFT))
}

/// A heap page that this thread is opening. No other thread uses its blocks meanwhile.
struct Opening<'a> {
    dense: &'a Dense,
    heap_page: &'a HeapPage,
    address: usize,
    word: Word,
    complete: bool,
}

impl Opening<'_> {
    /// Copies a block from the buckets, which keep it until all blocks are copied.
    fn take_in(&mut self, address: usize, block: Removed, now: u32, budget: &Budget) {
        let birth = now.wrapping_sub(block.age);
        let cells = cell::cells(cell::tag_at(address), block.site, birth, block.size);
        match self.dense.take_in(self.word, self.address, cells, budget) {
            Some(word) => self.word = word,
            None => self.complete = false,
        }
    }

    /// Puts all blocks back into the buckets, which still hold some of them.
    fn take_back(&mut self, to_bucket: impl Fn(usize, Removed) -> bool, now: u32) {
        self.complete = false;
        self.dense.each_block(self.address, self.word, now, |address, block| {
            // If this fails because the holder of the block's bucket does not release it in time, the bucket mostly
            // still holds the block.
            let _ = to_bucket(address, block);
        });
    }

    /// Ends the opening: the heap page is now open, or closed again if not all blocks found room.
    fn done(self, budget: &Budget) {
        if self.complete {
            self.heap_page.put(self.word);
        } else {
            self.dense.end(self.heap_page, self.address, self.word, budget);
        }
    }
}

impl Table {
    /// Inserts a block into cells or a bucket.
    #[inline(never)]
    pub(super) fn route_insertion(&self, address: usize, block: Block, now: u32) -> Inserted {
        loop {
            if is_granule(address) {
                let shared = self.is_shared();
                match self.dense.insert(address, &block, now, shared, &self.budget) {
                    Placed::New => return Inserted::New,
                    Placed::Replaced(stale) => return Inserted::Replaced(stale),
                    Placed::NoMemory => return Inserted::Full,
                    Placed::Closed => {}
                }
            }
            if let Some(inserted) = self.insert_sparse(address, block, now) {
                return inserted;
            }
            if !self.dense.wait(address) {
                return Inserted::Full;
            }
        }
    }

    /// Insertion into a heap page that was closed a moment ago. `None`: it no longer is.
    fn insert_sparse(&self, address: usize, block: Block, now: u32) -> Option<Inserted> {
        let inserted = self.insert_into_buckets(address, block, now, Accept::ClosedPages)?;
        if inserted == Inserted::New
            && block.size < dense::SPARSE
            && is_granule(address)
            && self.count_in_buckets(address) >= dense::OPENS_AT
        {
            self.open_page(address, now);
        }
        Some(inserted)
    }

    /// Removes a block from cells or a bucket.
    #[inline(never)]
    pub(super) fn route_removal(&self, address: usize, now: u32) -> Option<Removed> {
        loop {
            if is_granule(address)
                && let ControlFlow::Break(taken) =
                    self.dense.remove(address, now, self.is_shared(), &self.budget)
            {
                return taken;
            }
            match self.take_from_buckets(address, now) {
                ControlFlow::Break(removed) => return removed,
                ControlFlow::Continue(()) if self.dense.wait(address) => {}
                ControlFlow::Continue(()) => return None,
            }
        }
    }

    /// Makes the array of the heap page that waits longest shorter, or closes that heap page, because the one at
    /// `address` waits now: [`Table::remove_fast`] has said that it should.
    #[cold]
    #[inline(never)]
    pub fn tidy(&self, address: usize) {
        self.dense.tidy(address, self.is_shared(), &self.budget);
    }

    /// Puts a block of a heap page that cannot open back into the buckets. Returns `false` if there is no memory.
    fn move_to_bucket(&self, address: usize, block: Removed, now: u32) -> bool {
        let Removed { site, size, age } = block;
        let block = Block { site, size, generation: now.wrapping_sub(age) };
        !matches!(
            self.insert_into_buckets(address, block, now, Accept::AllPages),
            None | Some(Inserted::Full)
        )
    }

    /// The block at `address`, wherever it is.
    pub(super) fn peek(&self, address: usize, now: u32) -> Option<Removed> {
        loop {
            if is_granule(address)
                && let ControlFlow::Break(found) = self.dense.get(address, now, self.is_shared())
            {
                return found;
            }
            let decode = |value| packed::decode(value, now, |code| self.sizes.get(code));
            match self.find(address, decode) {
                ControlFlow::Break(found) => return found,
                ControlFlow::Continue(()) if self.dense.wait(address) => {}
                ControlFlow::Continue(()) => return None,
            }
        }
    }

    /// Number of blocks that the buckets hold of the heap page around `address`.
    fn count_in_buckets(&self, address: usize) -> usize {
        let mut blocks = 0;
        units(address).for_each(|unit| {
            self.visit_unit(unit, |_, _| blocks += 1);
        });
        blocks
    }

    /// Moves the blocks of a heap page from the buckets to cells.
    #[cold]
    #[inline(never)]
    fn open_page(&self, address: usize, now: u32) {
        let Some((heap_page, word)) = self.dense.begin_to_open(address, &self.budget) else { return };
        let mut opening = Opening { dense: &self.dense, heap_page, address, word, complete: true };
        // All blocks are copied before any is removed, so a lack of memory changes nothing.
        for unit in units(address) {
            let all = self.visit_unit(unit, |address, value| {
                let block = packed::decode(value, now, |code| self.sizes.get(code));
                opening.take_in(address, block, now, &self.budget);
            });
            if !all {
                opening.complete = false;
            }
        }
        if opening.complete && !units(address).all(|unit| self.empty_unit(unit, now)) {
            opening.take_back(|address, block| self.move_to_bucket(address, block, now), now);
        }
        opening.done(&self.budget);
    }

    /// Visits the entries of a unit that are in the buckets, each with its bucket locked. Returns `false` if not all
    /// were visited, because the holder of a bucket does not release it in time.
    fn visit_unit(&self, unit: usize, mut visit: impl FnMut(usize, u64)) -> bool {
        let (first, last) = Hash::of_unit(unit);
        let mut residue = first.residue;
        // This is mostly one bucket, seldom two.
        while residue <= last.residue {
            let Some(next) = self.visit_home(unit, Hash { shard: first.shard, residue }, &mut visit) else {
                return false;
            };
            residue = next;
        }
        true
    }

    /// Visits the entries of a unit that lie in the home bucket of a hash, from that hash on. Returns the residue at
    /// which the next bucket begins.
    ///
    /// Entries before the hash were already visited. If the shard has grown since, they may lie in this bucket now.
    fn visit_home(&self, unit: usize, from: Hash, visit: &mut impl FnMut(usize, u64)) -> Option<u64> {
        let home = self.home_unchecked(from)?;
        let overflows = Overflows::new(self, from.shard);
        let slots = home.bucket.occupied().map(|slot| (home.bucket.key(slot), home.bucket.value(slot)));
        let chain =
            overflows.chain(home.bucket.chain()).map(|(_, overflow)| (overflow.key(), overflow.value()));
        for (key, value) in slots.chain(chain) {
            let residue = packed::residue(value, key);
            let address = hash::address(from.shard, residue);
            if residue >= from.residue && address >> hash::UNIT_SHIFT == unit && is_granule(address) {
                visit(address, value);
            }
        }
        Some(Hash::next_home(from.residue, home.buckets.count()))
    }

    /// Removes the entries of a unit from the buckets. Returns `false` if not all were removed, because the holder of
    /// a bucket does not release it in time.
    fn empty_unit(&self, unit: usize, now: u32) -> bool {
        loop {
            let mut found = None;
            let all = self.visit_unit(unit, |address, _| found = Some(address));
            let Some(hash) = found.and_then(Hash::of_address) else { return all };
            let Some(home) = self.home_unchecked(hash) else { return false };
            let _ = self.take_at(home, hash, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::growth;
    use super::*;

    /// If the shard gets another bucket between two visits, entries move forward, from a visited bucket into the next
    /// one.
    #[test]
    fn a_unit_is_visited_once_while_its_shard_grows() {
        const SHARD: usize = 5;
        let table = Table::new();
        table.init(64 << 20).unwrap();
        let buckets = || table.spans[SHARD].load(SHARD);
        // Enough buckets that inserting a unit's blocks does not add more.
        while buckets().count() < 1000 {
            assert_eq!(table.grow(SHARD, buckets()), growth::Growth::Changed);
        }
        // The unit in which the second bucket begins.
        let boundary = Hash::next_home(0, buckets().count()) & !1;
        let unit = hash::address(SHARD, boundary) >> hash::UNIT_SHIFT;
        for address in (unit << hash::UNIT_SHIFT..(unit + 1) << hash::UNIT_SHIFT).step_by(16).take(256) {
            let block = Block { site: 1, size: 16, generation: 0 };
            let inserted = table.insert_into_buckets(address, block, 0, Accept::AllPages);
            assert_eq!(inserted, Some(Inserted::New));
        }
        let mut visits = std::collections::HashMap::<usize, u32>::new();
        let mut visit = |address, _| *visits.entry(address).or_default() += 1;
        let (first, last) = Hash::of_unit(unit);
        let next = table.visit_home(unit, first, &mut visit).unwrap();
        assert!(first.residue < next && next <= last.residue);
        assert_eq!(table.grow(SHARD, buckets()), growth::Growth::Changed);
        let rest = table.visit_home(unit, Hash { shard: SHARD, residue: next }, &mut visit).unwrap();
        assert!(last.residue < rest);
        assert_eq!((visits.len(), visits.values().sum::<u32>()), (256, 256));
    }
}
