//! Calls of an allocator's functions that come back to others of them: operator new calls malloc, another allocator's
//! `aligned_alloc` its `memalign`. What was asked for is one block.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::{sampling, thread};

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

/// While it lives, what this thread allocates belongs to a call that is recorded as a whole.
struct Nested(Option<thread::Own>);

impl Nested {
    fn enter() -> Self {
        let own = thread::own();
        if let Some(own) = &own {
            if sampling::is_on() {
                sampling::suspend(own);
            }
            own.nested.set(own.nested.get().wrapping_add(1));
        }
        Self(own)
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        // Also when an exception passes: operator new throws.
        if let Some(own) = &self.0 {
            own.nested.set(own.nested.get().wrapping_sub(1));
            sampling::resume(own);
        }
    }
}
