//! A short cut to the running line: the program counter of the innermost Ruby frame.
//!
//! Asking the VM for path and line costs more than half of a tracked allocation, and the answer is mostly the same as
//! a moment ago. The VM computes path and line from the frame's instruction sequence and program counter, so these
//! identify the answer. No function tells where the VM keeps them:
//!
//! | what | where | since |
//! |---|---|---|
//! | the VM stack, its length in words, the innermost control frame | words 0, 1, 2 of the execution context | 2.5 |
//! | program counter, 0 in a C frame (but left over under YJIT) | word 0 of a control frame | 1.9 |
//! | instruction sequence, 0 in a C frame | word 2 of a control frame | 1.9 |
//! | the caller's control frame | behind it, so many words away as [`prepare`] finds | |
//! | the sequence's body | word 2 of an instruction sequence | 2.5 |
//! | the sequence's length in words, its instructions | second half of word 0, and word 1, of the body | 2.5 |
//!
//! Known from `vm_core.h` of 3.1, 3.3 and 3.4 (`rb_execution_context_t`, `rb_control_frame_t`, `rb_iseq_constant_body`).
//!
//! So [`prepare`] compares what it reads with the result of `rb_profile_frames` for the same frames. If they differ,
//! the short cut stays closed, and the VM's functions are called each time.
//!
//! Compiled code (YJIT) writes a frame's program counter only before it calls something that may need it. When the
//! compiler itself allocates, in the middle of a call, the counter may belong to a former frame at the same place,
//! and the VM's functions crash on it. [`astray`] detects such a frame.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use rb_sys::VALUE;

use super::context::{self, Context};
use super::functions;
use super::probe::Probe;

/// Words from one control frame to its caller's; 0: the short cut is closed.
static STRIDE: AtomicUsize = AtomicUsize::new(0);
const STRIDES: std::ops::RangeInclusive<usize> = 6..=10;
/// C frames on top of the innermost Ruby frame that are skipped. If there are more, the VM's functions are called.
const MOST_C_FRAMES: usize = 32;

/// Opens the short cut if what is read agrees with the VM's answer. To be called by a C method that code outside of
/// any method calls, because such a frame is named by its instruction sequence.
pub(super) fn prepare() {
    let Some(probe) = Probe::new() else { return };
    context::find_in_thread(&probe, |context| stride(&probe, context).is_some());
    let Context::At(context) = context::current() else { return };
    if let Some(stride) = stride(&probe, context) {
        STRIDE.store(stride, Ordering::Release);
    }
}

/// Words from a frame to its caller's, if the short cut is open.
pub(super) fn opened() -> Option<usize> {
    match STRIDE.load(Ordering::Acquire) {
        0 => None,
        stride => Some(stride),
    }
}

/// The one stride with which this context has the frames that the VM reports.
fn stride(probe: &Probe, context: *const c_void) -> Option<usize> {
    let fits: Vec<usize> = STRIDES.filter(|stride| is_right(probe, context, *stride)).collect();
    // If several agree, the check cannot tell them apart.
    if let [stride] = fits[..] { Some(stride) } else { None }
}

fn is_right(probe: &Probe, context: *const c_void, stride: usize) -> bool {
    let Some(stack) = probe.words(context as usize).and_then(|words| Stack::from(words, stride)) else {
        return false;
    };
    // Frames are at the far end of the stack, one behind the other, and fill it exactly.
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
    let mut frame = stack.innermost;
    while frame < stack.end {
        let Some([counter, _, iseq]) = probe.words(frame) else { return false };
        if counter != 0 && iseq != 0 {
            return innermost.is_some_and(|(named, _)| iseq as VALUE == *named)
                && Instructions::probed(probe, iseq).is_some_and(|instructions| instructions.have(counter));
        }
        frame += stride * size_of::<usize>();
    }
    false
}

/// A key for the line that runs in this context; `None`: ask the VM's functions.
#[inline]
pub(super) fn key(context: *const c_void) -> Option<(usize, u32)> {
    let stride = STRIDE.load(Ordering::Relaxed);
    if stride == 0 {
        return None;
    }
    let (counter, iseq) = Stack::read(context, stride)?.innermost_ruby_frame()?;
    Some((counter, (iseq >> 3) as u32))
}

/// A key for a number of innermost Ruby frames of this context; `None`: ask the VM's functions.
#[inline]
pub(super) fn keys(context: *const c_void, depth: u32) -> Option<(usize, u32)> {
    let stride = STRIDE.load(Ordering::Relaxed);
    if stride == 0 {
        return None;
    }
    Stack::read(context, stride)?.hash(depth)
}

/// Fills in the instruction sequences of the innermost Ruby frames of this context, and returns how many there are.
pub(super) fn iseqs(context: *const c_void, found: &mut [u64]) -> usize {
    let stride = STRIDE.load(Ordering::Relaxed);
    let stack = if stride == 0 { None } else { Stack::read(context, stride) };
    let (depth, mut count) = (found.len() as u32, 0);
    if let Some(stack) = stack {
        let mut places = found.iter_mut();
        stack.each(depth, |_, iseq| {
            if let Some(place) = places.next() {
                *place = iseq as u64;
                count += 1;
            }
        });
    }
    count
}

/// The instruction sequence that runs in this context, if the frame's program counter is not inside it. Also `None`
/// if the short cut is closed.
pub(super) fn astray(context: *const c_void) -> Option<VALUE> {
    let stride = STRIDE.load(Ordering::Relaxed);
    if stride == 0 {
        return None;
    }
    let (counter, iseq) = Stack::read(context, stride)?.innermost_ruby_frame()?;
    // SAFETY: the sequence of a frame is alive, and `prepare` has found what was expected in one.
    let instructions = unsafe { Instructions::read(iseq) };
    (!instructions.have(counter)).then_some(iseq as VALUE)
}

/// The address range of a sequence's instructions.
struct Instructions {
    start: usize,
    words: usize,
}

impl Instructions {
    const BODY: usize = 2;

    /// # Safety
    /// It is a live instruction sequence of a Ruby that [`prepare`] has looked at.
    unsafe fn read(iseq: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let body = *(iseq as *const *const usize).add(Self::BODY);
            Self::from([*body, *body.add(1)])
        }
    }

    fn probed(probe: &Probe, iseq: usize) -> Option<Self> {
        let [body] = probe.words(iseq + Self::BODY * size_of::<usize>())?;
        probe.words(body).map(Self::from)
    }

    /// The first two words of a body: its kind and its length, then the instructions.
    fn from([kind_and_length, start]: [usize; 2]) -> Self {
        Self { start, words: kind_and_length >> 32 }
    }

    /// The counter points to the next instruction, so it may be at the end.
    fn have(&self, counter: usize) -> bool {
        counter.wrapping_sub(self.start) <= self.words * size_of::<usize>()
    }
}

struct Stack {
    innermost: usize,
    end: usize,
    stride: usize,
}

impl Stack {
    #[inline]
    fn read(context: *const c_void, stride: usize) -> Option<Self> {
        let words = context.cast::<usize>();
        // SAFETY: the context is the calling thread's own and alive; it begins with these three words.
        Self::from(unsafe { [*words, *words.add(1), *words.add(2)] }, stride)
    }

    #[inline]
    fn from([start, length, innermost]: [usize; 3], stride: usize) -> Option<Self> {
        let end = start.wrapping_add(length.wrapping_mul(size_of::<usize>()));
        (start < innermost && innermost < end).then_some(Self { innermost, end, stride })
    }

    /// Two hashes over the so many innermost Ruby frames, 96 bits in all; the first is never 0. `None`: there is no such
    /// frame.
    #[inline]
    fn hash(&self, depth: u32) -> Option<(usize, u32)> {
        let (mut counters, mut iseqs, mut count) = (0_usize, 0_usize, 0);
        self.each(depth, |counter, iseq| {
            counters = (counters.rotate_left(7) ^ counter).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            iseqs = (iseqs.rotate_left(9) ^ iseq).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            count += 1;
        });
        // The lower bits of a product depend on the lower bits of its factors alone.
        (count > 0).then_some((counters ^ (counters >> 29) | 1, (iseqs >> 32) as u32))
    }

    /// Program counters and instruction sequences of a number of innermost Ruby frames.
    #[inline]
    fn each(&self, depth: u32, mut visit: impl FnMut(usize, usize)) {
        let (mut frame, mut left) = (self.innermost, depth);
        while frame < self.end && left > 0 {
            let words = frame as *const usize;
            // SAFETY: between the innermost frame and the end of the VM stack there are whole control frames.
            let (counter, iseq) = unsafe { (*words, *words.add(2)) };
            if counter != 0 && iseq != 0 {
                visit(counter, iseq);
                left -= 1;
            }
            frame = frame.wrapping_add(self.stride * size_of::<usize>());
        }
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
            if counter != 0 && iseq != 0 {
                return Some((counter, iseq));
            }
            frame = frame.wrapping_add(self.stride * size_of::<usize>());
        }
        None
    }
}
