//! Fills new memory with zeros, for a memory check only.
//!
//! A block from malloc holds what its last user left there. Parts that the next user never writes keep old
//! addresses. If a block at such an address is handed out again and lost, it would look held. malloc does not
//! specify the contents of new memory, so zeros are allowed.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::patch::look_up;
use crate::shared::BODIES_ONLY;

type Pointer = *mut c_void;

/// Most larger blocks come fresh from the kernel. Filling them would touch pages that the program does not
/// need.
const MOST_BYTES: usize = 1 << 20;

static IS_ON: AtomicBool = AtomicBool::new(false);
/// `malloc_usable_size`, or null.
static USABLE_SIZE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Starts clearing, before the program's first line.
pub(crate) fn begin() {
    USABLE_SIZE.store(look_up(c"malloc_usable_size").cast_mut(), Ordering::Relaxed);
    IS_ON.store(true, Ordering::Relaxed);
    BODIES_ONLY.store(true, Ordering::Relaxed);
}

/// Whether new memory is to be cleared.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Clears a block of malloc's.
#[inline(always)]
pub(crate) fn cleared(block: Pointer, size: usize) -> Pointer {
    if is_on() {
        clear(block, 0, size);
    }
    block
}

/// Clears what realloc has added.
#[inline(always)]
pub(crate) fn grown(block: Pointer, size: usize, real: impl FnOnce() -> Pointer) -> Pointer {
    if !is_on() {
        return real();
    }
    let before = usable(block);
    let new = real();
    if let Some(before) = before {
        clear(new, before, size);
    }
    new
}

#[cold]
extern "C" fn clear(block: Pointer, from: usize, to: usize) {
    if !block.is_null() && from < to && to <= MOST_BYTES {
        // SAFETY: the block has so many bytes, and its owner has not got it yet.
        unsafe { block.cast::<u8>().add(from).write_bytes(0, to - from) };
    }
}

/// How many bytes of a block may hold data; `None`: unknown.
#[cold]
fn usable(block: Pointer) -> Option<usize> {
    if block.is_null() {
        return Some(0);
    }
    let function = USABLE_SIZE.load(Ordering::Relaxed);
    if function.is_null() {
        return None;
    }
    // SAFETY: the name stands for a function of this type in every C library.
    let function =
        unsafe { core::mem::transmute::<Pointer, unsafe extern "C" fn(Pointer) -> usize>(function) };
    // SAFETY: a block of the caller's.
    Some(unsafe { function(block) })
}
