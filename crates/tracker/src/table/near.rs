//! Blocks where they are dense, plot by plot.
//!
//! A program mostly frees and allocates beside what it has just touched. A hash scatters that over the whole table, and
//! each operation then costs cache misses, its own and those of the program whose data it displaced. Here neighbours
//! in the heap are in one array.
//!
//! Shape: a *plot* is 8 KiB of the watched heap. Its word ([`super::plot`]) says where its [`super::array`] of cells
//! is, which grows with the number of its blocks.
//! Words lie in *leaves* of 1 GiB of address space, touched only where blocks are dense.
//!
//! Where they are not, words and arrays would cost more than the lines do. So a plot opens only when [`DENSE`] blocks live
//! in it at once; until then they live in the lines. [`super::halves`] moves them.
//!
//! Rules for neighbours: who holds a plot owns its array; a pool's lock is taken last. While one thread uses the
//! table, plots are not locked at all.

use core::ops::ControlFlow::{self, Break, Continue};
use core::sync::atomic::AtomicUsize;

use super::array::{Array, Sought};
use super::budget::Budget;
use super::cell;
use super::idle::Idle;
use super::leaf::{Leaf, Leaves, PLOT_SHIFT};
use super::lengths::{is_to_settle, snug};
use super::opening::Opening;
use super::plot::{Held, Word};
use super::store::{self, Store};
use super::{Block, Removed, SHARDS, Taken};

const ADDRESS_BITS: u32 = 48;
const GRANULE_SHIFT: u32 = 4;
const _: () = assert!(PLOT_SHIFT == GRANULE_SHIFT + cell::TAG_BITS);
const TAGS: usize = (1 << cell::TAG_BITS) - 1;
/// The golden section of the number of tags, made odd: so it has an inverse.
const SPREAD: usize = 317;
const GATHER: usize = 21;
const _: () = assert!((SPREAD * GATHER) & TAGS == 1);
/// Blocks at which a plot opens: with fewer, the array takes more than 16 bytes a block.
pub(super) const DENSE: usize = 3;

/// Blocks from this size on do not open a plot.
pub(super) const SPARSE: u64 = 4096;

/// An insertion that passes or moves so many cells makes the array longer, if that leaves it at 14 bytes a cell.
const FAR: usize = 12;

/// What came of an insertion.
pub(super) enum Placed {
    New,
    Replaced(Removed),
    /// The plot is not open: the block belongs into the lines.
    Closed,
    /// No memory, or another thread holds the plot and does not get on.
    NoMemory,
}

/// The dense half of the table.
#[derive(Debug)]
pub(super) struct Near {
    pub(super) leaves: Leaves,
    pub(super) store: Store,
    /// Plots whose arrays have become too long for what is left.
    roomy: Idle,
    /// Plots whose arrays are longer than their blocks need so far.
    ahead: Idle,
    /// Bytes that the words of plots take.
    words: AtomicUsize,
}

/// Whether a block at this address may live here.
#[inline]
pub(super) fn is_granule(address: usize) -> bool {
    // One test for both ends: low bits wander to the top.
    address.rotate_right(GRANULE_SHIFT) < 1 << (ADDRESS_BITS - GRANULE_SHIFT)
}

/// The tag of a block: the number of its granule in the plot times the golden section (Knuth, The Art of Computer
/// Programming 3, 6.4: multiples of it divide a circle about evenly, however many there are). A plot is mostly not full of
/// one size: with plain numbers the cells of its dense part lay in one run, which each insertion there had to pass.
#[inline]
pub(super) fn tag(address: usize) -> u64 {
    ((address >> GRANULE_SHIFT).wrapping_mul(SPREAD) & TAGS) as u64
}

/// The granule whose tag this is.
#[inline]
pub(super) fn granule(tag: u64) -> usize {
    (tag as usize).wrapping_mul(GATHER) & TAGS
}

impl Near {
    pub(super) const fn new() -> Self {
        Self {
            leaves: Leaves::new(),
            store: Store::new(),
            roomy: Idle::new(),
            ahead: Idle::new(),
            words: AtomicUsize::new(0),
        }
    }

    /// Makes it usable, with room for `bytes` of cells; less if the kernel gives less.
    pub(super) fn init(&self, bytes: usize) {
        if self.store.init(bytes) {
            self.leaves.init();
        }
    }

    /// Puts a block in if its plot is open; `budget` is asked for each further piece of memory.
    #[inline]
    pub(super) fn insert(
        &self,
        address: usize,
        block: &Block,
        birth: u32,
        now: u32,
        shared: bool,
        budget: &Budget,
    ) -> Placed {
        let Some(leaf) = self.leaves.get(address) else { return Placed::Closed };
        let plot = leaf.plot(address);
        let word = match plot.hold(shared) {
            Held::Open(word) => word,
            Held::Closed => return Placed::Closed,
            Held::Stuck => return Placed::NoMemory,
        };
        let tag = tag(address);
        let (cell, extension) = cell::cells(tag, block.site, birth, block.size);
        if extension == 0 && word.used() < store::room(word.len()) {
            let array = self.array(word);
            let home = array.home(tag);
            if array.get(home) == 0 {
                array.set(home, cell);
                plot.put(word.with_more(1));
                return Placed::New;
            }
        }
        let (word, placed, is_ahead) = self.insert_slow(word, address, cell, extension, now, budget);
        plot.put(word);
        if is_ahead && let Some(passed) = self.ahead.wait(address) {
            self.trim(passed, shared, budget);
        }
        placed
    }

    /// Insertion where the home is taken, cells are short, or two of them are needed. Answers whether the array is longer
    /// now than it need be yet, too.
    #[inline(never)]
    fn insert_slow(
        &self,
        mut word: Word,
        address: usize,
        cell: u64,
        extension: u64,
        now: u32,
        budget: &Budget,
    ) -> (Word, Placed, bool) {
        let array = self.array(word);
        let found = match array.seek(tag(address)) {
            Sought::Missing(gap) if extension == 0 && word.used() < store::room(word.len()) => {
                let way = array.put_into(gap, cell);
                return (self.shorten_ways(word.with_more(1), address, way, budget), Placed::New, false);
            }
            Sought::Missing(_) => None,
            Sought::Found(place, old) if extension == 0 && !cell::is_long(old) => {
                array.set(place, cell);
                return (word, Placed::Replaced(cell::decode(old, 0, now)), false);
            }
            Sought::Found(..) => Some(()),
        };
        let cells = if extension == 0 { 1 } else { 2 };
        let expected = if extension == 0 { self.expected(word, cell) } else { 0 };
        let Some(grown) = self.ensure(word, address, cells, expected, budget) else {
            return (word, Placed::NoMemory, false);
        };
        let is_ahead = expected > word.used() + cells;
        word = grown;
        let stale = if found.is_some() { self.take(&mut word, tag(address), now) } else { None };
        let way;
        (word, way) = self.put(word, cell, extension);
        word = self.shorten_ways(word, address, way, budget);
        (word, stale.map_or(Placed::New, Placed::Replaced), is_ahead)
    }

    /// Makes the array longer if a cell took so long a way to its place.
    #[inline]
    fn shorten_ways(&self, word: Word, address: usize, way: usize, budget: &Budget) -> Word {
        if way >= FAR
            && let Some(len) = store::length_within(word.used() * 7 / 4)
            && len > word.len()
            && let Some(longer) = self.resize(word, address, len, budget)
        {
            return longer;
        }
        word
    }

    /// Puts a block in that is not there; the array has room. Answers how many were passed or moved, too.
    pub(super) fn put(&self, word: Word, cell: u64, extension: u64) -> (Word, usize) {
        let array = self.array(word);
        let way = array.put(cell);
        if extension == 0 {
            return (word.with_more(1), way);
        }
        (word.with_more(2), array.put(extension).max(way))
    }

    /// Takes a block out if its plot is open. `apart` puts a block into the lines, where one closes.
    #[inline]
    pub(super) fn remove(
        &self,
        address: usize,
        now: u32,
        shared: bool,
        budget: &Budget,
        apart: impl Fn(usize, Removed) -> bool,
    ) -> ControlFlow<Taken> {
        let Some(leaf) = self.leaves.get(address) else { return Continue(()) };
        let plot = leaf.plot(address);
        let word = match plot.hold(shared) {
            Held::Open(word) => word,
            Held::Closed => return Continue(()),
            Held::Stuck => return Break(Taken::NONE),
        };
        let array = self.array(word);
        let Some((place, cell)) = array.find(tag(address)) else {
            plot.put(word);
            return Break(Taken::NONE);
        };
        let (removed, left);
        if cell::is_long(cell) {
            let mut word = word;
            removed = self.take(&mut word, tag(address), now);
            left = word;
        } else {
            array.take(place);
            removed = Some(cell::decode(cell, 0, now));
            left = word.with_fewer(1);
        }
        plot.put(left);
        if is_to_settle(left)
            && let Some(passed) = self.roomy.wait(address)
        {
            self.settle(passed, now, shared, budget, &apart);
        }
        Break(removed.into())
    }

    /// Whether a held plot has so few blocks that it should close.
    fn is_idle(&self, word: Word) -> bool {
        word.used() <= 1
            || (word.used() == 2 && self.array(word).cells().any(|(_, cell)| cell::is_long(cell)))
    }

    /// Makes the array of the plot at `address` shorter, or closes it if one block is left, unless blocks have come meanwhile.
    #[cold]
    #[inline(never)]
    fn settle(
        &self,
        address: usize,
        now: u32,
        shared: bool,
        budget: &Budget,
        apart: &impl Fn(usize, Removed) -> bool,
    ) {
        let Some(leaf) = self.leaves.get(address) else { return };
        let plot = leaf.plot(address);
        let Some(word) = plot.hold(shared).open() else { return };
        if !self.is_idle(word) {
            // No memory for that: it stays as it is.
            let len = if is_to_settle(word) { snug(word) } else { None };
            let shrunk = len.and_then(|len| self.resize(word, address, len, budget));
            return plot.put(shrunk.unwrap_or(word));
        }
        plot.begin_to_close();
        let array = self.array(word);
        let last = array.cells().find(|(_, cell)| cell::is_any_block(*cell));
        let all_apart = last.is_none_or(|(_, cell)| {
            let base = address >> PLOT_SHIFT << PLOT_SHIFT;
            apart(base + (granule(cell::tag(cell)) << GRANULE_SHIFT), Self::read(array, cell, now))
        });
        if all_apart {
            self.end(leaf, address, word, budget);
        } else {
            plot.put(word);
        }
    }

    /// Closes a plot that is held or whose blocks are on their way.
    pub(super) fn end(&self, leaf: &Leaf, address: usize, word: Word, budget: &Budget) {
        leaf.plot(address).close();
        self.store.give(address, word.array(), word.len(), budget);
        leaf.leave(address, budget, &self.words);
    }

    /// Takes a block out of the array of a held plot.
    fn take(&self, word: &mut Word, tag: u64, now: u32) -> Option<Removed> {
        let array = self.array(*word);
        let (_, cell) = array.find(tag)?;
        let mut extension = 0;
        if cell::is_long(cell)
            && let Some((place, found)) = array.extension(tag)
        {
            extension = found;
            array.take(place);
            *word = word.with_fewer(1);
        }
        let (place, _) = array.find(tag)?;
        array.take(place);
        *word = word.with_fewer(1);
        Some(cell::decode(cell, extension, now))
    }

    /// The block at `address`, if its plot is open.
    pub(super) fn get(&self, address: usize, now: u32, shared: bool) -> ControlFlow<Option<Removed>> {
        let Some(leaf) = self.leaves.get(address) else { return Continue(()) };
        let plot = leaf.plot(address);
        let word = match plot.hold(shared) {
            Held::Open(word) => word,
            Held::Closed => return Continue(()),
            Held::Stuck => return Break(None),
        };
        let array = self.array(word);
        let found = array.find(tag(address)).map(|(_, cell)| Self::read(array, cell, now));
        plot.put(word);
        Break(found)
    }

    /// What a cell of a held plot says.
    fn read(array: Array, cell: u64, now: u32) -> Removed {
        let extension = if cell::is_long(cell) {
            array.extension(cell::tag(cell)).map_or(0, |(_, cell)| cell)
        } else {
            0
        };
        cell::decode(cell, extension, now)
    }

    /// Fetches the cell that a block at `address` may have, if its plot is open.
    #[inline]
    pub(super) fn prefetch(&self, address: usize) -> bool {
        let Some(word) = self.leaves.get(address).and_then(|leaf| leaf.plot(address).peek()) else {
            return false;
        };
        #[cfg(target_arch = "x86_64")]
        {
            let home = ((tag(address) as usize).wrapping_mul(word.len())) >> cell::TAG_BITS;
            // SAFETY: a prefetch has no effect that a program can see.
            unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(
                    self.store.cells(word.array()).wrapping_add(home).cast(),
                );
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = word;
        true
    }

    /// Whether blocks around `address` belong into the lines, as long as the caller holds the line of one.
    #[inline]
    pub(super) fn is_closed(&self, address: usize) -> bool {
        self.leaves.get(address).is_none_or(|leaf| leaf.plot(address).is_closed())
    }

    /// Waits until the blocks of the plot at `address` are not on their way; `false`: whoever moves them does not get on.
    pub(super) fn wait(&self, address: usize) -> bool {
        self.leaves.get(address).is_none_or(|leaf| leaf.plot(address).wait())
    }

    /// Begins to open the plot at `address`; [`Opening::done`] ends it. `None`: another thread does so, or there is no
    /// memory for it.
    pub(super) fn open(&self, address: usize, budget: &Budget) -> Option<Opening<'_>> {
        let leaf = self.leaves.get(address).or_else(|| self.leaves.add(address))?;
        if !leaf.enter(address, budget, &self.words) {
            return None;
        }
        let plot = leaf.plot(address);
        let len = store::length_for(DENSE)?;
        let Some(array) = self.store.take(address, len, budget) else {
            leaf.leave(address, budget, &self.words);
            return None;
        };
        if !plot.begin_to_open() {
            self.store.give(address, array, len, budget);
            leaf.leave(address, budget, &self.words);
            return None;
        }
        let word = Word::new(array, len, 0);
        self.array(word).empty();
        Some(Opening { near: self, leaf, address, word, complete: true })
    }

    /// Visits every block. No lock is held while `visit` runs.
    pub(super) fn for_each(&self, now: u32, visit: &mut dyn FnMut(usize, Removed)) {
        self.leaves.each(|leaf| {
            for (number, plot) in leaf.used_plots() {
                let base = leaf.address(number);
                let mut place = 0;
                while let Some(word) = plot.hold(true).open() {
                    let array = self.array(word);
                    let mut copies = [(0, Removed { site: 0, size: 0, age: 0 }); 16];
                    let mut filled = 0;
                    while place < word.len()
                        && let Some(copy) = copies.get_mut(filled)
                    {
                        let cell = array.get(place);
                        if cell::is_any_block(cell) {
                            let address = base + (granule(cell::tag(cell)) << GRANULE_SHIFT);
                            *copy = (address, Self::read(array, cell, now));
                            filled += 1;
                        }
                        place += 1;
                    }
                    plot.put(word);
                    if filled == 0 {
                        break;
                    }
                    for (address, removed) in copies.into_iter().take(filled) {
                        visit(address, removed);
                    }
                }
            }
        });
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        let mut blocks = 0;
        self.leaves.each(|leaf| {
            for (_, plot) in leaf.used_plots() {
                if let Some(word) = plot.hold(true).open() {
                    blocks += self.array(word).cells().filter(|(_, cell)| cell::is_any_block(*cell)).count();
                    plot.put(word);
                }
            }
        });
        blocks
    }

    /// Gives each block of the plots whose turn it is another cell, if `aged` has one.
    pub(super) fn age(&self, turn: usize, aged: &impl Fn(u64) -> Option<u64>) {
        self.leaves.each(|leaf| {
            for (number, plot) in leaf.used_plots() {
                if number % SHARDS != turn {
                    continue;
                }
                plot.wait();
                if let Some(word) = plot.hold(true).open() {
                    let array = self.array(word);
                    for (place, cell) in array.cells() {
                        if cell::is_any_block(cell)
                            && let Some(cell) = aged(cell)
                        {
                            array.set(place, cell);
                        }
                    }
                    plot.put(word);
                }
            }
        });
    }

    /// Forgets all blocks. Memory goes back to the kernel unless blocks come in meanwhile.
    pub(super) fn clear(&self, budget: &Budget) {
        self.leaves.each(|leaf| {
            for (number, plot) in leaf.used_plots() {
                plot.wait();
                if let Some(word) = plot.hold(true).open() {
                    self.end(leaf, leaf.address(number), word, budget);
                }
            }
        });
        self.store.discard_if_idle();
    }

    /// The array of an open plot.
    #[inline]
    pub(super) fn array(&self, word: Word) -> Array {
        // SAFETY: a word names an array of its length in the store, which is its plot's own and never full.
        unsafe { Array::new(self.store.cells(word.array()), word.len()) }
    }
}
