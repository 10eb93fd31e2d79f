//! One table of two halves: small blocks where they are dense ([`super::near`]), all others in the lines.
//!
//! A block is looked for in the small half first and then in the lines, so it is found wherever it is. What remains is a
//! block whose free was missed: when its address comes up again, the new block may go to the other half, and the old
//! one must be found there and counted. Asking the lines for each small block would cost more than the rest of its
//! insertion. So bitmaps note where in the lines blocks begin: one for each class of sizes, with a bit for each stretch
//! that is too short for two such blocks to begin in it. Only where a bit is set the lines are asked.
//!
//! Where blocks are sparse such bitmaps would cost more than the blocks. So in a closed region only huge blocks are
//! noted; when it opens, all stretches in which anything may begin become *suspects*, and the first small block that
//! comes to one finds out what is there.
//!
//! Limits: a block of [`HUGE`] bytes or more is noted only if small blocks have been near by; and after a missed free
//! two blocks can begin in one stretch, of which the second is then no longer noted.

use core::sync::atomic::{AtomicU64, Ordering};

use super::near::{self, GRANULE_SHIFT, LEAF_SHIFT};
use super::{Block, Inserted, Removed, Table};

/// Sizes are classed by the stretch that they exceed.
const STRETCH_SHIFT: u32 = near::SIZE_BITS;
const CLASS_SHIFTS: [u32; 4] = [STRETCH_SHIFT, 11, 14, 17];
/// Blocks of the last class are noted in closed regions, too, if there is a leaf.
const HUGE: u64 = 1 << CLASS_SHIFTS[3];

const GRANULES_OF_STRETCH: usize = 1 << (STRETCH_SHIFT - GRANULE_SHIFT);

const fn words(shift: u32) -> usize {
    1 << (LEAF_SHIFT - shift - 6)
}

/// What is noted of the lines, for a leaf of the small half. Zeroed memory notes nothing.
#[repr(C)]
pub(super) struct Notes {
    suspects: [AtomicU64; words(STRETCH_SHIFT)],
    first: [AtomicU64; words(CLASS_SHIFTS[0])],
    second: [AtomicU64; words(CLASS_SHIFTS[1])],
    third: [AtomicU64; words(CLASS_SHIFTS[2])],
    /// The rest of its page is not used.
    fourth: [AtomicU64; 512],
}

const _: () = assert!(words(CLASS_SHIFTS[3]) <= 512);

fn bit(words: &[AtomicU64], address: usize, shift: u32) -> Option<(&AtomicU64, u64)> {
    let index = (address & ((1 << LEAF_SHIFT) - 1)) >> shift;
    Some((words.get(index / 64)?, 1 << (index % 64)))
}

fn is_set(words: &[AtomicU64], address: usize, shift: u32) -> bool {
    bit(words, address, shift).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

fn set(words: &[AtomicU64], address: usize, shift: u32, value: bool) {
    let Some((word, bit)) = bit(words, address, shift) else { return };
    if value {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

impl Notes {
    fn class(&self, size: u64) -> (&[AtomicU64], u32) {
        let [first, second, third, fourth] = CLASS_SHIFTS;
        if size < 1 << second {
            (&self.first, first)
        } else if size < 1 << third {
            (&self.second, second)
        } else if size < 1 << fourth {
            (&self.third, third)
        } else {
            (&self.fourth, fourth)
        }
    }

    /// A block of this size begins in the lines, or no longer does.
    fn note(&self, address: usize, size: u64, begins: bool) {
        let (words, shift) = self.class(size);
        set(words, address, shift, begins);
    }

    /// Whether a block may begin in the lines at this address.
    #[inline]
    fn may_be_in_lines(&self, address: usize) -> bool {
        let [first, second, third, fourth] = CLASS_SHIFTS;
        is_set(&self.first, address, first)
            || is_set(&self.suspects, address, STRETCH_SHIFT)
            || is_set(&self.second, address, second)
            || is_set(&self.third, address, third)
            || is_set(&self.fourth, address, fourth)
    }

    /// Anything may begin in the lines in this part of the region at `base`.
    pub(super) fn suspect(&self, base: usize, part: core::ops::Range<usize>) {
        for offset in part.step_by(1 << STRETCH_SHIFT) {
            set(&self.suspects, base + offset, STRETCH_SHIFT, true);
        }
    }
}

impl Table {
    /// Puts a small block into the small half. `None`: it belongs into the lines.
    #[inline]
    pub(super) fn insert_near(
        &self,
        address: usize,
        block: &Block,
        birth: u32,
        now: u32,
    ) -> Option<Inserted> {
        if block.size >= near::LIMIT || !near::is_granule(address) {
            return None;
        }
        let shared = self.is_shared();
        let value = near::value(block.site, birth, block.size);
        match self.near.insert(address, value, shared, |bytes| self.take_budget(bytes)) {
            near::Placed::New => {
                if self.near.notes(address).is_some_and(|notes| notes.may_be_in_lines(address)) {
                    return Some(self.settle(address, now).map_or(Inserted::New, Inserted::Replaced));
                }
                Some(Inserted::New)
            }
            near::Placed::Replaced(stale) => Some(Inserted::Replaced(near::decode(stale, now))),
            near::Placed::Closed => None,
            near::Placed::NoMemory => {
                if let Some(notes) = self.near.notes(address) {
                    set(&notes.suspects, address, STRETCH_SHIFT, true);
                }
                None
            }
        }
    }

    /// A small block has come to a stretch that blocks in the lines may begin in: answers the one at its address, which
    /// is stale. While one thread uses the table, small blocks of the stretch move to the small half.
    #[cold]
    #[inline(never)]
    fn settle(&self, address: usize, now: u32) -> Option<Removed> {
        let stale = self.remove_from_lines(address, now);
        let notes = self.near.notes(address)?;
        if !self.is_shared() && is_set(&notes.suspects, address, STRETCH_SHIFT) {
            let stretch = address >> STRETCH_SHIFT << STRETCH_SHIFT;
            let mut all_moved = true;
            for granule in 0..GRANULES_OF_STRETCH {
                all_moved &= self.move_near(stretch + (granule << GRANULE_SHIFT), now);
            }
            if all_moved {
                set(&notes.suspects, address, STRETCH_SHIFT, false);
            }
        }
        stale
    }

    /// Moves the small block at `address`, if one is in the lines, and notes a larger one. `false`: there is no memory
    /// for it.
    fn move_near(&self, address: usize, now: u32) -> bool {
        let Some(block) = self.peek_lines(address, now) else { return true };
        if block.size >= near::LIMIT {
            if let Some(notes) = self.near.notes(address) {
                notes.note(address, block.size, true);
            }
            return true;
        }
        let value = near::value(block.site, now.wrapping_sub(block.age), block.size);
        match self.near.insert(address, value, false, |bytes| self.take_budget(bytes)) {
            near::Placed::New | near::Placed::Replaced(_) => {
                self.remove_from_lines(address, now);
                true
            }
            near::Placed::Closed | near::Placed::NoMemory => false,
        }
    }

    /// Notes what became of an insertion into the lines.
    pub(super) fn inserted_into_lines(
        &self,
        address: usize,
        size: u64,
        inserted: Inserted,
        now: u32,
    ) -> Inserted {
        if !near::is_granule(address) {
            return inserted;
        }
        if size < near::LIMIT {
            if inserted != Inserted::New {
                self.near.left_lines(address);
            }
            return inserted;
        }
        if inserted == Inserted::Full {
            return inserted;
        }
        if size < HUGE && !self.near.is_open(address) {
            self.near.widen(address);
        } else if let Some(notes) = self.near.notes(address) {
            notes.note(address, size, true);
        }
        match self.near.remove(address, self.is_shared()) {
            Some(stale) => Inserted::Replaced(near::decode(stale, now)),
            None => inserted,
        }
    }

    /// Takes a block out of the small half.
    #[inline]
    pub(super) fn remove_near(&self, address: usize, now: u32) -> Option<Removed> {
        if !near::is_granule(address) {
            return None;
        }
        self.near.remove(address, self.is_shared()).map(|value| near::decode(value, now))
    }

    /// Notes that a block has left the lines.
    pub(super) fn removed_from_lines(&self, address: usize, size: u64) {
        if !near::is_granule(address) {
            return;
        }
        if size < near::LIMIT {
            self.near.left_lines(address);
        } else if (size >= HUGE || self.near.is_open(address))
            && let Some(notes) = self.near.notes(address)
        {
            notes.note(address, size, false);
        }
    }
}
