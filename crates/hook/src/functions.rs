//! Names each replaced function once, with its real function and its bootstrap. The stubs, which callers
//! reach instead of it, are in [`crate::stubs`].
//!
//! - The **real** function's address lies in a static that starts out at the bootstrap.
//! - The **bootstrap** finds the real function and jumps to it. It is needed because allocations happen before any
//!   constructor has run, and because a C++ library may be loaded long after the hook.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::patch::resolve as find;
use crate::real::{Family, Function, is_resolved};

/// The instructions of a bootstrap. They preserve the arguments during the search for the real function.
#[cfg(target_arch = "x86_64")]
macro_rules! boot_asm {
    () => {
        core::arch::naked_asm!(
            "push rdi", "push rsi", "push rdx", "push rcx", "push r8",
            "lea rdi, [rip + {real}]",
            "call {find}",
            "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            "jmp rax",
            real = sym REAL, find = sym real_address,
        )
    };
}

/// The instructions of a bootstrap, as above.
#[cfg(target_arch = "aarch64")]
macro_rules! boot_asm {
    () => {
        core::arch::naked_asm!(
            "stp x29, x30, [sp, #-64]!", "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]", "str x4, [sp, #48]",
            "adrp x0, {real}", "add x0, x0, :lo12:{real}",
            "bl {find}",
            "mov x9, x0",
            "ldr x4, [sp, #48]", "ldp x2, x3, [sp, #32]", "ldp x0, x1, [sp, #16]", "ldp x29, x30, [sp], #64",
            "br x9",
            real = sym REAL, find = sym real_address,
        )
    };
}

/// Declares everything about one function.
macro_rules! function {
    ($family:ident $name:ident = $symbol:literal, fallback $fallback:expr) => {
        pub(crate) mod $name {
            use super::*;

            pub(crate) static REAL: AtomicPtr<()> = AtomicPtr::new(boot as *mut ());

            pub(crate) const FUNCTION: Function = Function {
                name: match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                },
                real: &REAL,
                boot: boot as *const (),
                family: Family::$family,
                fallback: $fallback,
            };

            /// # Safety
            ///
            /// As the function that it replaces.
            #[unsafe(naked)]
            unsafe extern "C" fn boot() {
                boot_asm!()
            }
        }
    };
}

macro_rules! functions {
    ($($family:ident $name:ident = $symbol:literal, fallback $fallback:expr;)*) => {
        $(function!($family $name = $symbol, fallback $fallback);)*

        /// All functions that are taken over.
        pub(crate) static FUNCTIONS: &[Function] = &[$($name::FUNCTION),*];
    };
}

const NONE: *const () = core::ptr::null();
const REALLOCARRAY: *const () = fallback::reallocarray as *const ();
const NEW: *const () = fallback::new as *const ();
const NEW_ALIGNED: *const () = fallback::new_aligned as *const ();
const DELETE: *const () = fallback::delete as *const ();

/// Passes all functions to a macro. This is the list.
macro_rules! for_each_function {
    ($receiver:ident) => {
        $receiver! {
            C malloc = "malloc", fallback NONE;
            C free = "free", fallback NONE;
            C calloc = "calloc", fallback NONE;
            C realloc = "realloc", fallback NONE;
            C reallocarray = "reallocarray", fallback REALLOCARRAY;
            C memalign = "memalign", fallback NONE;
            C posix_memalign = "posix_memalign", fallback NONE;
            C aligned_alloc = "aligned_alloc", fallback NONE;
            C valloc = "valloc", fallback NONE;
            C pvalloc = "pvalloc", fallback NONE;
            Asking malloc_usable_size = "malloc_usable_size", fallback NONE;

            Operator new = "_Znwm", fallback NEW;
            Operator new_array = "_Znam", fallback NEW;
            Operator new_nothrow = "_ZnwmRKSt9nothrow_t", fallback NEW;
            Operator new_array_nothrow = "_ZnamRKSt9nothrow_t", fallback NEW;
            Operator new_aligned = "_ZnwmSt11align_val_t", fallback NEW_ALIGNED;
            Operator new_array_aligned = "_ZnamSt11align_val_t", fallback NEW_ALIGNED;
            Operator new_aligned_nothrow = "_ZnwmSt11align_val_tRKSt9nothrow_t", fallback NEW_ALIGNED;
            Operator new_array_aligned_nothrow = "_ZnamSt11align_val_tRKSt9nothrow_t", fallback NEW_ALIGNED;

            Operator delete = "_ZdlPv", fallback DELETE;
            Operator delete_array = "_ZdaPv", fallback DELETE;
            Operator delete_nothrow = "_ZdlPvRKSt9nothrow_t", fallback DELETE;
            Operator delete_array_nothrow = "_ZdaPvRKSt9nothrow_t", fallback DELETE;
            Operator delete_sized = "_ZdlPvm", fallback DELETE;
            Operator delete_array_sized = "_ZdaPvm", fallback DELETE;
            Operator delete_aligned = "_ZdlPvSt11align_val_t", fallback DELETE;
            Operator delete_array_aligned = "_ZdaPvSt11align_val_t", fallback DELETE;
            Operator delete_aligned_nothrow = "_ZdlPvSt11align_val_tRKSt9nothrow_t", fallback DELETE;
            Operator delete_array_aligned_nothrow = "_ZdaPvSt11align_val_tRKSt9nothrow_t", fallback DELETE;
            Operator delete_sized_aligned = "_ZdlPvmSt11align_val_t", fallback DELETE;
            Operator delete_array_sized_aligned = "_ZdaPvmSt11align_val_t", fallback DELETE;

            Extended mallocx = "mallocx", fallback NONE;
            Extended rallocx = "rallocx", fallback NONE;
            Extended xallocx = "xallocx", fallback NONE;
            Extended dallocx = "dallocx", fallback NONE;
            Extended sdallocx = "sdallocx", fallback NONE;

            Text strdup = "strdup", fallback NONE;
            Text strndup = "strndup", fallback NONE;

            Loader dlsym = "dlsym", fallback NONE;
            Loader dlopen = "dlopen", fallback NONE;
        }
    };
}
pub(crate) use for_each_function;

for_each_function!(functions);

/// Called by a bootstrap; returns the address to jump to. Finds all functions that can be found by now.
pub(crate) extern "C" fn real_address(slot: &'static AtomicPtr<()>) -> *const () {
    resolve();
    let Some(function) = FUNCTIONS.iter().find(|function| core::ptr::eq(function.real, slot)) else {
        return core::ptr::null();
    };
    if is_resolved(function) {
        return slot.load(Ordering::Acquire);
    }
    if function.family == Family::C && !function.fallback.is_null() {
        // The function is called through a symbol of this library, so it may be called many times.
        slot.store(function.fallback.cast_mut(), Ordering::Release);
    }
    function.fallback
}

/// Finds the real functions, which are those that the loader would bind (jemalloc's, when it is preloaded). Allocates
/// nothing and takes no lock but the one on the loader's list.
pub(crate) fn resolve() {
    find(FUNCTIONS);
}

/// Whether the allocator was found.
pub(crate) fn has_allocator() -> bool {
    [malloc::FUNCTION, free::FUNCTION, realloc::FUNCTION, calloc::FUNCTION].iter().all(is_resolved)
}

/// Serves while no library defines a function that others may call through the hook.
mod fallback {
    use core::ffi::c_void;

    use super::{free, malloc, memalign, realloc};
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
        unsafe { call!(realloc::REAL, fn(Pointer, usize) -> Pointer)(block, bytes) }
    }

    /// operator new by a pointer that was copied, when the C++ library is gone.
    ///
    /// # Safety
    /// As operator new.
    pub(crate) unsafe extern "C" fn new(size: usize) -> Pointer {
        // SAFETY: any size is fine for malloc.
        let block = unsafe { call!(malloc::REAL, fn(usize) -> Pointer)(size.max(1)) };
        if block.is_null() {
            // SAFETY: there is no caller to throw to; this is what an exception without a handler does.
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
        let block = unsafe { call!(memalign::REAL, fn(usize, usize) -> Pointer)(alignment, size.max(1)) };
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
        unsafe { call!(free::REAL, fn(Pointer))(block) };
    }
}
