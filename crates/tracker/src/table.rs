//! The live-block table: address → call site, size and birth generation of a block.
//!
//! It is a side table in memory of its own, made for use inside malloc: an operation usually touches one cache line
//! and takes only the lock of that bucket. While a heap fills, the table adds 9 to 15 bytes to each live block,
//! whatever its size; `docs/design/table.md` says how this changes under long traffic of uneven sizes.
//!
//! Shape: two structures ([`routing`]). Blocks in dense parts of the heap live in cells of 8 bytes ([`dense`],
//! [`page_map`], [`mod@array`], [`cell`], [`arena`]), which are found by the block's address. All others live in
//! buckets: 256 shards, each an array of 64-byte [`bucket::Bucket`]s of five blocks. [`hash`] permutes an address.
//! The permuted bits choose the shard and the home bucket, in the order of their magnitude, so a shard grows in place
//! ([`growth`]). A block whose home is full is chained to it in an overflow entry of 16 bytes. [`shards`] manages
//! the memory of these. [`packed`] stores a block in 12 bytes, [`sizes`] stores what does not fit there, [`ages`] keeps
//! generations from wrapping around.
//!
//! Rules for neighbours: the lock of a home bucket guards every block of that home, the lock of an open heap page
//! every block of that heap page. Order of locks: administration, resizing, buckets (one; or all of a shard, in a
//! thread that resizes it), heap page, pool, region; dictionary last. A thread that changes the number of buckets of
//! a shard holds all its bucket locks. All other threads read that number again once they hold a bucket lock.

mod ages;
mod arena;
mod array;
mod bucket;
mod budget;
mod cell;
mod dense;
mod fast;
mod growth;
mod hash;
mod operations;
pub(crate) mod packed;
mod page_map;
mod routing;
mod shards;
mod sizes;

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::lock::SpinLock;
use shards::{Region, Shard, Span};

/// Greatest age that the table can represent, in GC generations. Older blocks have this age.
pub const MAX_AGE: u32 = 131_071;

/// Greatest call site number that an entry can hold.
pub const MAX_SITE: u32 = packed::SITE_MASK as u32;

const SHARDS: usize = 1 << hash::SHARD_BITS;

/// Greatest size of a block that is followed.
pub const MAX_SIZE: u64 = cell::MAX_SIZE;

/// A block that has just been allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of its call site, at most [`MAX_SITE`].
    pub site: u32,
    /// Bytes asked for, at most [`MAX_SIZE`]; kept exactly.
    pub size: u64,
    /// GC generation of its birth: usually now, earlier when a block is put back after a failed realloc.
    pub generation: u32,
}

/// What the table knew of a removed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Number of its call site.
    pub site: u32,
    /// Bytes asked for.
    pub size: u64,
    /// GC generations since its birth, at most [`MAX_AGE`].
    pub age: u32,
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The block is in the table.
    New,
    /// The block is in the table, and replaced one whose free was missed.
    Replaced(Removed),
    /// The block was not kept and the table is unchanged: the budget or the kernel's memory is used up, the address
    /// is not a multiple of 8 or above 2^48, the site is above [`MAX_SITE`], the size above [`MAX_SIZE`], or too many
    /// different large sizes are live. If the address held a block whose free was missed, that block stays.
    Full,
}

/// The kernel gave no address space for the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The smallest amount that was asked for, in bytes.
    pub wanted_bytes: usize,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no address space for the table of live blocks: the kernel refused even {} bytes; raise the limit (ulimit -v)",
            self.wanted_bytes
        )
    }
}

impl core::error::Error for Exhausted {}

/// The table. It is made to be a static. Every operation may run in any thread at any time, inside malloc or not.
///
/// ```
/// use memintro_tracker::table::{Block, Inserted, Removed, Table};
///
/// static TABLE: Table = Table::new();
/// TABLE.init(64 << 20)?;
///
/// let block = Block { site: 3, size: 48, generation: 7 };
/// assert_eq!(TABLE.insert(0x1000, block, 7), Inserted::New);
/// assert_eq!(TABLE.remove(0x1000, 9), Some(Removed { site: 3, size: 48, age: 2 }));
/// assert_eq!(TABLE.remove(0x1000, 9), None);
/// # Ok::<(), memintro_tracker::table::Exhausted>(())
/// ```
#[derive(Debug)]
pub struct Table {
    spans: [Span; SHARDS],
    clock: ages::Clock,
    sizes: sizes::Sizes,
    dense: dense::Dense,
    /// Bytes that buckets, words and arrays may take, and that they take.
    budget: budget::Budget,
    shards: [Shard; SHARDS],
    region: SpinLock<Region>,
    /// Whether more than one thread may use the table at once.
    shared: AtomicBool,
    /// Address of the overflow entries.
    overflow_base: AtomicUsize,
    /// Rows of overflow entries that were given to shards that share a page, and that are counted.
    overflow_rows: [AtomicUsize; SHARDS / shards::SHARDS_OF_PAGE],
    /// Held by a thread that sets up or empties the table.
    administration: SpinLock<()>,
}

impl Table {
    /// An empty table without memory. It returns [`Inserted::Full`] and `None` until [`Table::init`].
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a table of several KiB belongs into a static")]
    pub const fn new() -> Self {
        Self {
            spans: [const { Span::new() }; SHARDS],
            clock: ages::Clock::new(),
            sizes: sizes::Sizes::new(),
            dense: dense::Dense::new(),
            budget: budget::Budget::new(),
            shards: [const { Shard::new() }; SHARDS],
            region: SpinLock::new(Region::new()),
            shared: AtomicBool::new(true),
            overflow_base: AtomicUsize::new(0),
            overflow_rows: [const { AtomicUsize::new(0) }; SHARDS / shards::SHARDS_OF_PAGE],
            administration: SpinLock::new(()),
        }
    }

    /// Sets whether more than one thread may use the table at once; it is set at the beginning. The caller ensures
    /// that no operation is in progress.
    ///
    /// While a single thread uses the table, buckets are marked as locked with a plain store. A locked instruction
    /// waits for every store before it, which inside malloc costs more than the whole rest of an operation.
    pub fn set_shared(&self, shared: bool) {
        self.shared.store(shared, Ordering::SeqCst);
    }

    /// Whether more than one thread may use the table at once.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::SeqCst)
    }

    /// Returns the block at `address` and keeps it in the table.
    #[must_use]
    pub fn get(&self, address: usize, now: u32) -> Option<Removed> {
        self.clock.tick(self, now);
        self.peek(address, now)
    }

    /// Visits every block, in no order. Blocks that are inserted, removed or moved during the visit may be missed or
    /// visited twice; for the exact state of one instant, pause all writers. No lock is held while `visit` runs.
    pub fn for_each(&self, now: u32, visit: &mut dyn FnMut(usize, Removed)) {
        self.clock.tick(self, now);
        self.dense.for_each(now, visit);
        for (shard, span) in self.spans.iter().enumerate() {
            let mut index = 0;
            // The span is read again for each bucket, because a shard may grow meanwhile. Blocks then move forward
            // only.
            while let Some(bucket) = span.load(shard).bucket(index) {
                index += 1;
                if !bucket.peek_empty() {
                    self.visit_bucket(shard, bucket, now, visit);
                }
            }
        }
    }

    /// Opens whatever a thread holds that will never go on, and returns how many parts those were. For the only user of
    /// memory that was another process' table: what is in these parts may be half changed.
    pub fn force_open(&self) -> usize {
        let mut held = self.dense.leaves.force_open();
        for (shard, span) in self.spans.iter().enumerate() {
            held += span.load(shard).all().map(|bucket| usize::from(bucket.force_open())).sum::<usize>();
        }
        held
    }

    /// Visits the blocks of a bucket and its chain, a few at a time.
    fn visit_bucket(
        &self,
        shard: usize,
        bucket: &bucket::Bucket,
        now: u32,
        visit: &mut dyn FnMut(usize, Removed),
    ) {
        let mut visited = 0;
        loop {
            let mut copies = [(0, Removed { site: 0, size: 0, age: 0 }); 8];
            let mut filled = 0;
            {
                let bucket = bucket.lock();
                let slots = bucket.occupied().map(|slot| (bucket.key(slot), bucket.value(slot)));
                let chain = shards::Overflows::new(self, shard).chain(bucket.chain());
                let all = slots.chain(chain.map(|(_, overflow)| (overflow.key(), overflow.value())));
                for ((key, value), copy) in all.skip(visited).zip(&mut copies) {
                    let address = hash::address(shard, packed::residue(value, key));
                    *copy = (address, packed::decode(value, now, |code| self.sizes.get(code)));
                    filled += 1;
                }
            }
            for (address, removed) in copies.into_iter().take(filled) {
                visit(address, removed);
            }
            visited += filled;
            if filled < copies.len() {
                return;
            }
        }
    }

    /// Number of blocks, exact while no thread writes. Walks the whole table.
    #[must_use]
    pub fn len_estimate(&self) -> usize {
        let mut blocks = self.dense.len();
        for (i, (span, shard)) in self.spans.iter().zip(&self.shards).enumerate() {
            let buckets = span.load(i).all().filter(|bucket| !bucket.peek_empty());
            blocks += buckets.map(|bucket| bucket.lock().occupied().count()).sum::<usize>();
            blocks += shard.pool.lock().used as usize;
        }
        blocks
    }

    /// Bytes that the table takes: its buckets, touched or not, the pages of its overflow entries, and the used part
    /// of the dictionary of large sizes.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        self.budget.taken().saturating_add(self.sizes.resident_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_releases_any_more_is_opened_and_read() {
        let table = Box::leak(Box::new(Table::new()));
        table.init(64 << 20).unwrap();
        // Neighbours, which share a heap page, and blocks that are far apart.
        let addresses: Vec<usize> = (1..200).flat_map(|n| [0x7000_0000 + n * 64, n << 24]).collect();
        for address in &addresses {
            let block = Block { site: 3, size: 48, generation: 7 };
            assert_eq!(table.insert(*address, block, 7), Inserted::New);
        }
        assert_eq!(table.force_open(), 0);
        let shards = table.spans.iter().enumerate().map(|(shard, span)| span.load(shard));
        let used = shards.flat_map(shards::Buckets::all).find(|bucket| !bucket.peek_empty()).unwrap();
        core::mem::forget(used.lock());
        let leaf = table.dense.leaves.get(0x7000_1000).unwrap();
        assert!(leaf.heap_page(0x7000_1000).hold(true).open().is_some());
        assert_eq!(table.force_open(), 2);
        let mut seen = 0;
        table.for_each(7, &mut |address, found| {
            assert!(addresses.contains(&address) && found.site == 3 && found.size == 48);
            seen += 1;
        });
        assert_eq!((seen, table.force_open()), (addresses.len(), 0));
    }
}
