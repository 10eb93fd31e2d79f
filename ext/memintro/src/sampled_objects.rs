//! A sample of Ruby's objects: one in so many is followed ([`crate::objects`] follows all of them).
//!
//! An object that is not drawn is counted down, and no more. Ruby is not asked to tell of each object that it frees.
//! Instead, the sampled objects are looked at when a marking has ended ([`crate::markings`]).
//!
//! If a marking was not told, it is unknown which of the sampled objects live, and they are forgotten.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memintro_abi::{HookApi, OBJECT_IS_YOUNG, Status};
use rb_sys::VALUE;

use crate::hook_link;
use crate::markings::{self, Mark};
use crate::object_events::{self, Functions, MADE, MARKED};
use crate::objects::{Refusal, objects};

/// By default, one object in this many is sampled.
pub(crate) const MEAN: u64 = 512;

/// How many objects are passed over before the next one that is sampled. It is changed with the VM's lock only.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// Not all sampled objects could be looked at when it was due: it is unknown whether each is in its slot.
static IN_DOUBT: AtomicBool = AtomicBool::new(false);

/// Samples one object in this many from now on. The event for markings is turned on first and off last.
pub(crate) fn begin(api: &HookApi, vm: &Functions, mean: u64) -> Result<Status, Refusal> {
    let Some(markings) = markings::begin() else { return Err(Refusal::Missing) };
    vm.listen(on_marked, MARKED).map_err(Refusal::Raised)?;
    markings.forget_missed();
    IN_DOUBT.store(false, Ordering::Relaxed);
    let status = (api.sample_objects)(mean);
    LEFT.store((api.object_distance)(), Ordering::Relaxed);
    let listening = if status == Status::OK { vm.listen(on_made, MADE) } else { Ok(()) };
    listening.map(|()| status).map_err(Refusal::Raised)
}

/// Hears of no object any more.
pub(crate) fn end(vm: &Functions) {
    vm.ignore(on_made);
    vm.ignore(on_marked);
}

unsafe extern "C" fn on_made(_: VALUE, argument: *mut c_void) {
    let left = LEFT.load(Ordering::Relaxed);
    if left != 0 {
        LEFT.store(left - 1, Ordering::Relaxed);
        return;
    }
    // SAFETY: the argument of an event.
    unsafe { drawn(argument) };
}

#[cold]
unsafe fn drawn(argument: *mut c_void) {
    let (Some(api), Some(vm)) = (hook_link::found(), object_events::found()) else { return };
    // SAFETY: the argument of an event, and the object is in its slot.
    let (object, bytes) = unsafe {
        let object = vm.object(argument);
        (object, vm.slot_bytes(object))
    };
    LEFT.store((api.object_drawn)(object as usize, bytes), Ordering::Relaxed);
}

/// A marking has ended, and sweeping has not begun.
unsafe extern "C" fn on_marked(_: VALUE, _: *mut c_void) {
    let (Some(api), Some(markings)) = (hook_link::found(), markings::found()) else { return };
    let is_known = markings::is_next() && !is_in_doubt(api);
    // SAFETY: all sweeping of earlier collections is over, and each of them was looked at.
    forget(api, |slot| is_known && unsafe { markings.mark(slot) } != Mark::Garbage);
}

/// Forgets the sampled objects if a collection of which Ruby did not tell has swept. To be called before anything looks
/// at them.
pub(crate) fn check(api: &HookApi) {
    let Some(markings) = markings::found() else { return };
    if markings.has_missed_one() || is_in_doubt(api) {
        markings.forget_missed();
        forget(api, |_| false);
    }
}

/// As [`check`], where a marking has ended for sure.
pub(crate) fn check_when_moved(api: &HookApi) {
    if !markings::is_told() {
        forget(api, |_| false);
    }
}

/// The sampled objects could not be read.
pub(crate) fn doubt() {
    IN_DOUBT.store(true, Ordering::Relaxed);
}

/// Whether a slot may have lost its object unseen: objects could not be read, or the hook could not note an end or a move.
fn is_in_doubt(api: &HookApi) -> bool {
    unsafe extern "C" fn judge(_: *mut c_void, _: usize) -> u32 {
        OBJECT_IS_YOUNG
    }
    // There is none whose ends marks tell of, so that nothing is judged.
    // SAFETY: the judge takes any context.
    let is_noted = unsafe { (api.objects_marked)(true, std::ptr::null_mut(), judge, None) } == Status::OK;
    !is_noted || IN_DOUBT.load(Ordering::Relaxed)
}

fn forget(api: &HookApi, is_alive: impl Fn(usize) -> bool) {
    (api.untracked_enter)();
    let sampled = objects(api);
    IN_DOUBT.store(sampled.is_err(), Ordering::Relaxed);
    for object in sampled.unwrap_or_default() {
        if !is_alive(object.address as usize) {
            (api.object_freed)(object.address as usize);
        }
    }
    (api.untracked_leave)();
}
