//! Attributes blocks that the collector has allocated to lines: each to the line of the object whose contents
//! it holds.
//!
//! Some VMs keep the contents of young objects in memory of their own, and move those that outlive a
//! collection into malloc. malloc does not know their owner. When figures are read, each object can tell
//! where its contents are, and the line of its birth is known. So before a reading, a block's record gets
//! that line's site, and its figures move from `(gc)` to that line. Sums of the process do not change.
//!
//! This visits each tracked object, in steps of about a millisecond, and other threads record between two
//! steps. It is skipped if the collector has allocated nothing since the last time.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use memintro_abi::{BlockFigures, ContentsOf, MOST_PLACES_OF_CONTENTS, SITE_GC, Status};
use memintro_tracker::objects::Areas;
use memintro_tracker::table::{Block, Removed};
use memintro_tracker::threads::ThreadState;

use crate::apply::{Lookup, Origin, put_back, take_block};
use crate::figures;
use crate::object_samples;
use crate::objects::is_tracking;
use crate::sampling::SAMPLES;
use crate::shared::{self, FOLLOWED, IN_BAND_RECORDS, LOOKED_AT, OBJECTS, SITES, TABLE};
use crate::{state, thread};

/// Objects that one pause visits, plus the rest of their area: about a millisecond.
const MOST_VISITS: u32 = 1 << 14;

/// The address that the VM gives for an object's contents.
struct Vm {
    context: *mut c_void,
    contents: ContentsOf,
}

impl Vm {
    /// `None`: the object has none outside of its slot.
    fn places(&self, slot: usize) -> Option<[usize; MOST_PLACES_OF_CONTENTS]> {
        let mut places = [0; MOST_PLACES_OF_CONTENTS];
        // SAFETY: the lender's own function and context, and a place for its answer.
        unsafe { (self.contents)(self.context, slot, &raw mut places) }.then_some(places)
    }
}

/// See [`memintro_abi::HookApi::contents_to_lines`].
pub(crate) fn to_lines(context: *mut c_void, contents: ContentsOf) -> Status {
    if !is_tracking() || object_samples::is_on() {
        return Status::UNCHANGED;
    }
    let Some(own) = thread::own() else { return Status::NO_MEMORY };
    let is_wanted = state::paused(|_| {
        let (allocations, live) = of_collector();
        live != 0 && allocations != LOOKED_AT.load(Ordering::Relaxed)
    });
    if is_wanted != Some(true) {
        return if is_wanted.is_some() { Status::UNCHANGED } else { state::done(is_wanted) };
    }
    let (vm, mut areas) = (Vm { context, contents }, OBJECTS.areas());
    loop {
        match state::paused(|_| step(&own, &vm, &mut areas)) {
            Some(true) => {}
            Some(false) => return Status::OK,
            None => return state::done(None::<()>),
        }
    }
}

/// Allocations of the collector, and its live blocks.
fn of_collector() -> (u64, u64) {
    shared::flush();
    SITES.get(SITE_GC).map_or((0, 0), |site| {
        let mut sum = BlockFigures::default();
        figures::add_site(&mut sum, SITE_GC, site);
        (sum.allocations.value, sum.allocations.value.wrapping_sub(sum.frees.value))
    })
}

/// Visits the next areas; `false`: all have been visited. The world is paused.
fn step(own: &ThreadState, vm: &Vm, areas: &mut Areas<'_>) -> bool {
    let now = shared::generation();
    let (mut is_more, mut visited) = (is_tracking(), 0_u32);
    while is_more && visited < MOST_VISITS {
        is_more = areas.look(now, &mut |slot, object| {
            visited = visited.wrapping_add(1);
            let mut find = |place: usize| place != 0 && give(own, place, object.site, now);
            vm.places(slot).is_none_or(|places| places.into_iter().any(&mut find))
        });
    }
    if !is_more {
        LOOKED_AT.store(of_collector().0, Ordering::Relaxed);
    }
    is_more
}

/// Attributes a block to a site, if the collector allocated it. `false`: no block is known there.
fn give(own: &ThreadState, address: usize, site: u32, now: u32) -> bool {
    let put_elsewhere = |block: &Removed| {
        count(address, block, site, now);
        put_back(Origin::of_thread(own), &Lookup::Followed(Removed { site, ..*block }), address, now);
    };
    if IN_BAND_RECORDS.is_on() && IN_BAND_RECORDS.has(address) {
        // SAFETY: the contents of an object, which its VM leaves alone until the caller lets go of its lock.
        let Some(block) = (unsafe { IN_BAND_RECORDS.get(address, now) }) else { return true };
        let again = Block { site, size: block.size, generation: now.wrapping_sub(block.age) };
        let is_meant = block.site == SITE_GC;
        // SAFETY: as above, and its record is whole.
        if is_meant && unsafe { IN_BAND_RECORDS.rewrite(address, &again) } {
            count(address, &block, site, now);
        } else if is_meant && IN_BAND_RECORDS.forget(address) {
            put_elsewhere(&block);
        }
        return true;
    }
    if let Some(block) = TABLE.get(address, now) {
        if block.site == SITE_GC
            && let Some(block) = take_block(address, now)
        {
            put_elsewhere(&block);
        }
        return true;
    }
    !SAMPLES.is_empty() && SAMPLES.give(address, SITE_GC, site, now)
}

fn count(address: usize, block: &Removed, site: u32, now: u32) {
    // The sample of its native caller does not belong to that line.
    FOLLOWED.freed(address as u64);
    if let (Some(from), Some(to)) = (SITES.counters(SITE_GC), SITES.counters(site)) {
        from.give(to, block.size, (block.age == 0).then_some(now));
    }
}
