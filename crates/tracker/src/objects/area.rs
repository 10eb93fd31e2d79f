//! One area of the VM's slots, and the objects in it.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::table::{MAX_AGE, Removed};

pub(super) const AREA_SHIFT: u32 = 16;
pub(super) const AREA_BYTES: usize = 1 << AREA_SHIFT;
/// The smallest slot that an area may have.
pub(super) const LEAST_SLOT: usize = 32;
const MOST_CELLS: usize = AREA_BYTES / LEAST_SLOT + 1;
const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = MOST_CELLS.div_ceil(WORD_BITS);

/// The objects of one area. All-zero memory is an empty one without a shape.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Area {
    pub(super) next: AtomicPtr<Area>,
    pub(super) base: AtomicUsize,
    /// Bytes of each slot, and 2^32 by it, rounded up.
    pub(super) slot_bytes: AtomicU32,
    reciprocal: AtomicU32,
    /// Offset of each slot, modulo their size.
    residue: AtomicU32,
    /// Cells that there is memory for. Behind them is another area.
    pub(super) room: AtomicU32,
    /// A bit for each cell: whether there is an object. What a cell without one holds means nothing.
    present: [AtomicU64; WORDS],
    /// A bit for each cell: whether its object is known to be old. It is clear where there is none.
    old: [AtomicU64; WORDS],
    /// A bit for each cell: whether its object is old and need not be looked at again ([`super::Areas::look`]).
    done: [AtomicU64; WORDS],
    pub(super) cells: [AtomicU64; MOST_CELLS],
}

/// Cells of an area whose slots have this size; `None`: no area may have such slots.
pub(super) fn cells_of(slot_bytes: usize) -> Option<usize> {
    (LEAST_SLOT..=AREA_BYTES)
        .contains(&slot_bytes)
        .then(|| AREA_BYTES.checked_div(slot_bytes).unwrap_or(0).saturating_add(1))
}

/// The VM's fate on an object at the end of a marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is garbage.
    Dead,
    /// It lives, and may die in the next collection.
    Young,
    /// It lives, and dies only in a collection that looks at all objects.
    Old,
}

/// The VM's results of a marking for a page of its heap: a bit for each unit. The bit of a slot's first byte
/// belongs to the slot.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Where it begins.
    pub begin: usize,
    /// Its bytes, a power of two, and those of a unit.
    pub bytes: usize,
    /// See `bytes`.
    pub unit: usize,
    /// Whether objects are marked.
    pub marked: *const u64,
    /// Whether they are old, if they are marked. Null: [`Judge::fate`] tells.
    pub old: *const u64,
}

/// The VM, which returns the results of a marking.
pub trait Judge {
    /// The fate on the object in this slot.
    fn fate(&mut self, slot: usize) -> Fate;
    /// The fates on the whole page of this slot, which holds an object; `None`: [`Judge::fate`] must be
    /// called for each. The answer is readable while the area is visited.
    fn page(&mut self, slot: usize) -> Option<Page>;
}

/// An object of this site and birth, as a cell holds it.
#[must_use]
#[inline(always)]
pub fn cell(site: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(site.wrapping_add(1))
}

/// Bits of a page, from the one with this number on.
///
/// # Safety
/// There are at least so many that `last` is the number of one.
#[inline]
unsafe fn bits_from(bits: *const u64, from: usize, last: usize) -> u64 {
    let (word, shift) = (from / WORD_BITS, from % WORD_BITS);
    // SAFETY: the caller's promise.
    let low = unsafe { bits.add(word).read() } >> shift;
    if shift == 0 || word == last / WORD_BITS {
        return low;
    }
    // SAFETY: as above.
    low | unsafe { bits.add(word.wrapping_add(1)).read() } << WORD_BITS.wrapping_sub(shift)
}

impl Area {
    pub(super) fn shape(&self, base: usize, offset: usize, slot_bytes: usize) {
        let slot_bytes = slot_bytes.max(1);
        self.base.store(base, Ordering::Relaxed);
        self.slot_bytes.store(slot_bytes as u32, Ordering::Relaxed);
        self.reciprocal.store(((1_u64 << 32) / slot_bytes as u64 + 1) as u32, Ordering::Relaxed);
        self.residue.store((offset % slot_bytes) as u32, Ordering::Relaxed);
    }

    /// The slot's number and cell; `None` if no slot of this area begins there. Rounding never reaches the next whole
    /// number, because an offset has 16 bits only.
    #[inline(always)]
    pub(super) fn cell(&self, offset: usize) -> Option<(usize, &AtomicU64)> {
        let reciprocal = u64::from(self.reciprocal.load(Ordering::Relaxed));
        let index = ((offset as u64).wrapping_mul(reciprocal) >> 32) as u32;
        let begin = index.wrapping_mul(self.slot_bytes.load(Ordering::Relaxed));
        let is_slot = begin.wrapping_add(self.residue.load(Ordering::Relaxed)) as usize == offset;
        let index = index as usize;
        self.cells.get(index).filter(|_| is_slot).map(|cell| (index, cell))
    }

    /// Puts an object into a cell. Returns what was there.
    #[inline(always)]
    pub(super) fn put(&self, index: usize, cell: &AtomicU64, object: u64) -> Option<u64> {
        let (present, _, bit) = self.bits(index)?;
        let there = present.load(Ordering::Relaxed);
        let before = (there & bit != 0).then(|| {
            self.take(index);
            cell.load(Ordering::Relaxed)
        });
        present.store(there | bit, Ordering::Relaxed);
        cell.store(object, Ordering::Relaxed);
        before
    }

    /// Puts an object into the slot at this offset, unless there is one, or no slot begins there.
    #[inline(always)]
    pub(super) fn put_fast(&self, offset: usize, object: u64) -> bool {
        // As in `cell`, for a size that is known to be right. It is written out here because the compiler
        // generates better code for it.
        let reciprocal = u64::from(self.reciprocal.load(Ordering::Relaxed));
        let index = (offset as u64).wrapping_mul(reciprocal) >> 32;
        let begin = (index as u32).wrapping_mul(self.slot_bytes.load(Ordering::Relaxed));
        if begin.wrapping_add(self.residue.load(Ordering::Relaxed)) != offset as u32 {
            return false;
        }
        let index = index as usize;
        let (Some(cell), Some(present)) = (self.cells.get(index), self.present.get(index / WORD_BITS)) else {
            return false;
        };
        let (there, bit) = (present.load(Ordering::Relaxed), 1 << (index % WORD_BITS));
        if there & bit != 0 {
            return false;
        }
        present.store(there | bit, Ordering::Relaxed);
        cell.store(object, Ordering::Relaxed);
        true
    }

    #[inline]
    fn bits(&self, index: usize) -> Option<(&AtomicU64, &AtomicU64, u64)> {
        let word = index / WORD_BITS;
        Some((self.present.get(word)?, self.old.get(word)?, 1 << (index % WORD_BITS)))
    }

    /// See [`super::Areas::settle`].
    pub(super) fn settle(
        &self,
        all: bool,
        now: u32,
        judge: &mut impl Judge,
        gone: &mut impl FnMut(&Removed, u32),
    ) {
        let (size, first) = self.grid();
        // Objects that die together were often made together: they are counted at once.
        let (mut alike, mut count) = (0, 0);
        let (mut page, mut end) = (None, 0);
        let bits = self.present.iter().zip(&self.old).zip(&self.done);
        for (number, (((present, old), done), cells)) in bits.zip(self.cells.chunks(WORD_BITS)).enumerate() {
            let (there, aged) = (present.load(Ordering::Relaxed), old.load(Ordering::Relaxed));
            let asked = if all { there } else { there & !aged };
            let (mut left, mut dead, mut grown) = (asked, 0, 0);
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                let index = number.wrapping_mul(WORD_BITS).wrapping_add(bit);
                let slot = first.wrapping_add(index.wrapping_mul(size));
                if index >= end {
                    page = judge.page(slot).filter(|page| size.is_multiple_of(page.unit));
                    end = page.map_or(0, |page| {
                        page.begin.wrapping_add(page.bytes).wrapping_sub(first).div_ceil(size)
                    });
                }
                let Some(page) = page else {
                    left &= left.wrapping_sub(1);
                    match judge.fate(slot) {
                        Fate::Dead => dead |= 1 << bit,
                        Fate::Old => grown |= 1 << bit,
                        Fate::Young => {}
                    }
                    continue;
                };
                // The cells of this word, from this one on, that are in the page.
                let span = u64::MAX << bit;
                let beyond = end.wrapping_sub(number.wrapping_mul(WORD_BITS));
                let span = if beyond < WORD_BITS { span & !(u64::MAX << beyond) } else { span };
                // SAFETY: the judge's promise.
                let marked = unsafe { page.spread(page.marked, slot, size, left & span, bit) };
                dead |= left & span & !marked;
                let lives = left & span & marked;
                grown |= if page.old.is_null() {
                    Self::grown(judge, lives, |bit| slot_of(first, size, number, bit))
                } else {
                    // SAFETY: as above.
                    lives & unsafe { page.spread(page.old, slot, size, lives, bit) }
                };
                left &= !span;
            }
            present.store(there & !dead, Ordering::Relaxed);
            let aged = aged & !asked | grown;
            old.store(aged, Ordering::Relaxed);
            done.store(done.load(Ordering::Relaxed) & aged, Ordering::Relaxed);
            while dead != 0 {
                let Some(cell) = cells.get(dead.trailing_zeros() as usize) else { break };
                dead &= dead.wrapping_sub(1);
                let object = cell.load(Ordering::Relaxed);
                if object != alike && count != 0 {
                    gone(&self.removed(alike, now), count);
                    count = 0;
                }
                (alike, count) = (object, count.wrapping_add(1));
            }
        }
        if count != 0 {
            gone(&self.removed(alike, now), count);
        }
    }

    /// Which of these objects are old, asked one by one.
    fn grown(judge: &mut impl Judge, mut lives: u64, slot: impl Fn(usize) -> usize) -> u64 {
        let mut grown = 0;
        while lives != 0 {
            let bit = lives.trailing_zeros() as usize;
            lives &= lives.wrapping_sub(1);
            grown |= u64::from(judge.fate(slot(bit)) == Fate::Old) << bit;
        }
        grown
    }

    /// Bytes of a slot, and the address of the first one.
    fn grid(&self) -> (usize, usize) {
        let size = (self.slot_bytes.load(Ordering::Relaxed) as usize).max(1);
        let residue = self.residue.load(Ordering::Relaxed) as usize;
        (size, self.base.load(Ordering::Relaxed).wrapping_add(residue))
    }

    #[inline]
    pub(super) fn removed(&self, cell: u64, now: u32) -> Removed {
        let age = now.wrapping_sub((cell >> 32) as u32);
        Removed {
            site: (cell as u32).wrapping_sub(1),
            size: u64::from(self.slot_bytes.load(Ordering::Relaxed)),
            age: if age > u32::MAX / 2 { 0 } else { age.min(MAX_AGE) },
        }
    }

    /// Takes the object out of a cell. `false`: there is none.
    #[inline]
    pub(super) fn take(&self, index: usize) -> bool {
        let (Some((present, old, bit)), Some(done)) = (self.bits(index), self.done.get(index / WORD_BITS))
        else {
            return false;
        };
        let there = present.load(Ordering::Relaxed);
        present.store(there & !bit, Ordering::Relaxed);
        old.store(old.load(Ordering::Relaxed) & !bit, Ordering::Relaxed);
        done.store(done.load(Ordering::Relaxed) & !bit, Ordering::Relaxed);
        there & bit != 0
    }

    /// See [`super::Areas::look`].
    pub(super) fn look(&self, now: u32, is_done: &mut dyn FnMut(usize, Removed) -> bool) {
        let (size, first) = self.grid();
        let bits = self.present.iter().zip(&self.old).zip(&self.done);
        for (number, (((present, old), done), cells)) in bits.zip(self.cells.chunks(WORD_BITS)).enumerate() {
            let before = done.load(Ordering::Relaxed);
            let (mut left, mut found) = (present.load(Ordering::Relaxed) & !before, 0);
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                let Some(cell) = cells.get(bit) else { break };
                let object = self.removed(cell.load(Ordering::Relaxed), now);
                found |= u64::from(is_done(slot_of(first, size, number, bit), object)) << bit;
            }
            done.store(before | found & old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Number, slot and cell of each object.
    pub(super) fn occupied(&self) -> impl Iterator<Item = (usize, usize, &AtomicU64)> {
        let (size, first) = self.grid();
        self.present.iter().enumerate().flat_map(move |(number, word)| {
            let mut left = word.load(Ordering::Relaxed);
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left.wrapping_sub(1);
                let index = number.wrapping_mul(WORD_BITS).wrapping_add(bit);
                Some((index, first.wrapping_add(index.wrapping_mul(size)), self.cells.get(index)?))
            })
        })
    }
}

fn slot_of(first: usize, size: usize, number: usize, bit: usize) -> usize {
    first.wrapping_add(number.wrapping_mul(WORD_BITS).wrapping_add(bit).wrapping_mul(size))
}

impl Page {
    /// The bits of the slots of a word, in which this slot has the number `bit`: at least those of the
    /// `asked` slots, all of which come at or after it.
    ///
    /// # Safety
    /// These bits can be read, and the asked slots are of this page.
    #[inline]
    unsafe fn spread(&self, bits: *const u64, slot: usize, size: usize, asked: u64, bit: usize) -> u64 {
        let from = slot.wrapping_sub(self.begin).checked_div(self.unit).unwrap_or(0);
        if size == self.unit {
            let last = self.bytes.checked_div(self.unit).unwrap_or(0);
            // SAFETY: the caller's promise.
            return unsafe { bits_from(bits, from, last) } << bit;
        }
        let stride = size.checked_div(self.unit).unwrap_or(0);
        let (mut left, mut found) = (asked, 0);
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            let place = from.wrapping_add(at.wrapping_sub(bit).wrapping_mul(stride));
            // SAFETY: as above.
            let word = unsafe { bits.add(place / WORD_BITS).read() };
            found |= (word >> (place % WORD_BITS) & 1) << at;
        }
        found
    }
}
