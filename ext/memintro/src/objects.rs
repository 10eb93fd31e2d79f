//! Tells the hook of each object that Ruby makes, frees or moves, by Ruby's internal events.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_add_event_hook2`, `rb_remove_event_hook_with_data`, `rb_tracearg_object` | yes | yes | yes | objects cannot be tracked |
//! | `rb_gc_location` | yes | yes | yes | the same |
//! | `rb_gc_obj_slot_size` | no: all slots have one size | yes | yes | `GC::INTERNAL_CONSTANTS[:RVALUE_SIZE]` is taken |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.7), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).
//!
//! Ruby has no event for an object that compaction moves. But it asks each object of an extension to update its
//! references then, and an object of ours does that for the table.
//!
//! Ruby tells of objects of the main Ractor only. Hooks take Ruby's own argument: a `TracePoint` in between would cost as
//! much as the rest.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use magnus::rb_sys::AsRawValue;
use magnus::value::ReprValue;
use magnus::{Error, Ruby};
use memintro_abi::{BlockRecord, HookApi, Status};
use rb_sys::VALUE;

use crate::hook_link;
use crate::lookup::{self, look_up};

/// Called with the hook's data and Ruby's argument.
type Handler = unsafe extern "C" fn(VALUE, *mut c_void);
type AddHook = unsafe extern "C" fn(Handler, u32, VALUE, c_int);
type RemoveHook = unsafe extern "C" fn(Handler, VALUE) -> c_int;
type OfValue = unsafe extern "C" fn(VALUE) -> VALUE;
type ObjectOf = unsafe extern "C" fn(*mut c_void) -> VALUE;
type SlotSize = unsafe extern "C" fn(VALUE) -> usize;

const NEEDED: [&CStr; 4] =
    [c"rb_add_event_hook2", c"rb_remove_event_hook_with_data", c"rb_tracearg_object", c"rb_gc_location"];
const SLOT_SIZE: &CStr = c"rb_gc_obj_slot_size";

// As in ruby/internal/event.h, since Ruby 2.1.
const MADE: u32 = 0x0010_0000;
const FREED: u32 = 0x0020_0000;
// As in ruby/debug.h: the handler may be called at any time, and takes Ruby's argument as it is.
const SAFE_AND_RAW: c_int = 0x01 | 0x04;

/// What the events need, looked up once.
struct Functions {
    add: AddHook,
    remove: RemoveHook,
    object: ObjectOf,
    location: OfValue,
    slot_size: Option<SlotSize>,
    /// Bytes of each slot where all are of one size.
    one_size: usize,
}

static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Whether there is the object that Ruby asks to update its references.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// What this Ruby lacks for tracking objects.
pub(crate) fn missing() -> Vec<&'static str> {
    lookup::missing(&NEEDED)
}

fn functions(ruby: &Ruby) -> Option<&'static Functions> {
    FUNCTIONS.get_or_init(|| find(ruby)).as_ref()
}

fn find(ruby: &Ruby) -> Option<Functions> {
    let one_size = ruby.eval::<usize>("::GC::INTERNAL_CONSTANTS[:RVALUE_SIZE] || 40").unwrap_or(40);
    // SAFETY: each name stands for a function of the type it is given, in every Ruby that has it.
    unsafe {
        Some(Functions {
            add: look_up!(NEEDED[0], AddHook)?,
            remove: look_up!(NEEDED[1], RemoveHook)?,
            object: look_up!(NEEDED[2], ObjectOf)?,
            location: look_up!(NEEDED[3], OfValue)?,
            slot_size: look_up!(SLOT_SIZE, SlotSize),
            one_size,
        })
    }
}

/// Whether objects are tracked now.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Begins to track objects, or ends it. `Ok(None)`: this Ruby has no way to.
pub(crate) fn track(ruby: &Ruby, on: bool) -> Result<Option<Status>, Error> {
    // Each stop ends it, mostly where it was never begun: nothing is looked up then.
    if is_on() == on {
        return Ok(Some(Status::OK));
    }
    let (Some(api), Some(vm)) = (hook_link::found(), functions(ruby)) else { return Ok(None) };
    if !IS_PREPARED.load(Ordering::Relaxed) {
        prepare(ruby)?;
    }
    // Frees are told first and until last, so that no object of the table is freed without notice.
    magnus::rb_sys::protect(|| {
        // SAFETY: the handlers live as long as this library, which Ruby never unloads.
        unsafe {
            if on {
                (vm.add)(on_freed, FREED, rb_sys::Qnil as VALUE, SAFE_AND_RAW);
            } else {
                (vm.remove)(on_made, rb_sys::Qnil as VALUE);
                (vm.remove)(on_freed, rb_sys::Qnil as VALUE);
            }
        }
        rb_sys::Qnil as VALUE
    })?;
    let status = (api.track_objects)(on);
    if on && status != Status::OK {
        // SAFETY: as above.
        unsafe { (vm.remove)(on_freed, rb_sys::Qnil as VALUE) };
        return Ok(Some(status));
    }
    if on {
        magnus::rb_sys::protect(|| {
            // SAFETY: as above.
            unsafe { (vm.add)(on_made, MADE, rb_sys::Qnil as VALUE, SAFE_AND_RAW) };
            rb_sys::Qnil as VALUE
        })?;
    }
    IS_ON.store(on, Ordering::Relaxed);
    Ok(Some(status))
}

/// Makes the object that Ruby asks to update its references.
fn prepare(ruby: &Ruby) -> Result<(), Error> {
    magnus::rb_sys::protect(|| {
        // SAFETY: the type lives as long as this library; the object is never collected.
        unsafe {
            let class = ruby.class_object().as_value().as_raw();
            // Without data, Ruby would not ask it.
            let data = (&raw const MOVES).cast_mut().cast::<c_void>();
            rb_sys::rb_gc_register_mark_object(rb_sys::rb_data_typed_object_wrap(
                class,
                data,
                &raw const MOVES.0,
            ));
        }
        rb_sys::Qnil as VALUE
    })?;
    IS_PREPARED.store(true, Ordering::Relaxed);
    Ok(())
}

/// The type of the object that is asked after a compaction.
struct Moves(rb_sys::rb_data_type_t);
// SAFETY: never written; its pointers lead to functions and a text.
unsafe impl Sync for Moves {}

static MOVES: Moves = Moves(rb_sys::rb_data_type_t {
    wrap_struct_name: c"memintro/objects".as_ptr(),
    function: rb_sys::rb_data_type_struct__bindgen_ty_1 {
        dmark: None,
        dfree: None,
        dsize: None,
        dcompact: Some(after_compaction),
        reserved: [std::ptr::null_mut(); 1],
    },
    parent: std::ptr::null(),
    data: std::ptr::null_mut(),
    flags: 0,
});

unsafe extern "C" fn on_made(_: VALUE, argument: *mut c_void) {
    let Some((api, vm)) = present() else { return };
    // SAFETY: Ruby's own event; an internal one always has an object.
    let object = unsafe { (vm.object)(argument) };
    let bytes = match vm.slot_size {
        // SAFETY: the object, whose page has been set up.
        Some(slot_size) => unsafe { slot_size(object) },
        None => vm.one_size,
    };
    (api.object_made)(object as usize, bytes);
}

unsafe extern "C" fn on_freed(_: VALUE, argument: *mut c_void) {
    let Some((api, vm)) = present() else { return };
    // SAFETY: as above.
    let object = unsafe { (vm.object)(argument) };
    (api.object_freed)(object as usize);
}

fn present() -> Option<(&'static HookApi, &'static Functions)> {
    Some((hook_link::found()?, FUNCTIONS.get()?.as_ref()?))
}

/// Called inside a collection, when all objects have moved and their former slots still say where to.
unsafe extern "C" fn after_compaction(_: *mut c_void) {
    let Some((api, vm)) = present() else { return };
    let mut moves: Vec<(usize, usize)> = Vec::new();
    (api.untracked_enter)();
    for object in objects(api).unwrap_or_default() {
        let slot = object.address as usize;
        // SAFETY: a slot whose object has not been freed; Ruby answers for objects that did not move, too.
        let now = unsafe { (vm.location)(slot as VALUE) } as usize;
        if now != slot {
            moves.push((slot, now));
        }
    }
    for (from, to) in moves {
        (api.object_moved)(from, to);
    }
    (api.untracked_leave)();
}

/// The live objects that are tracked. Fails if the figures cannot be read now.
pub(crate) fn objects(api: &HookApi) -> Result<Vec<BlockRecord>, Status> {
    unsafe extern "C" fn add(context: *mut c_void, record: *const BlockRecord) {
        // SAFETY: the context is the vector below, the record is valid during the visit.
        unsafe { (*context.cast::<Vec<BlockRecord>>()).push(*record) };
    }
    let mut objects = Vec::<BlockRecord>::new();
    // SAFETY: the callback fits the record, the context outlives the visit.
    let status = unsafe { (api.objects)((&raw mut objects).cast(), add) };
    if status.0 >= 0 { Ok(objects) } else { Err(status) }
}
