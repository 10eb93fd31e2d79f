//! Blocks in dense parts of the heap, heap page by heap page.
//!
//! A program mostly frees and allocates near addresses that it has just used. A hash would scatter these accesses
//! over the whole table. Each operation would then cause cache misses, its own and those of the program, whose data
//! it displaces. Here neighbours in the heap are stored in one array.
//!
//! Shape: a *heap page* is 8 KiB of the watched heap. Its word ([`super::page_map`]) says where its [`super::array`]
//! of cells is. The array grows with the number of blocks. Words lie in *leaves*, each for 1 GiB of address space.
//! Memory of a leaf is touched only where blocks are dense.
//!
//! In sparse parts, words and arrays would take more memory than the buckets do. So a heap page opens only when
//! [`OPENS_AT`] blocks live in it at the same time; until then they live in the buckets. [`super::routing`] moves
//! them.
//!
//! Rules for neighbours: a thread that holds a heap page owns its array; a pool's lock is taken last. While one
//! thread uses the table, heap pages are not locked at all.

use core::ops::ControlFlow::{self, Break, Continue};
use core::sync::atomic::AtomicUsize;

use super::arena::{self, Arena};
use super::array::{Array, Sought};
use super::budget::Budget;
use super::cell;
use super::lengths::{Idle, is_to_settle, snug};
use super::page_map::{HEAP_PAGE_SHIFT, Held, Leaf, Leaves, Word};
use super::{Block, Removed, SHARDS, Taken};

const _: () = assert!(HEAP_PAGE_SHIFT == cell::GRANULE_SHIFT + cell::TAG_BITS);

/// Number of blocks at which a heap page opens. With fewer, the array takes more than 16 bytes a block.
pub(super) const OPENS_AT: usize = 3;

/// Blocks of this size and more do not open a heap page.
pub(super) const SPARSE: u64 = 4096;

/// An insertion that passes or moves this many cells makes the array longer, if the array then has at most 14 bytes a
/// cell.
const FAR: usize = 12;

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
    /// Heap pages whose arrays have become too long for the blocks that are left.
    pub(super) roomy: Idle,
    /// Heap pages whose arrays are longer than their present blocks need, because more are expected.
    ahead: Idle,
    /// Bytes that the words of heap pages take.
    words: AtomicUsize,
}

impl Dense {
    pub(super) const fn new() -> Self {
        Self {
            leaves: Leaves::new(),
            arena: Arena::new(),
            roomy: Idle::new(),
            ahead: Idle::new(),
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
    #[inline(always)]
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
        let heap_page = leaf.heap_page(address);
        let word = match heap_page.hold(shared) {
            Held::Open(word) => word,
            Held::Closed => return Placed::Closed,
            Held::Stuck => return Placed::NoMemory,
        };
        let tag = cell::tag_at(address);
        let (cell, extension) = cell::cells(tag, block.site, birth, block.size);
        if extension == 0 && word.used() < arena::room(word.len()) {
            let array = self.arena.array(word);
            let home = array.home(tag);
            if !array.is_short() && array.get(home) == 0 {
                array.set(home, cell);
                heap_page.put(word.with_more(1));
                return Placed::New;
            }
        }
        self.insert_into_held(word, address, [cell, extension], now, shared, budget)
    }

    /// Insertion into a held heap page that is not that simple.
    #[inline(never)]
    fn insert_into_held(
        &self,
        word: Word,
        address: usize,
        [cell, extension]: [u64; 2],
        now: u32,
        shared: bool,
        budget: &Budget,
    ) -> Placed {
        let (word, placed, is_ahead) = self.insert_slow(word, address, cell, extension, now, budget);
        if let Some(leaf) = self.leaves.get(address) {
            leaf.heap_page(address).put(word);
        }
        if is_ahead && let Some(passed) = self.ahead.wait(address) {
            self.trim(passed, shared, budget);
        }
        placed
    }

    /// Insertion where the home is taken, where cells are short, or where two cells are needed. The last value
    /// returned says whether the array is now longer than its blocks need yet.
    #[inline]
    fn insert_slow(
        &self,
        mut word: Word,
        address: usize,
        cell: u64,
        extension: u64,
        now: u32,
        budget: &Budget,
    ) -> (Word, Placed, bool) {
        let array = self.arena.array(word);
        let found = match array.seek(cell::tag_at(address)) {
            Sought::Missing(gap) if extension == 0 && word.used() < arena::room(word.len()) => {
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
        let expected = if extension == 0 { self.arena.expected(word, cell) } else { 0 };
        let Some(grown) = self.arena.ensure(word, address, cells, expected, budget) else {
            return (word, Placed::NoMemory, false);
        };
        let is_ahead = expected > word.used() + cells;
        word = grown;
        let stale = if found.is_some() { self.take(&mut word, cell::tag_at(address), now) } else { None };
        let way;
        (word, way) = self.put(word, cell, extension);
        word = self.shorten_ways(word, address, way, budget);
        (word, stale.map_or(Placed::New, Placed::Replaced), is_ahead)
    }

    /// Makes the array longer if a cell is this far from its home.
    #[inline]
    pub(super) fn shorten_ways(&self, word: Word, address: usize, way: usize, budget: &Budget) -> Word {
        if way >= FAR
            && let Some(len) = arena::length_within(word.used() * 7 / 4)
            && len > word.len()
            && let Some(longer) = self.arena.resize(word, address, len, budget)
        {
            return longer;
        }
        word
    }

    /// Inserts a block that is not in the array, which has room. Also returns how many cells were passed or moved.
    pub(super) fn put(&self, word: Word, cell: u64, extension: u64) -> (Word, usize) {
        let array = self.arena.array(word);
        let way = array.put(cell);
        if extension == 0 {
            return (word.with_more(1), way);
        }
        (word.with_more(2), array.put(extension).max(way))
    }

    /// Removes a block if its heap page is open. If a heap page closes, `to_bucket` puts its block into the buckets.
    #[inline(always)]
    pub(super) fn remove(
        &self,
        address: usize,
        now: u32,
        shared: bool,
        budget: &Budget,
        to_bucket: impl Fn(usize, Removed) -> bool + Copy,
    ) -> ControlFlow<Taken> {
        let Some(leaf) = self.leaves.get(address) else { return Continue(()) };
        let heap_page = leaf.heap_page(address);
        let word = match heap_page.hold(shared) {
            Held::Open(word) => word,
            Held::Closed => return Continue(()),
            Held::Stuck => return Break(Taken::NONE),
        };
        let array = self.arena.array(word);
        let Some((place, cell)) = array.find(cell::tag_at(address)) else {
            heap_page.put(word);
            return Break(Taken::NONE);
        };
        let (taken, left) = if cell::is_long(cell) {
            self.take_long(word, address, now)
        } else {
            array.take(place);
            (Taken::from(Some(cell::decode(cell, 0, now))), word.with_fewer(1))
        };
        heap_page.put(left);
        if is_to_settle(left) {
            self.settle_passed(address, now, shared, budget, to_bucket);
        }
        Break(taken)
    }

    /// The heap page at `address` may have to close or to get a shorter array: lets it wait, and settles the one that
    /// has waited at its place.
    #[inline]
    pub(super) fn settle_passed(
        &self,
        address: usize,
        now: u32,
        shared: bool,
        budget: &Budget,
        to_bucket: impl Fn(usize, Removed) -> bool + Copy,
    ) {
        if let Some(passed) = self.roomy.wait(address) {
            self.settle(passed, now, shared, budget, to_bucket);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_long(&self, mut word: Word, address: usize, now: u32) -> (Taken, Word) {
        let taken = self.take(&mut word, cell::tag_at(address), now).into();
        (taken, word)
    }

    /// Makes the array at `address` as short as its blocks allow, because the expected blocks did not come.
    #[cold]
    #[inline(never)]
    pub(super) fn trim(&self, address: usize, shared: bool, budget: &Budget) {
        let Some(leaf) = self.leaves.get(address) else { return };
        let heap_page = leaf.heap_page(address);
        let Some(mut word) = heap_page.hold(shared).open() else { return };
        if let Some(len) = snug(word)
            && let Some(trimmed) = self.arena.resize(word, address, len, budget)
        {
            word = trimmed;
        }
        heap_page.put(word);
    }

    /// Whether a held heap page has so few blocks that it should close.
    fn is_idle(&self, word: Word) -> bool {
        word.used() <= 1
            || (word.used() == 2 && self.arena.array(word).cells().any(|(_, cell)| cell::is_long(cell)))
    }

    /// Shortens the array of the heap page at `address`, or closes the heap page if at most one block is left, unless
    /// blocks were added meanwhile.
    #[cold]
    #[inline(never)]
    fn settle(
        &self,
        address: usize,
        now: u32,
        shared: bool,
        budget: &Budget,
        to_bucket: impl Fn(usize, Removed) -> bool,
    ) {
        let Some(leaf) = self.leaves.get(address) else { return };
        let heap_page = leaf.heap_page(address);
        let Some(word) = heap_page.hold(shared).open() else { return };
        if !self.is_idle(word) {
            // There is no memory for that, so the array stays as it is.
            let len = if is_to_settle(word) { snug(word) } else { None };
            let shrunk = len.and_then(|len| self.arena.resize(word, address, len, budget));
            return heap_page.put(shrunk.unwrap_or(word));
        }
        heap_page.begin_to_close();
        let mut all_moved = true;
        self.each_block(address, word, now, |address, block| all_moved &= to_bucket(address, block));
        if all_moved {
            self.end(leaf, address, word, budget);
        } else {
            heap_page.put(word);
        }
    }

    /// Closes a heap page that is held or whose blocks are being moved.
    pub(super) fn end(&self, leaf: &Leaf, address: usize, word: Word, budget: &Budget) {
        leaf.heap_page(address).close();
        self.arena.give(address, word.array(), word.len(), budget);
        leaf.leave(address, budget, &self.words);
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
    fn take(&self, word: &mut Word, tag: u64, now: u32) -> Option<Removed> {
        let array = self.arena.array(*word);
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
    pub(super) fn begin_to_open(&self, address: usize, budget: &Budget) -> Option<(&Leaf, Word)> {
        let leaf = self.leaves.get(address).or_else(|| self.leaves.add(address))?;
        if !leaf.enter(address, budget, &self.words) {
            return None;
        }
        let heap_page = leaf.heap_page(address);
        let len = arena::length_for(OPENS_AT)?;
        let Some(array) = self.arena.take(address, len, budget) else {
            leaf.leave(address, budget, &self.words);
            return None;
        };
        if !heap_page.begin_to_open() {
            self.arena.give(address, array, len, budget);
            leaf.leave(address, budget, &self.words);
            return None;
        }
        let word = Word::new(array, len, 0);
        self.arena.array(word).empty();
        Some((leaf, word))
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
                    self.end(leaf, leaf.address(number), word, budget);
                }
            }
        });
        self.arena.discard_if_idle();
    }
}
