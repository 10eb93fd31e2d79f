//! Reads the key of the running line where the VM keeps it, in place of a call of [`memintro_abi::VmSource::frame`].
//!
//! It gives the same answer, or none. The places are the extension's ([`memintro_abi::VmWords`]), which has found them
//! while the program runs and compared them with the VM's own answers.

use core::sync::atomic::Ordering;

use memintro_abi::VmWords;
use memintro_tracker::order;

use crate::{shared, tls};

/// The running line, as [`memintro_abi::Frame`] names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) key: usize,
    pub(crate) detail: u32,
    pub(crate) generation: u32,
}

/// The line that runs now; `None`: the VM has to be asked.
#[inline(always)]
pub(crate) fn running() -> Option<Line> {
    read(shared::words_of_lines())
}

#[inline(always)]
fn read(words: &VmWords) -> Option<Line> {
    let stride = words.stride.load(Ordering::Acquire);
    if stride == 0 {
        return None;
    }
    // SAFETY: the extension says that each thread has words at these distances. The VM's thread may be asked for the lock
    // whenever it is known; a context begins with the VM stack, its length in words, and the innermost frame, and is alive
    // while the thread has the lock.
    let (context, innermost) = unsafe {
        let context = tls::word_at(words.context.load(Ordering::Relaxed)) as *const u8;
        let thread = tls::word_at(words.thread.load(Ordering::Relaxed)) as *const u8;
        if context.is_null()
            || thread.is_null()
            || *thread.add(words.without_lock.load(Ordering::Relaxed)).cast::<usize>() != 0
        {
            return None;
        }
        let collecting = words.collecting.load(Ordering::Relaxed).read_volatile()
            & words.collecting_mask.load(Ordering::Relaxed);
        let half = *context.add(words.mask.load(Ordering::Relaxed)).cast::<u32>();
        if collecting != 0 || !half & words.masks.load(Ordering::Relaxed) == 0 {
            return None;
        }
        (context.cast::<usize>(), *context.cast::<usize>().add(2))
    };
    // SAFETY: as above.
    unsafe { innermost_line(words, context, innermost, stride) }
}

/// The line that runs now, amid an event of a new object: the VM tells of one only to a thread that has its lock and
/// frames, and not while it collects. `None`: the VM has to be asked.
#[inline(always)]
pub(crate) fn of_event() -> Option<Line> {
    let words = shared::words_of_lines();
    let stride = words.stride.load(Ordering::Acquire);
    if stride == 0 {
        return None;
    }
    // SAFETY: as in `read`.
    unsafe {
        let context = tls::word_at(words.context.load(Ordering::Relaxed)) as *const usize;
        if context.is_null() {
            return None;
        }
        innermost_line(words, context, *context.add(2), stride)
    }
}

/// # Safety
/// The context is this thread's, and has this innermost frame; the words may be used.
#[inline(always)]
unsafe fn innermost_line(
    words: &VmWords,
    context: *const usize,
    innermost: usize,
    stride: usize,
) -> Option<Line> {
    // SAFETY: the words of the VM are there as long as they are lent. A generation wraps at 2^32; ages are differences.
    let generation = unsafe { words.collections.load(Ordering::Relaxed).read_volatile() as u32 };
    // SAFETY: the caller's promise.
    let [start, length] = unsafe { *context.cast::<[usize; 2]>() };
    let end = start.wrapping_add(length.wrapping_mul(size_of::<usize>()));
    if innermost <= start {
        return None;
    }
    order::keep();
    let mut frame = innermost;
    while frame < end {
        // SAFETY: between the innermost frame and the end of the VM stack there are whole frames.
        let (counter, code) = unsafe { (*(frame as *const usize), *(frame as *const usize).add(2)) };
        if counter != 0 && code != 0 {
            return Some(Line {
                key: counter ^ words.marks.load(Ordering::Relaxed),
                detail: (code >> 3) as u32,
                generation,
            });
        }
        frame = frame.wrapping_add(stride);
    }
    None
}
