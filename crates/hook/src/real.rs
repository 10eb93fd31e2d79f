//! A replaced function, and how its real function is stored and called.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// One replaced function.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its symbol.
    pub(crate) name: &'static CStr,
    /// The static with the address that the hook calls.
    pub(crate) real: &'static AtomicPtr<()>,
    /// The initial value of `real`.
    pub(crate) boot: *const (),
    /// The family it belongs to.
    pub(crate) family: Family,
    /// Serves while no library defines the function; null if that cannot happen.
    pub(crate) fallback: *const (),
}

/// The families of functions: which libraries define them, and how programs come to call the stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// C's functions, which each program has. Only these are exported symbols: libc has them, too, so a program finds
    /// the same set of functions with this library as without it.
    C,
    /// C++'s operators, from the allocator or the C++ runtime. They are only written into slots: an exported symbol
    /// could be found instead of another library's operator.
    Operator,
    /// jemalloc's own functions. They are only written into slots, because the mere existence of these symbols would
    /// tell programs that jemalloc is there.
    Extended,
    /// Functions that copy texts, where the allocator has its own versions that do not call malloc (mimalloc 3 has).
    /// Those of libc, which call malloc, are not taken over.
    Text,
    /// Functions that return the size of a block. They are only written into slots, and only while blocks
    /// have in-band records; otherwise the allocator answers.
    Asking,
    /// The loader's functions. They are only written into slots.
    Loader,
}

// SAFETY: the pointers are addresses of functions.
unsafe impl Sync for Function {}

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

/// Whether the real function is known.
pub(crate) fn is_resolved(function: &Function) -> bool {
    !core::ptr::eq(function.real.load(Ordering::Acquire), function.boot)
}

/// The stub that replaces a function for callers.
#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) function: &'static Function,
    pub(crate) address: *const (),
}

// SAFETY: as above.
unsafe impl Sync for Stub {}
