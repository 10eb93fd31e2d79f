//! Where the buckets of a shard are: stripes in one region of address space, which grows in place as shards grow.
//!
//! A row of the region has 8 buckets of each shard in turn (or, in its other part, 32 overflow entries), so shards that
//! are about equally long leave no gaps: a small table is a few adjacent pages, a large one is whole huge pages, and
//! pages are spread over all sets of the TLB. (Slices of a power of two for each shard put all hot pages into one set,
//! and each operation then walked the page tables.)
//!
//! Rule for neighbours: a [`Span`] is read in one load and says both where and how many, so whoever sees it unchanged
//! under a bucket's lock knows that the bucket still has its meaning, and so have the overflow entries that it links
//! to. Memory that was ever part of a span stays readable and writable as long as the table lives; taken back it reads
//! as open, empty buckets.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::bucket::{BUCKET_BYTES, Bucket};
use super::budget::{HUGE, PAGE, PAGE_SHIFT};
use super::overflow::{OVERFLOW_BYTES, Overflow, Pool};
use super::{Exhausted, SHARDS, Table};
use crate::lock::SpinLock;
use crate::mmap::Errno;
use crate::space::Space;

/// From the kernel's `mman-common.h`: `libc` knows it for glibc only.
const MADV_COLLAPSE: libc::c_int = 25;

/// Buckets of a shard that lie side by side.
pub(super) const STRIPE: usize = 8;
const STRIPE_BYTES: usize = STRIPE * BUCKET_BYTES;
/// The same for overflow entries.
pub(super) const OVERFLOW_STRIPE: usize = STRIPE_BYTES / OVERFLOW_BYTES;
const ROW_BYTES: usize = SHARDS * STRIPE_BYTES;

/// Shards whose stripes of a row lie in one page.
pub(super) const SHARDS_OF_PAGE: usize = PAGE / STRIPE_BYTES;

/// Buckets of a fresh shard: 128 KiB for all.
const FIRST_BUCKETS: usize = STRIPE;

/// Here shards begin to differ, by up to one step of growth: from then on they grow at different times, which spreads the
/// pauses and keeps the table's mean load even.
const PARTING: usize = 64;

/// Memory is made usable in such steps.
const COMMIT_ROWS: usize = 8;

const COUNT_BITS: u32 = 28;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Base page of the region and number of home buckets of a shard, in one word. No buckets: no memory.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Span(AtomicU64);

impl Span {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The buckets of shard `shard`, which this span must be of.
    #[inline]
    pub(super) fn load(&self, shard: usize) -> Buckets<'_> {
        // Acquire: buckets that a resizer placed are seen with the number that covers them.
        Buckets { word: self.0.load(Ordering::Acquire), shard, span: PhantomData }
    }

    pub(super) fn store(&self, buckets: Buckets<'_>) {
        // Release: see `load`.
        self.0.store(buckets.word, Ordering::Release);
    }
}

/// What a [`Span`] said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buckets<'a> {
    word: u64,
    shard: usize,
    span: PhantomData<&'a Span>,
}

impl<'a> Buckets<'a> {
    /// Home buckets.
    #[inline]
    pub(super) fn count(self) -> usize {
        (self.word & COUNT_MASK) as usize
    }

    /// The bucket at `index`.
    #[inline]
    pub(super) fn bucket(self, index: usize) -> Option<&'a Bucket> {
        if index >= self.count() {
            return None;
        }
        let offset = (index / STRIPE)
            .wrapping_mul(ROW_BYTES)
            .wrapping_add(self.shard.wrapping_mul(STRIPE_BYTES))
            .wrapping_add((index % STRIPE).wrapping_mul(BUCKET_BYTES));
        let base: *const u8 =
            ptr::with_exposed_provenance(((self.word >> COUNT_BITS) << PAGE_SHIFT) as usize);
        // SAFETY: a span covers its buckets, which are mapped as long as the table lives; zeroed memory is a valid bucket.
        Some(unsafe { &*base.add(offset).cast::<Bucket>() })
    }

    /// All buckets.
    pub(super) fn all(self) -> impl Iterator<Item = &'a Bucket> {
        (0..).map_while(move |index| self.bucket(index))
    }

    /// How many buckets the shard has after it grows: a quarter more at first, a sixteenth later.
    pub(super) fn next_count(self) -> usize {
        let count = self.count();
        if count >= PARTING {
            return count.wrapping_add(count / 16);
        }
        let next = count.wrapping_add(count / 4);
        if next < PARTING { next } else { PARTING.wrapping_add(self.shard / (SHARDS / (PARTING / 16))) }
    }

    /// The same place with more or fewer buckets.
    pub(super) fn with_count(self, count: usize) -> Self {
        Self { word: (self.word & !COUNT_MASK) | (count as u64 & COUNT_MASK), ..self }
    }

    /// Bytes of the buckets.
    pub(super) fn bytes(self) -> usize {
        self.count().wrapping_mul(BUCKET_BYTES)
    }

    /// Rows that the buckets reach into.
    pub(super) fn rows(self) -> usize {
        self.count().div_ceil(STRIPE)
    }
}

/// The overflow entries of a shard. Valid while a lock of one of its buckets is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overflows<'a> {
    base: usize,
    shard: usize,
    table: PhantomData<&'a Table>,
}

impl<'a> Overflows<'a> {
    pub(super) fn new(table: &'a Table, shard: usize) -> Self {
        // Relaxed: changes only while no bucket is in use.
        Self { base: table.overflow_base.load(Ordering::Relaxed), shard, table: PhantomData }
    }

    /// The overflow entry that a link names; `None` if it is 0. Links come from the pool of this shard.
    #[inline]
    pub(super) fn overflow(self, link: u32) -> Option<&'a Overflow> {
        let index = (link as usize).checked_sub(1)?;
        let offset = (index / OVERFLOW_STRIPE)
            .wrapping_mul(ROW_BYTES)
            .wrapping_add(self.shard.wrapping_mul(STRIPE_BYTES))
            .wrapping_add((index % OVERFLOW_STRIPE).wrapping_mul(OVERFLOW_BYTES));
        let base: *const u8 = ptr::with_exposed_provenance(self.base);
        // SAFETY: the pool hands out links to overflow entries in usable memory only; zeroed memory is a valid overflow
        // entry.
        Some(unsafe { &*base.add(offset).cast::<Overflow>() })
    }

    /// The overflow entries of a chain, with their links.
    pub(super) fn chain(self, link: u32) -> impl Iterator<Item = (u32, &'a Overflow)> {
        let start = self.overflow(link).map(|overflow| (link, overflow));
        core::iter::successors(start, move |(_, overflow)| {
            let next = overflow.next();
            self.overflow(next).map(|overflow| (next, overflow))
        })
    }
}

/// What a shard has apart from its span, on a cache line that the usual operation does not touch.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    /// Held by who changes the span.
    pub(super) resizing: SpinLock<()>,
    /// Its overflow entries.
    pub(super) pool: SpinLock<Pool>,
}

impl Shard {
    pub(super) const fn new() -> Self {
        Self { resizing: SpinLock::new(()), pool: SpinLock::new(Pool::new()) }
    }
}

/// A part of the region: rows of buckets, or rows of overflow entries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Buckets,
    Overflows,
}

/// The address space of a table.
#[derive(Debug)]
pub(super) struct Region {
    /// Of buckets and of overflow entries.
    spaces: [Space; 2],
    /// Rows that there may be, of buckets and of overflow entries each.
    rows: usize,
    /// Rows of each part that are usable.
    committed_rows: [usize; 2],
    /// Bytes from the base of each part on that are asked to be huge pages.
    huge_bytes: [usize; 2],
}

impl Region {
    pub(super) const fn new() -> Self {
        Self { spaces: [Space::new(), Space::new()], rows: 0, committed_rows: [0; 2], huge_bytes: [0; 2] }
    }

    fn reserve(rows: usize) -> Option<Self> {
        let rows = rows.checked_next_multiple_of(HUGE / ROW_BYTES)?;
        let bytes = rows.checked_mul(ROW_BYTES)?;
        let mut buckets = Space::reserve(bytes, false)?;
        let Some(overflows) = Space::reserve(bytes, false) else {
            buckets.release();
            return None;
        };
        buckets.base().expose_provenance();
        overflows.base().expose_provenance();
        Some(Self { spaces: [buckets, overflows], rows, ..Self::new() })
    }

    /// A region of so many rows; if the kernel has less, of a half, a quarter and so on, but more than `least`.
    fn reserve_within(rows: usize, least: usize) -> Option<Self> {
        let smaller = core::iter::successors(Some(rows), |rows| {
            (*rows > rows_for(0)).then(|| (rows / 2).max(rows_for(0)))
        });
        smaller.take_while(|rows| *rows > least).find_map(Self::reserve)
    }

    fn is_reserved(&self) -> bool {
        self.rows > 0
    }

    fn space(&mut self, part: Part) -> &mut Space {
        let [buckets, overflows] = &mut self.spaces;
        match part {
            Part::Buckets => buckets,
            Part::Overflows => overflows,
        }
    }

    fn base(&self, part: Part) -> *mut u8 {
        let [buckets, overflows] = &self.spaces;
        match part {
            Part::Buckets => buckets.base(),
            Part::Overflows => overflows.base(),
        }
    }

    /// Makes the first `rows` rows of a part usable; `false` if the kernel refuses or the region is too small.
    pub(super) fn commit(&mut self, part: Part, rows: usize) -> bool {
        let committed = *self.committed(part);
        if rows <= committed {
            return true;
        }
        if rows > self.rows {
            return false;
        }
        let rows = rows.next_multiple_of(COMMIT_ROWS).min(self.rows);
        let bytes = rows.wrapping_mul(ROW_BYTES);
        if self.space(part).cover(bytes).is_err() {
            return false;
        }
        let _errno = Errno::save();
        // SAFETY: the rows are part of the region, which this table owns.
        let done =
            unsafe { libc::mprotect(self.base(part).cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 };
        if done {
            *self.committed(part) = rows;
        }
        done
    }

    fn committed(&mut self, part: Part) -> &mut usize {
        let [buckets, overflows] = &mut self.committed_rows;
        match part {
            Part::Buckets => buckets,
            Part::Overflows => overflows,
        }
    }

    /// Asks the kernel to keep the first `rows` rows of a part, which are all in use, in huge pages. One that has none
    /// goes on with small ones.
    pub(super) fn gather(&mut self, part: Part, rows: usize) {
        let base = self.base(part);
        let [buckets, overflows] = &mut self.huge_bytes;
        let huge_bytes = match part {
            Part::Buckets => buckets,
            Part::Overflows => overflows,
        };
        let bytes = rows.wrapping_mul(ROW_BYTES) & !(HUGE - 1);
        let Some(more) = bytes.checked_sub(*huge_bytes).filter(|more| *more > 0) else { return };
        let start = base.wrapping_add(*huge_bytes).cast();
        *huge_bytes = bytes;
        let _errno = Errno::save();
        // SAFETY: the advice concerns usable rows of this table's own and leaves their contents alone.
        unsafe {
            libc::madvise(start, more, libc::MADV_HUGEPAGE);
            libc::madvise(start, more, MADV_COLLAPSE);
        }
    }

    /// Gives all memory back: every bucket is empty and open.
    fn discard(&mut self) {
        let _errno = Errno::save();
        let parts = [Part::Buckets, Part::Overflows].map(|part| self.base(part));
        for ((base, rows), huge_bytes) in parts.into_iter().zip(self.committed_rows).zip(&mut self.huge_bytes)
        {
            let bytes = rows.wrapping_mul(ROW_BYTES);
            if bytes == 0 {
                continue;
            }
            // SAFETY: the rows are this table's own, and zeroed memory is what empty buckets are.
            unsafe {
                libc::madvise(base.cast(), *huge_bytes, libc::MADV_NOHUGEPAGE);
                if libc::madvise(base.cast(), bytes, libc::MADV_DONTNEED) != 0 {
                    // Locked memory (mlockall) stays; it must be open nevertheless.
                    base.write_bytes(0, bytes);
                }
            }
            *huge_bytes = 0;
        }
    }

    fn release(&mut self) {
        self.spaces.iter_mut().for_each(Space::release);
    }
}

impl Table {
    /// Makes the table usable within `budget_bytes` (the first 128 KiB are always allowed). The first address space for it is
    /// reserved, a part of the budget that does not grow with it; if the kernel has less, the budget is halved until it fits.
    ///
    /// Again with the same budget: nothing. With another: the limit changes; address space is reserved anew only when the
    /// table is empty, right after [`Table::clear`]. Not to be called inside malloc.
    ///
    /// # Errors
    /// [`Exhausted`] if the kernel refuses even the least region.
    pub fn init(&self, budget_bytes: usize) -> Result<(), Exhausted> {
        let _administration = self.administration.lock();
        let (reserved, had) = {
            let region = self.region.lock();
            (region.rows, region.is_reserved())
        };
        let wanted = rows_for(budget_bytes);
        if !had || (wanted > reserved && self.is_fresh() && self.len_estimate() == 0) {
            // Where no more is to be had, the table goes on in what it has.
            if let Some(more) = Region::reserve_within(wanted, reserved) {
                // A former, smaller region stays mapped: a thread may be about to look into it.
                *self.region.lock() = more;
                self.open()?;
            } else if !had {
                return Err(Exhausted { wanted_bytes: rows_for(0).saturating_mul(ROW_BYTES * 2) });
            }
        }
        self.dense.init(budget_bytes);
        self.budget.set_limit(budget_bytes);
        for shard in &self.shards {
            shard.pool.lock().patience = 0;
        }
        Ok(())
    }

    /// Forgets all blocks and gives their memory back to the kernel; the table stays usable within its budget. Blocks
    /// inserted during the call may be forgotten or not.
    pub fn clear(&self) {
        let _administration = self.administration.lock();
        for (i, (span, shard)) in self.spans.iter().zip(&self.shards).enumerate() {
            let _resizing = shard.resizing.lock();
            let buckets = span.load(i);
            // They stay locked until the memory goes: who waits for one of them then finds it empty.
            buckets.all().for_each(|bucket| bucket.lock().keep());
            span.store(buckets.with_count(0));
        }
        self.region.lock().discard();
        self.dense.clear(&self.budget);
        self.budget.restart(0);
        self.sizes.clear();
        // Cannot fail: the rows have been usable before.
        let _ = self.open();
    }

    /// Whether no shard has grown.
    fn is_fresh(&self) -> bool {
        self.spans.iter().enumerate().all(|(i, span)| span.load(i).count() <= FIRST_BUCKETS)
    }

    /// Gives each shard its first buckets.
    fn open(&self) -> Result<(), Exhausted> {
        let mut region = self.region.lock();
        if !region.is_reserved() {
            return Ok(());
        }
        if !self.sizes.init() || !region.commit(Part::Buckets, rows_for(0)) {
            return Err(Exhausted { wanted_bytes: rows_for(0) * ROW_BYTES });
        }
        self.overflow_base.store(region.base(Part::Overflows).addr(), Ordering::Relaxed);
        let page = (region.base(Part::Buckets).addr() as u64) >> PAGE_SHIFT;
        let mut committed = 0;
        for (i, (span, shard)) in self.spans.iter().zip(&self.shards).enumerate() {
            let buckets =
                Buckets { word: page << COUNT_BITS, shard: i, span: PhantomData }.with_count(FIRST_BUCKETS);
            committed += buckets.bytes();
            *shard.pool.lock() = Pool::new();
            span.store(buckets);
        }
        self.overflow_rows.iter().for_each(|rows| rows.store(0, Ordering::Release));
        self.budget.restart(committed);
        Ok(())
    }
}

/// A quarter more than the budget, because shards differ in size; the budget itself is kept by counting.
fn rows_for(budget_bytes: usize) -> usize {
    (budget_bytes.saturating_add(budget_bytes / 4) / ROW_BYTES).max(FIRST_BUCKETS / STRIPE)
}

impl Drop for Table {
    fn drop(&mut self) {
        self.region.lock().release();
    }
}
