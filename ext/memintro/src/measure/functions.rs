//! Ruby's functions that say when objects are made and freed. They are looked up by name, so that a Ruby that lacks one
//! still loads memintro.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_tracepoint_new`, `rb_tracepoint_enable`, `rb_tracepoint_disable`, `rb_tracearg_from_tracepoint`, `rb_tracearg_event_flag`, `rb_tracearg_object`, `rb_gc_location`, `rb_gc_register_mark_object`, `rb_gc_start`, `rb_gc_stat` | yes | yes | yes | a measurement has no figures of objects and of the collector |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use rb_sys::VALUE;

use crate::lookup::{self, look_up};

/// Called for each event with the tracepoint and the word that was given with it.
pub(super) type Handler = unsafe extern "C" fn(VALUE, *mut c_void);
type OfValue = unsafe extern "C" fn(VALUE) -> VALUE;

const NAMES: [&CStr; 10] = [
    c"rb_tracepoint_new",
    c"rb_tracepoint_enable",
    c"rb_tracepoint_disable",
    c"rb_tracearg_from_tracepoint",
    c"rb_tracearg_event_flag",
    c"rb_tracearg_object",
    c"rb_gc_location",
    c"rb_gc_register_mark_object",
    c"rb_gc_start",
    c"rb_gc_stat",
];

/// The functions.
pub(crate) struct Functions {
    pub(super) new: unsafe extern "C" fn(VALUE, u32, Handler, *mut c_void) -> VALUE,
    pub(super) enable: OfValue,
    pub(super) disable: OfValue,
    pub(super) event: unsafe extern "C" fn(VALUE) -> *mut c_void,
    pub(super) flag: unsafe extern "C" fn(*mut c_void) -> u32,
    pub(super) object: unsafe extern "C" fn(*mut c_void) -> VALUE,
    pub(super) location: OfValue,
    pub(super) keep: unsafe extern "C" fn(VALUE),
    /// Collects all garbage at once.
    pub(crate) collect: unsafe extern "C" fn() -> VALUE,
    /// A counter of `GC.stat`, by its Symbol.
    pub(crate) stat: unsafe extern "C" fn(VALUE) -> usize,
}

/// All of them; `None` if this Ruby lacks one.
pub(crate) fn functions() -> Option<&'static Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    FOUND.get_or_init(found).as_ref()
}

/// The names of those that this Ruby lacks.
pub(crate) fn missing() -> Vec<&'static str> {
    lookup::missing(&NAMES)
}

fn found() -> Option<Functions> {
    // SAFETY: functions of these types in every Ruby that has them.
    unsafe {
        Some(Functions {
            new: look_up!(
                c"rb_tracepoint_new",
                unsafe extern "C" fn(VALUE, u32, Handler, *mut c_void) -> VALUE
            )?,
            enable: look_up!(c"rb_tracepoint_enable", OfValue)?,
            disable: look_up!(c"rb_tracepoint_disable", OfValue)?,
            event: look_up!(c"rb_tracearg_from_tracepoint", unsafe extern "C" fn(VALUE) -> *mut c_void)?,
            flag: look_up!(c"rb_tracearg_event_flag", unsafe extern "C" fn(*mut c_void) -> u32)?,
            object: look_up!(c"rb_tracearg_object", unsafe extern "C" fn(*mut c_void) -> VALUE)?,
            location: look_up!(c"rb_gc_location", OfValue)?,
            keep: look_up!(c"rb_gc_register_mark_object", unsafe extern "C" fn(VALUE))?,
            collect: look_up!(c"rb_gc_start", unsafe extern "C" fn() -> VALUE)?,
            stat: look_up!(c"rb_gc_stat", unsafe extern "C" fn(VALUE) -> usize)?,
        })
    }
}
