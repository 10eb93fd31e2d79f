//! One table of two halves: blocks where they are dense live in cells ([`super::near`]), all others in lines.
//!
//! Which half is a matter of the plot, 8 KiB of the heap: all blocks of an open plot are in cells, all of a closed one in
//! lines. A plot is closed in the beginning and opens when enough blocks live in it; then its blocks move. When one is
//! left at most, and another plot has taken its place in [`super::idle`], it closes again. The hash
//! keeps blocks of 4 KiB together, so that the lines need not be searched for them.
//!
//! Rule for neighbours: whoever has found a plot closed locks the line of the block and looks once more. Who opens or closes a plot
//! first says so and then locks these lines one by one. So nobody works on a block that moves.
//!
//! Addresses that are no multiple of 16 always live in the lines.

use core::ops::{ControlFlow, Range};

use super::hash::{self, Hash};
use super::leaf::PLOT_SHIFT;
use super::near::{self, Placed};
use super::operations::{Whither, birth};
use super::shards::Nodes;
use super::{Block, Inserted, Removed, Table, Taken, packed};

const _: () = assert!(hash::UNIT_SHIFT <= PLOT_SHIFT);

/// The units of the plot around `address`.
fn units(address: usize) -> Range<usize> {
    let first = (address >> PLOT_SHIFT) << (PLOT_SHIFT - hash::UNIT_SHIFT);
    first..first + (1 << (PLOT_SHIFT - hash::UNIT_SHIFT))
}

impl Table {
    /// Puts a block into its half.
    #[inline]
    pub(super) fn insert_into_half(&self, address: usize, block: Block, now: u32) -> Inserted {
        if near::is_granule(address) {
            let shared = self.is_shared();
            match self.near.insert(address, &block, birth(&block, now), now, shared, &self.budget) {
                Placed::New => return Inserted::New,
                Placed::Replaced(stale) => return Inserted::Replaced(stale),
                Placed::NoMemory => return Inserted::Full,
                Placed::Closed => {}
            }
        }
        self.insert_apart(address, block, now)
    }

    /// Insertion where the plot was closed a moment ago.
    #[inline(never)]
    fn insert_apart(&self, address: usize, block: Block, now: u32) -> Inserted {
        let Some(inserted) = self.insert_into_lines(address, block, now, Whither::WhereClosed) else {
            if !self.near.wait(address) {
                return Inserted::Full;
            }
            return self.insert_into_half(address, block, now);
        };
        if inserted == Inserted::New
            && block.size < near::SPARSE
            && near::is_granule(address)
            && self.count_in_lines(address) >= near::DENSE
        {
            self.open_plot(address, now);
        }
        inserted
    }

    /// Takes a block out of its half.
    #[inline]
    pub(super) fn remove_from_half(&self, address: usize, now: u32) -> Taken {
        if near::is_granule(address) {
            let apart = |address, block| self.move_apart(address, block, now);
            let removed = self.near.remove(address, now, self.is_shared(), &self.budget, apart);
            if let ControlFlow::Break(taken) = removed {
                return taken;
            }
        }
        self.remove_apart(address, now)
    }

    /// Puts a block of a plot that closes into the lines; `false`: there is no memory.
    fn move_apart(&self, address: usize, block: Removed, now: u32) -> bool {
        let Removed { site, size, age } = block;
        let block = Block { site, size, generation: now.wrapping_sub(age) };
        self.insert_into_lines(address, block, now, Whither::Anyway) == Some(Inserted::New)
    }

    /// Removal where the plot was closed a moment ago.
    #[inline(never)]
    fn remove_apart(&self, address: usize, now: u32) -> Taken {
        match self.take_from_lines(address, now) {
            ControlFlow::Break(removed) => removed.into(),
            ControlFlow::Continue(()) => {
                if self.near.wait(address) {
                    self.remove_from_half(address, now)
                } else {
                    Taken::NONE
                }
            }
        }
    }

    /// The block at `address`, in whichever half.
    pub(super) fn peek(&self, address: usize, now: u32) -> Option<Removed> {
        loop {
            if near::is_granule(address)
                && let ControlFlow::Break(found) = self.near.get(address, now, self.is_shared())
            {
                return found;
            }
            let decode = |value| packed::decode(value, now, |code| self.sizes.get(code));
            match self.find(address, decode) {
                ControlFlow::Break(found) => return found,
                ControlFlow::Continue(()) if self.near.wait(address) => {}
                ControlFlow::Continue(()) => return None,
            }
        }
    }

    /// Number of blocks around `address` that the lines hold of its plot.
    fn count_in_lines(&self, address: usize) -> usize {
        let mut blocks = 0;
        units(address).for_each(|unit| {
            self.visit_unit(unit, |_, _| blocks += 1);
        });
        blocks
    }

    /// Moves the blocks of a plot from the lines to cells.
    #[cold]
    #[inline(never)]
    fn open_plot(&self, address: usize, now: u32) {
        let Some(mut opening) = self.near.open(address, &self.budget) else { return };
        // First all are copied, so that a lack of memory changes nothing.
        for unit in units(address) {
            let all = self.visit_unit(unit, |address, value| {
                let block = packed::decode(value, now, |code| self.sizes.get(code));
                opening.take_in(address, block, now, &self.budget);
            });
            if !all {
                opening.complete = false;
            }
        }
        if opening.is_complete() {
            units(address).for_each(|unit| self.empty_unit(unit, now));
        }
        opening.done(&self.budget);
    }

    /// Visits the entries of a unit that are in the lines, each with its line locked. `false`: not all, for the holder of
    /// a line does not get on.
    fn visit_unit(&self, unit: usize, mut visit: impl FnMut(usize, u64)) -> bool {
        let (first, last) = Hash::of_unit(unit);
        let mut residue = first.residue;
        while let Some(home) = self.home_unchecked(Hash { shard: first.shard, residue }) {
            let nodes = Nodes::new(self, first.shard);
            let slots = home.line.occupied().map(|slot| (home.line.key(slot), home.line.value(slot)));
            let chain = nodes.chain(home.line.chain()).map(|(_, node)| (node.key(), node.value()));
            for (key, value) in slots.chain(chain) {
                let address = hash::address(first.shard, packed::residue(value, key));
                if address >> hash::UNIT_SHIFT == unit && near::is_granule(address) {
                    visit(address, value);
                }
            }
            // Mostly one line, seldom two.
            match Hash::next_home(residue, home.lines.count()) {
                next if next <= last.residue => residue = next,
                _ => return true,
            }
        }
        false
    }

    /// Takes the entries of a unit out of the lines.
    fn empty_unit(&self, unit: usize, now: u32) {
        loop {
            let mut found = None;
            self.visit_unit(unit, |address, _| found = Some(address));
            let Some(hash) = found.and_then(Hash::of) else { return };
            let Some(home) = self.home_unchecked(hash) else { return };
            let _ = self.take_at(home, hash, now);
        }
    }
}
