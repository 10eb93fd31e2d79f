//! Ruby's internal events of objects: one is made, is freed, or moves. Those who follow objects ([`crate::objects`] for
//! tracking, [`crate::measure`] for measurements) listen here, each for itself and in any order.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_add_event_hook2`, `rb_remove_event_hook_with_data`, `rb_tracearg_object` | yes | yes | yes | objects cannot be followed |
//! | `rb_gc_location` | yes | yes | yes | the same |
//! | `rb_gc_obj_slot_size` | no: all slots have one size | yes | yes | `GC::INTERNAL_CONSTANTS[:RVALUE_SIZE]` is taken |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.7), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).
//!
//! Ruby tells of a new object when its flags and its class are in the slot, and the rest is zero or of the type's own
//! (`newobj_of` and `newobj_init` in `gc.c` of 3.1 and 3.3; in 3.4, `newobj_init` is in `gc/default/default.c`).
//!
//! Ruby has no event for an object that compaction moves. But it asks each object of an extension to update its
//! references then, and an object of ours tells those who follow.
//!
//! Ruby tells of objects of the main Ractor only. Handlers take Ruby's own argument: a `TracePoint` in between would cost
//! as much as the rest.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use magnus::rb_sys::AsRawValue;
use magnus::value::ReprValue;
use magnus::{Error, Ruby};
use rb_sys::VALUE;

use crate::lookup::{self, look_up};

/// Called for each event, with Ruby's argument. It neither makes an object nor raises.
pub(crate) type Handler = unsafe extern "C" fn(VALUE, *mut c_void);
type AddHook = unsafe extern "C" fn(Handler, u32, VALUE, c_int);
type RemoveHook = unsafe extern "C" fn(Handler, VALUE) -> c_int;
type OfValue = unsafe extern "C" fn(VALUE) -> VALUE;
type ObjectOf = unsafe extern "C" fn(*mut c_void) -> VALUE;
type SlotSize = unsafe extern "C" fn(VALUE) -> usize;

const NEEDED: [&CStr; 4] =
    [c"rb_add_event_hook2", c"rb_remove_event_hook_with_data", c"rb_tracearg_object", c"rb_gc_location"];
const SLOT_SIZE: &CStr = c"rb_gc_obj_slot_size";

/// An object was made. As in ruby/internal/event.h, since Ruby 2.1.
pub(crate) const MADE: u32 = 0x0010_0000;
/// An object is about to be freed, possibly in the middle of a collection.
pub(crate) const FREED: u32 = 0x0020_0000;
/// A marking has ended; sweeping begins.
pub(crate) const MARKED: u32 = 0x0080_0000;
// As in ruby/debug.h: the handler may be called at any time, and takes Ruby's argument as it is.
const SAFE_AND_RAW: c_int = 0x01 | 0x04;

/// The functions for the events, looked up once.
pub(crate) struct Functions {
    add: AddHook,
    remove: RemoveHook,
    object: ObjectOf,
    location: OfValue,
    slot_size: Option<SlotSize>,
    /// Bytes of each slot where all are of one size.
    one_size: usize,
}

static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
/// One who follows objects through collections. Its functions run inside them, and make no object.
pub(crate) struct Follower {
    /// Visits the objects that must live on and not move.
    pub(crate) each_kept: fn(&mut dyn FnMut(VALUE)),
    /// Objects have moved, and Ruby asks to update references.
    pub(crate) moved: fn(&Functions),
}

/// All that there are: tracking, and measurements.
static FOLLOWERS: [OnceLock<&Follower>; 2] = [const { OnceLock::new() }; 2];
/// Whether there is the object that Ruby asks to update its references.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// Functions that this Ruby lacks for following objects.
pub(crate) fn missing() -> Vec<&'static str> {
    lookup::missing(&NEEDED)
}

/// The functions; `None` if this Ruby lacks one.
pub(crate) fn functions(ruby: &Ruby) -> Option<&'static Functions> {
    // Not `get_or_init`: what it asks Ruby may let another thread run, which would wait there with the GVL.
    if FUNCTIONS.get().is_none() {
        let _ = FUNCTIONS.set(find(ruby));
    }
    FUNCTIONS.get()?.as_ref()
}

/// The functions, if somebody has asked for them before.
pub(crate) fn found() -> Option<&'static Functions> {
    FUNCTIONS.get()?.as_ref()
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

impl Functions {
    /// Calls the handler for each of these events from now on.
    pub(crate) fn listen(&self, handler: Handler, events: u32) -> Result<(), Error> {
        magnus::rb_sys::protect(|| {
            // SAFETY: the handlers live as long as this library, which Ruby never unloads.
            unsafe { (self.add)(handler, events, rb_sys::Qnil as VALUE, SAFE_AND_RAW) };
            rb_sys::Qnil as VALUE
        })
        .map(|_| ())
    }

    /// Never calls it again. Others go on.
    pub(crate) fn ignore(&self, handler: Handler) {
        // SAFETY: the handler that was added, if it was; Ruby raises nothing here.
        unsafe { (self.remove)(handler, rb_sys::Qnil as VALUE) };
    }

    /// The object of an event.
    ///
    /// # Safety
    /// It is the argument that Ruby has given to the handler just now.
    pub(crate) unsafe fn object(&self, argument: *mut c_void) -> VALUE {
        // SAFETY: the caller's promise; an internal event always has an object.
        unsafe { (self.object)(argument) }
    }

    /// Bytes of an object's slot.
    ///
    /// # Safety
    /// There is an object in the slot.
    pub(crate) unsafe fn slot_bytes(&self, object: VALUE) -> usize {
        match self.slot_size {
            // SAFETY: the caller's promise: its page has been set up.
            Some(slot_size) => unsafe { slot_size(object) },
            None => self.one_size,
        }
    }

    /// Bytes of each slot, if all have one size.
    pub(crate) fn one_size(&self) -> Option<usize> {
        self.slot_size.is_none().then_some(self.one_size)
    }

    /// Where an object is that was in this slot, also if it has not moved.
    ///
    /// # Safety
    /// The object has not been freed, and Ruby asks right now to update references.
    pub(crate) unsafe fn location(&self, slot: VALUE) -> VALUE {
        // SAFETY: the caller's promise.
        unsafe { (self.location)(slot) }
    }
}

/// Makes Ruby tell of objects again. It counts its listeners anew when one begins or ends.
pub(crate) fn hear_again(ruby: &Ruby) -> Result<(), Error> {
    unsafe extern "C" fn nothing(_: VALUE, _: *mut c_void) {}
    let Some(functions) = functions(ruby) else { return Ok(()) };
    functions.listen(nothing, FREED)?;
    functions.ignore(nothing);
    Ok(())
}

/// Notes a follower, and makes the object that Ruby asks to update its references; each once. Those who follow objects
/// call it first.
pub(crate) fn prepare(ruby: &Ruby, follower: &'static Follower) -> Result<(), Error> {
    let is_known =
        |place: &OnceLock<&Follower>| place.get().is_some_and(|known| std::ptr::eq(*known, follower));
    if !FOLLOWERS.iter().any(is_known) {
        // The first free place takes it.
        let _ = FOLLOWERS.iter().any(|place| place.set(follower).is_ok());
    }
    if IS_PREPARED.load(Ordering::Relaxed) {
        return Ok(());
    }
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

/// The type of that object.
struct Moves(rb_sys::rb_data_type_t);
// SAFETY: never written; its pointers lead to functions and a text.
unsafe impl Sync for Moves {}

static MOVES: Moves = Moves(rb_sys::rb_data_type_t {
    wrap_struct_name: c"memintro/objects".as_ptr(),
    function: rb_sys::rb_data_type_struct__bindgen_ty_1 {
        dmark: Some(mark),
        dfree: None,
        dsize: None,
        dcompact: Some(after_compaction),
        reserved: [std::ptr::null_mut(); 1],
    },
    parent: std::ptr::null(),
    data: std::ptr::null_mut(),
    flags: 0,
});

/// Keeps alive, and in place, what those who follow objects need.
unsafe extern "C" fn mark(_: *mut c_void) {
    for follower in followers() {
        (follower.each_kept)(&mut |object| {
            // SAFETY: an object that was kept until now, in the middle of a marking.
            unsafe { rb_sys::rb_gc_mark(object) };
        });
    }
}

/// Called inside a collection, when all objects have moved and their former slots still say where to.
unsafe extern "C" fn after_compaction(_: *mut c_void) {
    let Some(vm) = found() else { return };
    followers().for_each(|follower| (follower.moved)(vm));
}

fn followers() -> impl Iterator<Item = &'static Follower> {
    FOLLOWERS.iter().filter_map(|place| place.get().copied())
}
