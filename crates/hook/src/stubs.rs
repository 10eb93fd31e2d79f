//! The stubs: what callers reach instead of each function of [`crate::functions`].
//!
//! While nothing is recorded, a stub compares a word and jumps to the real function. Otherwise it jumps to
//! the body with the caller's address: in full mode to that of [`in_full`] if there is one (which finds the
//! caller by itself), else to that in [`crate::intercept`]. In sampled mode on x86-64, the stubs of malloc,
//! calloc and free themselves pay or read the filter, and jump to the real function: a call of a body would
//! double their time. A stub is naked, so that the real function gets the stack and registers of the caller.
//! It has unwind information (`.cfi`), because a signal may arrive at each instruction.

use memintro_abi::Mode;
#[cfg(target_arch = "x86_64")]
use memintro_tracker::filter::PAGE_SHIFT;

use crate::functions::{self, for_each_function};
use crate::in_full;
#[cfg(target_arch = "x86_64")]
use crate::intercept::on_debt;
#[cfg(target_arch = "x86_64")]
use crate::pending::PENDING;
use crate::real::Stub;
#[cfg(target_arch = "x86_64")]
use crate::sampling::{COUNTS, RATE};
use crate::shared::ACTIVE;
#[cfg(target_arch = "x86_64")]
use crate::shared::BODIES_ONLY;

/// All bodies.
mod body {
    pub(super) use crate::intercept::*;
    pub(super) use crate::resize::*;
}

/// The instructions of a stub. The caller's address goes into the register of the fifth argument, which is free: only
/// `xallocx` has four arguments, and none has five.
#[cfg(target_arch = "x86_64")]
macro_rules! stub_asm {
    (malloc) => { stub_asm!(@born malloc, "mov rax, rdi") };
    // If the product overflows, the allocator refuses it.
    (calloc) => { stub_asm!(@born calloc, "mov rax, rdi", "imul rax, rsi") };
    (free) => {
        stub_asm!(@in_full free,
            [
                "cmp dword ptr [rip + {pending}], 0", "jne 3f",
                // As `Filter::may_hold` does, which takes 20 bits.
                "mov rcx, qword ptr [rip + {counts}]",
                "mov eax, edi", "shr eax, {shift}",
                "cmp byte ptr [rcx + rax], 0", "jne 3f",
                "jmp qword ptr [rip + {real}]",
            ],
            pending = sym PENDING, counts = sym COUNTS, shift = const PAGE_SHIFT)
    };
    (malloc_usable_size) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "cmp dword ptr [rip + {active}], {in_band}",
            // Also while records leave.
            "jae 2f",
            "jmp qword ptr [rip + {real}]",
            "2:",
            "mov r8, [rsp]",
            "jmp {body}",
            ".cfi_endproc",
            active = sym ACTIVE, in_band = const crate::shared::IN_BAND,
            real = sym functions::malloc_usable_size::REAL, body = sym body::malloc_usable_size,
        )
    };
    // The price of a block, and the short path of sampled mode.
    (@born $name:ident, $($bytes:literal),+) => {
        stub_asm!(@in_full $name,
            [
                "cmp byte ptr [rip + {bodies_only}], 0", "jne 3f",
                $($bytes,)+
                // A block of no bytes pays for one.
                "cmp rax, 1", "adc rax, 0",
                "mul qword ptr [rip + {rate}]", "jo 3f",
                "mov rcx, qword ptr [rip + memintro_distance@GOTTPOFF]",
                "sub qword ptr fs:[rcx], rax", "jb 4f",
                "jmp qword ptr [rip + {real}]",
                // It cannot pay.
                "4:", "mov r9, rax", "mov r8, [rsp]", "jmp {on_debt}",
            ],
            bodies_only = sym BODIES_ONLY, rate = sym RATE, on_debt = sym on_debt::$name)
    };
    (@in_full $name:ident, [$($sampled:literal),+ $(,)?], $($operand:tt)*) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "cmp dword ptr [rip + {active}], {full}",
            "je {in_full}",
            "ja 2f",
            "jmp qword ptr [rip + {real}]",
            "2:",
            // The parity of the difference is even for IN_BAND alone.
            "jp {with_record}",
            "cmp dword ptr [rip + {active}], {sampled}", "jne 3f",
            $($sampled,)+
            "3:",
            "mov r8, [rsp]",
            "jmp {body}",
            ".cfi_endproc",
            active = sym ACTIVE, full = const Mode::FULL.0, sampled = const Mode::SAMPLED.0,
            real = sym functions::$name::REAL, in_full = sym in_full::$name::<false>,
            with_record = sym in_full::$name::<true>, body = sym body::$name, $($operand)*
        )
    };
    ($name:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "cmp dword ptr [rip + {active}], 0",
            "jne 2f",
            "jmp qword ptr [rip + {real}]",
            "2:",
            "mov r8, [rsp]",
            "jmp {body}",
            ".cfi_endproc",
            active = sym ACTIVE, real = sym functions::$name::REAL, body = sym body::$name,
        )
    };
}

/// The instructions of a stub, as above.
#[cfg(target_arch = "aarch64")]
macro_rules! stub_asm {
    (malloc) => { stub_asm!(@in_full malloc) };
    (calloc) => { stub_asm!(@in_full calloc) };
    (free) => { stub_asm!(@in_full free) };
    ($name:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "adrp x9, {active}", "ldr w9, [x9, :lo12:{active}]",
            "cbnz w9, 2f",
            "adrp x9, {real}", "ldr x9, [x9, :lo12:{real}]", "br x9",
            "2:",
            "mov x4, x30",
            "b {body}",
            ".cfi_endproc",
            active = sym ACTIVE, real = sym functions::$name::REAL, body = sym body::$name,
        )
    };
    (@in_full $name:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "adrp x9, {active}", "ldr w9, [x9, :lo12:{active}]",
            "cbnz w9, 2f",
            "adrp x9, {real}", "ldr x9, [x9, :lo12:{real}]", "br x9",
            "2:",
            "cmp w9, {full}",
            "b.ne 3f",
            "b {in_full}",
            "3:",
            "mov x4, x30",
            "b {body}",
            ".cfi_endproc",
            active = sym ACTIVE, full = const Mode::FULL.0,
            real = sym functions::$name::REAL, in_full = sym in_full::$name::<false>, body = sym body::$name,
        )
    };
}

/// Declares the stub of one function. Those of the family `C` become symbols of the library, for preloading; all others
/// are only written into relocation slots.
macro_rules! stub {
    ($family:ident $name:ident = $symbol:literal) => {
        mod $name {
            use super::*;

            pub(super) const STUB: Stub = Stub { function: &functions::$name::FUNCTION, address: stub as *const () };

            /// The function that is written into slots. It is not the exported symbol, because the loader would bind
            /// this library's own use of that to another library's function.
            ///
            /// # Safety
            ///
            /// As the function that it replaces.
            #[unsafe(naked)]
            unsafe extern "C" fn stub() {
                stub_asm!($name)
            }

            stub!(@$family $symbol $name);
        }
    };
    (@C $symbol:literal $name:ident) => {
        /// Replaces the allocator's function of this name.
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

macro_rules! stubs {
    ($($family:ident $name:ident = $symbol:literal, fallback $fallback:expr;)*) => {
        $(stub!($family $name = $symbol);)*

        /// All of them, in the order of [`functions::FUNCTIONS`].
        pub(crate) static STUBS: &[Stub] = &[$($name::STUB),*];
    };
}

for_each_function!(stubs);
