//! Remembers the data of extension's objects that are freed although their type has no free function: what they point to
//! is then lost, and only now it can be told which type it was of.

use std::ffi::c_void;

use magnus::{Error, Ruby};
use parking_lot::Mutex;
use rb_sys::VALUE;

use crate::heap::data::Unfreed;
use crate::object_events::{self, FREED};
use crate::{callers, hook_link, vm};

/// An object that was freed, and the number of collections at that time.
pub(crate) struct Gone {
    pub(crate) of: Unfreed,
    pub(crate) generation: u32,
}

static GONE: Mutex<Vec<Gone>> = Mutex::new(Vec::new());
/// More are not remembered.
const MOST: usize = 1 << 20;

/// Listens from now on. `false`: this Ruby tells of no events.
pub(crate) fn begin(ruby: &Ruby) -> Result<bool, Error> {
    let Some(functions) = object_events::functions(ruby) else { return Ok(false) };
    functions.listen(freed, FREED)?;
    Ok(true)
}

/// Those that were freed so far.
pub(crate) fn gone<R>(read: impl FnOnce(&[Gone]) -> R) -> R {
    read(&GONE.lock())
}

unsafe extern "C" fn freed(_: VALUE, argument: *mut c_void) {
    let Some(functions) = object_events::found() else { return };
    // SAFETY: Ruby's own argument; the object is still in its slot.
    let Some(of) = (unsafe { Unfreed::of(functions.object(argument)) }) else { return };
    let (Some(api), Some(mut gone)) = (hook_link::found(), GONE.try_lock()) else { return };
    if gone.len() < MOST {
        let generation = vm::gc_count().unwrap_or(0) as u32;
        callers::untracked(api, || gone.push(Gone { of, generation }));
    }
}
