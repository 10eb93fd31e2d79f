//! Blocks in dense parts of the heap, heap page by heap page.
//!
//! A program mostly frees and allocates near addresses that it has just used. A hash would scatter these accesses
//! over the whole table. Each operation would then cause cache misses, its own and those of the program, whose data
//! it displaces. Here neighbours in the heap are stored in one array.
//!
//! Shape: a *heap page* is 8 KiB of the watched heap. Its word ([`super::page_map`]) says where its [`super::array`]
//! of cells is. The array grows and shrinks with the number of blocks. Words lie in *leaves*, each for 1 GiB of address
//! space. Memory of a leaf is touched only where blocks are dense.
//!
//! In sparse parts, words and arrays would take more memory than the buckets do. So a heap page opens only when
//! [`OPENS_AT`] blocks live in it at the same time; until then they live in the buckets. [`super::routing`] moves
//! them. It closes when no block is left, so nothing has to be moved back.
//!
//! Rules for neighbours: a thread that holds a heap page owns its array; a pool's lock is taken last. While one
//! thread uses the table, heap pages are not locked at all.

use core::ops::ControlFlow::{self, Break, Continue};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::arena::{self, Arena};
use super::array::Array;
use super::budget::Budget;
use super::cell;
use super::page_map::{HEAP_PAGE_SHIFT, HeapPage, Held, Leaves, Word};
use super::{Block, Removed, SHARDS};

const _: () = assert!(HEAP_PAGE_SHIFT == cell::GRANULE_SHIFT + cell::TAG_BITS);

/// Number of blocks at which a heap page opens. With fewer, the array takes more than 16 bytes a block.
pub(super) const OPENS_AT: usize = 3;

/// Blocks of this size and more do not open a heap page.
pub(super) const SPARSE: u64 = 4096;

const PLACES: usize = 256;

/// Heap pages that have few blocks for their arrays, each at the place that its address determines, until another one
/// takes that place. The next blocks often come where others were freed last, and Ruby's sweep frees most blocks of a
/// heap page in a row: an array that followed at once would be copied again and again.
#[derive(Debug)]
pub(super) struct Waiting([AtomicUsize; PLACES]);

impl Waiting {
    const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; PLACES])
    }

    /// Lets the heap page around `address` wait, and returns the one that was at its place.
    // Relaxed: a caller locks the returned heap page before it acts on it.
    #[inline]
    fn pass(&self, address: usize) -> Option<usize> {
        if self.holds(address) {
            return None;
        }
        let heap_page = address >> HEAP_PAGE_SHIFT;
        let before = self.0.get(heap_page % PLACES)?.swap(heap_page, Ordering::Relaxed);
        (before != heap_page && before != 0).then_some(before << HEAP_PAGE_SHIFT)
    }

    /// Whether the heap page around `address` waits.
    #[inline(always)]
    pub(super) fn holds(&self, address: usize) -> bool {
        let heap_page = address >> HEAP_PAGE_SHIFT;
        // The remainder keeps the index inside the array, so that no bounds check (and no panic) is left.
        self.0[heap_page % PLACES].load(Ordering::Relaxed) == heap_page
    }
}

/// The result of an insertion.
pub(super) enum Placed {
    New,
    Replaced(Removed),
    /// The heap page is not open: the block belongs into the buckets.
    Closed,
    /// There is no memory, or another thread holds the heap page and does not release it in time.
    NoMemory,
}

/// The blocks of open heap pages.
#[derive(Debug)]
pub(super) struct Dense {
    pub(super) leaves: Leaves,
    pub(super) arena: Arena,
    pub(super) waiting: Waiting,
    /// Bytes that the words of heap pages take.
    pub(super) words: AtomicUsize,
}

impl Dense {
    pub(super) const fn new() -> Self {
        Self {
            leaves: Leaves::new(),
            arena: Arena::new(),
            waiting: Waiting::new(),
            words: AtomicUsize::new(0),
        }
    }

    /// Makes it usable, with room for `bytes` of cells, or for less if the kernel gives less.
    pub(super) fn init(&self, bytes: usize) {
        if self.arena.init(bytes) {
            self.leaves.init();
        }
    }

    /// Inserts a block if its heap page is open. Each further piece of memory is taken from `budget`.
    #[inline]
    pub(super) fn insert(
        &self,
        address: usize,
        block: &Block,
        now: u32,
        shared: bool,
        budget: &Budget,
    ) -> Placed {
        let Some(leaf) = self.leaves.get(address) else { return Placed::Closed };
        let heap_page = leaf.heap_page(address);
        let word = match heap_page.hold(shared) {
            Held::Open(word) => word,
            Held::Closed => return Placed::Closed,
            Held::Stuck => return Placed::NoMemory,
        };
        let cells = cell::cells(cell::tag_at(address), block.site, block.generation, block.size);
        let (word, placed) = self.insert_into_held(word, address, cells, now, budget);
        heap_page.put(word);
        placed
    }

    fn insert_into_held(
        &self,
        word: Word,
        address: usize,
        cells: (u64, u64),
        now: u32,
        budget: &Budget,
    ) -> (Word, Placed) {
        let (cell, extension) = cells;
        let tag = cell::tag_at(address);
        let found = self.arena.array(word).find(tag);
        if let Some((place, old)) = found
            && extension == 0
            && !cell::is_long(old)
        {
            self.arena.array(word).set(place, cell);
            return (word, Placed::Replaced(cell::decode(old, 0, now)));
        }
        let Some(word) = self.arena.ensure(word, address, if extension == 0 { 1 } else { 2 }, budget) else {
            return (word, Placed::NoMemory);
        };
        let mut array = self.arena.array(word);
        let stale = if found.is_some() { Self::take(&mut array, tag, now) } else { None };
        Self::put(&mut array, (cell, extension));
        (array.word(), stale.map_or(Placed::New, Placed::Replaced))
    }

    /// Inserts a block that is not in the array, which has room.
    fn put(array: &mut Array, (cell, extension): (u64, u64)) {
        array.put(cell);
        if extension != 0 {
            array.put(extension);
        }
    }

    /// Copies a block that comes from the buckets into the array of a heap page that is opening. `None`: there is no
    /// memory.
    pub(super) fn take_in(
        &self,
        word: Word,
        address: usize,
        cells: (u64, u64),
        budget: &Budget,
    ) -> Option<Word> {
        let word = self.arena.ensure(word, address, if cells.1 == 0 { 1 } else { 2 }, budget)?;
        let mut array = self.arena.array(word);
        Self::put(&mut array, cells);
        Some(array.word())
    }

    /// Removes a block if its heap page is open.
    #[inline]
    pub(super) fn remove(
        &self,
        address: usize,
        now: u32,
        shared: bool,
        budget: &Budget,
    ) -> ControlFlow<Option<Removed>> {
        let Some(leaf) = self.leaves.get(address) else { return Continue(()) };
        let heap_page = leaf.heap_page(address);
        let word = match heap_page.hold(shared) {
            Held::Open(word) => word,
            Held::Closed => return Continue(()),
            Held::Stuck => return Break(None),
        };
        let mut array = self.arena.array(word);
        let taken = Self::take(&mut array, cell::tag_at(address), now);
        heap_page.put(array.word());
        if arena::is_roomy(array.word()) {
            self.tidy(address, shared, budget);
        }
        Break(taken)
    }

    /// The heap page at `address` may have to close or to get a shorter array: lets it wait, and settles the one that
    /// has waited at its place.
    #[inline]
    pub(super) fn tidy(&self, address: usize, shared: bool, budget: &Budget) {
        if let Some(passed) = self.waiting.pass(address) {
            self.settle(passed, shared, budget);
        }
    }

    /// Shortens the array of the heap page at `address`, or closes the heap page if no block is left, unless blocks were
    /// added meanwhile.
    #[cold]
    #[inline(never)]
    fn settle(&self, address: usize, shared: bool, budget: &Budget) {
        let Some(leaf) = self.leaves.get(address) else { return };
        let heap_page = leaf.heap_page(address);
        let Some(word) = heap_page.hold(shared).open() else { return };
        if word.used() == 0 {
            return self.end(heap_page, address, word, budget);
        }
        let shorter = if arena::is_roomy(word) { self.arena.shorten(word, address, budget) } else { None };
        heap_page.put(shorter.unwrap_or(word));
    }

    /// Closes a heap page that is held or opening.
    pub(super) fn end(&self, heap_page: &HeapPage, address: usize, word: Word, budget: &Budget) {
        heap_page.close();
        self.arena.give(address, word, budget);
    }

    /// Visits the blocks of a heap page that is held or whose blocks are being moved.
    pub(super) fn each_block(
        &self,
        address: usize,
        word: Word,
        now: u32,
        mut visit: impl FnMut(usize, Removed),
    ) {
        let array = self.arena.array(word);
        let base = address >> HEAP_PAGE_SHIFT << HEAP_PAGE_SHIFT;
        for (_, cell) in array.cells().filter(|(_, cell)| cell::is_any_block(*cell)) {
            let address = base + (cell::granule(cell::tag(cell)) << cell::GRANULE_SHIFT);
            visit(address, Self::read(array, cell, now));
        }
    }

    /// Removes a block from the array of a held heap page.
    #[inline]
    fn take(array: &mut Array, tag: u64, now: u32) -> Option<Removed> {
        let (mut place, cell) = array.find(tag)?;
        let mut extension = 0;
        if cell::is_long(cell)
            && let Some((behind, found)) = array.extension(tag)
        {
            extension = found;
            array.take(behind);
            // It may have moved.
            (place, _) = array.find(tag)?;
        }
        array.take(place);
        Some(cell::decode(cell, extension, now))
    }

    /// The block at `address`, if its heap page is open.
    pub(super) fn get(&self, address: usize, now: u32, shared: bool) -> ControlFlow<Option<Removed>> {
        let Some(leaf) = self.leaves.get(address) else { return Continue(()) };
        let heap_page = leaf.heap_page(address);
        let word = match heap_page.hold(shared) {
            Held::Open(word) => word,
            Held::Closed => return Continue(()),
            Held::Stuck => return Break(None),
        };
        let array = self.arena.array(word);
        let found = array.find(cell::tag_at(address)).map(|(_, cell)| Self::read(array, cell, now));
        heap_page.put(word);
        Break(found)
    }

    /// Decodes a cell of a held heap page.
    fn read(array: Array, cell: u64, now: u32) -> Removed {
        let extension = if cell::is_long(cell) {
            array.extension(cell::tag(cell)).map_or(0, |(_, cell)| cell)
        } else {
            0
        };
        cell::decode(cell, extension, now)
    }

    /// Prefetches the cell that a block at `address` may have, if its heap page is open.
    #[inline(always)]
    pub(super) fn prefetch(&self, address: usize) -> bool {
        let word = self.leaves.get(address).and_then(|leaf| leaf.heap_page(address).peek());
        word.map(|word| self.arena.prefetch(word, address)).is_some()
    }

    /// Whether blocks near `address` belong into the buckets. This holds as long as the caller holds the bucket of
    /// one of them.
    #[inline]
    pub(super) fn is_closed(&self, address: usize) -> bool {
        self.leaves.get(address).is_none_or(|leaf| leaf.heap_page(address).is_closed())
    }

    /// Waits while the blocks of the heap page at `address` are being moved. Returns `false` if the thread that moves
    /// them does not finish in time.
    pub(super) fn wait(&self, address: usize) -> bool {
        self.leaves.get(address).is_none_or(|leaf| leaf.heap_page(address).wait())
    }

    /// Begins to open the heap page at `address`. [`Dense::end`], or putting its word back, ends this. Returns `None`
    /// if another thread is opening it, or if there is no memory for it.
    pub(super) fn begin_to_open(&self, address: usize, budget: &Budget) -> Option<(&HeapPage, Word)> {
        let leaf = self.leaves.get(address).or_else(|| self.leaves.add(address))?;
        if !leaf.enter(address, budget, &self.words) {
            return None;
        }
        let heap_page = leaf.heap_page(address);
        let len = arena::length_for(OPENS_AT)?;
        let word = Word::new(self.arena.take(address, len, budget)?, len);
        let begun = heap_page.begin_to_open();
        // Asked once more, because `clear` may have taken the word's memory before it was marked.
        if !begun || !leaf.enter(address, budget, &self.words) {
            if begun {
                heap_page.close();
            }
            self.arena.give(address, word, budget);
            return None;
        }
        self.arena.array(word).empty();
        Some((heap_page, word))
    }

    /// Visits every block. No lock is held while `visit` runs.
    pub(super) fn for_each(&self, now: u32, visit: &mut dyn FnMut(usize, Removed)) {
        self.leaves.each(|leaf| {
            for (number, heap_page) in leaf.used_pages() {
                let base = leaf.address(number);
                let mut place = 0;
                while let Some(word) = heap_page.hold(true).open() {
                    let array = self.arena.array(word);
                    let mut copies = [(0, Removed { site: 0, size: 0, age: 0 }); 16];
                    let mut filled = 0;
                    while place < word.len()
                        && let Some(copy) = copies.get_mut(filled)
                    {
                        let cell = array.get(place);
                        if cell::is_any_block(cell) {
                            let address = base + (cell::granule(cell::tag(cell)) << cell::GRANULE_SHIFT);
                            *copy = (address, Self::read(array, cell, now));
                            filled += 1;
                        }
                        place += 1;
                    }
                    heap_page.put(word);
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
            for (_, heap_page) in leaf.used_pages() {
                if let Some(word) = heap_page.hold(true).open() {
                    blocks +=
                        self.arena.array(word).cells().filter(|(_, cell)| cell::is_any_block(*cell)).count();
                    heap_page.put(word);
                }
            }
        });
        blocks
    }

    /// Visits the heap pages whose turn it is, and replaces each block's cell for which `aged` returns another one.
    pub(super) fn age(&self, turn: usize, aged: &impl Fn(u64) -> Option<u64>) {
        self.leaves.each(|leaf| {
            for (number, heap_page) in leaf.used_pages() {
                if number % SHARDS != turn {
                    continue;
                }
                heap_page.wait();
                if let Some(word) = heap_page.hold(true).open() {
                    let array = self.arena.array(word);
                    for (place, cell) in array.cells() {
                        if cell::is_any_block(cell)
                            && let Some(cell) = aged(cell)
                        {
                            array.set(place, cell);
                        }
                    }
                    heap_page.put(word);
                }
            }
        });
    }

    /// Forgets all blocks. Their memory goes back to the kernel, unless blocks are inserted meanwhile.
    pub(super) fn clear(&self, budget: &Budget) {
        self.leaves.each(|leaf| {
            for (number, heap_page) in leaf.used_pages() {
                heap_page.wait();
                if let Some(word) = heap_page.hold(true).open() {
                    self.end(heap_page, leaf.address(number), word, budget);
                }
            }
            leaf.leave(budget, &self.words);
        });
        self.arena.discard_if_idle();
    }
}
