//! Operations on records by threads that do not own the blocks, while the world is paused: list them, change
//! their site, and move them to a table. Meanwhile an owner may claim its block ([`InBand::claim`]). The
//! thread that clears the byte of the map first gets the record.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use super::record::usable_by;
use super::{
    GENERATIONS, HALF_SHIFT, InBand, LEAF_SHIFT, Leaf, UNIT_SHIFT, UNITS, decode, encode, tail, usable,
};
use crate::mmap;
use crate::table::{Block, Inserted, Removed, Table};

const PAGE: usize = 4096;

/// Units of the map that are looked at together.
const GROUP: usize = 8;
const GROUPS: usize = UNITS / GROUP;
/// Groups of a page of the map, and its pages.
const PAGE_GROUPS: usize = PAGE / GROUP;
const PAGES: usize = GROUPS / PAGE_GROUPS;
/// Groups that count as one block for [`InBand::step`].
const GROUPS_A_BLOCK: usize = 64;

impl InBand {
    /// Continues a pass over all blocks, and moves records to `table`: all if they leave ([`InBand::leave`]),
    /// else those of blocks that will soon be too old for them. Visits about `most` blocks; `true`: the pass
    /// is done. The world is paused, but may run between two steps. `read` reads a word of memory, or returns
    /// that there is none. `dropped` gets the blocks that the table does not take. A damaged record of a
    /// block that leaves counts as damaged.
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
        let [in_leaves, in_groups] = &self.reached;
        let (first, mut from) = (in_leaves.load(Ordering::Relaxed), in_groups.load(Ordering::Relaxed));
        for (place, (index, leaf)) in self.known().enumerate().skip(first) {
            for number in Touched::find(leaf).groups(from) {
                if left == 0 {
                    self.reach(place, number);
                    return false;
                }
                left = left.saturating_sub(usize::from(number.is_multiple_of(GROUPS_A_BLOCK)));
                for address in addresses(index, number, group(leaf, number)) {
                    left = left.saturating_sub(1);
                    let found = self.read_record(address, now, &mut read);
                    if found.is_some_and(|block| block.age < least) || found.is_none() && least != 0 {
                        continue;
                    }
                    // Its owner may be taking it out at this moment ([`InBand::claim`]).
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

    /// What the record of a block says; `None`: it has none, or a damaged one.
    ///
    /// # Safety
    ///
    /// The owner of the block keeps it until the pause ends, so it may be read.
    pub unsafe fn get(&self, address: usize, now: u32) -> Option<Removed> {
        // SAFETY: the caller's promise.
        self.has(address).then(|| unsafe { self.whole(address, now) })?.map(|whole| whole.removed)
    }

    /// Replaces the contents of a block's record. `false`: they do not fit, and nothing was done.
    ///
    /// # Safety
    ///
    /// The block has an intact record, the world is paused, and the owner of the block keeps it
    /// until the pause ends.
    pub unsafe fn rewrite(&self, address: usize, block: &Block) -> bool {
        // SAFETY: the caller's promise.
        let Some(usable) = (unsafe { usable(address) }) else { return false };
        let Some(record) = encode(address, usable, block, self.salt()) else { return false };
        // SAFETY: where its record is.
        unsafe { *tail(address, usable) = record };
        true
    }

    /// No block has a record from here on, because they cannot be read: each counts as damaged. The world is paused.
    pub fn give_up(&self) {
        let blocks = |leaf: *mut Leaf| {
            Touched::find(leaf)
                .groups(0)
                .map(|number| addresses(0, number, group(leaf, number)).count() as u64)
                .sum::<u64>()
        };
        let lost = self.known().map(|(_, leaf)| blocks(leaf)).sum();
        self.damage.lost(lost);
        self.end();
    }

    /// Visits all blocks with an intact record, in no order. The world is paused. `read` reads a word of
    /// memory, or returns that there is none: a block whose free was missed may be gone. `is_own`: the map is
    /// this process' own; otherwise it comes from a file and is read as a whole.
    #[inline(always)]
    pub fn for_each(
        &self,
        is_own: bool,
        now: u32,
        mut read: impl FnMut(usize) -> Option<u64>,
        mut visit: impl FnMut(usize, Removed),
    ) {
        for (index, leaf) in self.known() {
            let touched = if is_own { Touched::find(leaf) } else { Touched::all() };
            for number in touched.groups(0) {
                for address in addresses(index, number, group(leaf, number)) {
                    if let Some(found) = self.read_record(address, now, &mut read) {
                        visit(address, found);
                    }
                }
            }
        }
    }

    /// The contents of a block's record, read by another thread than the owner; `None`: it is damaged.
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

    /// Gives back the empty pages of the map: a page that was only read is resident, too. The world is
    /// paused.
    pub fn tidy(&self) {
        for (_, leaf) in self.known() {
            let mut empty = 0..0;
            for number in Touched::find(leaf).pages(0) {
                let first = number.wrapping_mul(PAGE_GROUPS);
                if (first..first.wrapping_add(PAGE_GROUPS)).any(|number| group(leaf, number) != 0) {
                    give_back(leaf, &empty);
                    empty = 0..0;
                    continue;
                }
                if empty.end != number {
                    give_back(leaf, &empty);
                    empty = number..number;
                }
                empty.end = number.wrapping_add(1);
            }
            give_back(leaf, &empty);
        }
    }
}

/// The pages of a leaf that may have a record, a bit each.
struct Touched([u64; PAGES / 64]);

impl Touched {
    fn find(leaf: *const Leaf) -> Self {
        let mut bits = [0; PAGES / 64];
        mmap::find_touched(leaf.cast(), &mut bits);
        Self(bits)
    }

    fn all() -> Self {
        Self([u64::MAX; PAGES / 64])
    }

    /// The groups in these pages, from this one on. (Each other page would cost a page fault: a leaf has 2,048.)
    fn groups(self, from: usize) -> impl Iterator<Item = usize> {
        let groups =
            |page: usize| page.wrapping_mul(PAGE_GROUPS)..page.wrapping_add(1).wrapping_mul(PAGE_GROUPS);
        self.pages(from / PAGE_GROUPS).flat_map(groups).skip_while(move |group| *group < from)
    }

    /// Their numbers, from this one on.
    fn pages(self, from: usize) -> impl Iterator<Item = usize> {
        let has = move |page: &usize| self.0.get(page / 64).is_some_and(|bits| bits >> (page % 64) & 1 != 0);
        (from..PAGES).filter(has)
    }
}

/// No block with an in-band record begins in this leaf's part of the heap from here on.
pub(super) fn set_to_nothing(leaf: *mut Leaf) {
    for number in Touched::find(leaf).groups(0).filter(|number| group(leaf, *number) != 0) {
        // SAFETY: as in `group`.
        unsafe { (*leaf.cast::<AtomicU64>().add(number)).store(0, Ordering::Relaxed) };
    }
}

/// A group of units.
#[inline(always)]
fn group(leaf: *mut Leaf, number: usize) -> u64 {
    // SAFETY: leaves are never unmapped, and begin at a page. All access is atomic: an owner that changes its own byte meanwhile
    // changes no other.
    unsafe { (*leaf.cast::<AtomicU64>().add(number)).load(Ordering::Relaxed) }
}

/// The addresses of the blocks that a group stands for.
#[inline(always)]
fn addresses(index: usize, number: usize, mut units: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let place = (units != 0).then(|| units.trailing_zeros() as usize / 8)?;
        let mark = (units >> (place * 8)) as u8;
        units &= !(0xFF << (place * 8));
        let unit = number * GROUP + place;
        Some(index << LEAF_SHIFT | unit << UNIT_SHIFT | usize::from(mark.wrapping_sub(1) & 1) << HALF_SHIFT)
    })
}

/// Gives these pages of a leaf back, which are all zeroes.
fn give_back(leaf: *mut Leaf, pages: &Range<usize>) {
    if !pages.is_empty() {
        let from = leaf.cast::<u8>().wrapping_add(pages.start.wrapping_mul(PAGE));
        mmap::discard(from, pages.len().wrapping_mul(PAGE));
    }
}
