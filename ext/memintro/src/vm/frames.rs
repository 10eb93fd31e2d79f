//! Which Ruby line runs now.
//!
//! `rb_sourcefile` and `rb_sourceline` find the first Ruby frame by themselves, below any C frames, on every
//! supported Ruby, and are right under YJIT, where `rb_profile_frames` can give line 0. The path they answer is the
//! inside of a Ruby string: good until the next collection, which is why the generation goes with it.

use std::ffi::{c_char, c_int};

use memintro_abi::{Frame, FrameKind};

use super::context;

unsafe extern "C" {
    fn ruby_thread_has_gvl_p() -> c_int;
    fn rb_during_gc() -> c_int;
    fn rb_gc_count() -> usize;
    fn rb_sourcefile() -> *const c_char;
    fn rb_sourceline() -> c_int;
}

/// GC generation now. It wraps at 2^32; ages are differences.
pub(crate) unsafe extern "C" fn generation() -> u32 {
    // SAFETY: reads one word of the VM, from any thread.
    unsafe { rb_gc_count() as u32 }
}

/// Who is asking?
pub(crate) unsafe extern "C" fn frame(frame: *mut Frame) -> FrameKind {
    // SAFETY: the hook's own record.
    let frame = unsafe { &mut *frame };
    // SAFETY: each function is called only after the one before has let it through: an execution context, the GVL,
    // no collection. None of them allocates or raises.
    unsafe {
        frame.generation = rb_gc_count() as u32;
        if !context::is_present() || ruby_thread_has_gvl_p() == 0 {
            return FrameKind::NATIVE;
        }
        if rb_during_gc() != 0 {
            return FrameKind::GC;
        }
        frame.path = rb_sourcefile();
        if frame.path.is_null() {
            return FrameKind::NATIVE;
        }
        frame.line = rb_sourceline().unsigned_abs();
    }
    FrameKind::RUBY
}
