//! The page map: one word for each *heap page*, 8 KiB of the watched heap. The word is also its lock.
//!
//! | bits | what |
//! |---|---|
//! | 0 | locked |
//! | 1 | open: all its blocks are in cells |
//! | 2 | opening: its blocks are being moved from the buckets to cells |
//! | 8–19 | length of its array |
//! | 20–31 | cells in use there |
//! | 32–63 | number of the array in the arena |
//!
//! A word of 0 is a closed heap page: all its blocks are in the buckets. Words lie in *leaves*, each for 1 GiB of
//! address space, in a map of one level. "Page" alone means a page of the kernel, which holds the words of many heap
//! pages.
//!
//! Rule for neighbours: leaves are never unmapped. Their pages take memory only where heap pages have been open.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::budget::{Budget, PAGE};
use crate::lock::Patience;
use crate::mmap;

const LOCKED: u64 = 1;
const OPEN: u64 = 1 << 1;
const OPENING: u64 = 1 << 2;
const LEN_SHIFT: u32 = 8;
const USED_SHIFT: u32 = 20;
const ARRAY_SHIFT: u32 = 32;
const FIELD: u64 = (1 << 12) - 1;

/// The word of a heap page. Zeroed memory is a closed one.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct HeapPage(AtomicU64);

/// The contents of a heap page's word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word(u64);

impl Word {
    /// The word of an open heap page with this array, which is empty.
    pub(super) fn new(array: u32, len: usize) -> Self {
        Self((u64::from(array) << ARRAY_SHIFT) | ((len as u64) << LEN_SHIFT) | OPEN)
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

    /// The same word with one more cell in use.
    #[inline]
    pub(super) fn with_more(self) -> Self {
        Self(self.0.wrapping_add(1 << USED_SHIFT))
    }

    #[inline]
    pub(super) fn with_fewer(self) -> Self {
        Self(self.0.wrapping_sub(1 << USED_SHIFT))
    }
}

/// The result of an attempt to hold a heap page.
#[derive(Debug)]
pub(super) enum Held {
    Open(Word),
    Closed,
    /// Another thread holds it and does not release it in time.
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
    #[inline(always)]
    pub(super) fn peek(&self) -> Option<Word> {
        let word = self.0.load(Ordering::Relaxed);
        (word & OPEN != 0).then_some(Word(word))
    }

    /// Whether its blocks are in the buckets. They stay there as long as the caller holds the bucket of one of them.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & (OPEN | OPENING) == 0
    }

    /// Locks the heap page if it is open. `shared` says whether other threads may use it. The holder releases it with
    /// [`HeapPage::put`].
    #[inline(always)]
    pub(super) fn hold(&self, shared: bool) -> Held {
        // The word is read first, because the word of a closed heap page must not be written: its page may have no
        // memory yet.
        let word = self.0.load(Ordering::Acquire);
        if word & OPEN == 0 {
            return Held::Closed;
        }
        if !shared {
            return Held::Open(Word(word));
        }
        // Acquire: makes visible what the last holder wrote.
        let open = word & !LOCKED;
        match self.0.compare_exchange(open, open | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Held::Open(Word(open)),
            Err(_) => self.hold_slow(),
        }
    }

    /// As [`HeapPage::hold`], but `None` unless it is open and no other thread holds it.
    #[inline(always)]
    pub(super) fn hold_fast(&self, shared: bool) -> Option<Word> {
        let word = self.peek()?;
        if shared {
            // Acquire: makes visible what the last holder wrote.
            let open = word.0 & !LOCKED;
            self.0.compare_exchange(open, open | LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()?;
            return Some(Word(open));
        }
        Some(word)
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

    /// Releases a held heap page and stores its word.
    #[inline(always)]
    pub(super) fn put(&self, word: Word) {
        // Release: makes visible to the next holder what was written.
        self.0.store(word.0 & !LOCKED, Ordering::Release);
    }

    /// Closes a held heap page without blocks, or one that did not open.
    pub(super) fn close(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Begins to open a closed heap page: its blocks are being moved. [`HeapPage::close`] or [`HeapPage::put`] ends this.
    /// Returns `false` if another thread is doing that.
    pub(super) fn begin_to_open(&self) -> bool {
        self.0.compare_exchange(0, OPENING, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock, any holder's. Returns whether it was held, or its holder was moving blocks.
    pub(super) fn force_open(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        if word & LOCKED != 0 {
            self.0.store(word & !LOCKED, Ordering::Relaxed);
        }
        word & (LOCKED | OPENING) != 0
    }

    /// Waits while blocks are being moved. Returns `false` if the thread that moves them does not finish in time.
    pub(super) fn wait(&self) -> bool {
        let mut patience = Patience::new();
        while self.0.load(Ordering::Acquire) & OPENING != 0 {
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

/// Number of heap pages whose words share a page.
const WORDS_OF_PAGE: usize = PAGE / size_of::<HeapPage>();

/// Bytes that words may take in any case.
const FREE_WORDS: usize = 128 << 10;
/// Beyond these, words may take one part in this many of the table's memory.
const PART_FOR_WORDS: usize = 6;

/// Zeroed memory is an empty leaf. The first field takes whole pages.
#[repr(C)]
pub(super) struct Leaf {
    heap_pages: [HeapPage; PAGES_OF_LEAF],
    /// Which pages of `heap_pages` have memory, one bit for each. They keep it until the table is emptied.
    pages: [AtomicU64; PAGES_OF_LEAF / WORDS_OF_PAGE / 64],
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
    #[inline(always)]
    pub(super) fn heap_page(&self, address: usize) -> &HeapPage {
        let index = (address >> HEAP_PAGE_SHIFT) & (PAGES_OF_LEAF - 1);
        // SAFETY: the mask keeps the index below the length.
        unsafe { self.heap_pages.get_unchecked(index) }
    }

    /// Gets memory for the word of the heap page around `address`. Returns `false` if it has none yet and gets none: words
    /// may take only a part of the table's memory, because where blocks are far apart they would otherwise take more than
    /// the blocks.
    pub(super) fn enter(&self, address: usize, budget: &Budget, words: &AtomicUsize) -> bool {
        let page = ((address >> HEAP_PAGE_SHIFT) & (PAGES_OF_LEAF - 1)) / WORDS_OF_PAGE;
        let Some(pages) = self.pages.get(page / 64) else { return false };
        let bit = 1 << (page % 64);
        if pages.load(Ordering::Acquire) & bit != 0 {
            return true;
        }
        let most = FREE_WORDS.saturating_add(budget.taken() / PART_FOR_WORDS);
        if words.load(Ordering::Relaxed).saturating_add(PAGE) > most || !budget.take(PAGE) {
            return false;
        }
        if pages.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            words.fetch_add(PAGE, Ordering::Relaxed);
        } else {
            // Another thread was faster.
            budget.give(PAGE);
        }
        true
    }

    /// Gives the memory of all words back, but that of pages in which a heap page is open.
    pub(super) fn leave(&self, budget: &Budget, words: &AtomicUsize) {
        for (page, heap_pages) in self.heap_pages.chunks(WORDS_OF_PAGE).enumerate() {
            let Some(pages) = self.pages.get(page / 64) else { return };
            let bit = 1 << (page % 64);
            if pages.load(Ordering::Acquire) & bit == 0 {
                continue;
            }
            // So no other thread opens one of them meanwhile.
            let closed = heap_pages.iter().take_while(|heap_page| heap_page.begin_to_open()).count();
            if closed == heap_pages.len() {
                pages.fetch_and(!bit, Ordering::AcqRel);
                words.fetch_sub(PAGE, Ordering::Relaxed);
                budget.give(PAGE);
                // Then they are closed.
                if mmap::discard(ptr::from_ref(heap_pages).cast_mut().cast(), PAGE) {
                    continue;
                }
            }
            heap_pages.iter().take(closed).for_each(HeapPage::close);
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

    /// Reserves address space for the map; another call does nothing. Without address space there are no leaves.
    pub(super) fn init(&self) {
        if self.root.load(Ordering::Acquire).is_null()
            && let Some(root) = mmap::reserve(LEAVES * size_of::<AtomicPtr<Leaf>>())
        {
            // Release: a thread that sees the root also sees what was prepared before.
            self.root.store(root.as_ptr().cast(), Ordering::Release);
        }
    }

    #[inline(always)]
    fn entry(&self, address: usize) -> Option<&AtomicPtr<Leaf>> {
        let root = self.root.load(Ordering::Acquire);
        if root.is_null() {
            return None;
        }
        // SAFETY: the root has an entry for each leaf of an address space of 48 bits.
        Some(unsafe { &*root.add((address >> LEAF_SHIFT) & (LEAVES - 1)) })
    }

    /// The leaf for `address`, if there is one.
    #[inline(always)]
    pub(super) fn get(&self, address: usize) -> Option<&Leaf> {
        // SAFETY: leaves are never unmapped.
        unsafe { self.entry(address)?.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the leaf for `address`, and makes it if necessary. Returns `None` if the kernel has no memory.
    #[cold]
    #[inline(never)]
    pub(super) fn add(&self, address: usize) -> Option<&Leaf> {
        let entry = self.entry(address)?;
        let leaf: *mut Leaf = mmap::reserve(size_of::<Leaf>())?.as_ptr().cast();
        // SAFETY: zeroed memory of that size is an empty leaf.
        let this = unsafe { &*leaf };
        this.base.store(address >> LEAF_SHIFT << LEAF_SHIFT, Ordering::Relaxed);
        // Release: a thread that sees the leaf also sees its base.
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

    /// Releases all heap pages, any holder's, and returns how many were held or being opened.
    pub(super) fn force_open(&self) -> usize {
        let mut held = 0;
        self.each(|leaf| held += leaf.used_pages().filter(|(_, heap_page)| heap_page.force_open()).count());
        held
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
