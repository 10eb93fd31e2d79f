//! The machine stack, where addresses of objects are left over that are no longer held.
//!
//! The collector takes each word of the stack that may be an object for one. Frames have words that they do not write, so
//! it finds there what earlier and deeper calls have left. Code that runs in [`deeper`] leaves nothing where the
//! frames between here and [`clear`] will be, and [`clear`] overwrites the rest, as deep as a collection reaches.

use std::hint::black_box;

/// More than the frames between a method of Ruby and a function of this file take.
const DEEPER_BYTES: usize = 8 * 1024;
/// With the above, more than a collection takes, and less than the smallest stack of a fiber has.
const CLEARED_BYTES: usize = 24 * 1024;

/// Does this further down the stack.
#[inline(never)]
pub(crate) fn deeper<R>(work: impl FnOnce() -> R) -> R {
    let mut words = [0usize; DEEPER_BYTES / size_of::<usize>()];
    black_box(&mut words);
    let answer = inner(work);
    black_box(&mut words);
    answer
}

/// Keeps what the work needs out of the frame above.
#[inline(never)]
fn inner<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Overwrites what earlier calls have left below.
#[inline(never)]
pub(crate) fn clear() {
    let mut words = [0usize; CLEARED_BYTES / size_of::<usize>()];
    black_box(&mut words);
}
