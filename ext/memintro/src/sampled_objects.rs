//! A sample of Ruby's objects: one in so many is followed ([`crate::objects`] follows all of them).
//!
//! An object that is not drawn is counted down, and no more. Ruby is not asked to tell of each object that it frees.
//! Instead, the sampled objects are looked at when a marking has ended: nothing of this collection has been swept then,
//! and all of the one before it has. So each sampled object is still in its slot, and is garbage if it is not marked. No
//! slot can have been used again in between.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_obj_gc_flags` | yes | yes | yes | objects are not sampled |
//! | `rb_gc_latest_gc_info` | yes | yes | yes | the same |
//!
//! Ruby tells of the markings of the main Ractor only. If another one has collected, nobody knows which of the sampled
//! objects live, and they are forgotten. Numbers of collections show that.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use memintro_abi::{HookApi, Status};
use rb_sys::{ID, VALUE};

use crate::lookup::{self, look_up};
use crate::object_events::{self, Functions, MADE, MARKED};
use crate::objects::{Refusal, objects};
use crate::{hook_link, vm};

/// One object in so many is sampled by default.
pub(crate) const MEAN: u64 = 512;

type Flags = unsafe extern "C" fn(VALUE, *mut ID, usize) -> usize;
type Info = unsafe extern "C" fn(VALUE) -> VALUE;

const NEEDED: [&CStr; 2] = [c"rb_obj_gc_flags", c"rb_gc_latest_gc_info"];
const MOST_FLAGS: usize = 16;

/// What looking at sampled objects needs.
struct Looking {
    flags: Flags,
    info: Info,
    /// `marked`, as a flag.
    marked: ID,
    /// `:state` and `:marking`.
    state: VALUE,
    marking: VALUE,
}

static LOOKING: OnceLock<Option<Looking>> = OnceLock::new();
/// How many objects are passed over before the next one that is sampled. It is changed with the VM's lock only.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// The last collection whose marked objects were looked at.
static LOOKED: AtomicUsize = AtomicUsize::new(0);

/// What this Ruby lacks for samples of objects.
pub(crate) fn missing() -> Vec<&'static str> {
    lookup::missing(&NEEDED)
}

fn find() -> Option<Looking> {
    // SAFETY: functions of these types in every Ruby that has them. Symbols of static names are never collected.
    unsafe {
        let symbol = |name: &CStr| rb_sys::rb_id2sym(rb_sys::rb_intern(name.as_ptr()));
        Some(Looking {
            flags: look_up!(NEEDED[0], Flags)?,
            info: look_up!(NEEDED[1], Info)?,
            marked: rb_sys::rb_intern(c"marked".as_ptr()),
            state: symbol(c"state"),
            marking: symbol(c"marking"),
        })
    }
}

impl Looking {
    /// # Safety
    /// There is an object in the slot.
    unsafe fn is_marked(&self, slot: usize) -> bool {
        let mut flags: [ID; MOST_FLAGS] = [0; MOST_FLAGS];
        // SAFETY: the caller's promise, and room for so many.
        let count = unsafe { (self.flags)(slot as VALUE, flags.as_mut_ptr(), MOST_FLAGS) };
        flags.iter().take(count).any(|flag| *flag == self.marked)
    }
}

/// Samples one object in so many from now on. Markings are told first and until last.
pub(crate) fn begin(api: &HookApi, vm: &Functions, mean: u64) -> Result<Status, Refusal> {
    let Some(looking) = LOOKING.get_or_init(find).as_ref() else { return Err(Refusal::Missing) };
    // Ruby makes the names of its flags at the first call, which must not be in the middle of a collection.
    // SAFETY: Object is an object.
    unsafe { looking.is_marked(rb_sys::rb_cObject as usize) };
    LOOKED.store(vm::gc_count().unwrap_or_default(), Ordering::Relaxed);
    vm.listen(on_marked, MARKED).map_err(Refusal::Raised)?;
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
    let (Some(api), Some(Some(looking))) = (hook_link::found(), LOOKING.get()) else { return };
    let now = vm::gc_count().unwrap_or_default();
    let is_known = now.wrapping_sub(LOOKED.swap(now, Ordering::Relaxed)) <= 1;
    // SAFETY: all sweeping of earlier collections is over, and each of them was looked at.
    forget(api, |slot| is_known && unsafe { looking.is_marked(slot) });
}

/// Forgets the sampled objects if a collection of which Ruby did not tell has swept. To be called before anything looks
/// at them.
pub(crate) fn check(api: &HookApi) {
    let Some(Some(looking)) = LOOKING.get() else { return };
    let now = vm::gc_count().unwrap_or_default();
    let is_marking = || {
        // SAFETY: a Symbol that it knows; it answers with a Symbol.
        unsafe { (looking.info)(looking.state) == looking.marking }
    };
    match now.wrapping_sub(LOOKED.load(Ordering::Relaxed)) {
        0 => {}
        1 if is_marking() => {}
        _ => {
            LOOKED.store(now, Ordering::Relaxed);
            forget(api, |_| false);
        }
    }
}

/// As [`check`], where a marking has ended for sure.
pub(crate) fn check_when_moved(api: &HookApi) {
    let now = vm::gc_count().unwrap_or_default();
    if LOOKED.swap(now, Ordering::Relaxed) != now {
        forget(api, |_| false);
    }
}

fn forget(api: &HookApi, is_alive: impl Fn(usize) -> bool) {
    (api.untracked_enter)();
    for object in objects(api).unwrap_or_default() {
        if !is_alive(object.address as usize) {
            (api.object_freed)(object.address as usize);
        }
    }
    (api.untracked_leave)();
}
