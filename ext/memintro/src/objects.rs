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

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use magnus::rb_sys::AsRawValue;
use magnus::value::ReprValue;
use magnus::{Error, Ruby};
use memintro_abi::{BlockRecord, HookApi, Status};
use rb_sys::VALUE;

use crate::heap::watched::{Wanted, Watched};
use crate::heap::{self, Trouble};
use crate::lookup::{self, look_up};
use crate::{hook_link, vm};

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
/// Whether only some classes are tracked.
static IS_CHOOSY: AtomicBool = AtomicBool::new(false);

/// The classes that are tracked, if not all are.
struct Chosen(UnsafeCell<Option<Watched>>);
// SAFETY: it is used with the GVL of the main Ractor only, by what neither runs Ruby code nor comes back here.
unsafe impl Sync for Chosen {}
static CHOSEN: Chosen = Chosen(UnsafeCell::new(None));

fn chosen<R>(use_it: impl FnOnce(&mut Option<Watched>) -> R) -> R {
    // SAFETY: see `Chosen`.
    use_it(unsafe { &mut *CHOSEN.0.get() })
}

/// Which objects to track.
#[derive(PartialEq, Eq)]
pub(crate) enum Objects {
    None,
    All,
    Of(Wanted),
}

impl Objects {
    fn now() -> Self {
        if !is_on() {
            return Self::None;
        }
        chosen(|watched| watched.as_ref().map_or(Self::All, |watched| Self::Of(watched.wanted().clone())))
    }
}
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

/// Why objects cannot be tracked.
pub(crate) enum Refusal {
    /// This Ruby has no way to.
    Missing,
    /// This Ruby does not tell an object's class.
    Classes(Trouble),
    /// Ruby raised.
    Raised(Error),
}

/// Tracks these objects from now on. What was tracked before is forgotten if it was others.
pub(crate) fn track(ruby: &Ruby, objects: Objects) -> Result<Status, Refusal> {
    // Each stop ends it, mostly where it was never begun: nothing is looked up then.
    if objects == Objects::now() {
        return Ok(Status::OK);
    }
    let (Some(api), Some(vm)) = (hook_link::found(), functions(ruby)) else { return Err(Refusal::Missing) };
    if is_on() {
        end(api, vm).map_err(Refusal::Raised)?;
    }
    let wanted = match objects {
        Objects::None => return Ok(Status::OK),
        Objects::All => None,
        Objects::Of(wanted) => Some(Watched::new(wanted).map_err(Refusal::Classes)?),
    };
    if !IS_PREPARED.load(Ordering::Relaxed) {
        prepare(ruby).map_err(Refusal::Raised)?;
    }
    IS_CHOOSY.store(wanted.is_some(), Ordering::Relaxed);
    chosen(|watched| *watched = wanted);
    begin(api, vm)
}

/// Tracks none from now on.
pub(crate) fn stop() -> Result<(), Error> {
    match hook_link::found().zip(FUNCTIONS.get().and_then(Option::as_ref)) {
        Some((api, vm)) if is_on() => end(api, vm),
        _ => Ok(()),
    }
}

/// Frees are told first and until last, so that no object of the table is freed without notice.
fn begin(api: &HookApi, vm: &Functions) -> Result<Status, Refusal> {
    listen(vm, on_freed, FREED)?;
    let status = (api.track_objects)(true);
    if status == Status::OK {
        listen(vm, on_made, MADE)?;
        IS_ON.store(true, Ordering::Relaxed);
    } else {
        // SAFETY: removes what was added just now.
        unsafe { (vm.remove)(on_freed, rb_sys::Qnil as VALUE) };
        forget_chosen();
    }
    Ok(status)
}

fn end(api: &HookApi, vm: &Functions) -> Result<(), Error> {
    magnus::rb_sys::protect(|| {
        // SAFETY: removes what was added.
        unsafe {
            (vm.remove)(on_made, rb_sys::Qnil as VALUE);
            (vm.remove)(on_freed, rb_sys::Qnil as VALUE);
        }
        rb_sys::Qnil as VALUE
    })?;
    (api.track_objects)(false);
    IS_ON.store(false, Ordering::Relaxed);
    forget_chosen();
    Ok(())
}

fn forget_chosen() {
    IS_CHOOSY.store(false, Ordering::Relaxed);
    chosen(|watched| *watched = None);
}

fn listen(vm: &Functions, handler: Handler, events: u32) -> Result<(), Refusal> {
    magnus::rb_sys::protect(|| {
        // SAFETY: the handlers live as long as this library, which Ruby never unloads.
        unsafe { (vm.add)(handler, events, rb_sys::Qnil as VALUE, SAFE_AND_RAW) };
        rb_sys::Qnil as VALUE
    })
    .map(|_| ())
    .map_err(Refusal::Raised)
}

/// Makes the object that Ruby asks to update its references, and which keeps the chosen classes.
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
        dmark: Some(mark_chosen),
        dfree: None,
        dsize: None,
        dcompact: Some(after_compaction),
        reserved: [std::ptr::null_mut(); 1],
    },
    parent: std::ptr::null(),
    data: std::ptr::null_mut(),
    flags: 0,
});

/// Keeps them alive, and where they are.
unsafe extern "C" fn mark_chosen(_: *mut c_void) {
    chosen(|watched| {
        for class in watched.iter().flat_map(|watched| &watched.wanted().classes) {
            // SAFETY: a class that was kept until now, in the middle of a marking.
            unsafe { rb_sys::rb_gc_mark(*class) };
        }
    });
}

unsafe extern "C" fn on_made(_: VALUE, argument: *mut c_void) {
    let Some((api, vm)) = present() else { return };
    // SAFETY: Ruby's own event; an internal one always has an object.
    let object = unsafe { (vm.object)(argument) };
    if IS_CHOOSY.load(Ordering::Relaxed) && !is_chosen(object) {
        // If an object was there, its end was not told.
        (api.object_freed)(object as usize);
        return;
    }
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
    if IS_CHOOSY.load(Ordering::Relaxed) {
        // SAFETY: the object is still in its slot.
        let is_class = unsafe { heap::watched::is_class(object) };
        if is_class {
            forget_answers();
        }
    }
    (api.object_freed)(object as usize);
}

/// Whether an object that was made just now is of a chosen class.
fn is_chosen(object: VALUE) -> bool {
    let generation = vm::gc_count().unwrap_or_default();
    // SAFETY: the object of an event.
    chosen(|watched| watched.as_mut().is_none_or(|watched| unsafe { watched.means(object, generation) }))
}

fn forget_answers() {
    chosen(|watched| watched.iter_mut().for_each(Watched::forget));
}

fn present() -> Option<(&'static HookApi, &'static Functions)> {
    Some((hook_link::found()?, FUNCTIONS.get()?.as_ref()?))
}

/// Called inside a collection, when all objects have moved and their former slots still say where to.
unsafe extern "C" fn after_compaction(_: *mut c_void) {
    let Some((api, vm)) = present() else { return };
    forget_answers();
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
