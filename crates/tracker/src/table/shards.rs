//! The memory of a shard's buckets: stripes in one region of address space, which grows in place as shards grow.
//!
//! A row of the region holds 8 buckets of each shard in turn (in its other part, 32 overflow entries). So shards of
//! about equal length leave no gaps: a small table is a few adjacent pages, a large one is whole huge pages, and
//! pages are spread over all sets of the TLB. (With slices of a power of two for each shard, all hot pages fell into
//! one set, and each operation walked the page tables.)
//!
//! Rule for neighbours: a [`Span`] is read in one load and holds both the place and the number of buckets. A thread
//! that reads an unchanged span while it holds a bucket's lock therefore knows that the bucket still means the same,
//! and so do the overflow entries that it links to. Memory that was ever part of a span stays readable and writable
//! as long as the table lives; after it was given back it reads as open, empty buckets.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::bucket::{BUCKET_BYTES, Bucket, OVERFLOW_BYTES, Overflow, Pool};
use super::budget::{HUGE, PAGE, PAGE_SHIFT};
use super::{Exhausted, SHARDS, Table};
use crate::lock::SpinLock;
use crate::mmap::Errno;
use crate::space::Space;

/// From the kernel's `mman-common.h`: `libc` knows it for glibc only.
const MADV_COLLAPSE: libc::c_int = 25;

/// Buckets of a shard that lie side by side.
pub(super) const STRIPE: usize = 8;
const STRIPE_BYTES: usize = STRIPE * BUCKET_BYTES;
/// Overflow entries of a shard that lie side by side.
pub(super) const OVERFLOW_STRIPE: usize = STRIPE_BYTES / OVERFLOW_BYTES;
const ROW_BYTES: usize = SHARDS * STRIPE_BYTES;

/// Number of shards whose stripes of a row lie in one page.
pub(super) const SHARDS_OF_PAGE: usize = PAGE / STRIPE_BYTES;

/// Buckets of a fresh shard: 128 KiB for all.
const FIRST_BUCKETS: usize = STRIPE;

/// From this number of buckets on, the sizes of shards differ by up to one step of growth. They then grow at
/// different times, which spreads the pauses and keeps the table's mean load even.
const PARTING: usize = 64;

/// The step in which memory is made usable.
const COMMIT_ROWS: usize = 8;

const COUNT_BITS: u32 = 28;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Base page of the region and number of home buckets of a shard, in one word. A number of 0 means no memory.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Span(AtomicU64);

impl Span {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The buckets of shard `shard`, to which this span must belong.
    #[inline]
    pub(super) fn load(&self, shard: usize) -> Buckets<'_> {
        // Acquire: a thread that sees the number also sees the buckets that it covers, as the growing thread placed
        // them.
        Buckets { word: self.0.load(Ordering::Acquire), shard, span: PhantomData }
    }

    pub(super) fn store(&self, buckets: Buckets<'_>) {
        // Release: see `load`.
        self.0.store(buckets.word, Ordering::Release);
    }
}

/// The contents of a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buckets<'a> {
    word: u64,
    shard: usize,
    span: PhantomData<&'a Span>,
}

impl<'a> Buckets<'a> {
    /// Number of home buckets.
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

    /// The number of buckets after the shard has grown: a quarter more at first, a sixteenth more later.
    pub(super) fn next_count(self) -> usize {
        let count = self.count();
        if count >= PARTING {
            return count.wrapping_add(count / 16);
        }
        let next = count.wrapping_add(count / 4);
        if next < PARTING { next } else { PARTING.wrapping_add(self.shard / (SHARDS / (PARTING / 16))) }
    }

    /// The same place with another number of buckets.
    pub(super) fn with_count(self, count: usize) -> Self {
        Self { word: (self.word & !COUNT_MASK) | (count as u64 & COUNT_MASK), ..self }
    }

    /// Bytes of the buckets.
    pub(super) fn bytes(self) -> usize {
        self.count().wrapping_mul(BUCKET_BYTES)
    }

    /// Number of rows that the buckets reach into.
    pub(super) fn rows(self) -> usize {
        self.count().div_ceil(STRIPE)
    }
}

/// The overflow entries of a shard. Valid while the lock of one of its buckets is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overflows<'a> {
    base: usize,
    shard: usize,
    table: PhantomData<&'a Table>,
}

impl<'a> Overflows<'a> {
    pub(super) fn new(table: &'a Table, shard: usize) -> Self {
        // Relaxed: the value changes only while no bucket is in use.
        Self { base: table.overflow_base.load(Ordering::Relaxed), shard, table: PhantomData }
    }

    /// The overflow entry of a link; `None` if the link is 0. Links come from the pool of this shard.
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

/// The parts of a shard besides its span, on a cache line that the usual operation does not touch.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    /// Held by the thread that changes the span.
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
    /// Address space for buckets and for overflow entries.
    spaces: [Space; 2],
    /// Greatest number of rows, of buckets and of overflow entries each.
    rows: usize,
    /// Number of usable rows of each part.
    committed_rows: [usize; 2],
    /// Bytes from the base of each part for which huge pages are requested.
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

    /// Reserves a region of so many rows. If the kernel has less, tries a half, a quarter and so on, but always more
    /// than `least`.
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

    /// Asks the kernel to keep the first `rows` rows of a part, which are all in use, in huge pages. If the kernel
    /// has none, small pages stay.
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

    /// Gives all memory back to the kernel. Every bucket is then empty and open.
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
                    // Locked memory (mlockall) is not given back, but its buckets must still be open.
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
    /// Makes the table usable within `budget_bytes` (the first 128 KiB are always allowed). The first address space
    /// is reserved for it, which is a part of the budget that does not grow with it. If the kernel has less, the
    /// budget is halved until it fits.
    ///
    /// Another call with the same budget does nothing. With another budget the limit changes; address space is
    /// reserved anew only while the table is empty, right after [`Table::clear`]. Must not be called inside malloc.
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
            // If no more address space is available, the table keeps what it has.
            if let Some(more) = Region::reserve_within(wanted, reserved) {
                // A former, smaller region stays mapped, because a thread may be about to read it.
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

    /// Forgets all blocks and gives their memory back to the kernel. The table stays usable within its budget. Blocks
    /// that are inserted during the call may or may not be forgotten.
    pub fn clear(&self) {
        let _administration = self.administration.lock();
        for (i, (span, shard)) in self.spans.iter().zip(&self.shards).enumerate() {
            let _resizing = shard.resizing.lock();
            let buckets = span.load(i);
            // The buckets stay locked until their memory is given back. A thread that waits for one then finds it
            // empty.
            buckets.all().for_each(|bucket| bucket.lock().keep());
            span.store(buckets.with_count(0));
        }
        self.region.lock().discard();
        self.dense.clear(&self.budget);
        self.sizes.clear();
        // This cannot fail, because the rows were usable before.
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
        self.budget.restart(committed + self.dense.words.load(Ordering::Relaxed));
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
