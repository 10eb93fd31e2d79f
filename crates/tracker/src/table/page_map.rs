//! The page map: a word for each *heap page*, 8 KiB of the watched heap, which is its lock as well.
//!
//! | bits | what |
//! |---|---|
//! | 0 | locked |
//! | 1 | open: its blocks are in cells, all of them |
//! | 2 | moving: its blocks are on their way between the buckets and cells |
//! | 8–19 | length of its array |
//! | 20–31 | cells in use there |
//! | 32–63 | number of the array in the arena |
//!
//! A word of 0 is a closed heap page: its blocks are in the buckets, all of them. Words lie in *leaves*, each for 1 GiB
//! of address space, in a map of one level. A page without more said is one of the kernel's, in which the words of many
//! heap pages lie.
//!
//! Rule for neighbours: leaves are never unmapped. They take memory only where heap pages are open.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, AtomicUsize, Ordering};

use super::budget::{Budget, PAGE};
use crate::lock::Patience;
use crate::mmap;

const LOCKED: u64 = 1;
const OPEN: u64 = 1 << 1;
const MOVING: u64 = 1 << 2;
const LEN_SHIFT: u32 = 8;
const USED_SHIFT: u32 = 20;
const ARRAY_SHIFT: u32 = 32;
const FIELD: u64 = (1 << 12) - 1;

/// A heap page. Zeroed memory is a closed one.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct HeapPage(AtomicU64);

/// What a heap page's word says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word(u64);

impl Word {
    /// An open heap page with this array.
    pub(super) fn new(array: u32, len: usize, used: usize) -> Self {
        Self(
            (u64::from(array) << ARRAY_SHIFT)
                | ((used as u64) << USED_SHIFT)
                | ((len as u64) << LEN_SHIFT)
                | OPEN,
        )
    }

    #[inline]
    pub(super) fn array(self) -> u32 {
        (self.0 >> ARRAY_SHIFT) as u32
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        ((self.0 >> LEN_SHIFT) & FIELD) as usize
    }

    #[inline]
    pub(super) fn used(self) -> usize {
        ((self.0 >> USED_SHIFT) & FIELD) as usize
    }

    /// The same with more or fewer cells in use.
    #[inline]
    pub(super) fn with_more(self, cells: usize) -> Self {
        Self(self.0.wrapping_add((cells as u64) << USED_SHIFT))
    }

    #[inline]
    pub(super) fn with_fewer(self, cells: usize) -> Self {
        Self(self.0.wrapping_sub((cells as u64) << USED_SHIFT))
    }
}

/// What came of the wish to hold a heap page.
#[derive(Debug)]
pub(super) enum Held {
    Open(Word),
    Closed,
    /// Another thread holds it and does not get on.
    Stuck,
}

impl Held {
    /// The word of an open heap page that is held now.
    #[inline]
    pub(super) fn open(self) -> Option<Word> {
        match self {
            Self::Open(word) => Some(word),
            Self::Closed | Self::Stuck => None,
        }
    }
}

impl HeapPage {
    /// The word of an open heap page, without its lock.
    #[inline]
    pub(super) fn peek(&self) -> Option<Word> {
        let word = self.0.load(Ordering::Relaxed);
        (word & OPEN != 0).then_some(Word(word))
    }

    /// Whether its blocks are in the buckets, and stay there as long as the caller holds the bucket of one.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & (OPEN | MOVING) == 0
    }

    /// Takes hold of the heap page if it is open. `shared`: there may be others to lock out. The holder gives it back with
    /// [`HeapPage::put`].
    #[inline]
    pub(super) fn hold(&self, shared: bool) -> Held {
        // A look first: the word of a closed heap page must not be written, for it may be in memory that is not there yet.
        let word = self.0.load(Ordering::Acquire);
        if word & OPEN == 0 {
            return Held::Closed;
        }
        if !shared {
            return Held::Open(Word(word));
        }
        // Acquire: what the last holder wrote is seen.
        let open = word & !LOCKED;
        match self.0.compare_exchange(open, open | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Held::Open(Word(open)),
            Err(_) => self.hold_slow(),
        }
    }

    #[cold]
    #[inline(never)]
    fn hold_slow(&self) -> Held {
        let mut patience = Patience::new();
        loop {
            let word = self.0.load(Ordering::Acquire);
            if word & OPEN == 0 {
                return Held::Closed;
            }
            if word & LOCKED == 0
                && self.0.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                patience.rewarded();
                return Held::Open(Word(word));
            }
            if !patience.wait() {
                return Held::Stuck;
            }
        }
    }

    /// Gives a held heap page back.
    #[inline]
    pub(super) fn put(&self, word: Word) {
        // Release: the next holder sees what was written.
        self.0.store(word.0 & !LOCKED, Ordering::Release);
    }

    /// Closes a held heap page.
    pub(super) fn close(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Begins to close a held heap page: its blocks are on their way. [`HeapPage::close`] or [`HeapPage::put`] ends it.
    pub(super) fn begin_to_close(&self) {
        self.0.store(MOVING, Ordering::Release);
    }

    /// Begins to open a closed heap page; `false` if another thread does that.
    pub(super) fn begin_to_open(&self) -> bool {
        self.0.compare_exchange(0, MOVING, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Waits until no blocks are on their way; `false`: whoever moves them does not get on.
    pub(super) fn wait(&self) -> bool {
        let mut patience = Patience::new();
        while self.0.load(Ordering::Acquire) & MOVING != 0 {
            if !patience.wait() {
                return false;
            }
        }
        patience.rewarded();
        true
    }
}

const ADDRESS_BITS: u32 = 48;
/// Bytes of a heap page: 8 KiB.
pub(super) const HEAP_PAGE_SHIFT: u32 = 13;
const LEAF_SHIFT: u32 = 30;
const LEAVES: usize = 1 << (ADDRESS_BITS - LEAF_SHIFT);
const PAGES_OF_LEAF: usize = 1 << (LEAF_SHIFT - HEAP_PAGE_SHIFT);

/// Heap pages whose words share a page.
const WORDS_OF_PAGE: usize = PAGE / size_of::<HeapPage>();
/// Somebody gets memory for a page, or gives it back.
const CHANGING: u16 = u16::MAX;

/// What words may take in any case.
const FREE_WORDS: usize = 128 << 10;
/// The part of the table's memory that words may take beyond.
const PART_FOR_WORDS: usize = 6;

/// Zeroed memory is an empty leaf. What is first takes whole pages, which can be given back to the kernel.
#[repr(C)]
pub(super) struct Leaf {
    heap_pages: [HeapPage; PAGES_OF_LEAF],
    /// Pages of `heap_pages` that are in use, a bit each.
    pages: [AtomicU64; PAGES_OF_LEAF / WORDS_OF_PAGE / 64],
    /// How many heap pages of each page are open, or [`CHANGING`].
    open: [AtomicU16; PAGES_OF_LEAF / WORDS_OF_PAGE],
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
    pub(super) fn heap_page(&self, address: usize) -> &HeapPage {
        let index = (address >> HEAP_PAGE_SHIFT) & (PAGES_OF_LEAF - 1);
        // SAFETY: the mask keeps the index below the length.
        unsafe { self.heap_pages.get_unchecked(index) }
    }

    /// Counts a heap page around `address` that is to open, unless the page of its word has no memory yet and gets
    /// none: words may take a part of the table only, or they would where blocks are far apart take more than the
    /// blocks. `false`: so it is.
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

    /// Counts a heap page less, which is closed; the last one of a page gives its memory back.
    pub(super) fn leave(&self, address: usize, budget: &Budget, words: &AtomicUsize) {
        let Some((page, open)) = self.page(address) else { return };
        let last = |count| Some(if count == 1 { CHANGING } else { count - 1 });
        if open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, last) == Ok(1) {
            self.mark(page, false);
            if let Some(first) = self.heap_pages.get(page * WORDS_OF_PAGE) {
                mmap::discard(ptr::from_ref(first).cast_mut().cast(), PAGE);
            }
            words.fetch_sub(PAGE, Ordering::Relaxed);
            budget.give(PAGE);
            open.store(0, Ordering::Release);
        }
    }

    fn page(&self, address: usize) -> Option<(usize, &AtomicU16)> {
        let page = ((address >> HEAP_PAGE_SHIFT) & (PAGES_OF_LEAF - 1)) / WORDS_OF_PAGE;
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

    /// The address at which heap page `number` begins.
    pub(super) fn address(&self, number: usize) -> usize {
        self.base.load(Ordering::Relaxed).wrapping_add(number << HEAP_PAGE_SHIFT)
    }

    /// The heap pages that may be open, with their numbers.
    pub(super) fn used_pages(&self) -> impl Iterator<Item = (usize, &HeapPage)> {
        let pages = self.heap_pages.chunks(WORDS_OF_PAGE).enumerate();
        let used = pages.filter(|(page, _)| {
            let bits = self.pages.get(page / 64).map_or(0, |bits| bits.load(Ordering::Acquire));
            bits >> (page % 64) & 1 != 0
        });
        used.flat_map(|(page, heap_pages)| {
            heap_pages
                .iter()
                .enumerate()
                .map(move |(index, heap_page)| (page * WORDS_OF_PAGE + index, heap_page))
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
