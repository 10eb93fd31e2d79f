//! The live objects of a VM: slot → call site and birth.
//!
//! Slots are not like blocks. A VM lays them out in areas of 64 KiB, in each of which all slots have one size and one
//! distance. So each area has an array of its own, with a cell of 8 bytes for each slot: an object is found by its
//! address, without a hash and without probing.
//!
//! | what | where |
//! |---|---|
//! | an area's array | by the upper 16 and the next 16 bits of the 48 that an address has |
//! | a slot's cell | the slot's offset in the area divided by the size of its slots |
//! | a cell | 0, or the birth in the upper half, and the call site plus one in the lower half |
//!
//! Rule for neighbours: one thread at a time changes it, the one that holds the VM's lock; or none, while the world is
//! paused and others read.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::mmap;
use crate::table::{Block, Exhausted, Inserted, MAX_AGE, Removed};

const AREA_SHIFT: u32 = 16;
const AREA_BYTES: usize = 1 << AREA_SHIFT;
const REGION_SHIFT: u32 = 32;
const REGIONS: usize = 1 << 16;
const AREAS: usize = 1 << (REGION_SHIFT - AREA_SHIFT);
/// The smallest slot that an area may have.
const LEAST_SLOT: usize = 32;
const MOST_CELLS: usize = AREA_BYTES / LEAST_SLOT + 1;
/// Arrays are cut from mappings of this size.
const ARENA_BYTES: usize = 1 << 20;
/// What a region takes at least. It is far more address space, and takes memory where areas are.
const REGION_RESIDENT: usize = 4096;

/// The objects of one area. All-zero memory is an empty one without a shape.
#[derive(Debug)]
#[repr(C)]
struct Area {
    next: AtomicPtr<Area>,
    base: AtomicUsize,
    /// Bytes of each slot, and 2^32 by it, rounded up.
    slot_bytes: AtomicU32,
    reciprocal: AtomicU32,
    /// Offset of each slot, modulo their size.
    residue: AtomicU32,
    live: AtomicU32,
    /// Cells that were ever in use.
    touched: AtomicU32,
    cells: [AtomicU64; MOST_CELLS],
}

/// The areas of 4 GiB.
#[derive(Debug)]
#[repr(C)]
struct Region {
    areas: [AtomicPtr<Area>; AREAS],
}

/// The header of an arena.
#[derive(Debug)]
#[repr(C, align(64))]
struct Arena {
    next: AtomicPtr<Arena>,
}

/// The objects. It is made to be a static: all zeroes, so that it takes memory only where it is used.
#[derive(Debug)]
pub struct Objects {
    regions: [AtomicPtr<Region>; REGIONS],
    first: AtomicPtr<Area>,
    arenas: AtomicPtr<Arena>,
    /// Bytes of the newest arena that are in use.
    used: AtomicUsize,
    taken: AtomicUsize,
    max_bytes: AtomicUsize,
}

fn cell(site: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(site.wrapping_add(1))
}

impl Area {
    fn shape(&self, base: usize, offset: usize, slot_bytes: usize) {
        let slot_bytes = slot_bytes.max(1);
        self.base.store(base, Ordering::Relaxed);
        self.slot_bytes.store(slot_bytes as u32, Ordering::Relaxed);
        self.reciprocal.store(((1_u64 << 32) / slot_bytes as u64 + 1) as u32, Ordering::Relaxed);
        self.residue.store((offset % slot_bytes) as u32, Ordering::Relaxed);
    }

    /// The slot's cell; `None` if no slot of this area begins there. Rounding never reaches the next whole number,
    /// because an offset has 16 bits only.
    #[inline]
    fn cell(&self, offset: usize) -> Option<&AtomicU64> {
        let reciprocal = u64::from(self.reciprocal.load(Ordering::Relaxed));
        let index = ((offset as u64).wrapping_mul(reciprocal) >> 32) as u32;
        let begin = index.wrapping_mul(self.slot_bytes.load(Ordering::Relaxed));
        let is_slot = begin.wrapping_add(self.residue.load(Ordering::Relaxed)) as usize == offset;
        self.cells.get(index as usize).filter(|_| is_slot)
    }

    fn count(&self) -> usize {
        AREA_BYTES / (self.slot_bytes.load(Ordering::Relaxed) as usize).max(1) + 1
    }

    #[inline]
    fn removed(&self, cell: u64, now: u32) -> Removed {
        let age = now.wrapping_sub((cell >> 32) as u32);
        Removed {
            site: (cell as u32).wrapping_sub(1),
            size: u64::from(self.slot_bytes.load(Ordering::Relaxed)),
            age: if age > u32::MAX / 2 { 0 } else { age.min(MAX_AGE) },
        }
    }

    /// Takes the object out of a cell.
    #[inline]
    fn take(&self, cell: &AtomicU64, now: u32) -> Option<Removed> {
        let old = cell.load(Ordering::Relaxed);
        if old == 0 {
            return None;
        }
        cell.store(0, Ordering::Relaxed);
        self.live.store(self.live.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
        Some(self.removed(old, now))
    }

    fn occupied(&self) -> impl Iterator<Item = (usize, &AtomicU64)> {
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

impl Objects {
    /// Empty, without memory, and without room before [`Objects::init`].
    #[must_use]
    #[allow(clippy::new_without_default, reason = "made to be a static")]
    pub const fn new() -> Self {
        Self {
            regions: [const { AtomicPtr::new(ptr::null_mut()) }; REGIONS],
            first: AtomicPtr::new(ptr::null_mut()),
            arenas: AtomicPtr::new(ptr::null_mut()),
            used: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            max_bytes: AtomicUsize::new(0),
        }
    }

    /// Prepares it with this budget.
    ///
    /// # Errors
    /// The kernel has no address space for the first objects.
    pub fn init(&self, max_bytes: usize) -> Result<(), Exhausted> {
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
        if self.arenas.load(Ordering::Relaxed).is_null() && !self.extend() {
            return Err(Exhausted { wanted_bytes: ARENA_BYTES });
        }
        Ok(())
    }

    #[inline]
    fn area(&self, slot: usize) -> Option<&Area> {
        let region = self.regions.get(slot >> REGION_SHIFT)?.load(Ordering::Acquire);
        // SAFETY: null, or a mapped region, which is unmapped only while the world is paused.
        let region = unsafe { region.as_ref() }?;
        let area = region.areas.get(slot >> AREA_SHIFT & (AREAS - 1))?.load(Ordering::Acquire);
        // SAFETY: null, or an area of an arena, which is unmapped only while the world is paused.
        unsafe { area.as_ref() }
    }

    /// Inserts an object. `gone` is called for each one whose end was missed and whose area has slots of another size
    /// now.
    #[inline]
    pub fn insert(&self, slot: usize, object: Block, now: u32, gone: impl FnMut(&Removed)) -> Inserted {
        let Some(area) = self.area(slot).or_else(|| self.new_area(slot)) else { return Inserted::Full };
        let (offset, bytes) = (slot & (AREA_BYTES - 1), object.size as usize);
        let has_size = area.slot_bytes.load(Ordering::Relaxed) as usize == bytes;
        let place = match area.cell(offset).filter(|_| has_size) {
            Some(place) => place,
            None if self.reshape(area, slot, bytes, now, gone) => match area.cell(offset) {
                Some(place) => place,
                None => return Inserted::Full,
            },
            None => return Inserted::Full,
        };
        let old = place.load(Ordering::Relaxed);
        place.store(cell(object.site, object.generation), Ordering::Relaxed);
        if old != 0 {
            return Inserted::Replaced(area.removed(old, now));
        }
        area.live.store(area.live.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        Inserted::New
    }

    /// Removes an object.
    #[inline]
    pub fn remove(&self, slot: usize, now: u32) -> Option<Removed> {
        let area = self.area(slot)?;
        area.take(area.cell(slot & (AREA_BYTES - 1))?, now)
    }

    /// Visits each object. The world is paused.
    pub fn for_each(&self, now: u32, visit: &mut dyn FnMut(usize, Removed)) {
        let mut next = self.first.load(Ordering::Acquire);
        // SAFETY: as in `area`.
        while let Some(area) = unsafe { next.as_ref() } {
            for (slot, cell) in area.occupied() {
                visit(slot, area.removed(cell.load(Ordering::Relaxed), now));
            }
            next = area.next.load(Ordering::Relaxed);
        }
    }

    /// Gives an area slots of this size, of which one is here.
    #[cold]
    fn reshape(
        &self,
        area: &Area,
        slot: usize,
        bytes: usize,
        now: u32,
        mut gone: impl FnMut(&Removed),
    ) -> bool {
        if !(LEAST_SLOT..=AREA_BYTES).contains(&bytes) {
            return false;
        }
        let cells = AREA_BYTES / bytes.max(1) + 1;
        let more = cells.saturating_sub(area.touched.load(Ordering::Relaxed) as usize) * size_of::<u64>();
        if !self.charge(more) {
            return false;
        }
        for (_, cell) in area.occupied() {
            if let Some(old) = area.take(cell, now) {
                gone(&old);
            }
        }
        area.touched.fetch_max(cells as u32, Ordering::Relaxed);
        area.shape(slot & !(AREA_BYTES - 1), slot & (AREA_BYTES - 1), bytes);
        true
    }

    fn charge(&self, bytes: usize) -> bool {
        let taken = self.taken.load(Ordering::Relaxed).saturating_add(bytes);
        if taken > self.max_bytes.load(Ordering::Relaxed) {
            return false;
        }
        self.taken.store(taken, Ordering::Relaxed);
        true
    }

    #[cold]
    fn new_area(&self, slot: usize) -> Option<&Area> {
        let place = self.regions.get(slot >> REGION_SHIFT)?;
        if place.load(Ordering::Relaxed).is_null() {
            if !self.charge(REGION_RESIDENT) {
                return None;
            }
            let memory = mmap::reserve(size_of::<Region>())?;
            // Release: whoever sees the region sees zeroes.
            place.store(memory.as_ptr().cast(), Ordering::Release);
        }
        let header = core::mem::offset_of!(Area, cells);
        let has_room = self.used.load(Ordering::Relaxed).saturating_add(size_of::<Area>()) <= ARENA_BYTES;
        if !has_room && !self.extend() || !self.charge(header) {
            return None;
        }
        let at = self.used.fetch_add(size_of::<Area>(), Ordering::Relaxed);
        // SAFETY: inside the newest arena, aligned as an area needs it: its size is a multiple of its alignment.
        let area = unsafe { self.arenas.load(Ordering::Relaxed).byte_add(at).cast::<Area>() };
        // SAFETY: zeroed memory is an area.
        let empty = unsafe { &*area };
        empty.next.store(self.first.load(Ordering::Relaxed), Ordering::Relaxed);
        empty.base.store(slot & !(AREA_BYTES - 1), Ordering::Relaxed);
        self.first.store(area, Ordering::Release);
        // SAFETY: a mapped region, as above.
        let region = unsafe { place.load(Ordering::Relaxed).as_ref() }?;
        region.areas.get(slot >> AREA_SHIFT & (AREAS - 1))?.store(area, Ordering::Release);
        self.area(slot)
    }

    /// Maps one more arena.
    #[cold]
    fn extend(&self) -> bool {
        let Some(memory) = mmap::reserve(ARENA_BYTES) else { return false };
        // A huge page would take two mebibytes for the first object.
        mmap::advise(memory.as_ptr(), ARENA_BYTES, false);
        let arena = memory.as_ptr().cast::<Arena>();
        // SAFETY: zeroed memory is an arena's header.
        unsafe { &*arena }.next.store(self.arenas.load(Ordering::Relaxed), Ordering::Relaxed);
        self.arenas.store(arena, Ordering::Relaxed);
        self.used.store(size_of::<Arena>(), Ordering::Relaxed);
        true
    }

    /// Forgets everything and unmaps the memory. The world is paused.
    pub fn clear(&self) {
        let mut next = self.first.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: as in `area`.
        while let Some(area) = unsafe { next.as_ref() } {
            let place = self.regions.get(area.base.load(Ordering::Relaxed) >> REGION_SHIFT);
            let region =
                place.map_or(ptr::null_mut(), |place| place.swap(ptr::null_mut(), Ordering::Relaxed));
            if let Some(region) = NonNull::new(region) {
                mmap::unreserve(region.as_ptr().cast(), size_of::<Region>());
            }
            next = area.next.load(Ordering::Relaxed);
        }
        let mut next = self.arenas.swap(ptr::null_mut(), Ordering::Relaxed);
        while let Some(arena) = NonNull::new(next) {
            // SAFETY: mapped in `extend`, and read for the last time; nobody else reads it.
            next = unsafe { arena.as_ref() }.next.load(Ordering::Relaxed);
            mmap::unreserve(arena.as_ptr().cast(), ARENA_BYTES);
        }
        self.taken.store(0, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn objects(max_bytes: usize) -> Box<Objects> {
        // SAFETY: zeroes are an empty one.
        let objects: Box<Objects> = unsafe { Box::new_zeroed().assume_init() };
        objects.init(max_bytes).expect("address space");
        objects
    }

    proptest! {
        /// Areas of several sizes of slots, some of which get another size when they are empty or not.
        #[test]
        fn it_is_a_map(
            steps in proptest::collection::vec((0usize..6, 0usize..102, 0u8..4, 0u32..1 << 24), 0..2000),
            sizes in proptest::collection::vec(prop::sample::select(vec![32usize, 40, 48, 80, 160, 320, 640]), 6),
            start in 0usize..60,
        ) {
            let objects = objects(16 << 20);
            let mut twin: HashMap<usize, Removed> = HashMap::new();
            let mut sizes = sizes;
            for (number, (area, index, step, site)) in steps.into_iter().enumerate() {
                if number % 501 == 500 {
                    sizes.rotate_left(1);
                }
                let size = sizes[area];
                let base = [0x7000_0000_0000, 0x7000_0001_0000, 0x7001_0000_0000, 0x10000, 0xffff_ffff_0000, 0x20000][area];
                let slot = base + start / size * size + start * 8 % size + index % (AREA_BYTES / size - 1) * size;
                if step == 0 {
                    prop_assert_eq!(objects.remove(slot, 9), twin.remove(&slot));
                    continue;
                }
                let others: Vec<usize> = twin.keys().copied()
                    .filter(|other| other & !(AREA_BYTES - 1) == base && twin[other].size != size as u64).collect();
                let mut stale: Vec<Removed> = others.iter().filter_map(|other| twin.remove(other)).collect();
                let mut gone = Vec::new();
                let block = Block { site, size: size as u64, generation: u32::from(step) };
                let inserted = objects.insert(slot, block, 9, |old| gone.push(*old));
                stale.sort_by_key(|old| (old.site, old.age));
                gone.sort_by_key(|old| (old.site, old.age));
                prop_assert_eq!(gone, stale);
                let object = Removed { site, size: size as u64, age: 9 - u32::from(step) };
                prop_assert_eq!(inserted, twin.insert(slot, object).map_or(Inserted::New, Inserted::Replaced));
            }
            let mut seen = HashMap::new();
            objects.for_each(9, &mut |slot, object| { seen.insert(slot, object); });
            prop_assert_eq!(seen, twin);
            objects.clear();
        }
    }

    #[test]
    fn each_slot_of_an_area_has_a_cell_of_its_own() {
        for size in (LEAST_SLOT..=700).chain([4096, 65_536]) {
            let objects = objects(1 << 20);
            let slots = (0..AREA_BYTES / size).map(|index| 0x7f00_0000_0000 + index * size);
            for slot in slots.clone() {
                let block = Block { site: 1, size: size as u64, generation: 0 };
                assert_eq!(
                    objects.insert(slot, block, 0, |_| unreachable!()),
                    Inserted::New,
                    "{slot:x} {size}"
                );
            }
            let mut seen = Vec::new();
            objects.for_each(0, &mut |slot, _| seen.push(slot));
            assert!(slots.eq(seen));
            objects.clear();
        }
    }

    #[test]
    fn a_budget_is_kept_and_a_clear_gives_everything_back() {
        let objects = objects(1 << 20);
        let block = Block { site: 1, size: 40, generation: 0 };
        let slots =
            (0..1_000).flat_map(|area| (0..1_638).map(move |i| (area << AREA_SHIFT) + (1 << 40) + i * 40));
        let kept = slots.take_while(|slot| objects.insert(*slot, block, 0, |_| {}) != Inserted::Full).count();
        assert!(objects.resident_bytes() <= 1 << 20 && kept > 120_000, "{kept}");
        objects.clear();
        assert_eq!((objects.resident_bytes(), objects.remove(1 << 40, 0)), (0, None));
        assert_eq!(objects.insert(1 << 50, block, 0, |_| {}), Inserted::Full);
        objects.init(1 << 20).expect("address space");
        assert_eq!(objects.insert(1 << 40, block, 0, |_| {}), Inserted::New);
        objects.clear();
    }
}
