//! What is known of a plot, 8 KiB of the watched heap, in one word that is its lock as well.
//!
//! | bits | what |
//! |---|---|
//! | 0 | locked |
//! | 1 | open: its blocks are in cells, all of them |
//! | 2 | moving: its blocks are on their way between the lines and cells |
//! | 8–19 | length of its array |
//! | 20–31 | cells in use there |
//! | 32–63 | number of the array in the store |
//!
//! A word of 0 is a closed plot: its blocks are in the lines, all of them.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::lock::Patience;

const LOCKED: u64 = 1;
const OPEN: u64 = 1 << 1;
const MOVING: u64 = 1 << 2;
const LEN_SHIFT: u32 = 8;
const USED_SHIFT: u32 = 20;
const ARRAY_SHIFT: u32 = 32;
const FIELD: u64 = (1 << 12) - 1;

/// A plot. Zeroed memory is a closed one.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Plot(AtomicU64);

/// What a plot's word says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word(u64);

impl Word {
    /// An open plot with this array.
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

/// What came of the wish to hold a plot.
#[derive(Debug)]
pub(super) enum Held {
    Open(Word),
    Closed,
    /// Another thread holds it and does not get on.
    Stuck,
}

impl Held {
    /// The word of an open plot that is held now.
    #[inline]
    pub(super) fn open(self) -> Option<Word> {
        match self {
            Self::Open(word) => Some(word),
            Self::Closed | Self::Stuck => None,
        }
    }
}

impl Plot {
    /// The word of an open plot, without its lock.
    #[inline]
    pub(super) fn peek(&self) -> Option<Word> {
        let word = self.0.load(Ordering::Relaxed);
        (word & OPEN != 0).then_some(Word(word))
    }

    /// Whether its blocks are in the lines, and stay there as long as the caller holds the line of one.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & (OPEN | MOVING) == 0
    }

    /// Takes hold of the plot if it is open. `shared`: there may be others to lock out. The holder gives it back with
    /// [`Plot::put`].
    #[inline]
    pub(super) fn hold(&self, shared: bool) -> Held {
        // A look first: the word of a closed plot must not be written, for it may be in memory that is not there yet.
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

    /// Gives a held plot back.
    #[inline]
    pub(super) fn put(&self, word: Word) {
        // Release: the next holder sees what was written.
        self.0.store(word.0 & !LOCKED, Ordering::Release);
    }

    /// Closes a held plot.
    pub(super) fn close(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Begins to close a held plot: its blocks are on their way. [`Plot::close`] or [`Plot::put`] ends it.
    pub(super) fn begin_to_close(&self) {
        self.0.store(MOVING, Ordering::Release);
    }

    /// Begins to open a closed plot; `false` if another thread does that.
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
