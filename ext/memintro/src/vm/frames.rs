//! Finds the line of Ruby that runs now.
//!
//! `rb_sourcefile` and `rb_sourceline` find the first Ruby frame by themselves, below any C frames, on every
//! supported Ruby, and are right under YJIT, where `rb_profile_frames` can give line 0. Ruby 3.1 also exports
//! `rb_source_location_cstr`, which returns both for the cost of one. The path points into a Ruby string and is valid
//! until the next collection, so the generation is stored with it, and the marking ([`super::marks`]).
//!
//! | Ruby | path and line | a file that is being compiled | from |
//! |---|---|---|---|
//! | 3.1 | `rb_source_location_cstr` | has no frame: the line that loads it answers | libruby's symbols |
//! | 3.3 and later | `rb_sourcefile`, `rb_sourceline` | has a frame with line 0, which is passed over | backtraces of syntax errors |
//!
//! On all of them the frame that the VM begins with has line 0 and the program's name.

use std::ffi::{c_char, c_int};

use memintro_abi::{Frame, FrameKind};
use rb_sys::VALUE;

use super::context::{self, Context};
use super::functions::{self, Functions};
use super::{control_frames, evacuation, marks};

/// Frames that are searched for one with a line, C frames included. They are on the stack of the allocating thread.
const MOST_PASSED_OVER: usize = 24;

/// The place where a thread is.
struct Location {
    path: *const c_char,
    /// 0: no frame has a line.
    line: u32,
    /// Whether it is the innermost Ruby frame's own line, and not that of a frame below.
    is_innermost: bool,
}

/// Path and line of the innermost Ruby frame that has a line. Files that are being compiled and the first frame of
/// the VM have none.
///
/// # Safety
/// The thread has an execution context and the GVL.
unsafe fn source_location(vm: &Functions) -> Location {
    let mut line = 0;
    // SAFETY: the caller's promise.
    let path = unsafe {
        if let Some(both) = vm.source_location {
            both(&raw mut line)
        } else {
            line = (vm.source_line)();
            (vm.source_file)()
        }
    };
    if path.is_null() || line > 0 {
        return Location { path, line: line.unsigned_abs(), is_innermost: true };
    }
    // SAFETY: the caller's promise.
    let (path, line) = unsafe { innermost_with_line(vm) }.unwrap_or((path, 0));
    Location { path, line: line.unsigned_abs(), is_innermost: false }
}

/// The innermost frame that has a line: the one that loads the file which is being compiled.
///
/// # Safety
/// The thread has an execution context and the GVL.
unsafe fn innermost_with_line(vm: &Functions) -> Option<(*const c_char, c_int)> {
    let (mut frames, mut lines): ([VALUE; MOST_PASSED_OVER], [c_int; MOST_PASSED_OVER]) =
        ([0; MOST_PASSED_OVER], [0; MOST_PASSED_OVER]);
    // SAFETY: room for as many frames as are asked for.
    let count =
        unsafe { (vm.profile_frames)(0, MOST_PASSED_OVER as c_int, frames.as_mut_ptr(), lines.as_mut_ptr()) };
    let count = usize::try_from(count).unwrap_or(0);
    let (frame, line) = frames.iter().zip(lines).take(count).find(|(_, line)| *line > 0)?;
    // SAFETY: a frame that was answered just now.
    unsafe { path_of(vm, *frame) }.map(|path| (path, line))
}

/// Path and first line of an instruction sequence, for a frame whose line cannot be told.
///
/// # Safety
/// The sequence is alive.
unsafe fn head_of(vm: &Functions, iseq: VALUE) -> Option<(*const c_char, u32)> {
    let first_line = vm.frame_first_line?;
    // SAFETY: the caller's promise; a number that fits a word has no object.
    unsafe {
        let line = first_line(iseq);
        let path = path_of(vm, iseq)?;
        rb_sys::FIXNUM_P(line).then(|| (path, rb_sys::FIX2LONG(line).try_into().unwrap_or(0)))
    }
}

/// # Safety
/// The frame is alive: its path is a string that it keeps alive, or nil.
unsafe fn path_of(vm: &Functions, frame: VALUE) -> Option<*const c_char> {
    // SAFETY: the caller's promise; a string.
    unsafe { path_string(vm, frame).map(|path| rb_sys::RSTRING_PTR(path)) }
}

/// None for frames of methods that are written in C.
///
/// # Safety
/// The frame is alive.
pub(super) unsafe fn path_string(vm: &Functions, frame: VALUE) -> Option<VALUE> {
    // SAFETY: the caller's promise.
    let path = unsafe { (vm.profile_frame_path)(frame) };
    // SAFETY: any value may be asked for its type.
    unsafe { rb_sys::RB_TYPE_P(path, rb_sys::ruby_value_type::RUBY_T_STRING) }.then_some(path)
}

/// Lets only threads through whose frames may be asked for: with an execution context, the GVL, and no collection.
/// Sets the generation. Otherwise it tells who is asking.
#[inline]
pub(super) fn gate(vm: &Functions, frame: &mut Frame) -> Result<Context, FrameKind> {
    // SAFETY: reads one word of the VM.
    frame.generation = unsafe { (vm.gc_count)() as u32 };
    let context = context::current();
    // SAFETY: each function is called only after the one before has let it through: an execution context, the GVL,
    // no collection. None of them allocates or raises.
    if matches!(context, Context::None) || unsafe { (vm.has_gvl)() } == 0 {
        return Err(FrameKind::NATIVE);
    }
    // SAFETY: as above.
    if unsafe { (vm.during_gc)() } != 0 {
        return Err(FrameKind::GC);
    }
    match context {
        Context::At(context) if evacuation::is_going_on(context) => Err(FrameKind::GC),
        _ => Ok(context),
    }
}

/// Finds the key of the running line, for the hook.
pub(crate) unsafe extern "C" fn frame(frame: *mut Frame) -> FrameKind {
    // SAFETY: the hook's own record.
    let frame = unsafe { &mut *frame };
    let Some(vm) = functions::get() else { return FrameKind::NATIVE };
    let context = match gate(vm, frame) {
        Ok(context) => context,
        Err(kind) => return kind,
    };
    if let Context::At(context) = context
        && let Some((key, detail)) = control_frames::key(context)
    {
        (frame.key, frame.detail) = (marks::since(key), detail);
        return FrameKind::RUBY;
    }
    // SAFETY: the gate is passed.
    unsafe { locate(frame) };
    (frame.key, frame.detail) = (marks::since(frame.path as usize), frame.line);
    if frame.path.is_null() { FrameKind::NATIVE } else { FrameKind::RUBY }
}

/// The key of the running line, while Ruby tells of a new object: so this thread has an execution context and the GVL, and
/// nothing collects. Whether it has need not be asked, which would take half of the time. Key 0: it is not known.
#[inline]
pub(crate) fn frame_of_event() -> Frame {
    let mut frame = Frame { key: 0, detail: 0, generation: 0, path: std::ptr::null(), line: 0 };
    let Some(vm) = functions::get() else { return frame };
    // SAFETY: reads one word of the VM.
    frame.generation = unsafe { (vm.gc_count)() as u32 };
    if let Some((key, detail)) = context::of_event(vm).and_then(control_frames::key) {
        (frame.key, frame.detail) = (marks::since(key), detail);
    }
    frame
}

/// Path and line of the frame whose key was returned just now.
pub(crate) unsafe extern "C" fn locate(frame: *mut Frame) {
    // SAFETY: the hook's own record.
    let frame = unsafe { &mut *frame };
    let Some(vm) = functions::get() else { return };
    // SAFETY: the gate was passed when the frame was answered.
    if unsafe { place(vm, frame) } == Place::Below {
        // The next time, the innermost frame can be called from elsewhere.
        frame.key = 0;
    }
}

/// Which frame has the line that was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The innermost Ruby frame.
    Innermost,
    /// The innermost one, whose line is not known: it is the first one of its code.
    Astray,
    /// One below it.
    Below,
}

/// Fills in path and line of the running frame.
///
/// # Safety
/// The thread has passed [`gate`].
pub(super) unsafe fn place(vm: &Functions, frame: &mut Frame) -> Place {
    if let Context::At(context) = context::current()
        && let Some(iseq) = control_frames::astray(context)
    {
        // SAFETY: the sequence that runs now.
        (frame.path, frame.line) = unsafe { head_of(vm, iseq) }.unwrap_or((std::ptr::null(), 0));
        return Place::Astray;
    }
    // SAFETY: the caller's promise.
    let location = unsafe { source_location(vm) };
    (frame.path, frame.line) = (location.path, location.line);
    if location.is_innermost { Place::Innermost } else { Place::Below }
}
