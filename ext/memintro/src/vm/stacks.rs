//! The innermost lines of the running stack.
//!
//! Program counters and instruction sequences of its frames identify them, as they do the running line
//! ([`super::control_frames`]); their hash is the key. Lines, paths and labels are asked for only where a key is new.
//! Methods written in C have no line, and no frame here. Paths and labels are strings that the instruction sequences keep
//! (`rb_profile_frame_path`, `rb_profile_frame_label`: `rb_iseq_path` and `rb_iseq_label` in vm_backtrace.c of 3.1, 3.3
//! and 3.4), so nothing is allocated for them; the full label would be.

use std::ffi::{c_int, c_void};

use memintro_abi::{Frame, FrameKind, StackFrame, Visitor};
use rb_sys::VALUE;

use super::context::{self, Context};
use super::frames::Place;
use super::functions::{self, Functions};
use super::{control_frames, frames, marks};

/// Finds the key of a number of innermost lines, for the hook.
pub(crate) unsafe extern "C" fn stack_key(frame: *mut Frame, depth: u32) -> FrameKind {
    // SAFETY: the hook's own record.
    let frame = unsafe { &mut *frame };
    let Some(vm) = functions::get() else { return FrameKind::NATIVE };
    match frames::gate(vm, frame) {
        Ok(context) => {
            let key =
                if let Context::At(context) = context { control_frames::keys(context, depth) } else { None };
            (frame.key, frame.detail) = key.map_or((0, 0), |(key, detail)| (marks::since(key), detail));
            FrameKind::RUBY
        }
        Err(kind) => kind,
    }
}

/// Visits the innermost lines, for the hook.
pub(crate) unsafe extern "C" fn stack(
    frame: *mut Frame,
    depth: u32,
    scratch: *mut u64,
    words: u32,
    told: *mut c_void,
    visit: Visitor<StackFrame>,
) {
    let Some(vm) = functions::get() else { return };
    // SAFETY: the hook's own record.
    let frame = unsafe { &mut *frame };
    // SAFETY: the key was answered just now.
    let place = unsafe { frames::place(vm, frame) };
    if place != Place::Innermost {
        // The next time, the stack may be another one.
        frame.key = 0;
    }
    // The VM's functions would crash on a frame that has gone astray.
    if place == Place::Astray || frame.path.is_null() || frame.line == 0 {
        return;
    }
    // SAFETY: the caller's own memory, for this call.
    let scratch = unsafe { std::slice::from_raw_parts_mut(scratch, words as usize) };
    let depth = (depth as usize).min(MOST_FRAMES);
    let Some((iseqs, scratch)) = scratch.split_at_mut_checked(depth) else { return };
    let known =
        if let Context::At(context) = context::current() { control_frames::iseqs(context, iseqs) } else { 0 };
    let iseqs = iseqs.get(..known).unwrap_or_default();
    let room = size_of_val(scratch) / FRAME_BYTES;
    // Twice as many as are wanted are mostly enough for the frames of methods that are written in C.
    let mut most = (2 * depth + 8).min(room);
    loop {
        let frames = scratch.as_mut_ptr().cast::<VALUE>();
        // SAFETY: there is room for so many values, and behind them for as many lines; the gate was passed.
        let found = unsafe {
            let lines = frames.add(most).cast::<c_int>();
            let count = (vm.profile_frames)(0, most as c_int, frames, lines);
            let count = usize::try_from(count).unwrap_or(0).min(most);
            (std::slice::from_raw_parts(frames, count), std::slice::from_raw_parts(lines, count))
        };
        // SAFETY: frames that were answered just now.
        let ruby = found.0.iter().filter(|one| unsafe { frames::path_string(vm, **one) }.is_some()).count();
        if ruby < depth && found.0.len() == most && most < room {
            most = room;
            continue;
        }
        let found = Found { frames: found.0, lines: found.1, iseqs };
        // SAFETY: as above.
        unsafe { tell(vm, &found, depth, (place == Place::Innermost).then_some(frame.line), told, visit) };
        return;
    }
}

/// Bytes of a value and a line.
const FRAME_BYTES: usize = size_of::<VALUE>() + size_of::<c_int>();
/// Most frames of a stack, as in the contract.
const MOST_FRAMES: usize = 64;

/// The VM's answer.
struct Found<'a> {
    /// Frames, those of methods that are written in C included. That of a block, or of code that was evaluated, is often
    /// named by its method.
    frames: &'a [VALUE],
    lines: &'a [c_int],
    /// The code in the Ruby frames, as far as it is known.
    iseqs: &'a [u64],
}

/// # Safety
/// The frames are alive.
unsafe fn tell(
    vm: &Functions,
    found: &Found<'_>,
    depth: usize,
    innermost: Option<u32>,
    context: *mut c_void,
    visit: Visitor<StackFrame>,
) {
    let ruby = found.frames.iter().zip(found.lines).filter_map(|(frame, line)| {
        // SAFETY: the caller's promise.
        unsafe { frames::path_string(vm, *frame) }.map(|path| (*frame, line.unsigned_abs(), path))
    });
    let mut is_first = true;
    for (at, (mut frame, line, mut path)) in ruby.take(depth).enumerate() {
        // The line of the innermost frame is that of `locate`, which knows it where the frames do not: in compiled code.
        let line = innermost.filter(|_| is_first).unwrap_or(line);
        if line == 0 {
            // The VM begins with such a frame.
            if at + 1 == found.iseqs.len() {
                let frame = StackFrame { frame: at as u32 + 1, ..StackFrame::NONE };
                // SAFETY: the caller's promise.
                unsafe { visit(context, &raw const frame) };
            }
            continue;
        }
        is_first = false;
        // SAFETY: what runs in a frame is alive; the texts stay in place during the visit.
        unsafe {
            let named = frame;
            if let Some(iseq) = found.iseqs.get(at) {
                frame = *iseq as VALUE;
                path = frames::path_string(vm, frame).unwrap_or(path);
            }
            let mut place = at as u32 + 1;
            let label = match label_of(vm, frame) {
                // What code that was evaluated is called since 3.4; the VM's frame has the name of its method.
                Some(label) if text(label) == b"<compiled>" => {
                    place = 0;
                    label_of(vm, named).or(Some(label))
                }
                label => label,
            };
            if found.iseqs.get(at).is_none() {
                place = 0;
            }
            let frame = StackFrame {
                path: rb_sys::RSTRING_PTR(path).cast(),
                path_len: rb_sys::RSTRING_LEN(path) as u32,
                label: label.map_or(std::ptr::null(), |label| rb_sys::RSTRING_PTR(label).cast()),
                label_len: label.map_or(0, |label| rb_sys::RSTRING_LEN(label) as u32),
                line,
                frame: place,
                caller: 0,
            };
            visit(context, &raw const frame);
        }
    }
}

/// # Safety
/// The frame is alive.
unsafe fn label_of(vm: &Functions, frame: VALUE) -> Option<VALUE> {
    // SAFETY: the caller's promise; any value may be asked for its type.
    unsafe {
        let label = vm.frame_label?(frame);
        rb_sys::RB_TYPE_P(label, rb_sys::ruby_value_type::RUBY_T_STRING).then_some(label)
    }
}

/// # Safety
/// It is a string that stays as it is while the answer is used.
unsafe fn text<'a>(string: VALUE) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe {
        std::slice::from_raw_parts(rb_sys::RSTRING_PTR(string).cast(), rb_sys::RSTRING_LEN(string) as usize)
    }
}
