//! How far the calling thread's machine stack goes: that of its fiber, if it runs one.
//!
//! No function tells. But the collector looks for references from the thread's place on that stack up to its beginning, so
//! the VM keeps the beginning in the execution context:
//!
//! | what | where | since |
//! |---|---|---|
//! | the stack's beginning, which has the greatest address; its last known end; its greatest size in bytes | three words of the execution context, one behind the other | 2.5 |
//!
//! Known from `vm_core.h` of 3.1, 3.3 and 3.4 (`rb_execution_context_t.machine`). [`learn`] looks for the one place where
//! the context has three such words: a place on this stack above the caller, one below it or none, and a size that holds
//! both.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::context::{self, Context};
use super::control_frames;
use super::probe::Probe;

/// Words of an execution context that are searched: those that all Rubies have before the registers.
const WORDS: usize = 40;
/// The least and greatest sizes of a stack that are believed.
const SIZES: std::ops::RangeInclusive<usize> = 16 << 10..=64 << 20;
/// The caller is at most so far from the beginning of its stack.
const NEAR: usize = 1 << 20;

/// Index of the first of the three words; `UNKNOWN` until it is learnt.
static WORD: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = usize::MAX;

/// Looks for them. To be called under the GVL, outside of malloc.
pub(crate) fn learn() {
    let here = 0_u8;
    if let Some(word) = find((&raw const here).addr()) {
        WORD.store(word, Ordering::Release);
    }
}

/// Bytes from here to the beginning of the calling thread's stack; 0: not known.
pub(crate) fn used_bytes() -> usize {
    let here = 0_u8;
    let here = (&raw const here).addr();
    // SAFETY: a method of Ruby calls this.
    unsafe { stack_end(here) }.saturating_sub(here)
}

fn find(here: usize) -> Option<usize> {
    control_frames::opened()?;
    let Context::At(context) = context::current() else { return None };
    let words: [usize; WORDS] = Probe::new()?.words(context as usize)?;
    let mut right = words.windows(3).enumerate().filter(|(_, words)| match *words {
        [begin, end, size] => {
            SIZES.contains(size)
                && here < *begin
                && begin.wrapping_sub(here) < NEAR.min(*size)
                && (*end == 0 || begin.wrapping_sub(*end) <= *size)
        }
        _ => false,
    });
    // If several look right, none can be believed.
    match (right.next(), right.next()) {
        (Some((word, _)), None) => Some(word),
        _ => None,
    }
}

/// Up to where this stack may be read from this address on; 0 if it is not known, or if the address is elsewhere. To be
/// called by a thread that has an execution context and the GVL.
pub(crate) unsafe extern "C" fn stack_end(address: usize) -> usize {
    let word = WORD.load(Ordering::Relaxed);
    if word == UNKNOWN {
        return 0;
    }
    let Context::At(context) = context::current() else { return 0 };
    // SAFETY: the context is the calling thread's own and alive; `learn` has found the words in one.
    let (begin, size) = unsafe { read(context, word) };
    if address < begin && begin.wrapping_sub(address) < size { begin } else { 0 }
}

/// # Safety
/// The context is alive, and the three words are there.
unsafe fn read(context: *const c_void, word: usize) -> (usize, usize) {
    let words = context.cast::<usize>();
    // SAFETY: the caller's promise.
    unsafe { (*words.add(word), *words.add(word + 2)) }
}
