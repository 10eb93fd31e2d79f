//! A shard grows in place, while the other shards go on.
//!
//! The home of a block is its hash scaled to the number of buckets. So with more buckets, every block moves forward
//! or stays. Growth works from the last bucket to the first: it empties each bucket with its chain and places their
//! blocks anew, in the same bucket or in one behind. So it never disturbs blocks that it has yet to visit, and blocks
//! that it has placed stay where they are.

use core::sync::atomic::Ordering;

use super::Table;
use super::bucket::{Bucket, BucketGuard, Pool, SLOTS};
use super::budget::PAGE;
use super::hash::Hash;
use super::packed;
use super::shards::{Buckets, OVERFLOW_STRIPE, Overflows, Part, SHARDS_OF_PAGE, STRIPE, Shard};

/// Number of overflow entries for each 100 buckets at which a shard grows. That is 6 blocks a bucket, a quarter of
/// them in overflow entries; docs/design/table.md says how this stays under 16 bytes a block.
const FULL_PERCENT: usize = 160;

/// The same for a shard with fewer than [`FEW`] buckets: an additional bucket costs little there, and overflow
/// entries take longer to reach.
const FULL_PERCENT_FEW: usize = 50;

/// Buckets of a shard in a table of 2 MiB.
const FEW: usize = 128;

/// Number of insertions into full homes to wait before trying again, after the kernel or the budget refused.
const REFUSED_PATIENCE: u32 = 4096;

/// The result of an attempt to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// The number of buckets is not the one that the caller saw.
    Changed,
    /// There is no memory, or none within the budget.
    Refused,
}

/// Whether a shard has so many overflow entries that it should grow.
pub(super) fn is_full(pool: &mut Pool, buckets: Buckets<'_>) -> bool {
    let percent = if buckets.count() < FEW { FULL_PERCENT_FEW } else { FULL_PERCENT };
    if (pool.used as usize).wrapping_mul(100) <= buckets.count().wrapping_mul(percent) {
        return false;
    }
    pool.patience = pool.patience.saturating_sub(1);
    pool.patience == 0
}

/// Locks the new buckets before other threads can see them. Buckets that get no block in the distribution would
/// otherwise be open: an operation could lock one of them, and the growing thread would release that lock together
/// with all others.
fn lock_further(old: Buckets<'_>, new: Buckets<'_>) {
    new.all().skip(old.count()).for_each(|bucket| bucket.held().keep());
}

impl Table {
    /// Gives the shard more buckets, unless another thread has done so since the caller read their number. The caller
    /// holds no lock.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&self, shard: usize, seen: Buckets<'_>) -> Growth {
        let (Some(span), Some(state)) = (self.spans.get(shard), self.shards.get(shard)) else {
            return Growth::Refused;
        };
        let Some(_resizing) = state.resizing.lock_in_time() else { return Growth::Refused };
        let old = span.load(shard);
        if old != seen {
            return Growth::Changed;
        }
        let new = old.with_count(old.next_count());
        let more = new.bytes().wrapping_sub(old.bytes());
        let granted = self.budget.take(more);
        if !granted || !self.commit(Part::Buckets, new.rows()) {
            if granted {
                self.budget.give(more);
            }
            if let Some(mut pool) = state.pool.lock_in_time() {
                pool.patience = REFUSED_PATIENCE;
            }
            return Growth::Refused;
        }
        let locked =
            old.all().take_while(|bucket| bucket.lock_in_time().map(BucketGuard::keep).is_some()).count();
        let pool = if locked == old.count() { state.pool.lock_in_time() } else { None };
        let Some(mut pool) = pool else {
            // Another thread holds a bucket or the pool and does not release it in time.
            old.all().take(locked).for_each(|bucket| drop(bucket.held()));
            self.budget.give(more);
            return Growth::Refused;
        };
        self.spread(shard, &mut pool, old, new);
        drop(pool);
        lock_further(old, new);
        span.store(new);
        new.all().for_each(|bucket| drop(bucket.held()));
        self.gather();
        Growth::Changed
    }

    /// Gets memory for the first `count` overflow entries of a shard; with `free`, even beyond the budget.
    ///
    /// The first of the shards that share a page accounts for the whole page. Counting each shard's stripe by itself
    /// made the table seem to grow for hours, whenever a shard had more overflow entries than ever before, although
    /// that memory had long been resident.
    pub(super) fn more_overflow(&self, shard: usize, count: usize, free: bool) -> bool {
        let Some(rows) = self.overflow_rows.get(shard / SHARDS_OF_PAGE) else { return false };
        let wanted = count.div_ceil(OVERFLOW_STRIPE);
        let counted = rows.load(Ordering::Acquire);
        if wanted <= counted {
            return true;
        }
        if !self.commit(Part::Overflows, wanted) {
            return false;
        }
        if free {
            self.budget.take_anyway(PAGE);
        } else if !self.budget.take(PAGE) {
            return false;
        }
        // Overflow entries are taken one by one, so at most one row is missing; none if another shard has just
        // counted it.
        if rows.compare_exchange(counted, wanted, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.budget.give(PAGE);
        }
        true
    }

    fn commit(&self, part: Part, rows: usize) -> bool {
        self.region.lock_in_time().is_some_and(|mut region| region.commit(part, rows))
    }

    /// Rows that every shard fills may become huge pages.
    fn gather(&self) {
        let buckets = self.spans.iter().enumerate().map(|(i, span)| span.load(i).count()).min().unwrap_or(0);
        let touched = |shard: &Shard| shard.pool.lock_in_time().map_or(0, |pool| pool.touched as usize);
        let overflows = self.shards.iter().map(touched).min().unwrap_or(0);
        let Some(mut region) = self.region.lock_in_time() else { return };
        region.gather(Part::Buckets, buckets / STRIPE);
        region.gather(Part::Overflows, overflows / OVERFLOW_STRIPE);
    }

    /// Distributes all blocks of `old` over `new`. All buckets of `old` are locked, and no other thread knows the
    /// additional ones yet.
    fn spread(&self, shard: usize, pool: &mut Pool, old: Buckets<'_>, new: Buckets<'_>) {
        let overflows = Overflows::new(self, shard);
        let mut index = old.count();
        while index > 0 {
            index = index.wrapping_sub(1);
            let Some(bucket) = old.bucket(index).map(Bucket::held) else { return };
            let mut slots = [(0u32, 0u64); SLOTS];
            for (slot, copy) in bucket.occupied().zip(&mut slots) {
                *copy = (bucket.key(slot), bucket.value(slot));
            }
            let (count, mut link) = (bucket.occupied().count(), bucket.chain());
            let mut bucket = bucket;
            bucket.empty();
            bucket.keep();
            // The chain goes first: its overflow entries are then free when the slots run out.
            while let Some(overflow) = overflows.overflow(link) {
                let (key, value, next) = (overflow.key(), overflow.value(), overflow.next());
                pool.give(link, overflow);
                self.place(overflows, pool, new, key, value, shard);
                link = next;
            }
            for (key, value) in slots.into_iter().take(count) {
                self.place(overflows, pool, new, key, value, shard);
            }
        }
    }

    /// Puts an entry into its home bucket or into the chain of that bucket.
    fn place(
        &self,
        overflows: Overflows<'_>,
        pool: &mut Pool,
        buckets: Buckets<'_>,
        key: u32,
        value: u64,
        shard: usize,
    ) {
        let home = Hash { shard, residue: packed::residue(value, key) }.home(buckets.count());
        let Some(mut bucket) = buckets.bucket(home).map(Bucket::held) else { return };
        if let Some(slot) = bucket.vacant().first() {
            bucket.put(slot, key, value);
        } else if let Some(link) =
            pool.take(|link| overflows.overflow(link), |count| self.more_overflow(shard, count, true))
            && let Some(overflow) = overflows.overflow(link)
        {
            overflow.set(key, value, bucket.chain());
            bucket.set_chain(link);
            bucket.set_bloom_bit(key);
        }
        bucket.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_buckets_are_locked_before_others_can_know_of_them() {
        let table = Table::new();
        table.init(64 << 20).unwrap();
        let old = table.spans[0].load(0);
        let new = old.with_count(old.next_count());
        assert!(new.count() > old.count() && table.commit(Part::Buckets, new.rows()));
        lock_further(old, new);
        let locked: Vec<bool> = new.all().map(Bucket::is_locked).collect();
        assert_eq!(locked.iter().filter(|locked| **locked).count(), new.count() - old.count());
        assert!(locked.iter().skip(old.count()).all(|locked| *locked));
    }
}
