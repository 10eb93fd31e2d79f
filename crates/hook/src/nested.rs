//! Handles functions of an allocator that call each other: operator new calls malloc, and the `aligned_alloc` of some
//! allocators calls their `memalign`. Such a call allocates one block, and is recorded once.
//!
//! The allocator may use any amount of stack, and a handler of a stack overflow there leaves by `longjmp` (Ruby's
//! does). So a call under way stores the stack pointer: once the stack is less deep, the call is over.

use core::sync::atomic::{AtomicBool, Ordering};

use memintro_tracker::stack;
use memintro_tracker::threads::ThreadState;

use crate::{sampling, thread};

/// Stack that is touched before such a call, so that an overflow happens earlier: as much as libc's allocator uses.
pub(crate) const STACK_BYTES: usize = 2048;

/// Whether `calloc` or `realloc` are not libc's, which never call another function through a symbol. malloc and free
/// are not checked: in no allocator do they call another function, and they are called too often.
pub(crate) static MAY_COME_BACK: AtomicBool = AtomicBool::new(false);

/// Calls the allocator so that only the outcome is recorded.
#[inline(always)]
pub(crate) fn as_one<R>(real: impl FnOnce() -> R) -> R {
    let nested = Nested::enter();
    let answer = real();
    drop(nested);
    answer
}

/// As [`as_one`], for functions whose libc versions never call another one through a symbol.
#[inline(always)]
pub(crate) fn as_one_unless_libc<R>(real: impl FnOnce() -> R) -> R {
    if MAY_COME_BACK.load(Ordering::Relaxed) { as_one(real) } else { real() }
}

/// Whether the calling thread is inside such a call.
#[inline(always)]
pub(crate) fn is_nested(own: &ThreadState) -> bool {
    own.nested.get() != 0 && !forget_if_over(own)
}

/// Forgets the call that this thread has left by `longjmp`; returns whether there was one.
#[inline(always)]
pub(crate) fn forget_if_over(own: &ThreadState) -> bool {
    forget_if_less_deep(own, stack::pointer())
}

#[cold]
#[inline(never)]
extern "C" fn forget_if_less_deep(own: &ThreadState, now: usize) -> bool {
    let frame = own.nested.get();
    let is_over = frame != 0 && stack::is_gone(frame, now);
    if is_over {
        own.nested.set(0);
        sampling::resume(own);
    }
    is_over
}

/// While this lives, allocations of this thread belong to a call that is recorded as a whole.
struct Nested {
    own: Option<thread::Own>,
    /// Whether this is the outermost of nested calls.
    is_first: bool,
}

impl Nested {
    #[inline(always)]
    fn enter() -> Self {
        stack::touch::<STACK_BYTES>();
        let own = thread::own();
        let mut is_first = false;
        if let Some(own) = &own {
            if sampling::is_on() {
                sampling::suspend(own);
            }
            is_first = !is_nested(own);
            if is_first {
                own.nested.set(stack::pointer());
            }
        }
        Self { own, is_first }
    }
}

impl Drop for Nested {
    #[inline]
    fn drop(&mut self) {
        // This runs also when an exception passes: operator new throws.
        if self.is_first
            && let Some(own) = &self.own
        {
            own.nested.set(0);
            sampling::resume(own);
        }
    }
}
