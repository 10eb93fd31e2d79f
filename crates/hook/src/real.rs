//! The real functions: how they are found, how they are called, and Rust's own allocator on top of them.
//!
//! What the library itself allocates (in `doctor`, in tests) goes straight to the real functions: it is never
//! recorded and cannot recurse.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::functions::{self, FUNCTIONS, Family, Function};
use crate::patch;

/// The real function in this static, as a function of this type.
macro_rules! call {
    ($real:expr, fn($($argument:ty),*) $(-> $answer:ty)?) => {
        // The static holds the address of a function of exactly this type (or of its bootstrap, which jumps there).
        core::mem::transmute::<*mut (), unsafe extern "C" fn($($argument),*) $(-> $answer)?>(
            $real.load(core::sync::atomic::Ordering::Relaxed)
        )
    };
    ($real:expr, unwinding fn($($argument:ty),*) $(-> $answer:ty)?) => {
        core::mem::transmute::<*mut (), unsafe extern "C-unwind" fn($($argument),*) $(-> $answer)?>(
            $real.load(core::sync::atomic::Ordering::Relaxed)
        )
    };
}
pub(crate) use call;

/// Called by a bootstrap: the address to go on to. Finds all functions that can be found by now.
pub(crate) extern "C" fn real_address(slot: &'static AtomicPtr<()>) -> *const () {
    resolve();
    let Some(function) = FUNCTIONS.iter().find(|function| core::ptr::eq(function.real, slot)) else {
        return core::ptr::null();
    };
    if is_resolved(function) {
        return slot.load(Ordering::Acquire);
    }
    if function.family == Family::C && !function.fallback.is_null() {
        // It is called through a symbol of ours, so it may be called again and again.
        slot.store(function.fallback.cast_mut(), Ordering::Release);
    }
    function.fallback
}

/// Whether the real function is known.
pub(crate) fn is_resolved(function: &Function) -> bool {
    !core::ptr::eq(function.real.load(Ordering::Acquire), function.boot)
}

/// Finds the real functions: those that the loader would bind (jemalloc's, when it is preloaded). Allocates nothing
/// and takes no lock but that of the loader's list.
pub(crate) fn resolve() {
    patch::resolve();
}

/// Whether the allocator was found.
pub(crate) fn has_allocator() -> bool {
    [
        functions::malloc::FUNCTION,
        functions::free::FUNCTION,
        functions::realloc::FUNCTION,
        functions::calloc::FUNCTION,
    ]
    .iter()
    .all(is_resolved)
}

#[derive(Debug)]
struct Real;

#[global_allocator]
static ALLOCATOR: Real = Real;

// SAFETY: passes everything on to a C allocator, which fulfils the trait's contract for these alignments.
unsafe impl GlobalAlloc for Real {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block: *mut c_void = if layout.align() <= 16 {
            // SAFETY: any size is fine for malloc.
            unsafe { call!(functions::malloc::REAL, fn(usize) -> *mut c_void)(layout.size()) }
        } else {
            // SAFETY: Rust's alignments are powers of two.
            unsafe {
                call!(functions::memalign::REAL, fn(usize, usize) -> *mut c_void)(
                    layout.align(),
                    layout.size(),
                )
            }
        };
        block.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the block came from the same allocator.
        unsafe { call!(functions::free::REAL, fn(*mut c_void))(block.cast()) };
    }
}
