//! Which Ruby line runs now.
//!
//! `rb_sourcefile` and `rb_sourceline` find the first Ruby frame by themselves, below any C frames, on every
//! supported Ruby, and are right under YJIT, where `rb_profile_frames` can give line 0. Ruby 3.1 also exports
//! `rb_source_location_cstr`, which answers both at the price of one. The path is the inside of a Ruby string: good
//! until the next collection, which is why the generation goes with it.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

use memintro_abi::{Frame, FrameKind};

use super::context;

unsafe extern "C" {
    fn ruby_thread_has_gvl_p() -> c_int;
    fn rb_during_gc() -> c_int;
    fn rb_gc_count() -> usize;
    fn rb_sourcefile() -> *const c_char;
    fn rb_sourceline() -> c_int;
}

type SourceLocation = unsafe extern "C" fn(line: *mut c_int) -> *const c_char;

static SOURCE_LOCATION: AtomicPtr<()> = AtomicPtr::new(source_location as SourceLocation as *mut ());

/// Chooses the cheapest function that this Ruby has.
pub(super) fn prepare() {
    // SAFETY: a look-up by name.
    let cheap = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rb_source_location_cstr".as_ptr()) };
    if !cheap.is_null() {
        SOURCE_LOCATION.store(cheap.cast(), Ordering::Release);
    }
}

unsafe extern "C" fn source_location(line: *mut c_int) -> *const c_char {
    // SAFETY: the caller has an execution context and the GVL, and gives room for the line.
    unsafe {
        line.write(rb_sourceline());
        rb_sourcefile()
    }
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
        let locate = std::mem::transmute::<*mut (), SourceLocation>(SOURCE_LOCATION.load(Ordering::Relaxed));
        let mut line = 0;
        frame.path = locate(&raw mut line);
        if frame.path.is_null() {
            return FrameKind::NATIVE;
        }
        frame.line = line.unsigned_abs();
    }
    FrameKind::RUBY
}
