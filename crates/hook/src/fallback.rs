//! What serves while nobody defines a function that others may come to call through us.

use core::ffi::c_void;

use crate::functions;
use crate::real::call;

type Pointer = *mut c_void;

/// reallocarray with a libc that has none.
///
/// # Safety
/// As reallocarray.
pub(crate) unsafe extern "C" fn reallocarray(block: Pointer, count: usize, size: usize) -> Pointer {
    let Some(bytes) = count.checked_mul(size) else {
        // SAFETY: the location of errno is valid for the calling thread.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return core::ptr::null_mut();
    };
    // SAFETY: the caller's own arguments.
    unsafe { call!(functions::realloc::REAL, fn(Pointer, usize) -> Pointer)(block, bytes) }
}

/// operator new by a pointer that was copied, when the C++ library is gone.
///
/// # Safety
/// As operator new.
pub(crate) unsafe extern "C" fn new(size: usize) -> Pointer {
    // SAFETY: any size is fine for malloc.
    let block = unsafe { call!(functions::malloc::REAL, fn(usize) -> Pointer)(size.max(1)) };
    if block.is_null() {
        // SAFETY: there is nobody to throw to; this is what an exception without a handler does.
        unsafe { libc::abort() };
    }
    block
}

/// Aligned operator new by a pointer that was copied, when the C++ library is gone.
///
/// # Safety
/// As operator new.
pub(crate) unsafe extern "C" fn new_aligned(size: usize, alignment: usize) -> Pointer {
    // SAFETY: C++ asks only for powers of two.
    let block =
        unsafe { call!(functions::memalign::REAL, fn(usize, usize) -> Pointer)(alignment, size.max(1)) };
    if block.is_null() {
        // SAFETY: as above.
        unsafe { libc::abort() };
    }
    block
}

/// operator delete, likewise.
///
/// # Safety
/// As operator delete.
pub(crate) unsafe extern "C" fn delete(block: Pointer) {
    // SAFETY: such a block came from malloc.
    unsafe { call!(functions::free::REAL, fn(Pointer))(block) };
}
