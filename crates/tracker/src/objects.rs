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
//! | a cell | the birth in the upper half, and the call site plus one in the lower half |
//! | whether there is an object; whether it is old, and so dies only in a collection that looks at old ones; whether its contents were looked for, and found | three bits for each slot |
//!
//! The VM reports the ends of objects one by one, or all together through [`Areas::settle`], when it knows
//! which ones live on. It may report them by its own bits. 64 of these are read together if a slot has the
//! size that one bit stands for.
//!
//! Rule for neighbours: one thread at a time changes it, the one that holds the VM's lock; or none, while the world is
//! paused and others read.

mod area;

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::mmap;
use crate::table::{Block, Exhausted, Inserted, Removed};
use area::{AREA_BYTES, AREA_SHIFT, Area, cells_of};
pub use area::{Fate, Judge, Page, cell};

const REGION_SHIFT: u32 = 32;
const REGIONS: usize = 1 << 16;
const AREAS: usize = 1 << (REGION_SHIFT - AREA_SHIFT);
/// Where areas begin.
const CACHE_LINE: usize = 64;
/// Arrays are cut from mappings of this size.
const ARENA_BYTES: usize = 1 << 20;
/// What a region takes at least. It is far more address space, and takes memory where areas are.
const REGION_RESIDENT: usize = 4096;

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

/// The areas of [`Objects`] that are left to visit.
#[derive(Debug)]
pub struct Areas<'a> {
    next: &'a AtomicPtr<Area>,
}

impl Areas<'_> {
    /// A marking has ended: asks the judge about each slot of the next area whose object may have died, or
    /// about each object if `all`. Removes dead objects, and calls `gone` once for several like objects, with
    /// their number. `false`: there is no more area.
    ///
    /// Both must leave the objects as they are.
    pub fn settle(
        &mut self,
        all: bool,
        now: u32,
        judge: &mut impl Judge,
        mut gone: impl FnMut(&Removed, u32),
    ) -> bool {
        // SAFETY: null, or an area of an arena, which is unmapped only while the world is paused.
        let Some(area) = (unsafe { self.next.load(Ordering::Acquire).as_ref() }) else { return false };
        area.settle(all, now, judge, &mut gone);
        self.next = &area.next;
        true
    }

    /// Visits each object of the next area. The visit must not change objects. Old objects for which it
    /// returned `true` are never visited again. `false`: there is no more area.
    pub fn look(&mut self, now: u32, visit: &mut dyn FnMut(usize, Removed) -> bool) -> bool {
        // SAFETY: as in `settle`.
        let Some(area) = (unsafe { self.next.load(Ordering::Acquire).as_ref() }) else { return false };
        area.look(now, visit);
        self.next = &area.next;
        true
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

    #[inline(always)]
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
        let (offset, bytes) = (slot & (AREA_BYTES - 1), object.size as usize);
        let fits = |area: &&Area| {
            area.slot_bytes.load(Ordering::Relaxed) as usize == bytes && area.cell(offset).is_some()
        };
        let area = self.area(slot).filter(fits).or_else(|| self.reshaped(slot, bytes, now, gone));
        let Some(area) = area else { return Inserted::Full };
        let Some((index, place)) = area.cell(offset) else { return Inserted::Full };
        match area.put(index, place, cell(object.site, object.generation)) {
            Some(old) => Inserted::Replaced(area.removed(old, now)),
            None => Inserted::New,
        }
    }

    /// Inserts an object where nothing else has to be done: its area has slots of this size, and there is none in this one.
    /// `false`: nothing was done, and [`Objects::insert`] has to be called. The object is a [`cell`].
    #[inline(always)]
    #[must_use]
    pub fn insert_fast(&self, slot: usize, bytes: usize, cell: u64) -> bool {
        let Some(area) = self.area(slot) else { return false };
        if area.slot_bytes.load(Ordering::Relaxed) as usize != bytes {
            return false;
        }
        area.put_fast(slot & (AREA_BYTES - 1), cell)
    }

    /// Removes an object.
    #[inline]
    pub fn remove(&self, slot: usize, now: u32) -> Option<Removed> {
        let area = self.area(slot)?;
        let (index, cell) = area.cell(slot & (AREA_BYTES - 1))?;
        area.take(index).then(|| area.removed(cell.load(Ordering::Relaxed), now))
    }

    /// The areas, one after the other. Between two of them, objects may be inserted and removed.
    #[inline]
    pub fn areas(&self) -> Areas<'_> {
        Areas { next: &self.first }
    }

    /// Visits each object. The world is paused.
    pub fn for_each(&self, now: u32, visit: &mut dyn FnMut(usize, Removed)) {
        let mut next = self.first.load(Ordering::Acquire);
        // SAFETY: as in `area`.
        while let Some(area) = unsafe { next.as_ref() } {
            for (_, slot, cell) in area.occupied() {
                visit(slot, area.removed(cell.load(Ordering::Relaxed), now));
            }
            next = area.next.load(Ordering::Relaxed);
        }
    }

    /// The area of this slot, for slots of this size. If the present one has too few cells, another one
    /// replaces it, at most once for each size.
    #[cold]
    fn reshaped(&self, slot: usize, bytes: usize, now: u32, mut gone: impl FnMut(&Removed)) -> Option<&Area> {
        let cells = cells_of(bytes)?;
        let before = self.area(slot);
        let has_room = |area: &&Area| area.room.load(Ordering::Relaxed) as usize >= cells;
        let area = before.filter(has_room).or_else(|| self.new_area(slot, cells))?;
        if let Some(before) = before {
            for (index, _, cell) in before.occupied() {
                before.take(index);
                gone(&before.removed(cell.load(Ordering::Relaxed), now));
            }
        }
        area.shape(slot & !(AREA_BYTES - 1), slot & (AREA_BYTES - 1), bytes);
        let regions = self.regions.get(slot >> REGION_SHIFT)?;
        // SAFETY: `new_area` has mapped the region, which is unmapped only while the world is paused.
        let region = unsafe { regions.load(Ordering::Relaxed).as_ref() }?;
        let place = region.areas.get(slot >> AREA_SHIFT & (AREAS - 1))?;
        place.store(core::ptr::from_ref(area).cast_mut(), Ordering::Release);
        Some(area)
    }

    fn charge(&self, bytes: usize) -> bool {
        let taken = self.taken.load(Ordering::Relaxed).saturating_add(bytes);
        if taken > self.max_bytes.load(Ordering::Relaxed) {
            return false;
        }
        self.taken.store(taken, Ordering::Relaxed);
        true
    }

    /// A new area with this number of cells, for this slot. It is not yet in the list of its region.
    #[cold]
    fn new_area(&self, slot: usize, cells: usize) -> Option<&Area> {
        let place = self.regions.get(slot >> REGION_SHIFT)?;
        if place.load(Ordering::Relaxed).is_null() {
            if !self.charge(REGION_RESIDENT) {
                return None;
            }
            let memory = mmap::reserve(size_of::<Region>())?;
            // Release: a reader that sees the region sees zeroes.
            place.store(memory.as_ptr().cast(), Ordering::Release);
        }
        let header = core::mem::offset_of!(Area, cells);
        let len = cells.saturating_mul(size_of::<u64>()).saturating_add(header).next_multiple_of(CACHE_LINE);
        // The whole structure is in the arena, also the part that is another area's.
        let has_room = self.used.load(Ordering::Relaxed).saturating_add(size_of::<Area>()) <= ARENA_BYTES;
        if !has_room && !self.extend() || !self.charge(len) {
            return None;
        }
        let at = self.used.fetch_add(len, Ordering::Relaxed);
        // SAFETY: inside the newest arena, at a multiple of what an area is aligned to.
        let area = unsafe { self.arenas.load(Ordering::Relaxed).byte_add(at).cast::<Area>() };
        // SAFETY: zeroed memory is an area.
        let empty = unsafe { &*area };
        empty.next.store(self.first.load(Ordering::Relaxed), Ordering::Relaxed);
        empty.base.store(slot & !(AREA_BYTES - 1), Ordering::Relaxed);
        empty.room.store(cells as u32, Ordering::Relaxed);
        self.first.store(area, Ordering::Release);
        Some(empty)
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
            // SAFETY: mapped in `extend`, and read for the last time; no other thread reads it.
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
mod tests;
