//! The VM's functions, looked up by name: a gem built for one patch release works on the next, and a Ruby that lacks
//! one still loads memintro.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `ruby_thread_has_gvl_p`, `rb_during_gc`, `rb_gc_count` | yes | yes | yes | no Ruby lines: native callers only |
//! | `rb_sourcefile`, `rb_sourceline` | yes | yes | yes | the same |
//! | `rb_profile_frames`, `rb_profile_frame_path` | yes | yes | yes | the same |
//! | `ruby_vm_at_exit`, which ends the questions with the VM | yes | yes | yes | the same |
//! | `rb_source_location_cstr` | yes | no | no | `rb_sourcefile` and `rb_sourceline` instead |
//! | `ruby_current_ec` (a variable, see [`super::context`]) | yes | no | no | `rb_profile_frames` tells, and the thread object leads to it |
//! | `rb_thread_current` | yes | yes | yes | no short cut |
//! | `rb_profile_frame_first_lineno` | yes | yes | yes | a frame that has gone astray is put down to the native caller |
//! | `rb_profile_frame_label` | yes | yes | yes | stacks have no names of methods |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use rb_sys::VALUE;

use crate::lookup::{self, look_up};

type AtExit = unsafe extern "C" fn(*mut rb_sys::ruby_vm_t);

/// The functions that this Ruby has.
pub(super) struct Functions {
    pub(super) has_gvl: unsafe extern "C" fn() -> c_int,
    pub(super) during_gc: unsafe extern "C" fn() -> c_int,
    pub(super) gc_count: unsafe extern "C" fn() -> usize,
    pub(super) source_file: unsafe extern "C" fn() -> *const c_char,
    pub(super) source_line: unsafe extern "C" fn() -> c_int,
    pub(super) profile_frames: unsafe extern "C" fn(c_int, c_int, *mut VALUE, *mut c_int) -> c_int,
    pub(super) profile_frame_path: unsafe extern "C" fn(VALUE) -> VALUE,
    pub(super) at_exit: unsafe extern "C" fn(AtExit),
    pub(super) source_location: Option<unsafe extern "C" fn(*mut c_int) -> *const c_char>,
    pub(super) thread_current: Option<unsafe extern "C" fn() -> VALUE>,
    pub(super) frame_label: Option<unsafe extern "C" fn(VALUE) -> VALUE>,
    pub(super) frame_first_line: Option<unsafe extern "C" fn(VALUE) -> VALUE>,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Functions without which lines cannot be read.
const NEEDED: [&CStr; 8] = [
    c"ruby_thread_has_gvl_p",
    c"rb_during_gc",
    c"rb_gc_count",
    c"rb_sourcefile",
    c"rb_sourceline",
    c"rb_profile_frames",
    c"rb_profile_frame_path",
    c"ruby_vm_at_exit",
];

/// The functions, once [`prepare`] has found them all.
#[inline]
pub(super) fn get() -> Option<&'static Functions> {
    FUNCTIONS.get()
}

/// Names of required functions that this Ruby lacks.
pub(super) fn missing() -> Vec<&'static str> {
    lookup::missing(&NEEDED)
}

/// Looks all of them up; returns whether all required ones exist.
pub(super) fn prepare() -> bool {
    find().is_some_and(|functions| FUNCTIONS.set(functions).is_ok() || get().is_some())
}

fn find() -> Option<Functions> {
    // SAFETY: each name stands for a function of the type of its field, in every Ruby that has it.
    unsafe {
        Some(Functions {
            has_gvl: look_up!(NEEDED[0], unsafe extern "C" fn() -> c_int)?,
            during_gc: look_up!(NEEDED[1], unsafe extern "C" fn() -> c_int)?,
            gc_count: look_up!(NEEDED[2], unsafe extern "C" fn() -> usize)?,
            source_file: look_up!(NEEDED[3], unsafe extern "C" fn() -> *const c_char)?,
            source_line: look_up!(NEEDED[4], unsafe extern "C" fn() -> c_int)?,
            profile_frames: look_up!(
                NEEDED[5],
                unsafe extern "C" fn(c_int, c_int, *mut VALUE, *mut c_int) -> c_int
            )?,
            profile_frame_path: look_up!(NEEDED[6], unsafe extern "C" fn(VALUE) -> VALUE)?,
            at_exit: look_up!(NEEDED[7], unsafe extern "C" fn(AtExit))?,
            source_location: look_up!(
                c"rb_source_location_cstr",
                unsafe extern "C" fn(*mut c_int) -> *const c_char
            ),
            thread_current: look_up!(c"rb_thread_current", unsafe extern "C" fn() -> VALUE),
            frame_label: look_up!(c"rb_profile_frame_label", unsafe extern "C" fn(VALUE) -> VALUE),
            frame_first_line: look_up!(
                c"rb_profile_frame_first_lineno",
                unsafe extern "C" fn(VALUE) -> VALUE
            ),
        })
    }
}
