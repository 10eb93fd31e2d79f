//! The shapes that are compared. All except the product's are as small as a fair comparison allows.

use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use memintro_tracker::in_band::{self, InBand};
use memintro_tracker::lock::SpinLock;
use memintro_tracker::table::{Block, Inserted, Removed, Table};

/// The operations that a malloc hook needs of a table.
pub(crate) trait Shape: Sync {
    /// Bytes that the allocator is asked for on top of a block's size.
    const EXTRA: usize = 0;
    /// Empties the table and makes room for `blocks`.
    fn reset(&self, blocks: usize);
    /// Inserts a block.
    fn insert(&self, address: usize, site: u32, size: u64);
    /// Removes it, and returns its size; `None`: it is not there.
    fn remove(&self, address: usize) -> Option<u64>;
    /// Removes it. Whether it was where such a block belongs, with this size. This is not timed.
    fn had(&self, address: usize, size: u64) -> bool {
        self.remove(address) == Some(size)
    }
}

/// No table: the bare allocator.
pub(crate) struct Bare;

impl Shape for Bare {
    fn reset(&self, _: usize) {}
    #[inline]
    fn insert(&self, _: usize, _: u32, _: u64) {}
    #[inline]
    fn remove(&self, _: usize) -> Option<u64> {
        None
    }
    fn had(&self, _: usize, _: u64) -> bool {
        true
    }
}

/// One u64 for each 16-byte granule of the address space: no hash, no lock. (A radix map at its best: one level.)
pub(crate) struct Radix(*mut u8);

const RADIX_BYTES: usize = 1 << 46;
/// The size in a record of `Radix` and `Open`; the call site is above it.
const SIZE_MASK: u64 = (1 << 40) - 1;

// SAFETY: all access to the mapping is atomic.
unsafe impl Sync for Radix {}

impl Radix {
    pub(crate) fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // At the bottom of the address space: anywhere else, it would lie where the product's table grows.
        let bottom = ptr::without_provenance_mut(256 << 20);
        // SAFETY: an anonymous mapping at an address where nothing is, or which the kernel chooses.
        let base = unsafe { libc::mmap(bottom, RADIX_BYTES, protection, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self(base.cast())
    }

    #[inline]
    fn cell(&self, address: usize) -> &AtomicU64 {
        // SAFETY: addresses have 47 bits, so a cell for each 16 bytes fits.
        unsafe { &*self.0.add((address >> 4) << 3).cast::<AtomicU64>() }
    }
}

impl Shape for Radix {
    fn reset(&self, _: usize) {
        // SAFETY: the mapping is ours.
        unsafe { libc::madvise(self.0.cast(), RADIX_BYTES, libc::MADV_DONTNEED) };
    }

    #[inline]
    fn insert(&self, address: usize, site: u32, size: u64) {
        self.cell(address).store((u64::from(site) << 40) | size, Ordering::Relaxed);
    }

    #[inline]
    fn remove(&self, address: usize) -> Option<u64> {
        let cell = self.cell(address);
        let record = black_box(cell.load(Ordering::Relaxed));
        cell.store(0, Ordering::Relaxed);
        (record != 0).then_some(record & SIZE_MASK)
    }
}

/// Open addressing with 16-byte entries, linear probing and backward shift, at most 70% full; 256 locked parts, made
/// for the expected number of blocks.
pub(crate) struct Open([SpinLock<Part>; 256]);

#[derive(Default)]
struct Part {
    entries: Vec<(u64, u64)>,
}

impl Open {
    pub(crate) fn new() -> Self {
        Self([const { SpinLock::new(Part { entries: Vec::new() }) }; 256])
    }

    #[inline]
    fn part(&self, address: usize) -> (&SpinLock<Part>, u64) {
        let hash = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (&self.0[(hash >> 56) as usize], hash << 8 >> 8)
    }
}

fn home(hash: u64, len: usize) -> usize {
    ((u128::from(hash) * len as u128) >> 56) as usize
}

fn rehash(address: u64) -> u64 {
    let hash = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash ^ (hash >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93) << 8 >> 8
}

impl Shape for Open {
    fn reset(&self, blocks: usize) {
        for part in &self.0 {
            // Spare room, because by chance a part may get more than its share.
            part.lock().entries = vec![(0, 0); (blocks / 256) * 10 / 7 + 128];
        }
    }

    #[inline]
    fn insert(&self, address: usize, site: u32, size: u64) {
        let (part, hash) = self.part(address);
        let entries = &mut part.lock().entries;
        let mut at = home(hash, entries.len());
        while entries[at].0 != 0 && entries[at].0 != address as u64 {
            at = if at + 1 == entries.len() { 0 } else { at + 1 };
        }
        entries[at] = (address as u64, (u64::from(site) << 40) | size);
    }

    #[inline]
    fn remove(&self, address: usize) -> Option<u64> {
        let (part, hash) = self.part(address);
        let entries = &mut part.lock().entries;
        let len = entries.len();
        let mut at = home(hash, len);
        while entries[at].0 != address as u64 {
            if entries[at].0 == 0 {
                return None;
            }
            at = if at + 1 == len { 0 } else { at + 1 };
        }
        let record = black_box(entries[at].1);
        let mut next = at;
        loop {
            next = if next + 1 == len { 0 } else { next + 1 };
            if entries[next].0 == 0 {
                break;
            }
            let from_home = (next + len - home(rehash(entries[next].0), len)) % len;
            if from_home >= (next + len - at) % len {
                entries[at] = entries[next];
                at = next;
            }
        }
        entries[at].0 = 0;
        Some(record & SIZE_MASK)
    }
}

const GENERATION: u32 = 5;

fn block(site: u32, size: u64) -> Block {
    Block { site, size, generation: GENERATION }
}

/// A hook adds the answer to counters; it does not store the answer itself.
#[inline(always)]
fn learn(removed: Removed) -> u64 {
    black_box(removed.size ^ u64::from(removed.site ^ removed.age));
    removed.size
}

/// The product's table, for many threads or for a single one.
pub(crate) struct Tracked {
    pub(crate) table: &'static Table,
    pub(crate) shared: bool,
}

impl Shape for Tracked {
    fn reset(&self, _: usize) {
        self.table.clear();
        self.table.set_shared(self.shared);
        self.table.init(4 << 30).expect("address space");
    }

    #[inline]
    fn insert(&self, address: usize, site: u32, size: u64) {
        let block = block(site, size);
        let inserted = self.table.insert_fast(address, &block, GENERATION)
            || self.table.insert(address, block, GENERATION) == Inserted::New;
        black_box(inserted);
    }

    #[inline]
    fn remove(&self, address: usize) -> Option<u64> {
        let Some((removed, (), is_untidy)) = self.table.remove_fast(address, GENERATION, |_| Some(())) else {
            return self.table.remove(address, GENERATION).map(learn);
        };
        let size = learn(removed);
        if is_untidy {
            self.table.tidy(address);
        }
        Some(size)
    }
}

/// The product's in-band records, for many threads or for a single one. Blocks that cannot have one are in the table.
/// Only for glibc's allocator.
pub(crate) struct Records {
    pub(crate) in_band: &'static InBand,
    pub(crate) rest: Tracked,
}

/// Usable bytes of the greatest block with an in-band record.
const MOST_BYTES: usize = 32 << 10;

impl Records {
    /// What the hook does where its short path ends.
    #[cold]
    #[inline(never)]
    fn insert_slowly(&self, address: usize, block: Block) {
        // SAFETY: no other thread knows of the block yet.
        let is_in = self.in_band.make_room(address) && unsafe { self.in_band.put_fast(address, &block) };
        if !is_in {
            black_box(self.rest.table.insert(address, block, GENERATION));
        }
    }

    #[cold]
    #[inline(never)]
    fn remove_slowly(&self, address: usize) -> Option<u64> {
        self.rest.table.remove(address, GENERATION).map(learn)
    }
}

impl Shape for Records {
    const EXTRA: usize = in_band::EXTRA;

    fn reset(&self, blocks: usize) {
        self.in_band.forget_all();
        self.in_band.begin(0);
        self.rest.reset(blocks);
    }

    #[inline]
    fn insert(&self, address: usize, site: u32, size: u64) {
        let block = block(site, size);
        // SAFETY: no other thread knows of the block yet, and the allocator was asked for `EXTRA` bytes more.
        if !unsafe { self.in_band.put_fast(address, &block) } {
            self.insert_slowly(address, block);
        }
    }

    #[inline]
    fn remove(&self, address: usize) -> Option<u64> {
        // SAFETY: the block is about to be given back, by this thread.
        match unsafe { self.in_band.take_fast(address, GENERATION, |_| Some(())) } {
            Some((removed, ())) => Some(learn(removed)),
            None => self.remove_slowly(address),
        }
    }

    fn had(&self, address: usize, size: u64) -> bool {
        // SAFETY: the block is live.
        let usable = unsafe { libc::malloc_usable_size(address as *mut libc::c_void) };
        self.in_band.has(address) == (usable <= MOST_BYTES) && self.remove(address) == Some(size)
    }
}
