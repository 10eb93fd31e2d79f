//! Which objects have outlived a collection: those whose age is not zero, and those without write barriers, which have none. Up
//! to Ruby 3.2, the age is in the slot. Later Rubies keep it elsewhere until an object is old, and do not tell it: there a walk
//! that wants these objects is made at once behind a collection.

use rb_sys::{ID, VALUE};

use crate::atlas::{GcFlags, Object, RUBY};

/// How they are known.
#[derive(Clone, Copy)]
pub(super) struct Outlived {
    flags: GcFlags,
    protected: ID,
}

impl Outlived {
    /// Called before a walk: the first question makes names of flags.
    pub(super) fn new() -> Option<Self> {
        if !RUBY.has_ages {
            return None;
        }
        // SAFETY: a terminated name.
        let protected = unsafe { rb_sys::rb_intern(c"wb_protected".as_ptr()) };
        let flags = GcFlags::find()?;
        // SAFETY: a class of the heap, which is set before any extension is loaded.
        let object = unsafe { rb_sys::rb_cObject };
        let found = Self { flags, protected };
        found.is_protected(object);
        Some(found)
    }

    fn is_protected(self, object: VALUE) -> bool {
        // SAFETY: an object of the heap.
        unsafe { self.flags.has(object, self.protected) }
    }

    /// Whether the object in this slot has.
    pub(super) fn has(self, slot: Object) -> bool {
        slot.has_age() || !self.is_protected(slot.value())
    }
}
