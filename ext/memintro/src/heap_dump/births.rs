//! Which line made each object, and in which generation, where objects are tracked.
//!
//! The host reads the call sites before the copy is made, because that waits for other threads. The copy reads the
//! objects, which only change with the VM's lock; it keeps 8 bytes for each slot of the heap.

use std::ffi::c_void;

use memintro_abi::{BlockRecord, HookApi, SiteKind, SiteRecord, Status};

use super::output::Output;
use crate::copy::own_memory::slice;
use crate::heap::FrozenPage;
use crate::{hook_link, objects, vm};

/// Ages from here on are not known.
const MOST_AGE: u32 = 131_071;

/// A line, as the hook keeps it until the next start or clear.
#[derive(Clone, Copy)]
struct Place {
    path: *const u8,
    length: u32,
    line: u32,
}

/// The lines of call sites, by their numbers.
pub(super) struct Sites {
    api: &'static HookApi,
    places: Vec<Option<Place>>,
}

impl Sites {
    /// `None` unless objects are tracked. `Err` if the hook cannot be read now.
    pub(super) fn read() -> Result<Option<Self>, Status> {
        let Some(api) = hook_link::found().filter(|_| objects::is_on()) else { return Ok(None) };
        objects::check(api);
        let mut places = Vec::new();
        // SAFETY: the callback fits the record, and its context outlives the visit.
        let status = unsafe { (api.sites)((&raw mut places).cast(), add_site) };
        if status == Status::OK { Ok(Some(Self { api, places })) } else { Err(status) }
    }
}

unsafe extern "C" fn add_site(context: *mut c_void, record: *const SiteRecord) {
    // SAFETY: the context is that of `read`, and the record is valid during the visit.
    let (places, record) = unsafe { (&mut *context.cast::<Vec<Option<Place>>>(), &*record) };
    if record.kind != SiteKind::RUBY || record.stack != 0 || record.path.is_null() {
        return;
    }
    let number = record.id as usize;
    if number >= places.len() {
        places.resize(number + 1, None);
    }
    if let Some(place) = places.get_mut(number) {
        *place = Some(Place { path: record.path, length: record.path_len, line: record.line });
    }
}

/// The births of all objects. All of it is the copy's.
pub(super) struct Births<'a> {
    sites: &'a Sites,
    /// For each page, where its slots begin in `cells`.
    starts: &'static [usize],
    /// 0, or the age plus one in the upper half and the call site in the lower one.
    cells: &'static mut [u64],
    pages: &'a [FrozenPage],
    /// The page of the object before.
    recent: usize,
    /// The generation now.
    generation: u32,
    /// How many objects one that is followed stands for.
    one_in: u64,
}

impl<'a> Births<'a> {
    /// In the copy. `None` if another thread was recording at its instant, or there is no memory.
    pub(super) fn read(sites: &'a Sites, pages: &'a [FrozenPage]) -> Option<Self> {
        let starts = slice::<usize>(pages.len())?;
        let mut slots = 0;
        for (start, page) in starts.iter_mut().zip(pages) {
            *start = slots;
            slots += (page.end - page.start).div_ceil(page.stride);
        }
        let generation = vm::gc_count().unwrap_or_default() as u32;
        let cells = slice(slots)?;
        let mut births = Self { sites, starts, cells, pages, recent: 0, generation, one_in: 1 };
        // SAFETY: the callback fits the record, and its context outlives the visit.
        let status = unsafe { (sites.api.objects)((&raw mut births).cast(), add_object) };
        (status == Status::OK).then_some(births)
    }

    fn add(&mut self, object: &BlockRecord) {
        let Ok(address) = usize::try_from(object.address) else { return };
        let is_in = |page: &FrozenPage| (page.start..page.end).contains(&address);
        if !self.pages.get(self.recent).is_some_and(is_in) {
            self.recent = self.pages.partition_point(|page| page.start <= address).saturating_sub(1);
        }
        let (Some(page), Some(start)) = (self.pages.get(self.recent), self.starts.get(self.recent)) else {
            return;
        };
        let index = address.wrapping_sub(page.start) / page.stride;
        if is_in(page)
            && let Some(cell) = self.cells.get_mut(start + index)
        {
            *cell = (u64::from(object.age) + 1) << 32 | u64::from(object.site);
            self.one_in = self.one_in.max(object.weight as u64);
        }
    }

    /// Members of the first line.
    pub(super) fn head(&self, out: &mut Output<'_>) {
        out.bytes(b", \"generation\":");
        out.number(u64::from(self.generation));
        if self.one_in > 1 {
            out.bytes(b", \"one_in\":");
            out.number(self.one_in);
        }
    }

    /// Members of the line of the object in this slot of this page, if its birth is known.
    #[inline]
    pub(super) fn write(&self, page: usize, slot: usize, out: &mut Output<'_>) {
        let cell = self.starts.get(page).and_then(|start| self.cells.get(start + slot));
        let Some(cell @ 1..) = cell.copied() else { return };
        if let Some(Some(place)) = self.sites.places.get((cell & 0xffff_ffff) as usize) {
            out.bytes(b", \"file\":\"");
            // SAFETY: the hook keeps the path; in the copy its figures are not cleared.
            out.inner_text(unsafe { std::slice::from_raw_parts(place.path, place.length as usize) });
            out.bytes(b"\", \"line\":");
            out.number(u64::from(place.line));
        }
        let age = (cell >> 32) as u32 - 1;
        if age < MOST_AGE {
            out.bytes(b", \"generation\":");
            out.number(u64::from(self.generation.saturating_sub(age)));
        }
    }
}

unsafe extern "C" fn add_object(context: *mut c_void, record: *const BlockRecord) {
    // SAFETY: the context is that of `read`, and the record is valid during the visit.
    unsafe { (*context.cast::<Births<'_>>()).add(&*record) };
}
