//! What the collector knows of an object.
//!
//! | function | Rubies |
//! |---|---|
//! | `rb_obj_gc_flags`, which answers names of flags | up to 3.4 |
//! | `rb_gc_object_metadata`, which answers names and values, in memory of its own until the next call | since 4.0 |

use std::ffi::CStr;
use std::mem::MaybeUninit;

use rb_sys::{ID, VALUE};

use crate::lookup::{address, look_up};

const NAMES: &CStr = c"rb_obj_gc_flags";
const ENTRIES: &CStr = c"rb_gc_object_metadata";

/// A flag and its value, which is no object of the heap. Laid out as in Ruby's answer, whose last one has no name.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GcFlag {
    pub(crate) name: ID,
    pub(crate) value: VALUE,
}

impl GcFlag {
    pub(crate) const NONE: Self = Self { name: 0, value: 0 };
}

/// The function that this Ruby has. It allocates nothing, but names at the first call.
#[derive(Clone, Copy)]
pub(crate) enum GcFlags {
    Names(unsafe extern "C" fn(VALUE, *mut ID, usize) -> usize),
    Entries(unsafe extern "C" fn(VALUE) -> *const GcFlag),
}

impl GcFlags {
    /// Most flags that an object has. Ruby 4.0 has ten.
    pub(crate) const MOST: usize = 16;

    pub(crate) fn find() -> Option<Self> {
        // SAFETY: functions of these types in every Ruby that has them.
        unsafe {
            look_up!(NAMES, unsafe extern "C" fn(VALUE, *mut ID, usize) -> usize).map(Self::Names).or_else(
                || look_up!(ENTRIES, unsafe extern "C" fn(VALUE) -> *const GcFlag).map(Self::Entries),
            )
        }
    }

    /// What this Ruby lacks for it: one of the two.
    pub(crate) fn missing() -> Vec<&'static str> {
        let is_there = [NAMES, ENTRIES].iter().any(|name| !address(name).is_null());
        if is_there { Vec::new() } else { vec!["rb_gc_object_metadata"] }
    }

    /// Visits the flags of an object, in Ruby's order.
    ///
    /// # Safety
    /// It is an object of the heap.
    #[inline]
    pub(crate) unsafe fn each(self, object: VALUE, mut visit: impl FnMut(GcFlag)) {
        match self {
            Self::Names(names) => {
                let mut found = [const { MaybeUninit::<ID>::uninit() }; Self::MOST];
                // SAFETY: the caller's promise, and room for so many; Ruby fills in as many as it says.
                let found = unsafe {
                    let count = names(object, found.as_mut_ptr().cast(), Self::MOST);
                    std::slice::from_raw_parts(found.as_ptr().cast::<ID>(), count.min(Self::MOST))
                };
                for name in found {
                    visit(GcFlag { name: *name, value: rb_sys::Qtrue as VALUE });
                }
            }
            Self::Entries(entries) => {
                // SAFETY: the caller's promise; the answer ends with an entry without a name.
                unsafe {
                    let mut entry = entries(object);
                    for _ in 0..Self::MOST {
                        if entry.is_null() || (*entry).name == 0 {
                            break;
                        }
                        visit(*entry);
                        entry = entry.add(1);
                    }
                }
            }
        }
    }

    /// Whether the object has this flag, and it is true.
    ///
    /// # Safety
    /// It is an object of the heap.
    pub(crate) unsafe fn has(self, object: VALUE, name: ID) -> bool {
        let mut has = false;
        // SAFETY: the caller's promise.
        unsafe { self.each(object, |flag| has |= flag.name == name && flag.value == rb_sys::Qtrue as VALUE) };
        has
    }
}
