//! Small blocks, in the order of their addresses.
//!
//! A program mostly frees and allocates beside what it has just touched. A hash scatters that over the whole table, and
//! each operation then costs cache misses, its own and those of the program whose data it displaced. Here neighbours
//! in the heap are neighbours in the table.
//!
//! Shape: a *plot* is 1 KiB of the watched heap. Its descriptor of 16 bytes has a bit for each granule of 16 bytes at
//! which a block begins, and says where the values of these blocks lie: packed, in the order of the granules, in an
//! array that grows with their number. So a block is found by one test of a bit and one count of the bits below it.
//! Descriptors lie in *leaves* of 1 GiB of address space, touched only where small blocks are dense.
//!
//! Where they are not, descriptors would cost more than the lines do. So a *region* of 256 KiB, whose descriptors fill a
//! page, opens only when [`DENSE`] small blocks live in it at once; until then they live in the lines, as larger blocks
//! always do. [`super::halves`] keeps the two apart.
//!
//! Rules for neighbours: the lock of a plot guards its descriptor and its array; a pool's lock is taken last. While one
//! thread uses the table, plots are not locked at all.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::halves::Notes;
use super::{MAX_AGE, Removed};
use crate::lock::{SpinLock, relax};
use crate::mmap;

/// Sizes below this live here.
pub(super) const LIMIT: u64 = 1 << SIZE_BITS;

const SITE_BITS: u32 = 24;
pub(super) const SIZE_BITS: u32 = 8;
const BIRTH_SHIFT: u32 = SITE_BITS + SIZE_BITS;

const ADDRESS_BITS: u32 = 48;
pub(super) const GRANULE_SHIFT: u32 = 4;
const PLOT_SHIFT: u32 = GRANULE_SHIFT + 6;
pub(super) const LEAF_SHIFT: u32 = 30;
const LEAVES: usize = 1 << (ADDRESS_BITS - LEAF_SHIFT);
const PLOTS: usize = 1 << (LEAF_SHIFT - PLOT_SHIFT);

const PAGE: usize = 4096;
/// Plots of a region: those whose descriptors share a page.
const PLOTS_OF_REGION: usize = PAGE / size_of::<Plot>();
const REGION_SHIFT: u32 = PLOT_SHIFT + PLOTS_OF_REGION.trailing_zeros();
const REGIONS: usize = 1 << (LEAF_SHIFT - REGION_SHIFT);

/// Small blocks at which a region opens: from here on descriptors and arrays take less than 16 bytes a block.
const DENSE: u16 = 1024;

/// Arrays are counted in pairs of values.
const PAIR_BYTES: usize = 16;
const MOST_PAIRS: usize = 32;
const POOLS: usize = 8;
const CHUNK_PAIRS: usize = 4096;
const CHUNK_BYTES: usize = CHUNK_PAIRS * PAIR_BYTES;

/// Zeroed memory is an empty, open plot without an array.
#[derive(Debug)]
#[repr(C, align(16))]
struct Plot {
    begins: AtomicU64,
    /// Index of the array's first pair in the store.
    array: AtomicU32,
    pairs: AtomicU8,
    count: AtomicU8,
    lock: AtomicU8,
}

const _: () = assert!(size_of::<Plot>() == 16);

/// Zeroed memory is a closed region without blocks.
#[derive(Debug)]
#[repr(C)]
struct Region {
    /// Small blocks that live in the lines, while it is closed; [`OPEN`] once it is open.
    crowd: AtomicU16,
    /// Where blocks that nothing is noted of begin: strips from the end of the region to the lowest, and from its beginning
    /// past the highest.
    low: AtomicU8,
    high: AtomicU8,
}

const _: () = assert!(size_of::<Region>() == 4);

const OPEN: u16 = u16::MAX;
/// The numbers of a region's strips fit into a byte, with one to spare.
const STRIPS: u8 = 128;
const STRIP_SHIFT: u32 = REGION_SHIFT - STRIPS.trailing_zeros();

/// Zeroed memory is an empty leaf. What is first takes whole pages, which can be given back to the kernel.
#[repr(C)]
struct Leaf {
    plots: [Plot; PLOTS],
    regions: [Region; REGIONS],
    notes: Notes,
    next: AtomicPtr<Leaf>,
    base: AtomicUsize,
}

const _: () = assert!(core::mem::offset_of!(Leaf, next).is_multiple_of(PAGE));

/// Free arrays by their number of pairs, linked through their first value, and a chunk to cut new ones from.
#[derive(Debug)]
struct Stock {
    free: [u32; MOST_PAIRS + 1],
    next: u32,
    end: u32,
    /// Arrays handed out.
    taken: usize,
}

impl Stock {
    const NEW: Self = Self { free: [0; MOST_PAIRS + 1], next: 0, end: 0, taken: 0 };
}

#[derive(Debug)]
#[repr(align(64))]
struct Pool(SpinLock<Stock>);

/// What came of an insertion.
pub(super) enum Placed {
    New,
    Replaced(u64),
    /// The region is closed: the block belongs into the lines, and is counted as one that lives there.
    Closed,
    NoMemory,
}

/// The small half of the table.
#[derive(Debug)]
pub(super) struct Near {
    root: AtomicPtr<AtomicPtr<Leaf>>,
    leaves: AtomicPtr<Leaf>,
    /// All arrays.
    store: AtomicPtr<u64>,
    store_chunks: AtomicUsize,
    used_chunks: AtomicUsize,
    pools: [Pool; POOLS],
}

/// A plot's lock, if there is anybody to lock out.
struct Held<'a>(Option<&'a Plot>);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(plot) = self.0 {
            // Release: the next holder sees what was written.
            plot.lock.store(0, Ordering::Release);
        }
    }
}

impl Plot {
    #[inline]
    fn hold(&self, shared: bool) -> Held<'_> {
        if !shared {
            return Held(None);
        }
        let mut spins = 0;
        // Acquire: what the last holder wrote is seen.
        while self.lock.swap(1, Ordering::Acquire) != 0 {
            relax(&mut spins);
        }
        Held(Some(self))
    }

    #[inline]
    fn bit(address: usize) -> u64 {
        1 << ((address >> GRANULE_SHIFT) & 63)
    }
}

/// The value of a block.
#[inline]
pub(super) fn value(site: u32, birth: u32, size: u64) -> u64 {
    (u64::from(birth) << BIRTH_SHIFT)
        | ((size & (LIMIT - 1)) << SITE_BITS)
        | (u64::from(site) & super::packed::SITE_MASK)
}

/// What a value says at generation `now`.
#[inline]
pub(super) fn decode(value: u64, now: u32) -> Removed {
    let age = now.wrapping_sub((value >> BIRTH_SHIFT) as u32);
    Removed {
        site: (value & super::packed::SITE_MASK) as u32,
        size: (value >> SITE_BITS) & (LIMIT - 1),
        age: if age > u32::MAX / 2 { 0 } else { age.min(MAX_AGE) },
    }
}

/// Whether a block at this address may live here.
#[inline]
pub(super) fn is_granule(address: usize) -> bool {
    // One test for both ends: low bits wander to the top.
    address.rotate_right(GRANULE_SHIFT) < 1 << (ADDRESS_BITS - GRANULE_SHIFT)
}

impl Region {
    #[inline]
    fn is_open(&self) -> bool {
        // Acquire: whoever finds it open sees which stretches are suspect.
        self.crowd.load(Ordering::Acquire) == OPEN
    }

    /// Counts `address` among the places where blocks live in the lines.
    fn widen(&self, address: usize) {
        let strip = (address >> STRIP_SHIFT) as u8 & (STRIPS - 1);
        // A look first: mostly there is nothing to change, and a locked instruction is dear.
        if self.high.load(Ordering::Relaxed) <= strip {
            self.high.fetch_max(strip + 1, Ordering::Relaxed);
        }
        if self.low.load(Ordering::Relaxed) < STRIPS - strip {
            self.low.fetch_max(STRIPS - strip, Ordering::Relaxed);
        }
    }

    /// The widened part, as offsets from the region's beginning.
    fn extent(&self) -> core::ops::Range<usize> {
        let first = STRIPS.saturating_sub(self.low.load(Ordering::Relaxed));
        usize::from(first) << STRIP_SHIFT..usize::from(self.high.load(Ordering::Relaxed)) << STRIP_SHIFT
    }
}

impl Leaf {
    #[inline]
    fn region(&self, address: usize) -> Option<&Region> {
        self.regions.get((address >> REGION_SHIFT) & (REGIONS - 1))
    }
}

impl Near {
    pub(super) const fn new() -> Self {
        Self {
            root: AtomicPtr::new(ptr::null_mut()),
            leaves: AtomicPtr::new(ptr::null_mut()),
            store: AtomicPtr::new(ptr::null_mut()),
            store_chunks: AtomicUsize::new(0),
            used_chunks: AtomicUsize::new(0),
            pools: [const { Pool(SpinLock::new(Stock::NEW)) }; POOLS],
        }
    }

    /// Makes it usable, with room for `bytes` of values; less if the kernel gives less. Again: nothing.
    pub(super) fn init(&self, bytes: usize) {
        if !self.root.load(Ordering::Acquire).is_null() {
            return;
        }
        let mut chunks = (bytes / CHUNK_BYTES).clamp(POOLS, u32::MAX as usize / CHUNK_PAIRS);
        let store = loop {
            if let Some(store) = mmap::reserve(chunks * CHUNK_BYTES) {
                break store;
            }
            chunks /= 2;
            if chunks < POOLS {
                return;
            }
        };
        let Some(root) = mmap::reserve(LEAVES * size_of::<AtomicPtr<Leaf>>()) else { return };
        self.store.store(store.as_ptr().cast(), Ordering::Relaxed);
        self.store_chunks.store(chunks, Ordering::Relaxed);
        // Release: whoever sees the root sees the store.
        self.root.store(root.as_ptr().cast(), Ordering::Release);
    }

    /// Puts a small block in; `budget` is asked for each further piece of memory.
    #[inline]
    pub(super) fn insert(
        &self,
        address: usize,
        value: u64,
        shared: bool,
        budget: impl Fn(usize) -> bool,
    ) -> Placed {
        let Some(leaf) = self.leaf(address).or_else(|| self.new_leaf(address)) else {
            return Placed::NoMemory;
        };
        let Some(plot) = leaf.plots.get((address >> PLOT_SHIFT) & (PLOTS - 1)) else {
            return Placed::NoMemory;
        };
        let Some(region) = leaf.region(address) else { return Placed::NoMemory };
        if !region.is_open() && !Self::knock(leaf, region, address, &budget) {
            return Placed::Closed;
        }
        let _held = plot.hold(shared);
        let bit = Plot::bit(address);
        let begins = plot.begins.load(Ordering::Relaxed);
        let rank = (begins & bit.wrapping_sub(1)).count_ones() as usize;
        if begins & bit != 0 {
            // SAFETY: the array has a value for each bit.
            let place = unsafe { self.array(plot).add(rank) };
            // SAFETY: as above, and the plot is held.
            let old = unsafe { place.replace(value) };
            return Placed::Replaced(old);
        }
        let count = plot.count.load(Ordering::Relaxed) as usize;
        let pairs = plot.pairs.load(Ordering::Relaxed) as usize;
        if count == 2 * pairs && !self.resize(plot, address, (pairs + 1 + pairs / 4).min(MOST_PAIRS), &budget)
        {
            return Placed::NoMemory;
        }
        // SAFETY: there is room for one value more than `count`, and the plot is held.
        unsafe {
            let place = self.array(plot).add(rank);
            let mut to = self.array(plot).add(count);
            while to > place {
                to.write(to.sub(1).read());
                to = to.sub(1);
            }
            place.write(value);
        }
        plot.count.store((count + 1) as u8, Ordering::Relaxed);
        plot.begins.store(begins | bit, Ordering::Relaxed);
        Placed::New
    }

    /// Takes a block out.
    #[inline]
    pub(super) fn remove(&self, address: usize, shared: bool) -> Option<u64> {
        let leaf = self.leaf(address)?;
        let plot = leaf.plots.get((address >> PLOT_SHIFT) & (PLOTS - 1))?;
        let bit = Plot::bit(address);
        // Before the lock: no other thread may free or allocate this very block meanwhile.
        if plot.begins.load(Ordering::Relaxed) & bit == 0 {
            return None;
        }
        let _held = plot.hold(shared);
        let begins = plot.begins.load(Ordering::Relaxed);
        if begins & bit == 0 {
            return None;
        }
        let rank = (begins & bit.wrapping_sub(1)).count_ones() as usize;
        let count = (plot.count.load(Ordering::Relaxed) as usize).wrapping_sub(1);
        // SAFETY: the array has a value for each bit, and the plot is held.
        let value = unsafe {
            let end = self.array(plot).add(count);
            let mut to = self.array(plot).add(rank);
            let value = to.read();
            while to < end {
                to.write(to.add(1).read());
                to = to.add(1);
            }
            value
        };
        plot.begins.store(begins & !bit, Ordering::Relaxed);
        plot.count.store(count as u8, Ordering::Relaxed);
        let pairs = plot.pairs.load(Ordering::Relaxed) as usize;
        if count == 0 {
            self.give(address, plot.array.load(Ordering::Relaxed), pairs);
            plot.pairs.store(0, Ordering::Relaxed);
        } else if pairs > 4 && count <= pairs / 2 {
            // A quarter full: half the room. No memory for that: it stays as it is.
            self.resize(plot, address, pairs / 2, &|_| true);
        }
        Some(value)
    }

    /// The value of the block at `address`.
    pub(super) fn get(&self, address: usize, shared: bool) -> Option<u64> {
        let plot = self.leaf(address)?.plots.get((address >> PLOT_SHIFT) & (PLOTS - 1))?;
        let _held = plot.hold(shared);
        let begins = plot.begins.load(Ordering::Relaxed);
        let bit = Plot::bit(address);
        if begins & bit == 0 {
            return None;
        }
        let rank = (begins & bit.wrapping_sub(1)).count_ones() as usize;
        // SAFETY: the array has a value for each bit, and the plot is held.
        Some(unsafe { self.array(plot).add(rank).read() })
    }

    /// A small block comes to a closed region: counts it, and opens the region if that makes it dense. Answers whether
    /// the region is open.
    #[cold]
    #[inline(never)]
    fn knock(leaf: &Leaf, region: &Region, address: usize, budget: &dyn Fn(usize) -> bool) -> bool {
        region.widen(address);
        let crowd = region.crowd.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |crowd| {
            (crowd != OPEN).then(|| (crowd + 1).min(DENSE))
        });
        match crowd {
            Err(_) => return true,
            Ok(crowd) if crowd < DENSE || !budget(PAGE) => return false,
            Ok(_) => {}
        }
        // What came before stays in the lines until somebody comes to the same stretch.
        leaf.notes.suspect(address >> REGION_SHIFT << REGION_SHIFT, region.extent());
        region.crowd.store(OPEN, Ordering::Release);
        true
    }

    /// Whether small blocks around `address` live here.
    #[inline]
    pub(super) fn is_open(&self, address: usize) -> bool {
        self.leaf(address).and_then(|leaf| leaf.region(address)).is_some_and(Region::is_open)
    }

    /// A larger block that is not noted has come to the lines around `address`.
    pub(super) fn widen(&self, address: usize) {
        let leaf = self.leaf(address).or_else(|| self.new_leaf(address));
        if let Some(region) = leaf.and_then(|leaf| leaf.region(address)) {
            region.widen(address);
        }
    }

    /// A small block has left the lines, or did not get into them after all.
    pub(super) fn left_lines(&self, address: usize) {
        if let Some(region) = self.leaf(address).and_then(|leaf| leaf.region(address)) {
            // Never below zero: it may have come when there was no memory for a leaf.
            let _ = region.crowd.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |crowd| {
                if crowd == OPEN { None } else { crowd.checked_sub(1) }
            });
        }
    }

    /// What is noted of the lines around `address`.
    #[inline]
    pub(super) fn notes(&self, address: usize) -> Option<&Notes> {
        self.leaf(address).map(|leaf| &leaf.notes)
    }

    /// Visits the address and the value of every block. No lock is held while `visit` runs.
    pub(super) fn for_each(&self, visit: &mut dyn FnMut(usize, u64)) {
        self.each_plot(|base, plot| {
            let mut copies = [0u64; 64];
            let begins;
            {
                let _held = plot.hold(true);
                begins = plot.begins.load(Ordering::Relaxed);
                for (rank, copy) in copies.iter_mut().take(begins.count_ones() as usize).enumerate() {
                    // SAFETY: the array has a value for each bit, and the plot is held.
                    *copy = unsafe { self.array(plot).add(rank).read() };
                }
            }
            let mut left = begins;
            for value in copies {
                if left == 0 {
                    break;
                }
                visit(base + ((left.trailing_zeros() as usize) << GRANULE_SHIFT), value);
                left &= left - 1;
            }
        });
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        let mut blocks = 0;
        self.each_plot(|_, plot| blocks += usize::from(plot.count.load(Ordering::Relaxed)));
        blocks
    }

    /// Forgets all blocks. Memory goes back to the kernel unless blocks come in meanwhile.
    pub(super) fn clear(&self) {
        self.each_plot(|base, plot| {
            let _held = plot.hold(true);
            let pairs = plot.pairs.swap(0, Ordering::Relaxed);
            plot.begins.store(0, Ordering::Relaxed);
            plot.count.store(0, Ordering::Relaxed);
            self.give(base, plot.array.load(Ordering::Relaxed), usize::from(pairs));
        });
        let mut stocks = self.pools.each_ref().map(|pool| pool.0.lock());
        let idle = stocks.iter().all(|stock| stock.taken == 0);
        if idle {
            stocks.iter_mut().for_each(|stock| **stock = Stock::NEW);
            let chunks =
                self.used_chunks.swap(0, Ordering::Relaxed).min(self.store_chunks.load(Ordering::Relaxed));
            mmap::discard(self.store.load(Ordering::Relaxed).cast(), chunks * CHUNK_BYTES);
        }
        let mut leaf = self.leaves.load(Ordering::Acquire);
        // SAFETY: leaves are never unmapped.
        while let Some(this) = unsafe { leaf.as_ref() } {
            if idle {
                mmap::discard(leaf.cast(), core::mem::offset_of!(Leaf, next));
            }
            leaf = this.next.load(Ordering::Acquire);
        }
    }

    /// Calls `visit` with the address and the descriptor of each plot that may hold blocks.
    fn each_plot(&self, mut visit: impl FnMut(usize, &Plot)) {
        let mut leaf = self.leaves.load(Ordering::Acquire);
        // SAFETY: leaves are never unmapped.
        while let Some(this) = unsafe { leaf.as_ref() } {
            let base = this.base.load(Ordering::Relaxed);
            for (number, (plots, region)) in this.plots.chunks(PLOTS_OF_REGION).zip(&this.regions).enumerate()
            {
                if !region.is_open() {
                    continue;
                }
                for (index, plot) in plots.iter().enumerate() {
                    if plot.begins.load(Ordering::Relaxed) != 0 {
                        visit(base + ((number * PLOTS_OF_REGION + index) << PLOT_SHIFT), plot);
                    }
                }
            }
            leaf = this.next.load(Ordering::Acquire);
        }
    }

    #[inline]
    fn leaf(&self, address: usize) -> Option<&Leaf> {
        let root = self.root.load(Ordering::Acquire);
        if root.is_null() {
            return None;
        }
        // SAFETY: the root has an entry for each leaf of 48 bits of address, and leaves are never unmapped.
        unsafe { (*root.add((address >> LEAF_SHIFT) & (LEAVES - 1))).load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    #[inline(never)]
    fn new_leaf(&self, address: usize) -> Option<&Leaf> {
        let root = self.root.load(Ordering::Acquire);
        if root.is_null() {
            return None;
        }
        let leaf: *mut Leaf = mmap::reserve(size_of::<Leaf>())?.as_ptr().cast();
        // SAFETY: zeroed memory of that size is an empty leaf.
        let this = unsafe { &*leaf };
        this.base.store(address >> LEAF_SHIFT << LEAF_SHIFT, Ordering::Relaxed);
        // SAFETY: as in `leaf`.
        let entry = unsafe { &*root.add((address >> LEAF_SHIFT) & (LEAVES - 1)) };
        // Release: whoever sees the leaf sees its base.
        if entry.compare_exchange(ptr::null_mut(), leaf, Ordering::Release, Ordering::Relaxed).is_err() {
            mmap::unreserve(leaf.cast(), size_of::<Leaf>());
            return self.leaf(address);
        }
        let mut first = self.leaves.load(Ordering::Relaxed);
        loop {
            this.next.store(first, Ordering::Relaxed);
            match self.leaves.compare_exchange_weak(first, leaf, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(this),
                Err(now) => first = now,
            }
        }
    }

    #[inline]
    fn array(&self, plot: &Plot) -> *mut u64 {
        let first = plot.array.load(Ordering::Relaxed) as usize;
        self.store.load(Ordering::Relaxed).wrapping_byte_add(first * PAIR_BYTES)
    }

    /// Gives the plot, which is held, an array of `pairs`, with its values.
    #[cold]
    #[inline(never)]
    fn resize(&self, plot: &Plot, address: usize, pairs: usize, budget: &dyn Fn(usize) -> bool) -> bool {
        let Some(new) = self.take(address, pairs, budget) else { return false };
        let count = plot.count.load(Ordering::Relaxed) as usize;
        let store = self.store.load(Ordering::Relaxed);
        // SAFETY: both arrays are in the store and hold `count` values; the new one is nobody else's.
        unsafe {
            ptr::copy_nonoverlapping(
                self.array(plot),
                store.wrapping_byte_add(new as usize * PAIR_BYTES),
                count,
            );
        }
        let old_pairs = plot.pairs.load(Ordering::Relaxed) as usize;
        self.give(address, plot.array.load(Ordering::Relaxed), old_pairs);
        plot.array.store(new, Ordering::Relaxed);
        plot.pairs.store(pairs as u8, Ordering::Relaxed);
        true
    }

    /// Addresses of different threads' arenas are far apart, and so use different pools.
    fn pool(&self, address: usize) -> Option<&Pool> {
        self.pools.get((address >> 20) % POOLS)
    }

    fn take(&self, address: usize, pairs: usize, budget: &dyn Fn(usize) -> bool) -> Option<u32> {
        let mut stock = self.pool(address)?.0.lock();
        let store = self.store.load(Ordering::Relaxed);
        let head = stock.free.get_mut(pairs)?;
        if *head != 0 {
            let array = *head;
            // SAFETY: a free array begins with the index of the next one.
            *head = unsafe { store.byte_add(array as usize * PAIR_BYTES).read() } as u32;
            stock.taken = stock.taken.wrapping_add(1);
            return Some(array);
        }
        if (stock.end.wrapping_sub(stock.next) as usize) < pairs {
            self.new_chunk(&mut stock, budget)?;
        }
        let array = stock.next;
        stock.next = array.wrapping_add(pairs as u32);
        stock.taken = stock.taken.wrapping_add(1);
        Some(array)
    }

    fn new_chunk(&self, stock: &mut Stock, budget: &dyn Fn(usize) -> bool) -> Option<()> {
        if !budget(CHUNK_BYTES) {
            return None;
        }
        let chunk = self.used_chunks.fetch_add(1, Ordering::Relaxed);
        if chunk >= self.store_chunks.load(Ordering::Relaxed) {
            self.used_chunks.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let rest = stock.end.wrapping_sub(stock.next) as usize;
        push(self.store.load(Ordering::Relaxed), stock, stock.next, rest);
        let first = (chunk * CHUNK_PAIRS) as u32;
        // Index 0 means "none".
        stock.next = if first == 0 { 1 } else { first };
        stock.end = first.wrapping_add(CHUNK_PAIRS as u32);
        Some(())
    }

    fn give(&self, address: usize, array: u32, pairs: usize) {
        if pairs > 0
            && let Some(pool) = self.pool(address)
        {
            let mut stock = pool.0.lock();
            stock.taken = stock.taken.wrapping_sub(1);
            push(self.store.load(Ordering::Relaxed), &mut stock, array, pairs);
        }
    }
}

/// Puts an array into the list of its kind.
fn push(store: *mut u64, stock: &mut Stock, array: u32, pairs: usize) {
    if pairs == 0 {
        return;
    }
    if let Some(head) = stock.free.get_mut(pairs) {
        // SAFETY: the array is in the store, has room for a value and is nobody's any more.
        unsafe { store.byte_add(array as usize * PAIR_BYTES).write(u64::from(*head)) };
        *head = array;
    }
}
