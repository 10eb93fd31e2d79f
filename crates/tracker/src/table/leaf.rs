//! Where the words of the plots are: *leaves*, each for 1 GiB of address space, in a map of one level.
//!
//! Rule for neighbours: leaves are never unmapped. They take memory only where plots are open.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, AtomicUsize, Ordering};

use super::budget::{Budget, PAGE};
use super::plot::Plot;
use crate::lock::Patience;
use crate::mmap;

const ADDRESS_BITS: u32 = 48;
/// Bytes of a plot: 8 KiB.
pub(super) const PLOT_SHIFT: u32 = 13;
const LEAF_SHIFT: u32 = 30;
const LEAVES: usize = 1 << (ADDRESS_BITS - LEAF_SHIFT);
const PLOTS: usize = 1 << (LEAF_SHIFT - PLOT_SHIFT);

/// Plots whose words share a page.
const PLOTS_OF_PAGE: usize = PAGE / size_of::<Plot>();
/// Somebody gets memory for a page, or gives it back.
const CHANGING: u16 = u16::MAX;

/// What words may take in any case.
const FREE_WORDS: usize = 128 << 10;
/// The part of the table's memory that words may take beyond.
const PART_FOR_WORDS: usize = 6;

/// Zeroed memory is an empty leaf. What is first takes whole pages, which can be given back to the kernel.
#[repr(C)]
pub(super) struct Leaf {
    plots: [Plot; PLOTS],
    /// Pages of `plots` that are in use.
    pages: [AtomicU64; PLOTS / PLOTS_OF_PAGE / 64],
    /// How many plots of each page are open, or [`CHANGING`].
    open: [AtomicU16; PLOTS / PLOTS_OF_PAGE],
    next: AtomicPtr<Leaf>,
    base: AtomicUsize,
}

const _: () = assert!(core::mem::offset_of!(Leaf, pages).is_multiple_of(PAGE));

/// All leaves.
#[derive(Debug)]
pub(super) struct Leaves {
    root: AtomicPtr<AtomicPtr<Leaf>>,
    first: AtomicPtr<Leaf>,
}

impl Leaf {
    #[inline]
    pub(super) fn plot(&self, address: usize) -> &Plot {
        let index = (address >> PLOT_SHIFT) & (PLOTS - 1);
        // SAFETY: the mask keeps the index below the length.
        unsafe { self.plots.get_unchecked(index) }
    }

    /// Counts a plot around `address` that is to open, unless the page of its word has no memory yet and gets none: words
    /// may take a part of the table only, or they would where blocks are far apart take more than the blocks. `false`: so it is.
    pub(super) fn enter(&self, address: usize, budget: &Budget, words: &AtomicUsize) -> bool {
        let Some((page, open)) = self.page(address) else { return false };
        let mut patience = Patience::new();
        loop {
            let count = open.load(Ordering::Acquire);
            if count == CHANGING {
                if !patience.wait() {
                    return false;
                }
            } else if count > 0 {
                if open.compare_exchange(count, count + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return true;
                }
            } else if open.compare_exchange(0, CHANGING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                let most = FREE_WORDS.saturating_add(budget.taken() / PART_FOR_WORDS);
                let granted = words.load(Ordering::Relaxed).saturating_add(PAGE) <= most && budget.take(PAGE);
                if granted {
                    words.fetch_add(PAGE, Ordering::Relaxed);
                    self.mark(page, true);
                }
                open.store(u16::from(granted), Ordering::Release);
                return granted;
            }
        }
    }

    /// Counts a plot less, which is closed; the last one of a page gives its memory back.
    pub(super) fn leave(&self, address: usize, budget: &Budget, words: &AtomicUsize) {
        let Some((page, open)) = self.page(address) else { return };
        let last = |count| Some(if count == 1 { CHANGING } else { count - 1 });
        if open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, last) == Ok(1) {
            self.mark(page, false);
            if let Some(first) = self.plots.get(page * PLOTS_OF_PAGE) {
                mmap::discard(ptr::from_ref(first).cast_mut().cast(), PAGE);
            }
            words.fetch_sub(PAGE, Ordering::Relaxed);
            budget.give(PAGE);
            open.store(0, Ordering::Release);
        }
    }

    fn page(&self, address: usize) -> Option<(usize, &AtomicU16)> {
        let page = ((address >> PLOT_SHIFT) & (PLOTS - 1)) / PLOTS_OF_PAGE;
        self.open.get(page).map(|open| (page, open))
    }

    fn mark(&self, page: usize, used: bool) {
        let Some(pages) = self.pages.get(page / 64) else { return };
        let bit = 1 << (page % 64);
        if used {
            pages.fetch_or(bit, Ordering::Release);
        } else {
            pages.fetch_and(!bit, Ordering::Release);
        }
    }

    /// The address at which plot `number` begins.
    pub(super) fn address(&self, number: usize) -> usize {
        self.base.load(Ordering::Relaxed).wrapping_add(number << PLOT_SHIFT)
    }

    /// The plots that may be open, with their numbers.
    pub(super) fn used_plots(&self) -> impl Iterator<Item = (usize, &Plot)> {
        let pages = self.plots.chunks(PLOTS_OF_PAGE).enumerate();
        let used = pages.filter(|(page, _)| {
            let bits = self.pages.get(page / 64).map_or(0, |bits| bits.load(Ordering::Acquire));
            bits >> (page % 64) & 1 != 0
        });
        used.flat_map(|(page, plots)| {
            plots.iter().enumerate().map(move |(index, plot)| (page * PLOTS_OF_PAGE + index, plot))
        })
    }
}

impl Leaves {
    pub(super) const fn new() -> Self {
        Self { root: AtomicPtr::new(ptr::null_mut()), first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Reserves address space for the map. Again: nothing. Without any there are no leaves.
    pub(super) fn init(&self) {
        if self.root.load(Ordering::Acquire).is_null()
            && let Some(root) = mmap::reserve(LEAVES * size_of::<AtomicPtr<Leaf>>())
        {
            // Release: whoever sees the root sees what was made ready before.
            self.root.store(root.as_ptr().cast(), Ordering::Release);
        }
    }

    fn entry(&self, address: usize) -> Option<&AtomicPtr<Leaf>> {
        let root = self.root.load(Ordering::Acquire);
        if root.is_null() {
            return None;
        }
        // SAFETY: the root has an entry for each leaf of 48 bits of address.
        Some(unsafe { &*root.add((address >> LEAF_SHIFT) & (LEAVES - 1)) })
    }

    /// The leaf for `address`, if there is one.
    #[inline]
    pub(super) fn get(&self, address: usize) -> Option<&Leaf> {
        // SAFETY: leaves are never unmapped.
        unsafe { self.entry(address)?.load(Ordering::Acquire).as_ref() }
    }

    /// The same, which there is from now on. `None`: the kernel has no memory.
    #[cold]
    #[inline(never)]
    pub(super) fn add(&self, address: usize) -> Option<&Leaf> {
        let entry = self.entry(address)?;
        let leaf: *mut Leaf = mmap::reserve(size_of::<Leaf>())?.as_ptr().cast();
        // SAFETY: zeroed memory of that size is an empty leaf.
        let this = unsafe { &*leaf };
        this.base.store(address >> LEAF_SHIFT << LEAF_SHIFT, Ordering::Relaxed);
        // Release: whoever sees the leaf sees its base.
        if entry.compare_exchange(ptr::null_mut(), leaf, Ordering::Release, Ordering::Relaxed).is_err() {
            mmap::unreserve(leaf.cast(), size_of::<Leaf>());
            return self.get(address);
        }
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            this.next.store(first, Ordering::Relaxed);
            match self.first.compare_exchange_weak(first, leaf, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(this),
                Err(now) => first = now,
            }
        }
    }

    /// Visits each leaf.
    pub(super) fn each(&self, mut visit: impl FnMut(&Leaf)) {
        let mut leaf = self.first.load(Ordering::Acquire);
        // SAFETY: leaves are never unmapped.
        while let Some(this) = unsafe { leaf.as_ref() } {
            visit(this);
            leaf = this.next.load(Ordering::Acquire);
        }
    }
}
