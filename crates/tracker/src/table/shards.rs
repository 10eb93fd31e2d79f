//! Where the lines of a shard are: address space reserved once, memory taken as the shard grows.
//!
//! Rule for neighbours: a [`Span`] is read in one load and says both where and how many, so whoever sees it unchanged
//! under a line's lock knows that the line still has its meaning. Memory that was ever part of a span stays readable
//! and writable as long as the table lives; taken back by [`Lines::discard`] it reads as open, empty lines.

use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::line::{LINE_BYTES, Line};
use super::{Exhausted, SHARDS, Table};
use crate::lock::SpinLock;
use crate::mmap::Errno;

/// Lines behind the last home, so that probing never wraps around.
pub(super) const TAIL: usize = 64;

/// Lines of a fresh shard, 4 KiB of them. Shard `i` has `i / 32` more: thus shards grow at different times, which spreads
/// the pauses and keeps the table's mean load even.
const SLICE_STAGGER: usize = 7 * PAGE;

const FIRST_LINES: usize = 64;
const FIRST_SPREAD: usize = 32;

const PAGE: usize = 4096;
const PAGE_SHIFT: u32 = 12;
const LINES_BITS: u32 = 28;
const LINES_MASK: u64 = (1 << LINES_BITS) - 1;

/// The least a shard's slice has: its first lines and the tail.
const LEAST_SLICE: usize = 3 * PAGE;

/// Base page and number of home lines of a shard, in one word. No lines: no memory.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Span(AtomicU64);

impl Span {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn load(&self) -> Lines<'_> {
        // Acquire: lines that a resizer placed are seen with the number that covers them.
        Lines { word: self.0.load(Ordering::Acquire), span: PhantomData }
    }

    pub(super) fn store(&self, lines: Lines<'_>) {
        // Release: see `load`.
        self.0.store(lines.word, Ordering::Release);
    }
}

/// What a [`Span`] said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lines<'a> {
    word: u64,
    span: PhantomData<&'a Span>,
}

impl<'a> Lines<'a> {
    /// Home lines.
    #[inline]
    pub(super) fn count(self) -> usize {
        (self.word & LINES_MASK) as usize
    }

    /// Lines with the tail.
    #[inline]
    pub(super) fn end(self) -> usize {
        if self.count() == 0 { 0 } else { self.count().wrapping_add(TAIL) }
    }

    /// The line at `index`, homes first and then the tail.
    #[inline]
    pub(super) fn line(self, index: usize) -> Option<&'a Line> {
        if index >= self.end() {
            return None;
        }
        // SAFETY: a span covers its home lines and the tail, which are mapped as long as the table lives; zeroed memory
        // is a valid line.
        Some(unsafe { &*self.base().cast::<Line>().add(index) })
    }

    /// All lines from `index` on, the tail included.
    #[inline]
    pub(super) fn from(self, index: usize) -> impl Iterator<Item = &'a Line> {
        (index..).map_while(move |index| self.line(index))
    }

    #[inline]
    fn base(self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(((self.word >> LINES_BITS) << PAGE_SHIFT) as usize)
    }

    fn new(base: usize, count: usize) -> Self {
        Self {
            word: ((base as u64 >> PAGE_SHIFT) << LINES_BITS) | (count as u64 & LINES_MASK),
            span: PhantomData,
        }
    }

    /// The same place with more or fewer lines.
    pub(super) fn with_count(self, count: usize) -> Self {
        Self::new(self.base() as usize, count)
    }

    /// Bytes of the home lines, which is what the budget counts: the tail is hardly ever touched.
    pub(super) fn home_bytes(self) -> usize {
        self.count().wrapping_mul(LINE_BYTES)
    }

    /// Bytes of whole pages for home lines and tail.
    pub(super) fn bytes(self) -> usize {
        if self.count() == 0 { 0 } else { bytes_of(self.count()) }
    }

    /// Makes the memory of these lines usable; `false` if the kernel refuses.
    pub(super) fn commit(self) -> bool {
        let _errno = Errno::save();
        // SAFETY: the pages are part of the reserved region, which this table owns.
        unsafe { libc::mprotect(self.base().cast(), self.bytes(), libc::PROT_READ | libc::PROT_WRITE) == 0 }
    }

    /// Gives the memory back: all lines are empty and open again.
    pub(super) fn discard(self) {
        let _errno = Errno::save();
        // SAFETY: the pages are part of the reserved region, and zeroed memory is what an empty line is.
        unsafe { libc::madvise(self.base().cast(), self.bytes(), libc::MADV_DONTNEED) };
    }
}

const fn bytes_of(lines: usize) -> usize {
    (lines.wrapping_add(TAIL).wrapping_mul(LINE_BYTES)).wrapping_add(PAGE - 1) & !(PAGE - 1)
}

/// What a shard has apart from its span, on a cache line that the usual operation does not touch.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    /// Held by who changes the span.
    pub(super) resizing: SpinLock<()>,
    /// Crowded insertions to go until the load is measured again.
    pub(super) patience: AtomicU32,
    /// Bytes that the span may reach.
    pub(super) slice_bytes: AtomicUsize,
}

impl Shard {
    pub(super) const fn new() -> Self {
        Self { resizing: SpinLock::new(()), patience: AtomicU32::new(0), slice_bytes: AtomicUsize::new(0) }
    }
}

/// The address space of a table.
#[derive(Debug)]
pub(super) struct Region {
    base: Option<NonNull<u8>>,
    bytes: usize,
}

// SAFETY: the region is memory of the table's own, not bound to a thread.
unsafe impl Send for Region {}

impl Region {
    pub(super) const fn new() -> Self {
        Self { base: None, bytes: 0 }
    }

    fn reserve(bytes: usize) -> Option<Self> {
        let _errno = Errno::save();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        Some(Self { base: NonNull::new(base.cast()), bytes })
    }

    fn release(&mut self) {
        if let Some(base) = self.base.take() {
            let _errno = Errno::save();
            // SAFETY: the region is this table's own mapping; only its drop, with no operation left, comes here.
            unsafe { libc::munmap(base.as_ptr().cast(), self.bytes) };
        }
    }
}

impl Table {
    /// Makes the table usable within `budget_bytes` (the first 1.1 MB are always allowed, and touched only as needed).
    /// Address space for it is reserved; if the kernel has less, the budget is halved until it fits.
    ///
    /// Again with the same budget: nothing. With another: the limit changes; address space is reserved anew only when the
    /// table is empty, right after [`Table::clear`]. Not to be called inside malloc.
    ///
    /// # Errors
    /// [`Exhausted`] if the kernel refuses even the least region.
    pub fn init(&self, budget_bytes: usize) -> Result<(), Exhausted> {
        let mut region = self.region.lock();
        let wanted = region_bytes(budget_bytes);
        if region.base.is_none() || (wanted > region.bytes && self.is_fresh() && self.len_estimate() == 0) {
            let mut bytes = wanted;
            let reserved = loop {
                if let Some(reserved) = Region::reserve(bytes) {
                    break reserved;
                }
                if bytes <= SHARDS * LEAST_SLICE {
                    return Err(Exhausted { wanted_bytes: bytes });
                }
                bytes = ((bytes / 2) & !(SHARDS * PAGE - 1)).max(SHARDS * LEAST_SLICE);
            };
            // A former, smaller region stays mapped: a thread may be about to look into it.
            *region = reserved;
            self.open(&region)?;
        }
        self.budget_bytes.store(budget_bytes, Ordering::Relaxed);
        for shard in &self.shards {
            shard.patience.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Forgets all blocks and gives their memory back to the kernel; the table stays usable within its budget. Blocks
    /// inserted during the call may be forgotten or not.
    pub fn clear(&self) {
        let region = self.region.lock();
        for (span, shard) in self.spans.iter().zip(&self.shards) {
            let _resizing = shard.resizing.lock();
            let lines = span.load();
            for line in lines.from(0) {
                line.lock().keep();
            }
            span.store(lines.with_count(0));
            lines.discard();
        }
        self.committed_bytes.store(0, Ordering::Relaxed);
        self.sizes.clear();
        if region.base.is_some() {
            // Cannot fail: the pages have been usable before.
            let _ = self.open(&region);
        }
    }

    /// Whether no shard has grown.
    fn is_fresh(&self) -> bool {
        self.spans.iter().enumerate().all(|(i, span)| span.load().count() <= first_lines(i))
    }

    /// Gives each shard its first lines in its slice of `region`.
    fn open(&self, region: &Region) -> Result<(), Exhausted> {
        let Some(base) = region.base else { return Ok(()) };
        let base = base.as_ptr().expose_provenance();
        // Not a power of two: pages at such a distance would share one set of the TLB, and every operation would
        // walk the page tables (measured: 60 ns of a pair's 100).
        let slice_bytes = ((region.bytes / SHARDS) & !(PAGE - 1)) - SLICE_STAGGER;
        if !self.sizes.init() {
            return Err(Exhausted { wanted_bytes: region.bytes });
        }
        let mut committed = 0;
        for (i, (span, shard)) in self.spans.iter().zip(&self.shards).enumerate() {
            let _resizing = shard.resizing.lock();
            let lines = Lines::new(base + i * slice_bytes, first_lines(i));
            if !lines.commit() {
                return Err(Exhausted { wanted_bytes: lines.bytes() });
            }
            committed += lines.home_bytes();
            shard.slice_bytes.store(slice_bytes, Ordering::Relaxed);
            shard.patience.store(0, Ordering::Relaxed);
            span.store(lines);
        }
        self.committed_bytes.store(committed, Ordering::Relaxed);
        Ok(())
    }
}

const fn first_lines(shard: usize) -> usize {
    FIRST_LINES + shard / FIRST_SPREAD
}

/// A quarter more than the budget, because shards differ in size; the budget itself is kept by counting.
fn region_bytes(budget_bytes: usize) -> usize {
    let slice = budget_bytes.saturating_add(budget_bytes / 4) / SHARDS;
    (slice.max(LEAST_SLICE + SLICE_STAGGER) & !(PAGE - 1)) * SHARDS
}

impl Drop for Table {
    fn drop(&mut self) {
        self.region.lock().release();
    }
}
