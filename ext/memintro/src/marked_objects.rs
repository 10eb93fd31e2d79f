//! The ends of all tracked objects, told at the end of each marking ([`crate::markings`]): those that are not marked are
//! dead ([`crate::mark_bits`] has where their marks are). Ruby's event for each object that it frees would cost more than half as much again as its event for new ones.
//!
//! A collection that looks at young objects only leaves old ones alone, and so does this.
//!
//! If a collection was not told, as one of another Ractor is not, the memory of a slot may be gone. Then no marks are read
//! any more: as soon as Ruby may be asked for its heap, what is not there any more counts as freed, and from then on Ruby
//! tells of each object that it frees.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use memintro_abi::{HookApi, OBJECT_IS_DEAD, OBJECT_IS_OLD, OBJECT_IS_YOUNG, Status};
use rb_sys::VALUE;

use crate::heap::{self, FrozenPage};
use crate::hook_link;
use crate::lookup::postponing::Postponed;
use crate::mark_bits;
use crate::markings::{self, Mark, Markings};
use crate::object_events::{self, FREED, Functions, MARKED};
use crate::objects::{Refusal, objects, on_freed};

/// Whether marks tell of the ends.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Ruby did not report a collection.
static HAS_MISSED: AtomicBool = AtomicBool::new(false);
static POSTPONED: OnceLock<Option<Postponed>> = OnceLock::new();

/// Listens for markings. `false`: this Ruby cannot be asked for marks.
pub(crate) fn begin(vm: &Functions) -> Result<bool, Refusal> {
    let (Some(markings), Some(_)) = (markings::begin(), POSTPONED.get_or_init(|| Postponed::new(run))) else {
        return Ok(false);
    };
    mark_bits::prepare();
    HAS_MISSED.store(false, Ordering::Relaxed);
    vm.listen(on_marked, MARKED).map_err(Refusal::Raised)?;
    markings.forget_missed();
    IS_ON.store(true, Ordering::Relaxed);
    Ok(true)
}

/// Hears of no marking any more.
pub(crate) fn end(vm: &Functions) {
    IS_ON.store(false, Ordering::Relaxed);
    vm.ignore(on_marked);
}

/// Whether marks tell of the ends of objects, and not an event for each.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed) && !HAS_MISSED.load(Ordering::Relaxed)
}

unsafe extern "C" fn on_marked(_: VALUE, _: *mut c_void) {
    if !is_on() {
        return;
    }
    let (Some(api), Some(markings)) = (hook_link::found(), markings::found()) else { return };
    let context = (&raw const *markings).cast_mut().cast();
    mark_bits::begin();
    // SAFETY: the judge fits the context.
    let is_done = markings::is_next()
        && unsafe { (api.objects_marked)(markings.is_major(), context, judge, Some(mark_bits::page)) }
            == Status::OK;
    if is_done {
        mark_bits::learn(markings);
    } else {
        miss();
    }
}

unsafe extern "C" fn judge(context: *mut c_void, slot: usize) -> u32 {
    // SAFETY: the context of `on_marked`; no marking was missed, so the tracked object is in its slot.
    let mark = unsafe { (*context.cast_const().cast::<Markings>()).mark(slot) };
    mark_bits::note(slot, mark);
    match mark {
        Mark::Garbage => OBJECT_IS_DEAD,
        Mark::Lives => OBJECT_IS_YOUNG,
        Mark::LivesOn => OBJECT_IS_OLD,
    }
}

/// It is unknown whether each tracked object is in its slot.
pub(crate) fn miss() {
    HAS_MISSED.store(true, Ordering::Relaxed);
    if let Some(Some(postponed)) = POSTPONED.get() {
        postponed.ask();
    }
}

/// The postponed job.
unsafe extern "C" fn run(_: *mut c_void) {
    if let Some(api) = hook_link::found() {
        catch_up(api);
    }
}

/// Makes sure that each tracked object is in its slot. Under the GVL, outside of a collection.
pub(crate) fn check(api: &HookApi) {
    if IS_ON.load(Ordering::Relaxed) {
        catch_up(api);
    } else {
        forget_freed(api);
    }
}

/// If a collection was not told, has each end told from now on, and forgets those that were missed.
fn catch_up(api: &HookApi) {
    let (Some(vm), Some(markings)) = (object_events::found(), markings::found()) else { return };
    let has_missed = HAS_MISSED.load(Ordering::Relaxed) || markings.has_missed_one();
    if !has_missed || !IS_ON.load(Ordering::Relaxed) {
        return;
    }
    HAS_MISSED.store(true, Ordering::Relaxed);
    // The event for frees is turned on first, so that none is missed while the heap is read.
    if vm.listen(on_freed, FREED).is_ok() {
        end(vm);
        forget_freed(api);
    }
}

/// Forgets the tracked objects whose slot is free, or is in no page of the heap any more. Ruby ends its collection first.
fn forget_freed(api: &HookApi) {
    (api.untracked_enter)();
    let mut pages: Vec<FrozenPage> = Vec::new();
    if heap::list_pages_alone(|page| pages.push(page)).is_ok() {
        pages.sort_unstable_by_key(|page| page.start);
        for object in objects(api).unwrap_or_default() {
            let slot = object.address as usize;
            let after = pages.partition_point(|page| page.start <= slot);
            let page = after.checked_sub(1).and_then(|at| pages.get(at)).filter(|page| slot < page.end);
            if !page.is_some_and(|page| page.is_object(slot)) {
                (api.object_freed)(slot);
            }
        }
    }
    (api.untracked_leave)();
}
