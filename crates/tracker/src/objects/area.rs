//! One area of the VM's slots, and the objects in it.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::table::{MAX_AGE, Removed};

pub(super) const AREA_SHIFT: u32 = 16;
pub(super) const AREA_BYTES: usize = 1 << AREA_SHIFT;
/// The smallest slot that an area may have.
pub(super) const LEAST_SLOT: usize = 32;
const MOST_CELLS: usize = AREA_BYTES / LEAST_SLOT + 1;
const WORDS: usize = MOST_CELLS.div_ceil(u64::BITS as usize);

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
    pub(super) live: AtomicU32,
    /// Cells that were ever in use.
    pub(super) touched: AtomicU32,
    /// A bit for each cell; set if its object is not known to be old. Those of empty cells mean nothing.
    young: [AtomicU64; WORDS],
    pub(super) cells: [AtomicU64; MOST_CELLS],
}

/// What the VM says of an object at the end of a marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is garbage.
    Dead,
    /// It lives, and may die in the next collection.
    Young,
    /// It lives, and dies only in a collection that looks at all objects.
    Old,
}

pub(super) fn cell(site: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(site.wrapping_add(1))
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
    #[inline]
    pub(super) fn cell(&self, offset: usize) -> Option<(usize, &AtomicU64)> {
        let reciprocal = u64::from(self.reciprocal.load(Ordering::Relaxed));
        let index = ((offset as u64).wrapping_mul(reciprocal) >> 32) as u32;
        let begin = index.wrapping_mul(self.slot_bytes.load(Ordering::Relaxed));
        let is_slot = begin.wrapping_add(self.residue.load(Ordering::Relaxed)) as usize == offset;
        let index = index as usize;
        self.cells.get(index).filter(|_| is_slot).map(|cell| (index, cell))
    }

    #[inline]
    pub(super) fn is_born(&self, index: usize) {
        if let Some(word) = self.young.get(index / u64::BITS as usize) {
            word.store(word.load(Ordering::Relaxed) | 1 << (index % u64::BITS as usize), Ordering::Relaxed);
        }
    }

    /// See [`super::Areas::settle`].
    pub(super) fn settle(
        &self,
        all: bool,
        now: u32,
        judge: &mut impl FnMut(usize) -> Verdict,
        gone: &mut impl FnMut(&Removed, u32),
    ) {
        let size = self.slot_bytes.load(Ordering::Relaxed) as usize;
        let residue = self.residue.load(Ordering::Relaxed) as usize;
        let first = self.base.load(Ordering::Relaxed).wrapping_add(residue);
        // Objects that die together were often made together: they are counted at once.
        let (mut alike, mut count) = (0, 0);
        let words = self.young.iter().zip(self.cells.chunks(u64::BITS as usize)).enumerate();
        for (number, (word, cells)) in words {
            if self.live.load(Ordering::Relaxed) == 0 {
                break;
            }
            let mut dead: u32 = 0;
            let (mut left, mut young) = (if all { u64::MAX } else { word.load(Ordering::Relaxed) }, 0);
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                let Some(cell) = cells.get(bit) else { break };
                let object = cell.load(Ordering::Relaxed);
                if object == 0 {
                    continue;
                }
                let index = number.wrapping_mul(u64::BITS as usize).wrapping_add(bit);
                match judge(first.wrapping_add(index.wrapping_mul(size))) {
                    Verdict::Dead => {
                        cell.store(0, Ordering::Relaxed);
                        dead = dead.wrapping_add(1);
                        if object != alike && count != 0 {
                            gone(&self.removed(alike, now), count);
                            count = 0;
                        }
                        (alike, count) = (object, count.wrapping_add(1));
                    }
                    Verdict::Young => young |= 1 << bit,
                    Verdict::Old => {}
                }
            }
            word.store(young, Ordering::Relaxed);
            self.live.store(self.live.load(Ordering::Relaxed).wrapping_sub(dead), Ordering::Relaxed);
        }
        if count != 0 {
            gone(&self.removed(alike, now), count);
        }
    }

    pub(super) fn count(&self) -> usize {
        AREA_BYTES / (self.slot_bytes.load(Ordering::Relaxed) as usize).max(1) + 1
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

    /// Takes the object out of a cell.
    #[inline]
    pub(super) fn take(&self, cell: &AtomicU64, now: u32) -> Option<Removed> {
        let old = cell.load(Ordering::Relaxed);
        if old == 0 {
            return None;
        }
        cell.store(0, Ordering::Relaxed);
        self.live.store(self.live.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
        Some(self.removed(old, now))
    }

    pub(super) fn occupied(&self) -> impl Iterator<Item = (usize, &AtomicU64)> {
        let (base, size) =
            (self.base.load(Ordering::Relaxed), self.slot_bytes.load(Ordering::Relaxed) as usize);
        let first = base.wrapping_add(self.residue.load(Ordering::Relaxed) as usize);
        let count = if self.live.load(Ordering::Relaxed) == 0 { 0 } else { self.count() };
        let cells = self.cells.iter().take(count).enumerate();
        cells
            .filter(|(_, cell)| cell.load(Ordering::Relaxed) != 0)
            .map(move |(index, cell)| (first.wrapping_add(index.wrapping_mul(size)), cell))
    }
}
