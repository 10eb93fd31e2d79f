//! Insert, remove and find, inside malloc.
//!
//! Rule for neighbours: each operation in buckets holds the lock of one bucket, the block's home, from beginning to end.

use core::ops::ControlFlow;

use super::bucket::{BucketGuard, Overflow, Slot};
use super::cell::is_granule;
use super::growth::{self, Growth};
use super::hash::Hash;
use super::packed;
use super::shards::{Buckets, Overflows};
use super::{Block, Inserted, MAX_AGE, MAX_SITE, MAX_SIZE, Removed, Table};

/// Number of free slots at which a bucket takes a block back from its chain. It is more than one, because the next
/// block to come often has the address of the block that was just freed.
const ROOM_AT_HOME: usize = 2;

/// Number of set Bloom bits at which a removal computes the Bloom bits of a chain anew.
const STALE_BLOOM_BITS: u32 = 4;

/// A block's locked home, and the shard's buckets while the lock is held.
pub(super) struct Home<'a> {
    pub(super) buckets: Buckets<'a>,
    pub(super) bucket: BucketGuard<'a>,
}

/// Why a block has no home in the buckets.
enum Away {
    NoMemory,
    /// Its heap page is open or being opened.
    Moved,
}

/// Which blocks have a home in the buckets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Accept {
    /// Those of closed heap pages.
    ClosedPages,
    /// All blocks, because the caller is closing the heap page.
    AllPages,
}

/// The place of a block.
enum Place<'a> {
    Slot(Slot),
    Overflow { before: Option<&'a Overflow>, link: u32, overflow: &'a Overflow },
}

impl Table {
    /// Records that `address` was allocated, at generation `now`. Never allocates. Waits only for other operations on
    /// the same cache line or heap page, for a shard that grows, or for a heap page that opens, and for these only a
    /// limited time ([`crate::lock`]).
    #[inline(always)]
    pub fn insert(&self, address: usize, block: Block, now: u32) -> Inserted {
        self.clock.tick(self, now);
        if block.site > MAX_SITE || block.size > MAX_SIZE {
            return Inserted::Full;
        }
        let block = Block { generation: birth(&block, now), ..block };
        if self.insert_fast(address, &block, now) {
            return Inserted::New;
        }
        self.route_insertion(address, block, now)
    }

    /// Inserts a block into the buckets. Returns `None` if its heap page is no longer closed.
    pub(super) fn insert_into_buckets(
        &self,
        address: usize,
        block: Block,
        now: u32,
        accept: Accept,
    ) -> Option<Inserted> {
        let Some(hash) = Hash::of_address(address) else { return Some(Inserted::Full) };
        let mut home = match self.home(address, hash, accept) {
            Ok(home) => home,
            Err(Away::NoMemory) => return Some(Inserted::Full),
            Err(Away::Moved) => return None,
        };
        let key = packed::key(hash.residue);
        if block.size < packed::LARGE
            && home.bucket.with_key(key).first().is_none()
            && !home.bucket.may_chain(key)
            && let Some(slot) = home.bucket.vacant().first()
        {
            let value = packed::value(hash.residue, block.site, block.generation, block.size);
            home.bucket.put(slot, key, value);
            return Some(Inserted::New);
        }
        self.insert_slow(home, address, hash, block, now, accept)
    }

    /// Removes the block at `address` and returns it. `None` means that the block is not known, which is normal.
    #[inline(always)]
    pub fn remove(&self, address: usize, now: u32) -> Option<Removed> {
        self.clock.tick(self, now);
        if let Some((removed, (), is_to_tidy)) = self.remove_fast(address, now, |_| Some(())) {
            if is_to_tidy {
                self.tidy(address);
            }
            return Some(removed);
        }
        self.route_removal(address, now)
    }

    /// Removes a block from the buckets. Returns `Continue` if its heap page is no longer closed.
    pub(super) fn take_from_buckets(&self, address: usize, now: u32) -> ControlFlow<Option<Removed>> {
        let Some(hash) = Hash::of_address(address) else { return ControlFlow::Break(None) };
        match self.home(address, hash, Accept::ClosedPages) {
            Ok(home) => ControlFlow::Break(self.take_at(home, hash, now)),
            Err(Away::NoMemory) => ControlFlow::Break(None),
            Err(Away::Moved) => ControlFlow::Continue(()),
        }
    }

    /// Removes a block from its home.
    pub(super) fn take_at<'a>(&'a self, mut home: Home<'a>, hash: Hash, now: u32) -> Option<Removed> {
        let key = packed::key(hash.residue);
        for slot in home.bucket.with_key(key) {
            let value = home.bucket.value(slot);
            if packed::matches(value, hash.residue) {
                home.bucket.vacate(slot);
                if home.bucket.chain() != 0 && home.bucket.vacant().count() >= ROOM_AT_HOME {
                    self.bring_home(&mut home, hash.shard);
                }
                return Some(self.take_out(value, now));
            }
        }
        if home.bucket.may_chain(key) { self.remove_slow(home, hash, now) } else { None }
    }

    /// Prefetches the cache line that may hold the block at `address`, for an operation that follows soon.
    #[inline(always)]
    pub fn prefetch(&self, address: usize) {
        if !(is_granule(address) && self.dense.prefetch(address)) {
            self.prefetch_bucket(address);
        }
    }

    #[inline(never)]
    fn prefetch_bucket(&self, address: usize) {
        let Some(hash) = Hash::of_address(address) else { return };
        let Some(span) = self.spans.get(hash.shard) else { return };
        let buckets = span.load(hash.shard);
        if let Some(bucket) = buckets.bucket(hash.home(buckets.count())) {
            bucket.prefetch();
        }
    }

    /// Reads the value of the block's entry in the buckets. Returns `Continue` if its heap page is no longer closed.
    pub(super) fn find<T>(&self, address: usize, read: impl FnOnce(u64) -> T) -> ControlFlow<Option<T>> {
        let Some(hash) = Hash::of_address(address) else { return ControlFlow::Break(None) };
        let home = match self.home(address, hash, Accept::ClosedPages) {
            Ok(home) => home,
            Err(Away::NoMemory) => return ControlFlow::Break(None),
            Err(Away::Moved) => return ControlFlow::Continue(()),
        };
        let value = self.seek(&home, hash).map(|place| match place {
            Place::Slot(slot) => home.bucket.value(slot),
            Place::Overflow { overflow, .. } => overflow.value(),
        });
        ControlFlow::Break(value.map(read))
    }

    /// Locks the home of a block.
    fn home(&self, address: usize, hash: Hash, accept: Accept) -> Result<Home<'_>, Away> {
        let home = self.home_unchecked(hash).ok_or(Away::NoMemory)?;
        let is_away = accept == Accept::ClosedPages && is_granule(address) && !self.dense.is_closed(address);
        if is_away { Err(Away::Moved) } else { Ok(home) }
    }

    /// Locks the home of a hash, whatever the state of its heap page. Returns `None` if the table has no memory, or
    /// if the holder of the bucket does not release it in time.
    pub(super) fn home_unchecked(&self, hash: Hash) -> Option<Home<'_>> {
        let span = self.spans.get(hash.shard)?;
        loop {
            let buckets = span.load(hash.shard);
            let bucket = buckets.bucket(hash.home(buckets.count()))?;
            if !self.is_shared() {
                return Some(Home { buckets, bucket: bucket.held() });
            }
            let bucket = bucket.lock_in_time()?;
            if span.load(hash.shard) == buckets {
                return Some(Home { buckets, bucket });
            }
        }
    }

    fn seek<'a>(&'a self, home: &Home<'a>, hash: Hash) -> Option<Place<'a>> {
        let key = packed::key(hash.residue);
        for slot in home.bucket.with_key(key) {
            if packed::matches(home.bucket.value(slot), hash.residue) {
                return Some(Place::Slot(slot));
            }
        }
        if !home.bucket.may_chain(key) {
            return None;
        }
        let mut before = None;
        for (link, overflow) in Overflows::new(self, hash.shard).chain(home.bucket.chain()) {
            if overflow.key() == key && packed::matches(overflow.value(), hash.residue) {
                return Some(Place::Overflow { before, link, overflow });
            }
            before = Some(overflow);
        }
        None
    }

    /// Decodes the value of an entry that was removed from the table.
    #[inline]
    fn take_out(&self, value: u64, now: u32) -> Removed {
        match packed::large(value) {
            None => packed::decode(value, now, |_| 0),
            Some(_) => self.take_out_large(value, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_out_large(&self, value: u64, now: u32) -> Removed {
        let removed = packed::decode(value, now, |code| self.sizes.get(code));
        if let Some(code) = packed::large(value) {
            self.sizes.release(code);
        }
        removed
    }

    /// Insertion of a large block, of a block that replaces another one, or into a full home.
    #[inline(never)]
    fn insert_slow<'a>(
        &'a self,
        mut home: Home<'a>,
        address: usize,
        hash: Hash,
        block: Block,
        now: u32,
        accept: Accept,
    ) -> Option<Inserted> {
        let size = if block.size < packed::LARGE {
            block.size
        } else {
            match self.sizes.acquire(block.size) {
                Some(code) => packed::LARGE.wrapping_add(u64::from(code)),
                None => return Some(Inserted::Full),
            }
        };
        let value = packed::value(hash.residue, block.site, block.generation, size);
        loop {
            let buckets = home.buckets;
            let placed = self.insert_at(&mut home, hash, value, now);
            drop(home);
            match placed {
                Placed::Done(inserted) => return Some(inserted),
                Placed::Crowded => {
                    self.grow(hash.shard, buckets);
                    return Some(Inserted::New);
                }
                Placed::NoRoom => {}
            }
            let changed = self.grow(hash.shard, buckets) == Growth::Changed;
            let again = self.home(address, hash, accept);
            match again {
                Ok(again) if changed => home = again,
                _ => {
                    if let Some(code) = packed::large(value) {
                        self.sizes.release(code);
                    }
                    return if let Err(Away::Moved) = again { None } else { Some(Inserted::Full) };
                }
            }
        }
    }

    fn insert_at<'a>(&'a self, home: &mut Home<'a>, hash: Hash, value: u64, now: u32) -> Placed {
        let key = packed::key(hash.residue);
        if let Some(place) = self.seek(home, hash) {
            let old = match place {
                Place::Slot(slot) => {
                    let old = home.bucket.value(slot);
                    home.bucket.set_value(slot, value);
                    old
                }
                Place::Overflow { overflow, .. } => {
                    let old = overflow.value();
                    overflow.set_value(value);
                    old
                }
            };
            return Placed::Done(Inserted::Replaced(self.take_out(old, now)));
        }
        if let Some(slot) = home.bucket.vacant().first() {
            home.bucket.put(slot, key, value);
            return Placed::Done(Inserted::New);
        }
        let overflows = Overflows::new(self, hash.shard);
        let Some(shard) = self.shards.get(hash.shard) else { return Placed::NoRoom };
        let (link, is_full) = {
            let Some(mut pool) = shard.pool.lock_in_time() else { return Placed::NoRoom };
            let link = pool
                .take(|link| overflows.overflow(link), |count| self.more_overflow(hash.shard, count, false));
            (link, growth::is_full(&mut pool, home.buckets))
        };
        let Some((link, overflow)) = link.and_then(|link| Some((link, overflows.overflow(link)?))) else {
            return Placed::NoRoom;
        };
        overflow.set(key, value, home.bucket.chain());
        home.bucket.set_chain(link);
        home.bucket.set_bloom_bit(key);
        if is_full { Placed::Crowded } else { Placed::Done(Inserted::New) }
    }

    /// Removal of a block that may be in the chain.
    #[inline(never)]
    fn remove_slow<'a>(&'a self, mut home: Home<'a>, hash: Hash, now: u32) -> Option<Removed> {
        let Place::Overflow { before, link, overflow } = self.seek(&home, hash)? else { return None };
        let value = overflow.value();
        match before {
            Some(before) => before.set_next(overflow.next()),
            None => home.bucket.set_chain(overflow.next()),
        }
        self.give(hash.shard, link, overflow);
        if home.bucket.bloom_bits() >= STALE_BLOOM_BITS {
            home.bucket.clear_bloom_bits();
            for (_, overflow) in Overflows::new(self, hash.shard).chain(home.bucket.chain()) {
                home.bucket.set_bloom_bit(overflow.key());
            }
        }
        Some(self.take_out(value, now))
    }

    /// Moves the first block of the chain into a free slot.
    #[inline(never)]
    fn bring_home(&self, home: &mut Home<'_>, shard: usize) {
        let link = home.bucket.chain();
        let (Some(overflow), Some(slot)) =
            (Overflows::new(self, shard).overflow(link), home.bucket.vacant().first())
        else {
            return;
        };
        home.bucket.put(slot, overflow.key(), overflow.value());
        home.bucket.set_chain(overflow.next());
        self.give(shard, link, overflow);
    }

    fn give(&self, shard: usize, link: u32, overflow: &Overflow) {
        // If the pool's lock is not free in time, the overflow entry stays unused.
        if let Some(mut pool) = self.shards.get(shard).and_then(|shard| shard.pool.lock_in_time()) {
            pool.give(link, overflow);
        }
    }
}

/// The result of an attempt to insert.
enum Placed {
    Done(Inserted),
    /// The block was inserted, and the shard is full.
    Crowded,
    NoRoom,
}

/// Generation of birth, at most [`MAX_AGE`] ago.
#[inline]
fn birth(block: &Block, now: u32) -> u32 {
    let age = now.wrapping_sub(block.generation);
    // An age above half of the range means a generation in the future; it counts as age 0.
    if age > u32::MAX / 2 { now } else { now.wrapping_sub(age.min(MAX_AGE)) }
}
