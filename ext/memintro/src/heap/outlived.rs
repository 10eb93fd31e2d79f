//! Which objects have outlived the last collection: the collector has marked them. What was made since is not marked, whether
//! it is garbage or not.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_obj_gc_flags` | yes | yes | yes | all objects count as such |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).

use std::ffi::CStr;

use rb_sys::{ID, VALUE};

use super::functions;
use super::slot::Slot;
use crate::lookup::look_up;

type Flags = unsafe extern "C" fn(VALUE, *mut ID, usize) -> usize;

/// Most flags that an object has.
const MOST: usize = 8;

/// How they are known.
#[derive(Clone, Copy)]
pub(super) struct Outlived {
    flags: Flags,
    marked: ID,
    protected: ID,
    is_marking: bool,
}

impl Outlived {
    /// Called before a walk: the first question makes names of flags.
    pub(super) fn new() -> Option<Self> {
        let name = |name: &CStr| {
            // SAFETY: a terminated name.
            unsafe { rb_sys::rb_intern(name.as_ptr()) }
        };
        let (marked, protected) = (name(c"marked"), name(c"wb_protected"));
        // SAFETY: a function of this type in every Ruby that has it.
        let flags = unsafe { look_up!(c"rb_obj_gc_flags", Flags) }?;
        // SAFETY: a class of the heap, which is set before any extension is loaded.
        let object = unsafe { rb_sys::rb_cObject };
        let found = Self { flags, marked, protected, is_marking: false };
        found.ask(object);
        Some(found)
    }

    /// Called at each step of a walk.
    pub(super) fn begin(&mut self) {
        self.is_marking =
            functions::get().ok().and_then(|vm| vm.marking).is_some_and(|marking| marking.is_under_way());
    }

    fn ask(self, object: VALUE) -> ([ID; MOST], usize) {
        let mut found = [0; MOST];
        // SAFETY: an object of the heap, and room for so many.
        let count = unsafe { (self.flags)(object, found.as_mut_ptr(), found.len()) };
        (found, count)
    }

    /// Of the object in this slot. Amid a marking, its age tells: but objects without write barriers have none.
    pub(super) fn has(self, slot: Slot) -> bool {
        let (found, count) = self.ask(slot.value);
        let found = found.get(..count).unwrap_or_default();
        found.contains(&self.marked)
            || (self.is_marking && (slot.has_age() || !found.contains(&self.protected)))
    }
}
