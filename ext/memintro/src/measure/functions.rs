//! Ruby's functions that collect and count, looked up by name, so that a Ruby that lacks one still loads memintro.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_gc_start`, `rb_gc_stat` | yes | yes | yes | a measurement has no figures of objects and of the collector |
//! | those of [`crate::object_events`] | | | | the same |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).

use std::ffi::CStr;
use std::sync::OnceLock;

use rb_sys::VALUE;

use crate::lookup::{self, look_up};
use crate::object_events;

type Collect = unsafe extern "C" fn() -> VALUE;
type Stat = unsafe extern "C" fn(VALUE) -> usize;

const NAMES: [&CStr; 2] = [c"rb_gc_start", c"rb_gc_stat"];

/// The functions.
pub(crate) struct Functions {
    /// Collects all garbage at once.
    pub(crate) collect: Collect,
    /// A counter of `GC.stat`, by its Symbol.
    pub(crate) stat: Stat,
}

/// All of them; `None` if this Ruby lacks one, or one of those that tell of objects.
pub(crate) fn functions() -> Option<&'static Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref()
}

/// The names of those that this Ruby lacks.
pub(crate) fn missing() -> Vec<&'static str> {
    object_events::missing().into_iter().chain(lookup::missing(&NAMES)).collect()
}

fn find() -> Option<Functions> {
    if !object_events::missing().is_empty() {
        return None;
    }
    // SAFETY: functions of these types in every Ruby that has them.
    unsafe { Some(Functions { collect: look_up!(NAMES[0], Collect)?, stat: look_up!(NAMES[1], Stat)? }) }
}
