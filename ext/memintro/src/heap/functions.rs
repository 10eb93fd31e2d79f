//! What the heap is read with, looked up by name: a Ruby that lacks one still loads memintro.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_objspace_each_objects`, `rb_obj_memsize_of`, `rb_imemo_name` | yes | yes | yes | nothing of this works |
//! | `rb_objspace_internal_object_p` | yes | yes | yes | the same |
//! | `rb_iseq_path`, `rb_iseq_label`, `rb_iseq_first_lineno` | yes | yes | yes | an iseq has no path, label or line |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use rb_sys::VALUE;

/// Called for every page: first slot, end, distance of slots, and the caller's own word.
pub(super) type PageCallback = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void) -> c_int;
type OfValue = unsafe extern "C" fn(VALUE) -> VALUE;

/// What this Ruby has.
pub(super) struct Functions {
    pub(super) each_page: unsafe extern "C" fn(PageCallback, *mut c_void),
    pub(super) memsize: unsafe extern "C" fn(VALUE) -> usize,
    pub(super) imemo_name: unsafe extern "C" fn(c_int) -> *const c_char,
    pub(super) internal: unsafe extern "C" fn(VALUE) -> c_int,
    pub(super) iseq_path: Option<OfValue>,
    pub(super) iseq_label: Option<OfValue>,
    pub(super) iseq_line: Option<OfValue>,
}

static FUNCTIONS: OnceLock<Result<Functions, &'static str>> = OnceLock::new();

/// They, or the name of one that is missing.
pub(super) fn get() -> Result<&'static Functions, &'static str> {
    FUNCTIONS.get_or_init(look_up).as_ref().map_err(|missing| *missing)
}

fn look_up() -> Result<Functions, &'static str> {
    // SAFETY: each name stands for a function of the type of its field, in every Ruby that has it.
    unsafe {
        Ok(Functions {
            each_page: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(PageCallback, *mut c_void)>(
                needed(c"rb_objspace_each_objects")?,
            ),
            memsize: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(VALUE) -> usize>(needed(
                c"rb_obj_memsize_of",
            )?),
            imemo_name: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(
                needed(c"rb_imemo_name")?,
            ),
            internal: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(VALUE) -> c_int>(needed(
                c"rb_objspace_internal_object_p",
            )?),
            iseq_path: std::mem::transmute::<*mut c_void, Option<OfValue>>(address(c"rb_iseq_path")),
            iseq_label: std::mem::transmute::<*mut c_void, Option<OfValue>>(address(c"rb_iseq_label")),
            iseq_line: std::mem::transmute::<*mut c_void, Option<OfValue>>(address(c"rb_iseq_first_lineno")),
        })
    }
}

fn needed(name: &'static CStr) -> Result<*mut c_void, &'static str> {
    let found = address(name);
    if found.is_null() { Err(name.to_str().unwrap_or("a function")) } else { Ok(found) }
}

fn address(name: &CStr) -> *mut c_void {
    // SAFETY: a look-up by name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}
