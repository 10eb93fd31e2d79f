//! Where the arrays of cells lie: one stretch of address space, cut into chunks, these into arrays of some fixed lengths.
//!
//! Rule for neighbours: the lock of a pool is taken last. Memory of the store stays readable and writable for good.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::lock::SpinLock;
use crate::mmap;

/// Lengths of arrays. The last one holds a plot full of the smallest blocks, were they all long.
const LENGTHS: [u16; 32] = [
    4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384,
    448, 512, 640, 768, 896, 1024, 1280,
];

/// Arrays are counted in pairs of cells.
const PAIR_BYTES: usize = 16;
const POOLS: usize = 8;
const CHUNK_PAIRS: usize = 4096;
const CHUNK_BYTES: usize = CHUNK_PAIRS * PAIR_BYTES;

/// Free arrays by their length, linked through their first cell, and a chunk to cut new ones from.
#[derive(Debug)]
struct Pool {
    free: [u32; LENGTHS.len()],
    next: u32,
    end: u32,
    /// Arrays handed out.
    taken: usize,
}

impl Pool {
    const NEW: Self = Self { free: [0; LENGTHS.len()], next: 0, end: 0, taken: 0 };
}

#[derive(Debug)]
#[repr(align(64))]
struct Aligned(SpinLock<Pool>);

/// All arrays. An array is known by the number of its first pair; 0 is none.
#[derive(Debug)]
pub(super) struct Store {
    base: AtomicPtr<u64>,
    chunks: AtomicUsize,
    used_chunks: AtomicUsize,
    pools: [Aligned; POOLS],
}

/// Cells that an array of this length may hold: an eighth stays empty, one at least.
#[inline]
pub(super) fn room(len: usize) -> usize {
    if len < 8 { len.wrapping_sub(1) } else { len.wrapping_sub(len / 8) }
}

/// The least length with room for `cells`.
pub(super) fn length_for(cells: usize) -> Option<usize> {
    LENGTHS.into_iter().map(usize::from).find(|len| room(*len) >= cells)
}

/// The next greater length.
pub(super) fn longer(len: usize) -> Option<usize> {
    LENGTHS.into_iter().map(usize::from).find(|longer| *longer > len)
}

fn class(len: usize) -> Option<usize> {
    LENGTHS.iter().position(|candidate| usize::from(*candidate) == len)
}

impl Store {
    pub(super) const fn new() -> Self {
        Self {
            base: AtomicPtr::new(core::ptr::null_mut()),
            chunks: AtomicUsize::new(0),
            used_chunks: AtomicUsize::new(0),
            pools: [const { Aligned(SpinLock::new(Pool::NEW)) }; POOLS],
        }
    }

    /// Reserves address space for `bytes` of cells, or for less if the kernel gives less. Again: only for more than before,
    /// and while no array is in use. `false`: there is none.
    pub(super) fn init(&self, bytes: usize) -> bool {
        let mut pools = self.pools.each_ref().map(|pool| pool.0.lock());
        let reserved = self.chunks.load(Ordering::Relaxed);
        let mut chunks = (bytes / CHUNK_BYTES).clamp(POOLS, u32::MAX as usize / CHUNK_PAIRS);
        while chunks > reserved && pools.iter().all(|pool| pool.taken == 0) {
            if let Some(store) = mmap::reserve(chunks * CHUNK_BYTES) {
                // A former, smaller store stays mapped: a thread may be about to look into it.
                self.base.store(store.as_ptr().cast(), Ordering::Relaxed);
                self.chunks.store(chunks, Ordering::Relaxed);
                self.used_chunks.store(0, Ordering::Relaxed);
                pools.iter_mut().for_each(|pool| **pool = Pool::NEW);
                return true;
            }
            chunks = if chunks > POOLS { (chunks / 2).max(POOLS) } else { 0 };
        }
        reserved > 0
    }

    /// The first cell of an array.
    #[inline]
    pub(super) fn cells(&self, array: u32) -> *mut u64 {
        self.base.load(Ordering::Relaxed).wrapping_byte_add(array as usize * PAIR_BYTES)
    }

    /// Addresses of different threads' arenas are far apart, and so use different pools.
    fn pool(&self, address: usize) -> Option<&SpinLock<Pool>> {
        self.pools.get((address >> 20) % POOLS).map(|pool| &pool.0)
    }

    /// An array of `len` cells for blocks around `address`, with whatever in it.
    pub(super) fn take(&self, address: usize, len: usize, budget: &dyn Fn(usize) -> bool) -> Option<u32> {
        let pairs = (len / 2) as u32;
        let mut pool = self.pool(address)?.lock();
        let head = pool.free.get_mut(class(len)?)?;
        if *head != 0 {
            let array = *head;
            // SAFETY: a free array begins with the number of the next one.
            *head = unsafe { self.cells(array).read() } as u32;
            pool.taken = pool.taken.wrapping_add(1);
            return Some(array);
        }
        if pool.end.wrapping_sub(pool.next) < pairs {
            self.new_chunk(&mut pool, budget)?;
        }
        let array = pool.next;
        pool.next = array.wrapping_add(pairs);
        pool.taken = pool.taken.wrapping_add(1);
        Some(array)
    }

    /// Takes an array back.
    pub(super) fn give(&self, address: usize, array: u32, len: usize) {
        if let (Some(pool), Some(class)) = (self.pool(address), class(len)) {
            let mut pool = pool.lock();
            pool.taken = pool.taken.wrapping_sub(1);
            self.push(&mut pool, array, class);
        }
    }

    fn new_chunk(&self, pool: &mut Pool, budget: &dyn Fn(usize) -> bool) -> Option<()> {
        if !budget(CHUNK_BYTES) {
            return None;
        }
        let chunk = self.used_chunks.fetch_add(1, Ordering::Relaxed);
        if chunk >= self.chunks.load(Ordering::Relaxed) {
            self.used_chunks.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        // What is left of the old chunk becomes free arrays.
        while let Some(class) =
            LENGTHS.iter().rposition(|len| u32::from(*len) / 2 <= pool.end.wrapping_sub(pool.next))
            && let Some(len) = LENGTHS.get(class)
        {
            let array = pool.next;
            pool.next = array.wrapping_add(u32::from(*len) / 2);
            self.push(pool, array, class);
        }
        let first = (chunk * CHUNK_PAIRS) as u32;
        // Number 0 means "none".
        pool.next = if first == 0 { 1 } else { first };
        pool.end = first.wrapping_add(CHUNK_PAIRS as u32);
        Some(())
    }

    /// Puts an array into the list of its length.
    fn push(&self, pool: &mut Pool, array: u32, class: usize) {
        if let Some(head) = pool.free.get_mut(class) {
            // SAFETY: the array is in the store, has room for a cell and is nobody's any more.
            unsafe { self.cells(array).write(u64::from(*head)) };
            *head = array;
        }
    }

    /// Gives all memory back to the kernel and calls `also`, if no array is in use; none is taken meanwhile.
    pub(super) fn discard_if_idle(&self, also: impl FnOnce()) {
        let mut pools = self.pools.each_ref().map(|pool| pool.0.lock());
        if pools.iter().all(|pool| pool.taken == 0) {
            pools.iter_mut().for_each(|pool| **pool = Pool::NEW);
            let chunks = self.used_chunks.swap(0, Ordering::Relaxed).min(self.chunks.load(Ordering::Relaxed));
            mmap::discard(self.cells(0).cast(), chunks * CHUNK_BYTES);
            also();
        }
    }
}
