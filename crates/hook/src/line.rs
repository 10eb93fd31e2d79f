//! Reads the key of the running line from the VM's memory, without a call of
//! [`memintro_abi::VmSource::frame`].
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
    let (context, innermost) = gate(words)?;
    // SAFETY: the gate is passed.
    unsafe { innermost_line(words, context, innermost, stride) }
}

/// The execution context and the innermost frame of this thread, if it holds the VM's lock and is in no state
/// that only the VM can tell. The words may be used.
#[inline(always)]
fn gate(words: &VmWords) -> Option<(*const usize, usize)> {
    // SAFETY: the extension says that each thread has words at these distances. The VM's thread may be asked for the lock
    // whenever it is known; a context begins with the VM stack, its length in words, and the innermost frame, and is alive
    // while the thread has the lock.
    unsafe {
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
        Some((context.cast::<usize>(), *context.cast::<usize>().add(2)))
    }
}

/// Whether stacks are read here.
#[inline(always)]
pub(crate) fn reads_stacks() -> bool {
    shared::words_of_stacks().stride.load(Ordering::Relaxed) != 0
}

/// The innermost Ruby frames of this thread's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    innermost: usize,
    end: usize,
    stride: usize,
    depth: u32,
    /// Identifies one marking of one collection. Addresses of code are valid until the next one.
    pub(crate) stamp: u64,
}

/// The number of frames to read, where a call site is a whole stack; `None`: the VM must be asked.
#[inline(always)]
pub(crate) fn frames(depth: u32) -> Option<Frames> {
    let words = shared::words_of_stacks();
    let stride = words.stride.load(Ordering::Acquire);
    if stride == 0 {
        return None;
    }
    let (context, innermost) = gate(words)?;
    // SAFETY: the words of the VM are there as long as they are lent. A generation wraps at 2^32; ages are differences.
    let generation = unsafe { words.collections.load(Ordering::Relaxed).read_volatile() as u32 };
    // SAFETY: the gate is passed.
    let [start, length] = unsafe { *context.cast::<[usize; 2]>() };
    let end = start.wrapping_add(length.wrapping_mul(size_of::<usize>()));
    let stamp = words.marks.load(Ordering::Relaxed) as u64 ^ u64::from(generation);
    (innermost > start && innermost < end).then_some(Frames { innermost, end, stride, depth, stamp })
}

impl Frames {
    /// The generation now.
    #[inline(always)]
    pub(crate) fn generation(&self) -> u32 {
        // The bits above hold the count of markings.
        self.stamp as u32
    }

    /// Program counter and code of each, the innermost first, as long as `visit` wants more.
    #[inline(always)]
    pub(crate) fn each(&self, mut visit: impl FnMut(usize, usize) -> bool) {
        let (mut frame, mut left) = (self.innermost, self.depth);
        while frame < self.end {
            // SAFETY: between the innermost frame and the end of the VM stack there are whole frames.
            let (counter, code) = unsafe { (*(frame as *const usize), *(frame as *const usize).add(2)) };
            if counter != 0 && code != 0 {
                if !visit(counter, code) {
                    return;
                }
                left = left.wrapping_sub(1);
                if left == 0 {
                    return;
                }
            }
            frame = frame.wrapping_add(self.stride);
        }
    }

    /// A key for the code that runs in a frame, and a second word of it: with the generation, they are valid
    /// for one marking.
    pub(crate) fn key(&self, counter: usize, code: usize) -> (usize, u32) {
        (counter ^ (self.stamp & !u64::from(u32::MAX)) as usize, (code >> 3) as u32)
    }

    /// Two hashes of them, 96 bits in all; the first one is 0 if there is no frame.
    #[inline(always)]
    pub(crate) fn hash(&self) -> (u64, u32) {
        let (mut counters, mut codes) = (0_u64, 0_u64);
        self.each(|counter, code| {
            counters = (counters.rotate_left(7) ^ counter as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            codes = codes.rotate_left(9) ^ code as u64;
            true
        });
        // The lower bits of a product depend on the lower bits of its factors alone.
        (counters ^ (counters >> 29), (codes.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) as u32)
    }
}

/// The line that runs now, during an event of a new object. The VM sends this event only to a thread that has
/// its lock and frames, and not while it collects. `None`: the VM must be asked.
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
