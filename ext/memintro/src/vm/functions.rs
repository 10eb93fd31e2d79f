//! The VM's functions, looked up by name: a gem built for one patch release works on the next, and a Ruby that lacks
//! one still loads memintro.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `ruby_thread_has_gvl_p`, `rb_during_gc`, `rb_gc_count` | yes | yes | yes | no Ruby lines: native callers only |
//! | `rb_sourcefile`, `rb_sourceline` | yes | yes | yes | the same |
//! | `rb_profile_frames`, `rb_profile_frame_path` | yes | yes | yes | the same |
//! | `rb_source_location_cstr` | yes | no | no | `rb_sourcefile` and `rb_sourceline` instead |
//! | `ruby_current_ec` (a variable, see [`super::context`]) | yes | no | no | `rb_profile_frames` tells, and the thread object leads to it |
//! | `rb_thread_current` | yes | yes | yes | no short cut |
//! | `rb_profile_frame_first_lineno` | yes | yes | yes | a frame that has gone astray is put down to the native caller |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use rb_sys::VALUE;

/// What this Ruby has.
pub(super) struct Functions {
    pub(super) has_gvl: unsafe extern "C" fn() -> c_int,
    pub(super) during_gc: unsafe extern "C" fn() -> c_int,
    pub(super) gc_count: unsafe extern "C" fn() -> usize,
    pub(super) source_file: unsafe extern "C" fn() -> *const c_char,
    pub(super) source_line: unsafe extern "C" fn() -> c_int,
    pub(super) profile_frames: unsafe extern "C" fn(c_int, c_int, *mut VALUE, *mut c_int) -> c_int,
    pub(super) profile_frame_path: unsafe extern "C" fn(VALUE) -> VALUE,
    pub(super) source_location: Option<unsafe extern "C" fn(*mut c_int) -> *const c_char>,
    pub(super) thread_current: Option<unsafe extern "C" fn() -> VALUE>,
    pub(super) frame_first_line: Option<unsafe extern "C" fn(VALUE) -> VALUE>,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
static MISSING: OnceLock<Vec<&'static str>> = OnceLock::new();

/// They, once [`prepare`] has found them all.
#[inline]
pub(super) fn get() -> Option<&'static Functions> {
    FUNCTIONS.get()
}

/// Names of those that this Ruby lacks and that cannot be done without.
pub(super) fn missing() -> &'static [&'static str] {
    MISSING.get().map_or(&[], Vec::as_slice)
}

/// Looks for all of them; answers whether none is missing that is needed.
pub(super) fn prepare() -> bool {
    let mut missing = Vec::new();
    // SAFETY: each name stands for a function of the type of its field, in every Ruby that has it.
    let found = unsafe {
        let functions = (
            needed(c"ruby_thread_has_gvl_p", &mut missing),
            needed(c"rb_during_gc", &mut missing),
            needed(c"rb_gc_count", &mut missing),
            needed(c"rb_sourcefile", &mut missing),
            needed(c"rb_sourceline", &mut missing),
            needed(c"rb_profile_frames", &mut missing),
            needed(c"rb_profile_frame_path", &mut missing),
        );
        match functions {
            (Some(gvl), Some(gc), Some(count), Some(file), Some(line), Some(frames), Some(path)) => {
                Some(Functions {
                    has_gvl: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> c_int>(gvl),
                    during_gc: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> c_int>(gc),
                    gc_count: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> usize>(
                        count,
                    ),
                    source_file: std::mem::transmute::<
                        *mut libc::c_void,
                        unsafe extern "C" fn() -> *const c_char,
                    >(file),
                    source_line: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> c_int>(
                        line,
                    ),
                    profile_frames: std::mem::transmute::<
                        *mut libc::c_void,
                        unsafe extern "C" fn(c_int, c_int, *mut VALUE, *mut c_int) -> c_int,
                    >(frames),
                    profile_frame_path: std::mem::transmute::<
                        *mut libc::c_void,
                        unsafe extern "C" fn(VALUE) -> VALUE,
                    >(path),
                    source_location: std::mem::transmute::<
                        *mut libc::c_void,
                        Option<unsafe extern "C" fn(*mut c_int) -> *const c_char>,
                    >(libc::dlsym(
                        libc::RTLD_DEFAULT,
                        c"rb_source_location_cstr".as_ptr(),
                    )),
                    thread_current: std::mem::transmute::<
                        *mut libc::c_void,
                        Option<unsafe extern "C" fn() -> VALUE>,
                    >(libc::dlsym(
                        libc::RTLD_DEFAULT,
                        c"rb_thread_current".as_ptr(),
                    )),
                    frame_first_line: std::mem::transmute::<
                        *mut libc::c_void,
                        Option<unsafe extern "C" fn(VALUE) -> VALUE>,
                    >(libc::dlsym(
                        libc::RTLD_DEFAULT,
                        c"rb_profile_frame_first_lineno".as_ptr(),
                    )),
                })
            }
            _ => None,
        }
    };
    let _ = MISSING.set(missing);
    found.is_some_and(|functions| FUNCTIONS.set(functions).is_ok() || get().is_some())
}

fn needed(name: &'static CStr, missing: &mut Vec<&'static str>) -> Option<*mut libc::c_void> {
    // SAFETY: a look-up by name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        missing.push(name.to_str().unwrap_or_default());
        return None;
    }
    Some(found)
}
