//! A function that is taken over, and the real one that stands behind it: how it is kept, and how it is called.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// One function that is taken over.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its symbol.
    pub(crate) name: &'static CStr,
    /// What we call.
    pub(crate) real: &'static AtomicPtr<()>,
    /// Where `real` points before it is found.
    pub(crate) boot: *const (),
    /// Whose it is.
    pub(crate) family: Family,
    /// Serves while nobody defines the function; null if that cannot be.
    pub(crate) fallback: *const (),
}

/// Whose functions they are: what may stand behind them, and how others come to call ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Every C program's. The only ones that are symbols of this library: libc has them, too, so a program that has
    /// this library has no other functions than without it.
    C,
    /// C++'s operators, the allocator's own or the C++ runtime's. They get into slots only: who would find them here
    /// by their names might have a library with other ones.
    Operator,
    /// jemalloc's own. In slots only: their mere presence would tell programs that another allocator is there.
    Extended,
    /// Texts that are copied, where the allocator brings its own functions that do not come back to malloc (mimalloc 3
    /// does): libc's, which call malloc, are left alone.
    Text,
    /// The loader's. In slots only.
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

/// What others are to call in the place of a function.
#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) function: &'static Function,
    pub(crate) address: *const (),
}

// SAFETY: as above.
unsafe impl Sync for Stub {}
