//! What Ruby's collector has marked: asked at the end of a marking, when nothing of this collection has been swept, and all
//! of the one before has been. So each object that lived until then is still in its slot, and is garbage if it is not
//! marked. No slot can have been used again in between.
//!
//! Ruby tells of the markings of the main Ractor only, and of none that begins inside another listener's handler. Numbers
//! of collections show that one was not told. Then it is unknown which slots still have the objects that they had.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rb_sys::{ID, VALUE};

use crate::atlas::GcFlags;
use crate::lookup::{self, look_up};
use crate::vm;

type Info = unsafe extern "C" fn(VALUE) -> VALUE;

const NEEDED: [&CStr; 1] = [c"rb_gc_latest_gc_info"];

/// What looking at marks needs.
pub(crate) struct Markings {
    flags: GcFlags,
    info: Info,
    /// Names of flags.
    marked: ID,
    uncollectible: ID,
    /// `:state`, `:marking` and `:major_by`.
    state: VALUE,
    marking: VALUE,
    major_by: VALUE,
}

/// What the collector has found out about an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Garbage,
    Lives,
    /// It lives, and only a major collection looks at it again.
    LivesOn,
}

static MARKINGS: OnceLock<Option<Markings>> = OnceLock::new();
/// The last collection whose marking was reported.
static TOLD: AtomicUsize = AtomicUsize::new(0);

/// What this Ruby lacks for it.
pub(crate) fn missing() -> Vec<&'static str> {
    [lookup::missing(&NEEDED), GcFlags::missing()].concat()
}

/// Prepares it, before the first marking is listened for; after that, [`Markings::forget_missed`] is to be called. `None`:
/// this Ruby lacks a function. Under the GVL.
pub(crate) fn begin() -> Option<&'static Markings> {
    let markings = MARKINGS.get_or_init(find).as_ref()?;
    // Ruby makes the names of its flags and figures at the first call of each of the two, which must not be in the middle
    // of a collection.
    // SAFETY: Object is an object.
    unsafe { markings.mark(rb_sys::rb_cObject as usize) };
    markings.is_major();
    Some(markings)
}

/// The same, if it was prepared before.
pub(crate) fn found() -> Option<&'static Markings> {
    MARKINGS.get()?.as_ref()
}

fn find() -> Option<Markings> {
    // SAFETY: functions of these types in every Ruby that has them. Symbols of static names are never collected.
    unsafe {
        let symbol = |name: &CStr| rb_sys::rb_id2sym(rb_sys::rb_intern(name.as_ptr()));
        Some(Markings {
            flags: GcFlags::find()?,
            info: look_up!(NEEDED[0], Info)?,
            marked: rb_sys::rb_intern(c"marked".as_ptr()),
            uncollectible: rb_sys::rb_intern(c"uncollectible".as_ptr()),
            state: symbol(c"state"),
            marking: symbol(c"marking"),
            major_by: symbol(c"major_by"),
        })
    }
}

/// Ruby tells that a marking has ended. Returns whether it told of the one before as well.
pub(crate) fn is_next() -> bool {
    let now = vm::gc_count().unwrap_or_default();
    now.wrapping_sub(TOLD.swap(now, Ordering::Relaxed)) <= 1
}

/// A marking has ended for sure. Returns whether Ruby has told of it.
pub(crate) fn is_told() -> bool {
    let now = vm::gc_count().unwrap_or_default();
    TOLD.swap(now, Ordering::Relaxed) == now
}

impl Markings {
    /// What the marking that has just ended found out.
    ///
    /// # Safety
    /// There is an object in the slot.
    #[inline]
    pub(crate) unsafe fn mark(&self, slot: usize) -> Mark {
        let (mut is_marked, mut is_uncollectible) = (false, false);
        // SAFETY: the caller's promise.
        unsafe {
            self.flags.each(slot as VALUE, |flag| {
                is_marked |= flag.name == self.marked;
                is_uncollectible |= flag.name == self.uncollectible;
            });
        }
        match (is_marked, is_uncollectible) {
            (false, _) => Mark::Garbage,
            (true, false) => Mark::Lives,
            (true, true) => Mark::LivesOn,
        }
    }

    /// Whether this collection looks at old objects, too.
    pub(crate) fn is_major(&self) -> bool {
        // SAFETY: a Symbol that it knows; it answers with a Symbol or nil, and makes no object.
        unsafe { (self.info)(self.major_by) != rb_sys::Qnil as VALUE }
    }

    /// Whether a collection has swept whose marking was not told.
    pub(crate) fn has_missed_one(&self) -> bool {
        let now = vm::gc_count().unwrap_or_default();
        match now.wrapping_sub(TOLD.load(Ordering::Relaxed)) {
            0 => false,
            // SAFETY: as above.
            1 => unsafe { (self.info)(self.state) != self.marking },
            _ => true,
        }
    }

    /// All before this moment is known to be over: the next marking is the next one to be told. To begin to listen takes
    /// memory, and may have collected.
    pub(crate) fn forget_missed(&self) {
        TOLD.store(vm::gc_count().unwrap_or_default(), Ordering::Relaxed);
    }
}
