//! Which objects have outlived a collection: those whose age is not zero, and those without write barriers, which have none. Up
//! to Ruby 3.2, the age is in the slot. Later Rubies keep it elsewhere until an object is old, and do not tell it: there a walk
//! that wants these objects is made at once behind a collection.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_obj_gc_flags` | yes | not looked up | not looked up | a walk behind a collection |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2).

use rb_sys::{ID, VALUE};

use super::slot::Slot;
use crate::lookup::look_up;

type Flags = unsafe extern "C" fn(VALUE, *mut ID, usize) -> usize;

/// Most flags that an object has.
const MOST: usize = 8;

/// How they are known.
#[derive(Clone, Copy)]
pub(super) struct Outlived {
    flags: Flags,
    protected: ID,
}

impl Outlived {
    /// Called before a walk: the first question makes names of flags.
    pub(super) fn new() -> Option<Self> {
        if cfg!(ruby_gte_3_3) {
            return None;
        }
        // SAFETY: a terminated name.
        let protected = unsafe { rb_sys::rb_intern(c"wb_protected".as_ptr()) };
        // SAFETY: a function of this type in every Ruby that has it.
        let flags = unsafe { look_up!(c"rb_obj_gc_flags", Flags) }?;
        // SAFETY: a class of the heap, which is set before any extension is loaded.
        let object = unsafe { rb_sys::rb_cObject };
        let found = Self { flags, protected };
        found.is_protected(object);
        Some(found)
    }

    fn is_protected(self, object: VALUE) -> bool {
        let mut found = [0; MOST];
        // SAFETY: an object of the heap, and room for so many.
        let count = unsafe { (self.flags)(object, found.as_mut_ptr(), found.len()) };
        found.get(..count).unwrap_or_default().contains(&self.protected)
    }

    /// Whether the object in this slot has.
    pub(super) fn has(self, slot: Slot) -> bool {
        slot.has_age() || !self.is_protected(slot.value)
    }
}
