//! A short cut to "which line": the program counter of the innermost Ruby frame.
//!
//! Asking the VM for path and line costs more than half of a tracked allocation, and the answer is mostly the same
//! as a moment ago. The frame's instruction sequence and program counter stand for it: they are what the VM computes
//! path and line from. Reading them means knowing where the VM keeps them, which no function tells:
//!
//! | what | where | since |
//! |---|---|---|
//! | the VM stack, its length in words, the innermost control frame | words 0, 1, 2 of the execution context | 2.5 |
//! | program counter, 0 in a C frame; instruction sequence | words 0 and 2 of a control frame | 1.9 |
//! | the caller's control frame | behind it, so many words away as [`prepare`] finds | |
//!
//! So nothing is taken for granted: [`prepare`] compares what it reads with what `rb_profile_frames` says of the same
//! frames, and unless it fits the short cut stays closed and the VM's functions are asked each time.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use rb_sys::VALUE;

use super::context::{self, Context};
use super::functions;

/// Words from one control frame to its caller's; 0: the short cut is closed.
static STRIDE: AtomicUsize = AtomicUsize::new(0);
const STRIDES: std::ops::RangeInclusive<usize> = 6..=10;
/// C frames on top of the innermost Ruby frame that are looked through; below there is the long way.
const MOST_C_FRAMES: usize = 32;

/// Opens the short cut if what is read fits what the VM says. To be called by a C method that code outside of any
/// method calls: such a frame is named by its instruction sequence.
pub(super) fn prepare() {
    let Context::At(context) = context::current() else { return };
    let fits: Vec<usize> = STRIDES.filter(|stride| is_right(context, *stride)).collect();
    // Several that fit would mean that the check cannot tell them apart.
    if let [stride] = fits[..] {
        STRIDE.store(stride, Ordering::Release);
    }
}

fn is_right(context: *const c_void, stride: usize) -> bool {
    let Some(stack) = Stack::of(context, stride) else { return false };
    // Frames lie at the far end of the stack, one behind the other, none left over.
    if !(stack.end - stack.innermost).is_multiple_of(stride * size_of::<usize>()) {
        return false;
    }
    let Some(vm) = functions::get() else { return false };
    let (mut frames, mut lines): ([VALUE; 8], [i32; 8]) = ([0; 8], [0; 8]);
    // SAFETY: room for as many frames as are asked for; the caller is a C method, so there are frames.
    let count = unsafe { (vm.profile_frames)(0, 8, frames.as_mut_ptr(), lines.as_mut_ptr()) };
    let count = usize::try_from(count).unwrap_or(0);
    // C frames have line 0.
    let innermost = frames.iter().zip(lines).take(count).find(|(_, line)| *line != 0);
    stack.innermost_ruby_frame().zip(innermost).is_some_and(|((_, iseq), (named, _))| iseq as VALUE == *named)
}

/// What stands for the line that runs in this context; `None`: ask the long way.
#[inline]
pub(super) fn key(context: *const c_void) -> Option<(usize, u32)> {
    let stride = STRIDE.load(Ordering::Relaxed);
    if stride == 0 {
        return None;
    }
    let (counter, iseq) = Stack::of(context, stride)?.innermost_ruby_frame()?;
    Some((counter, (iseq >> 3) as u32))
}

struct Stack {
    innermost: usize,
    end: usize,
    stride: usize,
}

impl Stack {
    #[inline]
    fn of(context: *const c_void, stride: usize) -> Option<Self> {
        let words = context.cast::<usize>();
        // SAFETY: the context is the calling thread's own and alive; it begins with these three words.
        let (start, length, innermost) = unsafe { (*words, *words.add(1), *words.add(2)) };
        let end = start.wrapping_add(length.wrapping_mul(size_of::<usize>()));
        (start < innermost && innermost < end).then_some(Self { innermost, end, stride })
    }

    /// Its program counter and instruction sequence.
    #[inline]
    fn innermost_ruby_frame(&self) -> Option<(usize, usize)> {
        let mut frame = self.innermost;
        for _ in 0..MOST_C_FRAMES {
            if frame >= self.end {
                return None;
            }
            let words = frame as *const usize;
            // SAFETY: between the innermost frame and the end of the VM stack there are whole control frames.
            let (counter, iseq) = unsafe { (*words, *words.add(2)) };
            if counter != 0 {
                return Some((counter, iseq));
            }
            frame = frame.wrapping_add(self.stride * size_of::<usize>());
        }
        None
    }
}
