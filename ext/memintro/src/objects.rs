//! Tells the hook of each object that Ruby makes, frees or moves, by Ruby's internal events.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_tracepoint_new`, `rb_tracepoint_enable`, `rb_tracepoint_disable`, `rb_tracearg_from_tracepoint`, `rb_tracearg_object` | yes | yes | yes | objects cannot be tracked |
//! | `rb_gc_location` | yes | yes | yes | the same |
//! | `rb_gc_obj_slot_size` | no: all slots have one size | yes | yes | `GC::INTERNAL_CONSTANTS[:RVALUE_SIZE]` is taken |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.7), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).
//!
//! Ruby has no event for an object that compaction moves. But it asks each object of an extension to update its
//! references then, and an object of ours does that for the table.
//!
//! Ruby tells of objects of the main Ractor only.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use magnus::rb_sys::AsRawValue;
use magnus::value::ReprValue;
use magnus::{Error, Ruby};
use memintro_abi::{BlockRecord, HookApi, Status};
use rb_sys::VALUE;

use crate::hook_link;
use crate::lookup::{self, look_up};

type Handler = unsafe extern "C" fn(VALUE, *mut c_void);
type NewTracepoint = unsafe extern "C" fn(VALUE, u32, Handler, *mut c_void) -> VALUE;
type OfValue = unsafe extern "C" fn(VALUE) -> VALUE;
type ArgOf = unsafe extern "C" fn(VALUE) -> *mut c_void;
type ObjectOf = unsafe extern "C" fn(*mut c_void) -> VALUE;
type SlotSize = unsafe extern "C" fn(VALUE) -> usize;

const NEEDED: [&CStr; 6] = [
    c"rb_tracepoint_new",
    c"rb_tracepoint_enable",
    c"rb_tracepoint_disable",
    c"rb_tracearg_from_tracepoint",
    c"rb_tracearg_object",
    c"rb_gc_location",
];
const SLOT_SIZE: &CStr = c"rb_gc_obj_slot_size";

// As in ruby/internal/event.h, since Ruby 2.1.
const MADE: u32 = 0x0010_0000;
const FREED: u32 = 0x0020_0000;

/// What the events need, looked up once.
struct Functions {
    new: NewTracepoint,
    enable: OfValue,
    disable: OfValue,
    argument: ArgOf,
    object: ObjectOf,
    location: OfValue,
    slot_size: Option<SlotSize>,
    /// Bytes of each slot where all are of one size.
    one_size: usize,
}

static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Two tracepoints, of the births and of the frees; 0 before the first start. They are kept from the collector.
static TRACEPOINTS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

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
            new: look_up!(NEEDED[0], NewTracepoint)?,
            enable: look_up!(NEEDED[1], OfValue)?,
            disable: look_up!(NEEDED[2], OfValue)?,
            argument: look_up!(NEEDED[3], ArgOf)?,
            object: look_up!(NEEDED[4], ObjectOf)?,
            location: look_up!(NEEDED[5], OfValue)?,
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
    let (Some(api), Some(vm)) = (hook_link::found(), functions(ruby)) else { return Ok(None) };
    let [made, freed] = &TRACEPOINTS;
    if made.load(Ordering::Relaxed) == 0 {
        if !on {
            return Ok(Some(Status::OK));
        }
        prepare(ruby, vm)?;
    }
    let points = [made, freed].map(|point| point.load(Ordering::Relaxed) as VALUE);
    // Frees are told first and until last, so that no object of the table is freed without notice.
    magnus::rb_sys::protect(|| {
        // SAFETY: tracepoints, which are kept; to enable one that is enabled changes nothing.
        unsafe {
            if on {
                (vm.enable)(points[1])
            } else {
                (vm.disable)(points[0]);
                (vm.disable)(points[1])
            }
        }
    })?;
    let status = (api.track_objects)(on);
    IS_ON.store(on && status == Status::OK, Ordering::Relaxed);
    if on && status == Status::OK {
        // SAFETY: as above.
        magnus::rb_sys::protect(|| unsafe { (vm.enable)(points[0]) })?;
    }
    Ok(Some(status))
}

/// Makes the tracepoints and the object that Ruby asks to update its references.
fn prepare(ruby: &Ruby, vm: &Functions) -> Result<(), Error> {
    let kept = |value: VALUE| {
        // SAFETY: an object; it is never collected nor moved from now on.
        unsafe { rb_sys::rb_gc_register_mark_object(value) };
        value as usize
    };
    magnus::rb_sys::protect(|| {
        // SAFETY: the handlers live as long as this library, which Ruby never unloads; so does the type.
        unsafe {
            let made = (vm.new)(rb_sys::Qnil as VALUE, MADE, on_made, std::ptr::null_mut());
            TRACEPOINTS[0].store(kept(made), Ordering::Relaxed);
            let freed = (vm.new)(rb_sys::Qnil as VALUE, FREED, on_freed, std::ptr::null_mut());
            TRACEPOINTS[1].store(kept(freed), Ordering::Relaxed);
            let class = ruby.class_object().as_value().as_raw();
            // Without data, Ruby would not ask it.
            let data = (&raw const MOVES).cast_mut().cast::<c_void>();
            kept(rb_sys::rb_data_typed_object_wrap(class, data, &raw const MOVES.0));
        }
        rb_sys::Qnil as VALUE
    })?;
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

unsafe extern "C" fn on_made(point: VALUE, _: *mut c_void) {
    let Some((api, vm)) = present() else { return };
    // SAFETY: Ruby's own event; an internal one always has an object.
    let object = unsafe { (vm.object)((vm.argument)(point)) };
    let bytes = match vm.slot_size {
        // SAFETY: the object, whose page has been set up.
        Some(slot_size) => unsafe { slot_size(object) },
        None => vm.one_size,
    };
    (api.object_made)(object as usize, bytes);
}

unsafe extern "C" fn on_freed(point: VALUE, _: *mut c_void) {
    let Some((api, vm)) = present() else { return };
    // SAFETY: as above.
    let object = unsafe { (vm.object)((vm.argument)(point)) };
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
