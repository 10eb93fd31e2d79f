//! Rust's own allocator, on top of the real functions.
//!
//! Allocations of this library (in `doctor`, in tests) call them directly, so they are never recorded and
//! cannot recurse.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;

use crate::functions;
use crate::real::call;

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
