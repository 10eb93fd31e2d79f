//! The call sites of the VM's objects, in a table apart from that of blocks.
//!
//! The extension reports them by events of the VM. An object counts with the bytes of its slot. Its memory
//! from malloc is a block, which was counted when it was allocated, so no byte counts twice.
//!
//! Objects that memintro makes for itself, with tracking off in its thread, are left out.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memintro_abi::{
    BlockRecord, Estimated, Frame, Judge, MarkedPage, OBJECT_IS_DEAD, OBJECT_IS_OLD, ObjectFigures, PageOf,
    Status,
};
use memintro_tracker::estimate;
use memintro_tracker::lock::wait_round;
use memintro_tracker::objects::{Fate, Page};
use memintro_tracker::sites::{SiteObjects, objects_of};
use memintro_tracker::table::{Block, Inserted, Removed};
use memintro_tracker::threads::{Busy, ThreadState, bump};

use crate::object_samples::{self, OBJECT_SAMPLES};
use crate::record;
use crate::shared::{self, ACTIVE, OBJECTS, SITES, THREADS, TRACKS_OBJECTS};
use crate::state;
use crate::thread;

/// Sleeps of 50 µs for which an event waits while figures are read. Readers hold the VM's lock, as events do, so only a
/// fork or a dump at exit is waited for.
const PATIENCE: u32 = 2_000;

/// An end or a move was not noted: it is unknown whether each tracked object is in its slot.
static IS_STALE: AtomicBool = AtomicBool::new(false);

/// Starts or stops tracking objects: one in so many if `mean` is not 0. The figures of objects stay readable.
/// The live objects are forgotten, because their ends will not be reported.
pub(crate) fn track(on: bool, mean: u64) -> Status {
    let done = state::paused(|_| {
        TRACKS_OBJECTS.store(false, Ordering::Relaxed);
        OBJECTS.clear();
        OBJECT_SAMPLES.forget();
        IS_STALE.store(false, Ordering::Relaxed);
        object_samples::set_mean(mean);
        state::take_room_from_objects();
        if on {
            // The ends of objects that were tracked before were not reported.
            shared::flush();
            SITES.reset_objects();
            OBJECT_SAMPLES.clear();
        }
        if on && !state::make_room_for_objects() {
            return Status::NO_MEMORY;
        }
        TRACKS_OBJECTS.store(on, Ordering::Relaxed);
        Status::OK
    });
    done.unwrap_or_else(|| state::done(done))
}

fn enter(own: &ThreadState) -> Option<Busy<'_>> {
    let mut rounds = 0;
    loop {
        if let Some(busy) = THREADS.enter(own) {
            return Some(busy);
        }
        if own.is_busy() || !wait_round(&mut rounds, PATIENCE) {
            return None;
        }
    }
}

#[inline(always)]
pub(crate) fn is_tracking() -> bool {
    TRACKS_OBJECTS.load(Ordering::Relaxed) && ACTIVE.load(Ordering::Relaxed) != 0
}

/// An object was made. The frame is that of the running line, if its key is not 0.
pub(crate) fn made(slot: usize, bytes: usize, frame: &mut Frame) {
    let Some(own) = thread::own().filter(|_| is_tracking()) else { return };
    let Some(busy) = enter(&own) else {
        bump(&own.traffic.dropped, 1);
        return;
    };
    if is_tracking() {
        if own.untracked.get() == 0 {
            let (site, generation) = record::object_site(&own, frame);
            born(&own, slot, bytes as u64, site, generation);
        } else if let Some(old) = OBJECTS.remove(slot, shared::generation()) {
            // The earlier record of the slot is stale.
            died(&own, &old, shared::generation());
        }
    }
    drop(busy);
}

/// A sampled object was made. Returns how many are passed over before the next one.
pub(crate) fn drawn(slot: usize, bytes: usize) -> u64 {
    if let Some(own) = thread::own().filter(|_| is_tracking() && object_samples::is_on()) {
        let Some(busy) = enter(&own) else {
            bump(&own.traffic.dropped, 1);
            return object_samples::distance();
        };
        if is_tracking() && own.untracked.get() == 0 {
            let (site, generation) = record::site(&own, 0);
            object_samples::born(&own, slot, bytes as u64, site, generation);
        }
        drop(busy);
    }
    object_samples::distance()
}

fn born(own: &ThreadState, slot: usize, bytes: u64, site: u32, generation: u32) {
    let object = Block { site, size: bytes, generation };
    match OBJECTS.insert(slot, object, generation, |old| died(own, old, generation)) {
        Inserted::New => {}
        Inserted::Replaced(old) => died(own, &old, generation),
        Inserted::Full => {
            bump(&own.traffic.dropped, 1);
            return;
        }
    }
    let is_due = own.counters.allocated(objects_of(site), bytes, generation, |id| SITES.counters(id));
    if is_due.is_some()
        && let Some(objects) = SITES.objects(site)
    {
        // Objects have no native callers to sample, so a due sample is ignored.
        objects.counters.put_off();
    }
}

#[inline]
fn died(own: &ThreadState, object: &Removed, now: u32) {
    died_together(own, object, 1, now);
}

/// This number of like objects was freed.
#[inline]
fn died_together(own: &ThreadState, object: &Removed, count: u32, now: u32) {
    let Removed { site, size, age } = *object;
    own.counters.freed_together(objects_of(site), size, count, age, now, |id| SITES.counters(id));
}

/// An object was freed.
pub(crate) fn freed(slot: usize) {
    let Some(own) = thread::own().filter(|_| is_tracking()) else { return };
    let Some(busy) = enter(&own) else {
        bump(&own.traffic.dropped, 1);
        IS_STALE.store(true, Ordering::Relaxed);
        return;
    };
    if is_tracking() {
        let now = shared::generation();
        if object_samples::is_on() {
            object_samples::died(slot, now);
        } else if let Some(object) = OBJECTS.remove(slot, now) {
            died(&own, &object, now);
        }
    }
    drop(busy);
}

/// The VM's functions that return the results of a marking, and their context.
pub(crate) struct Vm {
    pub(crate) context: *mut c_void,
    pub(crate) judge: Judge,
    pub(crate) page: Option<PageOf>,
}

impl memintro_tracker::objects::Judge for Vm {
    fn fate(&mut self, slot: usize) -> Fate {
        // SAFETY: the lender's own function and context.
        match unsafe { (self.judge)(self.context, slot) } {
            OBJECT_IS_DEAD => Fate::Dead,
            OBJECT_IS_OLD => Fate::Old,
            _ => Fate::Young,
        }
    }

    fn page(&mut self, slot: usize) -> Option<Page> {
        let mut page = MarkedPage { begin: 0, bytes: 0, unit: 0, marked: ptr::null(), old: ptr::null() };
        // SAFETY: as above.
        if !unsafe { self.page?(self.context, slot, &raw mut page) } {
            return None;
        }
        let MarkedPage { begin, bytes, unit, marked, old } = page;
        Some(Page { begin, bytes, unit, marked, old })
    }
}

/// A marking has ended: asks the VM about each object that may have died. `BUSY`: a reading of figures took
/// too long, so only some objects were checked, or an end or a move was not noted.
pub(crate) fn marked(all: bool, vm: &mut Vm) -> Status {
    let Some(own) = thread::own() else { return Status::NO_MEMORY };
    if IS_STALE.swap(false, Ordering::Relaxed) {
        return Status::BUSY;
    }
    let mut areas = OBJECTS.areas();
    while is_tracking() {
        // A thread that wants to pause the world waits for one area only.
        let Some(busy) = enter(&own) else { return Status::BUSY };
        let now = shared::generation();
        let is_more = areas.settle(all, now, vm, |object, count| died_together(&own, object, count, now));
        drop(busy);
        if !is_more {
            break;
        }
    }
    Status::OK
}

/// An object has moved to another slot, whose last object was freed before.
pub(crate) fn moved(from: usize, to: usize) {
    let Some(own) = thread::own().filter(|_| is_tracking()) else { return };
    let Some(busy) = enter(&own) else {
        bump(&own.traffic.dropped, 1);
        IS_STALE.store(true, Ordering::Relaxed);
        return;
    };
    let now = shared::generation();
    if object_samples::is_on() {
        object_samples::moved(&own, from, to, now);
    } else if let Some(object) = OBJECTS.remove(from, now) {
        let Removed { site, size, age } = object;
        let moved = Block { site, size, generation: now.wrapping_sub(age) };
        match OBJECTS.insert(to, moved, now, |stale| died(&own, stale, now)) {
            Inserted::New => {}
            Inserted::Replaced(stale) => died(&own, &stale, now),
            Inserted::Full => {
                bump(&own.traffic.dropped, 1);
                died(&own, &object, now);
            }
        }
    }
    drop(busy);
}

/// Visits the live objects.
pub(crate) fn each(visit: &mut dyn FnMut(&BlockRecord)) -> Status {
    let now = shared::generation();
    state::done(state::paused_anywhere(|_| {
        object_samples::each(now, visit);
        OBJECTS.for_each(now, &mut |slot, object| {
            visit(&BlockRecord {
                address: slot as u64,
                size: object.size,
                site: SITES.leaf_of(object.site),
                age: object.age,
                weight: 1.0,
            });
        });
    }))
}

/// Adds the figures of a site's objects. The world is paused, and all threads' counters are flushed.
#[inline(never)]
pub(crate) fn add(sum: &mut ObjectFigures, id: u32, now: u32) {
    let Some(SiteObjects { counters, marked_bytes }) = SITES.objects(id) else { return };
    let exact = |counter: &AtomicU64| Estimated::exact(counter.load(Ordering::Relaxed));
    let (allocations, frees) = (exact(&counters.allocations), exact(&counters.frees));
    let (total_bytes, freed_bytes) = (exact(&counters.total_bytes), exact(&counters.freed_bytes));
    let (young_objects, young_bytes) = counters.young(now);
    let young = |young: i64| Estimated::exact(young.cast_unsigned());
    sum.allocations.add(&allocations);
    sum.frees.add(&frees);
    sum.total_bytes.add(&total_bytes);
    sum.freed_bytes.add(&freed_bytes);
    sum.marked_bytes = sum.marked_bytes.wrapping_add(marked_bytes.load(Ordering::Relaxed));
    sum.old_objects.add(&estimate::old(&allocations, &frees, &young(young_objects)));
    sum.old_bytes.add(&estimate::old(&total_bytes, &freed_bytes, &young(young_bytes)));
    object_samples::add(id, sum, now);
}
