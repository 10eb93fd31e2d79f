//! Every function that is taken over, named once: its stub, its real counterpart, its bootstrap.
//!
//! - The **stub** is what others call. While nothing is recorded it is a compare and a jump to the real function;
//!   otherwise it passes the caller's address on to the body in [`crate::intercept`]. It is naked, so that the real
//!   function is entered with the stack and registers as the caller left them.
//! - The **real** function's address lies in a static that starts out at the bootstrap.
//! - The **bootstrap** finds the real function and goes on there: allocations come before any constructor has run,
//!   and a C++ library may be loaded long after us.

use core::ffi::CStr;
use core::sync::atomic::AtomicPtr;

use crate::fallback;
use crate::intercept as body;
use crate::real::real_address;
use crate::state::ACTIVE;

/// One function that is taken over.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its symbol.
    pub(crate) name: &'static CStr,
    /// What others are to call.
    pub(crate) stub: *const (),
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

/// A stub's instructions. The caller's address goes into the register of the fifth argument: only `xallocx` has
/// four, none has five.
#[cfg(target_arch = "x86_64")]
macro_rules! stub_asm {
    ($name:ident) => {
        core::arch::naked_asm!(
            "cmp dword ptr [rip + {active}], 0",
            "jne 2f",
            "jmp qword ptr [rip + {real}]",
            "2:",
            "mov r8, [rsp]",
            "jmp {body}",
            active = sym ACTIVE, real = sym REAL, body = sym body::$name,
        )
    };
}

/// A bootstrap's instructions: the arguments survive the search for the real function.
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

/// A stub's instructions, as above.
#[cfg(target_arch = "aarch64")]
macro_rules! stub_asm {
    ($name:ident) => {
        core::arch::naked_asm!(
            "adrp x9, {active}", "ldr w9, [x9, :lo12:{active}]",
            "cbnz w9, 2f",
            "adrp x9, {real}", "ldr x9, [x9, :lo12:{real}]", "br x9",
            "2:",
            "mov x4, x30",
            "b {body}",
            active = sym ACTIVE, real = sym REAL, body = sym body::$name,
        )
    };
}

/// A bootstrap's instructions, as above.
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

/// Declares everything about one function. Those of the family `C` become symbols of the library, for preloading; all
/// others are only written into relocation slots.
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
                stub: stub as *const (),
                real: &REAL,
                boot: boot as *const (),
                family: Family::$family,
                fallback: $fallback,
            };

            /// What slots get. Not the exported symbol: the loader would bind our own use of that to somebody else's.
            ///
            /// # Safety
            /// As the function whose place it takes.
            #[unsafe(naked)]
            unsafe extern "C" fn stub() {
                stub_asm!($name)
            }

            function!(@$family $symbol $name);

            /// # Safety
            /// As the function whose place it takes.
            #[unsafe(naked)]
            unsafe extern "C" fn boot() {
                boot_asm!()
            }
        }
    };
    (@C $symbol:literal $name:ident) => {
        /// Takes the place of the allocator's function of this name.
        ///
        /// # Safety
        /// As that function.
        #[unsafe(export_name = $symbol)]
        #[unsafe(naked)]
        unsafe extern "C" fn exported() {
            stub_asm!($name)
        }
    };
    (@$family:ident $symbol:literal $name:ident) => {};
}

macro_rules! functions {
    ($($family:ident $name:ident = $symbol:literal, fallback $fallback:expr;)*) => {
        $(function!($family $name = $symbol, fallback $fallback);)*

        /// All of them.
        pub(crate) static FUNCTIONS: &[Function] = &[$($name::FUNCTION),*];
    };
}

const NONE: *const () = core::ptr::null();
const REALLOCARRAY: *const () = fallback::reallocarray as *const ();
const NEW: *const () = fallback::new as *const ();
const NEW_ALIGNED: *const () = fallback::new_aligned as *const ();
const DELETE: *const () = fallback::delete as *const ();

functions! {
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
