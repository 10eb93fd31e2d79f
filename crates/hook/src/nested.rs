//! Calls of an allocator's functions that come back to others of them: operator new calls malloc, another allocator's
//! `aligned_alloc` its `memalign`. What was asked for is one block.
//!
//! The allocator may use any amount of stack, and a handler of a stack overflow there leaves by `longjmp` (Ruby's does). So a
//! call that is on the way keeps where the stack ended: less deep than that, it is over.

use core::sync::atomic::{AtomicBool, Ordering};

use memintro_tracker::stack;
use memintro_tracker::threads::ThreadState;

use crate::{sampling, thread};

/// Stack of which an overflow comes before such a call: as much as libc's allocator uses.
pub(crate) const STACK_BYTES: usize = 2048;

/// Whether `calloc` or `realloc` are not libc's, which never call another function through a symbol. malloc and free
/// are not asked about: nobody's comes back to another function, and they are called too often.
pub(crate) static MAY_COME_BACK: AtomicBool = AtomicBool::new(false);

/// Has the allocator do something of which nothing but the outcome is recorded.
#[inline(always)]
pub(crate) fn as_one<R>(real: impl FnOnce() -> R) -> R {
    let nested = Nested::enter();
    let answer = real();
    drop(nested);
    answer
}

/// As [`as_one`], for functions of which libc's own are known never to come back.
#[inline(always)]
pub(crate) fn as_one_unless_libc<R>(real: impl FnOnce() -> R) -> R {
    if MAY_COME_BACK.load(Ordering::Relaxed) { as_one(real) } else { real() }
}

/// Whether the calling thread is within such a call.
#[inline(always)]
pub(crate) fn is_nested(own: &ThreadState) -> bool {
    own.nested.get() != 0 && !forget_if_over(own)
}

/// Forgets the call that this thread is in, if it has left it by `longjmp`; answers whether.
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

/// While it lives, what this thread allocates belongs to a call that is recorded as a whole.
struct Nested {
    own: Option<thread::Own>,
    /// Whether it is the first of those on top of each other.
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
        // Also when an exception passes: operator new throws.
        if self.is_first
            && let Some(own) = &self.own
        {
            own.nested.set(0);
            sampling::resume(own);
        }
    }
}
