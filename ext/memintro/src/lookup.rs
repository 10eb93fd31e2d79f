//! Ruby's functions by name.
//!
//! Functions that the extension is linked against must exist when it is loaded, or nothing of memintro works. So it
//! is linked only against the stable C API for classes, strings and arrays. All other functions are looked up here at
//! run time. If a Ruby lacks one, only the features that need it are missing. (Lazy binding would not help: the first
//! call of a missing function ends the process.)
//!
//! This table lists the functions, the Rubies that have them, and what does not work without them. Layouts and flags
//! that differ between Rubies are in [`crate::atlas`].
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | those that tell lines, see [`crate::vm`] | `functions.rs` | | | native callers only |
//! | where a frame keeps its line, see [`crate::vm`] | `control_frames.rs`, `context.rs` | | | the VM is asked each time |
//! | whether young objects are moved, see [`crate::vm`] | `evacuation.rs` | no such heap | | the line that runs then gets them |
//! | those that read the heap, see [`crate::heap`] | `functions.rs` | | | no walk |
//! | those that collect and count, see [`crate::measure`] | `functions.rs` | | | measurements without objects and GC |
//! | those that postpone a job | [`postponing`] | | | forks that C code makes go unnoticed |
//! | `rb_thread_atfork` | yes | yes | yes | no socket in children that C code forks, and Ruby is not told of the fork |
//! | objects that are made, freed and moved | [`crate::object_events`] | | | they can be neither tracked nor measured |
//! | where new objects and marks are told, see [`crate::object_words`], [`crate::mark_bits`] | yes | yes | yes | functions are called for each object |
//! | `rb_thread_create` | yes | yes | yes | the same |
//! | those that tell when a thread gives up and takes Ruby's lock, see [`crate::moving_threads`] | no such threads | yes | yes | with `RUBY_MN_THREADS=1` threads may be untracked |
//! | `rb_thread_call_without_gvl2` | yes | yes | yes | other threads wait while the heap's figures are sorted |
//! | `rb_ext_ractor_safe` | yes | yes | yes | no method may be called from any Ractor but the main one |
//! | `ruby_thread_has_gvl_p`, `ruby_native_thread_p`, for magnus | yes | yes | yes | Ruby's lock is taken to be held (see [`stand_ins`]) |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).

use std::ffi::{CStr, c_void};

pub(crate) mod postponing;
mod stand_ins;

/// The function's address; null if this Ruby has none of this name.
pub(crate) fn address(name: &CStr) -> *mut c_void {
    // SAFETY: a look-up by name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Those of these functions that do not exist.
pub(crate) fn missing(names: &[&'static CStr]) -> Vec<&'static str> {
    names
        .iter()
        .filter(|name| address(name).is_null())
        .map(|name| name.to_str().unwrap_or_default())
        .collect()
}

/// A function of this type by name, or `None`.
///
/// # Safety
/// The name stands for a function of this type in every Ruby that has it.
macro_rules! look_up {
    ($name:expr, $type:ty) => {
        std::mem::transmute::<*mut std::ffi::c_void, Option<$type>>($crate::lookup::address($name))
    };
}
pub(crate) use look_up;
