//! Ruby's functions by name.
//!
//! What the extension is linked against has to be there when it is loaded, or nothing of memintro works. That is only
//! asked of the stable C API that classes, strings and arrays are made with. All else that memintro calls is looked up
//! here at run time, and what a Ruby lacks is missed by whatever needs it. (Binding lazily would be no help: the first
//! call of a function that is not there ends the process.)
//!
//! What differs from one Ruby to the next differs here: each function is in a table with the Rubies that have it.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | those that tell lines, see [`crate::vm`] | `functions.rs` | | | native callers only |
//! | where a frame keeps its line, see [`crate::vm`] | `control_frames.rs`, `context.rs` | | | the VM is asked each time |
//! | whether young objects are moved, see [`crate::vm`] | `evacuation.rs` | no such heap | | the line that runs then gets them |
//! | those that read the heap, see [`crate::heap`] | `functions.rs` | | | no walk |
//! | those that postpone a job | [`postponing`] | | | forks that C code makes go unnoticed |
//! | `rb_thread_create` | yes | yes | yes | the same |
//! | `rb_thread_call_without_gvl2` | yes | yes | yes | other threads wait while the heap's figures are sorted |
//! | `rb_ext_ractor_safe` | yes | yes | yes | no method may be called from any Ractor but the main one |
//! | `ruby_thread_has_gvl_p`, `ruby_native_thread_p`, for magnus | yes | yes | yes | Ruby's lock is taken to be held (see [`stand_ins`]) |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).

use std::ffi::{CStr, c_void};

pub(crate) mod postponing;
mod stand_ins;

/// Where the function is; null where there is none of this name.
pub(crate) fn address(name: &CStr) -> *mut c_void {
    // SAFETY: a look-up by name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Which of these there are not.
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
