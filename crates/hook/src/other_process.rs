//! Reads what the hook of another process had followed, from the memory in its core file
//! ([`HookApi::other_process`]).
//!
//! Both processes have the same library, so each static has the same offset and layout. No other thread uses
//! that memory, so this opens the locks that threads of that process had taken.
//!
//! [`HookApi::other_process`]: memintro_abi::HookApi::other_process

use core::mem::offset_of;
use core::ptr;

use memintro_abi::{BlockRecord, OtherProcess, OtherState, SiteRecord, VmWords};

use memintro_tracker::table::Removed;

use crate::figures;
use crate::sampling::SAMPLES;
use crate::shared::{self, IN_BAND_RECORDS, SITES, TABLE};

/// The other process' counterpart of a static.
///
/// # Safety
/// Its data is mapped at the addresses that it had there, for reading and writing.
unsafe fn moved<T: Sync>(own: &'static T, moved: usize) -> &'static T {
    let address = ptr::from_ref(own).expose_provenance().wrapping_add(moved);
    // SAFETY: the caller's.
    unsafe { &*ptr::with_exposed_provenance::<T>(address) }
}

pub(crate) unsafe extern "C" fn visit(other: *const OtherProcess, state: *mut OtherState) {
    // SAFETY: the caller's own records, and the memory that it has mapped.
    let (other, state) = unsafe { (&*other, &mut *state) };
    // SAFETY: as above.
    let (table, samples, sites, in_band) = unsafe {
        (
            moved(&TABLE, other.moved),
            moved(&SAMPLES, other.moved),
            moved(&SITES, other.moved),
            moved(&IN_BAND_RECORDS, other.moved),
        )
    };
    // SAFETY: as above.
    let shared::Other { mode, is_lost, words } =
        unsafe { shared::of_other_process(|own| own.wrapping_add(other.moved)) };
    let generation = words.and_then(|words| generation(other, words));
    *state = OtherState {
        mode,
        is_lost: u32::from(is_lost),
        generation: generation.unwrap_or(0),
        knows_generation: u32::from(generation.is_some()),
        changing: 0,
    };
    if mode == 0 || is_lost {
        return;
    }
    state.changing = table.force_open() as u64 + u64::from(samples.force_open());
    let add = |address: usize, size: u64, site: u32, age: u32| {
        let site = sites.leaf_of(site);
        let record = BlockRecord { address: address as u64, size, site, age, weight: 1.0 };
        // SAFETY: the caller's own callback and context.
        unsafe { (other.block)(other.context, &raw const record) };
    };
    let now = state.generation;
    let mut each = |address: usize, block: Removed| add(address, block.size, block.site, block.age);
    table.for_each(now, &mut each);
    if in_band.is_on() {
        let read = |address: usize| {
            let mut word = 0;
            // SAFETY: the caller's own callback and context.
            unsafe { (other.word)(other.context, address, &raw mut word) }.then_some(word as u64)
        };
        in_band.for_each(false, now, read, &mut each);
    }
    samples.for_each(&mut |address, block| add(address, block.size, block.site, block.age(now)));
    for id in 0..sites.count() {
        let Some(site) = sites.get(id) else { continue };
        let (path, path_len) = site.path();
        // SAFETY: all of it are numbers or addresses, for which zero is valid.
        let mut record: SiteRecord = unsafe { core::mem::zeroed() };
        (record.id, record.kind, record.line) = (id, figures::kind(site), site.line());
        (record.path, record.path_len, record.module_offset) = (path, path_len, site.offset());
        // SAFETY: the caller's own callback and context.
        unsafe { (other.site)(other.context, &raw const record) };
    }
}

/// Number of collections, where Ruby keeps it; `None` if that is not known. `words`: the address of what Ruby has lent.
fn generation(other: &OtherProcess, words: usize) -> Option<u32> {
    let word = |address: usize| {
        let mut word = 0;
        // SAFETY: the caller's own callback and context.
        unsafe { (other.word)(other.context, address, &raw mut word) }.then_some(word)
    };
    let field = |distance: usize| word(words.checked_add(distance)?).filter(|value| *value != 0);
    match field(offset_of!(VmWords, collections)) {
        Some(collections) => Some(word(collections)? as u32),
        None => Some(field(offset_of!(VmWords, last_marked))?.wrapping_sub(1) as u32),
    }
}
