//! The memory of the arrays of cells: one stretch of address space, which grows in place, divided into chunks, and these
//! into arrays of a few fixed lengths.
//!
//! Free arrays that are adjacent become one *extent*, from which arrays of any length can be cut again. A chunk that
//! is completely free goes back to the kernel. So memory follows the number of blocks, whichever heap pages held them
//! before.
//!
//! A chunk begins with two bits for each of its pairs of cells: whether an extent begins here, and whether one ends
//! here. The first cell of an extent holds its links; the second and the last hold its length.
//!
//! Many chunks lie in huge pages: with hundreds of megabytes of cells, each operation would otherwise miss the TLB.
//!
//! Rule for neighbours: the lock of a pool is taken last. Memory of the arena stays readable and writable for good.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::array::{Array, MOST_LISTED};
use super::budget::{Budget, HUGE};
use super::cell;
use super::page_map::Word;
use crate::lock::SpinLock;
use crate::mmap;
use crate::space::Space;

/// Lengths of arrays: powers of two, and the halves between them. The last length is enough for a heap page full of the
/// smallest blocks, even if each needed two cells.
const LENGTHS: [u16; 18] = [4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536];

/// Size of the pieces that a pool gets at a time.
const CHUNK_BYTES: usize = 32 << 10;
/// Arrays are counted in pairs of cells.
const PAIR_BYTES: usize = 16;
const POOLS: usize = 8;
const CHUNK_PAIRS: u32 = (CHUNK_BYTES / PAIR_BYTES) as u32;
/// Cells of each of the two sets of bits.
const BITS_CELLS: usize = CHUNK_PAIRS as usize / 64;
/// Pairs at the start of a chunk that hold the bits.
const HEADER_PAIRS: u32 = (2 * BITS_CELLS * 8 / PAIR_BYTES) as u32;
/// Pairs at the end of a chunk that no array has: short ones are read as if they had the greatest length of these.
const TAIL_PAIRS: u32 = ((MOST_LISTED - LENGTHS[0] as usize) / 2) as u32;
const WHOLE: u32 = CHUNK_PAIRS - HEADER_PAIRS - TAIL_PAIRS;

/// Chunks beyond this size of the arena lie in huge pages. From there on, the unused rest of the last huge page is
/// small in comparison.
const HUGE_FROM: usize = 32 << 20;
const _: () = assert!(HUGE.is_multiple_of(CHUNK_BYTES) && HUGE_FROM.is_multiple_of(HUGE));

/// The end of an extent that a bit marks.
#[derive(Clone, Copy)]
enum End {
    First = 0,
    Last = 1,
}

/// Extents, in lists by the greatest array that fits into them. A single pair is in no list.
#[derive(Debug)]
struct Pool {
    heads: [u32; LENGTHS.len()],
    /// Which lists are not empty, one bit for each.
    filled: u32,
    /// Number of chunks that are completely free. The pool keeps one of them.
    whole: u32,
    /// Number of arrays that are handed out.
    taken: usize,
}

impl Pool {
    const NEW: Self = Self { heads: [0; LENGTHS.len()], filled: 0, whole: 0, taken: 0 };
}

#[derive(Debug)]
#[repr(align(64))]
struct Aligned(SpinLock<Pool>);

/// The chunks that belong to no pool.
#[derive(Debug)]
struct Chunks {
    /// Number of the first chunk that was never used.
    fresh: usize,
    /// Number of chunks in the list of those that were given back.
    again: usize,
    space: Space,
}

/// All arrays. An array is identified by the number of its first pair; 0 means no array.
#[derive(Debug)]
pub(super) struct Arena {
    base: AtomicPtr<u64>,
    /// Greatest number of chunks.
    reserved: AtomicUsize,
    /// The list of chunks that were given back.
    again: AtomicPtr<u32>,
    chunks: SpinLock<Chunks>,
    pools: [Aligned; POOLS],
}

/// The number of cells that an array of this length may hold. If it is not short, an eighth stays empty.
#[inline(always)]
pub(super) fn room(len: usize) -> usize {
    if len <= MOST_LISTED { len } else { len.wrapping_sub(len / 8) }
}

/// The least length of an array with room for `cells`.
pub(super) fn length_for(cells: usize) -> Option<usize> {
    let fits = |len: &usize| room(*len) >= cells;
    LENGTHS.iter().copied().map(usize::from).find(fits)
}

/// Whether an array of this length has so few cells that it should be shorter, or given back.
#[inline(always)]
pub(super) fn is_roomy(word: Word) -> bool {
    word.used() * 3 + 1 < word.len()
}

/// The length to which an array with so many cells is shortened, with room for half as many more cells.
fn shortest(used: usize) -> Option<usize> {
    length_for(used + used / 2)
}

/// The list for extents of this many pairs: the last of [`LENGTHS`] that fits. There are two for each doubling.
fn fitting(pairs: u32) -> Option<usize> {
    let doublings = pairs.checked_ilog2()?.checked_sub(1)?;
    Some((2 * doublings + (pairs >> doublings) - 2) as usize).map(|list| list.min(LENGTHS.len() - 1))
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self {
            base: AtomicPtr::new(core::ptr::null_mut()),
            reserved: AtomicUsize::new(0),
            again: AtomicPtr::new(core::ptr::null_mut()),
            chunks: SpinLock::new(Chunks { fresh: 0, again: 0, space: Space::new() }),
            pools: [const { Aligned(SpinLock::new(Pool::NEW)) }; POOLS],
        }
    }

    /// Reserves the first address space for at most `bytes` of cells, or for less if the kernel gives less. Another
    /// call reserves more only if more is wanted and no array is in use. Returns `false` if there is none.
    pub(super) fn init(&self, bytes: usize) -> bool {
        let mut pools = self.pools.each_ref().map(|pool| pool.0.lock());
        let reserved = self.reserved.load(Ordering::Relaxed);
        let mut wanted = (bytes / CHUNK_BYTES).clamp(POOLS, u32::MAX as usize / CHUNK_PAIRS as usize);
        while wanted > reserved && pools.iter().all(|pool| pool.taken == 0) {
            if let Some(mut space) = Space::reserve(wanted * CHUNK_BYTES, true) {
                if let Some(again) = mmap::reserve(wanted * size_of::<u32>()) {
                    // A former, smaller arena stays mapped, because a thread may be about to read it.
                    self.base.store(space.base().cast(), Ordering::Relaxed);
                    self.again.store(again.as_ptr().cast(), Ordering::Relaxed);
                    self.reserved.store(wanted, Ordering::Relaxed);
                    *self.chunks.lock() = Chunks { fresh: 0, again: 0, space };
                    pools.iter_mut().for_each(|pool| **pool = Pool::NEW);
                    return true;
                }
                space.release();
            }
            wanted = if wanted > POOLS { (wanted / 2).max(POOLS) } else { 0 };
        }
        reserved > 0
    }

    /// The first cell of an array.
    #[inline(always)]
    pub(super) fn cells(&self, array: u32) -> *mut u64 {
        self.base.load(Ordering::Relaxed).wrapping_byte_add(array as usize * PAIR_BYTES)
    }

    /// The array of an open heap page.
    #[inline(always)]
    pub(super) fn array(&self, word: Word) -> Array {
        // SAFETY: an open heap page's word names an array in the arena with its length. The array belongs to this
        // heap page; if it is not short, it is never full.
        unsafe { Array::new(self.cells(word.array()), word) }
    }

    /// Prefetches the cell that a block at `address` may have, whose heap page has this word.
    #[inline(always)]
    pub(super) fn prefetch(&self, word: Word, address: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            let array = self.array(word);
            let home = if array.is_short() { 0 } else { array.home(cell::tag_at(address)) };
            // SAFETY: a prefetch has no effect on the program's state.
            unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(
                    self.cells(word.array()).wrapping_add(home).cast(),
                );
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (word, address);
    }

    /// Makes room for `cells` more in the array of a held heap page. If there is no memory, the eighth that should stay
    /// empty is used, except the last place.
    #[inline]
    pub(super) fn ensure(&self, word: Word, address: usize, cells: usize, budget: &Budget) -> Option<Word> {
        let used = word.used() + cells;
        if used <= room(word.len()) {
            return Some(word);
        }
        let grown = length_for(used).and_then(|len| self.resize(word, address, len, budget));
        grown.or_else(|| (used < word.len()).then_some(word))
    }

    /// A shorter array for a held heap page whose array is roomy. `None`: it stays as it is.
    #[cold]
    pub(super) fn shorten(&self, word: Word, address: usize, budget: &Budget) -> Option<Word> {
        let len = shortest(word.used()).filter(|len| *len < word.len())?;
        self.resize(word, address, len, budget)
    }

    /// Moves the cells of a held heap page into an array of another length.
    #[cold]
    #[inline(never)]
    fn resize(&self, word: Word, address: usize, len: usize, budget: &Budget) -> Option<Word> {
        let mut new = self.array(Word::new(self.take(address, len, budget)?, len));
        new.empty();
        self.array(word).cells().for_each(|(_, cell)| new.put(cell));
        self.give(address, word, budget);
        Some(new.word())
    }

    /// Chosen by address, because the arenas of different threads are far apart and then use different pools.
    fn pool(&self, address: usize) -> Option<&SpinLock<Pool>> {
        self.pools.get((address >> 20) % POOLS).map(|pool| &pool.0)
    }

    /// Takes an array of `len` cells for blocks near `address`. Its contents are undefined.
    pub(super) fn take(&self, address: usize, len: usize, budget: &Budget) -> Option<u32> {
        let pairs = (len / 2) as u32;
        let least = fitting(pairs)?;
        let mut pool = self.pool(address)?.lock_in_time()?;
        if pool.filled >> least == 0 {
            self.new_chunk(&mut pool, budget)?;
        }
        let fits = pool.filled >> least;
        let array = *pool.heads.get(least + fits.trailing_zeros() as usize)?;
        let found = self.unlink(&mut pool, array);
        if found > pairs {
            self.link(&mut pool, array + pairs, found - pairs);
        }
        pool.taken = pool.taken.wrapping_add(1);
        Some(array)
    }

    /// Gives an array back.
    pub(super) fn give(&self, address: usize, word: Word, budget: &Budget) {
        // If the pool's lock is not free in time, the array stays unused.
        let Some(mut pool) = self.pool(address).and_then(SpinLock::lock_in_time) else { return };
        pool.taken = pool.taken.wrapping_sub(1);
        let (mut first, mut pairs) = (word.array(), (word.len() / 2) as u32);
        if self.is_end(first - 1, End::Last) {
            let before = self.read(first, -1) as u32;
            first -= before;
            pairs += self.unlink(&mut pool, first);
        }
        let behind = first + pairs;
        if !behind.is_multiple_of(CHUNK_PAIRS) && self.is_end(behind, End::First) {
            pairs += self.unlink(&mut pool, behind);
        }
        if pairs == WHOLE && pool.whole > 0 {
            self.end_chunk(first / CHUNK_PAIRS, budget);
        } else {
            self.link(&mut pool, first, pairs);
        }
    }

    /// Gets a chunk for the pool.
    fn new_chunk(&self, pool: &mut Pool, budget: &Budget) -> Option<()> {
        if !budget.take(CHUNK_BYTES) {
            return None;
        }
        let Some(mut chunks) = self.chunks.lock_in_time() else {
            budget.give(CHUNK_BYTES);
            return None;
        };
        let chunk = if chunks.again > 0 {
            chunks.again -= 1;
            // SAFETY: the list has an entry for each chunk, and the entries up to here are filled.
            unsafe { self.again.load(Ordering::Relaxed).add(chunks.again).read() }
        } else if let Some(chunk) = chunks.next(self.reserved.load(Ordering::Relaxed)) {
            let bytes = chunk * CHUNK_BYTES;
            if bytes >= HUGE_FROM && bytes.is_multiple_of(HUGE) {
                mmap::advise(self.cells(chunk as u32 * CHUNK_PAIRS).cast(), HUGE, true);
            }
            chunk as u32
        } else {
            budget.give(CHUNK_BYTES);
            return None;
        };
        drop(chunks);
        let first = chunk * CHUNK_PAIRS;
        // SAFETY: the chunk belongs to this pool, and begins with its bits. They are set to zero explicitly, because
        // locked memory may not be zeroes after it was given back.
        unsafe { self.cells(first).write_bytes(0, 2 * BITS_CELLS) };
        self.link(pool, first + HEADER_PAIRS, WHOLE);
        Some(())
    }

    /// Gives a chunk back to the kernel.
    #[cold]
    fn end_chunk(&self, chunk: u32, budget: &Budget) {
        mmap::discard(self.cells(chunk * CHUNK_PAIRS).cast(), CHUNK_BYTES);
        let Some(mut chunks) = self.chunks.lock_in_time() else { return };
        // SAFETY: the list has an entry for each chunk, and each chunk is in it at most once.
        unsafe { self.again.load(Ordering::Relaxed).add(chunks.again).write(chunk) };
        chunks.again += 1;
        budget.give(CHUNK_BYTES);
    }

    /// Makes an extent of free pairs.
    fn link(&self, pool: &mut Pool, first: u32, pairs: u32) {
        self.write(first, 1, u64::from(pairs));
        self.write(first + pairs, -1, u64::from(pairs));
        self.flip(first, End::First);
        self.flip(first + pairs - 1, End::Last);
        if pairs == WHOLE {
            pool.whole += 1;
        }
        let Some(list) = fitting(pairs) else { return };
        let Some(head) = pool.heads.get_mut(list) else { return };
        self.write(first, 0, u64::from(*head));
        if *head != 0 {
            let next = self.read(*head, 0) as u32;
            self.write(*head, 0, u64::from(next) | (u64::from(first) << 32));
        }
        *head = first;
        pool.filled |= 1 << list;
    }

    /// Removes an extent from its list, and returns its length.
    fn unlink(&self, pool: &mut Pool, first: u32) -> u32 {
        let pairs = self.read(first, 1) as u32;
        self.flip(first, End::First);
        self.flip(first + pairs - 1, End::Last);
        if pairs == WHOLE {
            pool.whole -= 1;
        }
        let Some(list) = fitting(pairs) else { return pairs };
        let links = self.read(first, 0);
        let (next, before) = (links as u32, (links >> 32) as u32);
        if next != 0 {
            let links = self.read(next, 0);
            self.write(next, 0, (links & u64::from(u32::MAX)) | (u64::from(before) << 32));
        }
        if before != 0 {
            let links = self.read(before, 0);
            self.write(before, 0, (links >> 32 << 32) | u64::from(next));
        } else if let Some(head) = pool.heads.get_mut(list) {
            *head = next;
            if next == 0 {
                pool.filled &= !(1 << list);
            }
        }
        pairs
    }

    fn bits(&self, pair: u32, end: End) -> (*mut u64, u32) {
        let (chunk, pair) = (pair / CHUNK_PAIRS, pair % CHUNK_PAIRS);
        let place = end as usize * BITS_CELLS + (pair / 64) as usize;
        (self.cells(chunk * CHUNK_PAIRS).wrapping_add(place), pair % 64)
    }

    fn is_end(&self, pair: u32, end: End) -> bool {
        let (cell, bit) = self.bits(pair, end);
        // SAFETY: the cell holds bits of a chunk of the pool whose lock is held.
        unsafe { cell.read() >> bit & 1 != 0 }
    }

    fn flip(&self, pair: u32, end: End) {
        let (cell, bit) = self.bits(pair, end);
        // SAFETY: as in `is_end`.
        unsafe { cell.write(cell.read() ^ 1 << bit) }
    }

    /// A cell of an extent, at this distance from the beginning of `pair`.
    fn read(&self, pair: u32, cell: isize) -> u64 {
        // SAFETY: the extent is in the arena, and the lock of its pool guards it.
        unsafe { self.cells(pair).offset(cell).read() }
    }

    fn write(&self, pair: u32, cell: isize, value: u64) {
        // SAFETY: as in `read`.
        unsafe { self.cells(pair).offset(cell).write(value) }
    }

    /// Gives all memory back to the kernel if no array is in use.
    pub(super) fn discard_if_idle(&self) {
        let mut pools = self.pools.each_ref().map(|pool| pool.0.lock());
        if pools.iter().all(|pool| pool.taken == 0) {
            pools.iter_mut().for_each(|pool| **pool = Pool::NEW);
            let mut chunks = self.chunks.lock();
            let bytes = chunks.fresh * CHUNK_BYTES;
            if bytes > HUGE_FROM {
                mmap::advise(self.cells(0).cast(), bytes, false);
            }
            mmap::discard(self.cells(0).cast(), bytes);
            (chunks.fresh, chunks.again) = (0, 0);
        }
    }
}

impl Chunks {
    /// The next chunk that was never used, if its number is below `end`. Address space for it is reserved when it is
    /// needed.
    fn next(&mut self, end: usize) -> Option<usize> {
        if self.fresh >= end || self.space.cover((self.fresh + 1) * CHUNK_BYTES).is_err() {
            return None;
        }
        self.fresh += 1;
        Some(self.fresh - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::STEP;

    #[test]
    fn arrays_never_overlap_and_all_memory_comes_back() {
        let (arena, budget) = (Arena::new(), Budget::new());
        budget.set_limit(1 << 30);
        assert!(arena.init(64 << 20));
        let mut random = 7u64;
        let mut next = move |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % limit
        };
        let mut taken: Vec<(usize, u32, usize)> = Vec::new();
        for round in 0..4 {
            while taken.len() < 5000 {
                let (address, len) = (next(64) << 20, usize::from(LENGTHS[next(6 + 4 * round)]));
                let array = arena.take(address, len, &budget).expect("room");
                let mark = ((array as u64) << 32) | len as u64;
                // SAFETY: the array is this test's.
                (0..len).for_each(|place| unsafe { arena.cells(array).add(place).write(mark) });
                taken.push((address, array, len));
            }
            let full = budget.taken();
            let cells: usize = taken.iter().map(|(_, _, len)| len).sum();
            assert!(full <= cells * 8 * 5 / 4 + 2 * POOLS * CHUNK_BYTES, "{full} for {cells} cells");
            while taken.len() > 1000 * (3 - round) {
                let (address, array, len) = taken.swap_remove(next(taken.len()));
                let mark = ((array as u64) << 32) | len as u64;
                // SAFETY: as above.
                assert!((0..len).all(|place| unsafe { arena.cells(array).add(place).read() } == mark));
                arena.give(address, Word::new(array, len), &budget);
            }
        }
        assert!(budget.taken() <= POOLS * CHUNK_BYTES, "{} bytes stay", budget.taken());
    }

    #[test]
    fn what_is_in_the_way_is_left_alone_and_ends_the_arena() {
        const LONGEST: usize = LENGTHS[LENGTHS.len() - 1] as usize;
        let (arena, budget) = (Arena::new(), Budget::new());
        budget.set_limit(1 << 30);
        assert!(arena.init(8 << 30));
        let behind = arena.cells(0).wrapping_byte_add(STEP).cast::<u8>();
        assert_eq!(mmap::reserve_at(behind, 4096, true), Ok(()));
        // SAFETY: just mapped.
        unsafe { behind.write(42) };
        for _ in 0..2 {
            let arrays: Vec<_> = core::iter::from_fn(|| arena.take(0, LONGEST, &budget)).collect();
            assert!(arrays.len() > 2000 && budget.taken() == STEP, "{} arrays", arrays.len());
            for (number, array) in arrays.iter().enumerate() {
                // SAFETY: the array is this test's.
                (0..LONGEST).for_each(|place| unsafe { arena.cells(*array).add(place).write(number as u64) });
            }
            for (number, array) in arrays.iter().enumerate() {
                // SAFETY: as above.
                let read = |place| unsafe { arena.cells(*array).add(place).read() };
                assert!((0..LONGEST).all(|place| read(place) == number as u64));
            }
            arrays.iter().for_each(|array| arena.give(0, Word::new(*array, LONGEST), &budget));
            arena.discard_if_idle();
            budget.restart(0);
            // SAFETY: as above.
            assert_eq!(unsafe { behind.read() }, 42);
        }
    }

    #[test]
    fn lengths_are_found_and_an_array_becomes_shorter_when_it_is_roomy() {
        for (place, len) in LENGTHS.iter().map(|len| usize::from(*len)).enumerate() {
            assert_eq!(
                (fitting(len as u32 / 2), fitting(len as u32 / 2 - 1)),
                (Some(place), place.checked_sub(1))
            );
            assert_eq!(length_for(room(len)), Some(len));
            let roomy = (0..=len)
                .filter(|used| is_roomy((0..*used).fold(Word::new(1, len), |word, _| word.with_more())));
            for used in roomy {
                assert!(used == 0 || shortest(used).is_some_and(|shorter| shorter < len), "{used} of {len}");
            }
        }
    }
}
