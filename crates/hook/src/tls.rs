//! The one thread-local word of the hook: the address of this thread's state.
//!
//! Stable Rust's `thread_local!` in a loaded library goes through `__tls_get_addr`, which is slow and may itself
//! call malloc. So the word lives in `.tbss` and is read by the initial-exec model: one load of its offset, one
//! load through the thread pointer. glibc keeps room for such words in libraries that are loaded late.

use core::arch::{asm, global_asm};

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .tbss.memintro_thread,\"awT\",@nobits",
    ".balign 8",
    ".globl memintro_thread",
    ".hidden memintro_thread",
    ".type memintro_thread,@object",
    ".size memintro_thread, 8",
    "memintro_thread:",
    ".zero 8",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .tbss.memintro_thread,\"awT\",%nobits",
    ".balign 8",
    ".globl memintro_thread",
    ".hidden memintro_thread",
    ".type memintro_thread,%object",
    ".size memintro_thread, 8",
    "memintro_thread:",
    ".zero 8",
    ".popsection",
);

/// The word of the calling thread; 0 in a thread that has never set it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn get() -> usize {
    let word: usize;
    // SAFETY: reads the calling thread's own word of the static TLS block.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + memintro_thread@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{offset}]",
            offset = out(reg) _,
            word = lateout(reg) word,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Sets the word of the calling thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn set(word: usize) {
    // SAFETY: writes the calling thread's own word of the static TLS block.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + memintro_thread@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {word}",
            offset = out(reg) _,
            word = in(reg) word,
            options(nostack, preserves_flags),
        );
    }
}

/// The word of the calling thread; 0 in a thread that has never set it.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn get() -> usize {
    let word: usize;
    // SAFETY: reads the calling thread's own word of the static TLS block.
    unsafe {
        asm!(
            "mrs {base}, tpidr_el0",
            "adrp {offset}, :gottprel:memintro_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:memintro_thread]",
            "ldr {word}, [{base}, {offset}]",
            base = out(reg) _,
            offset = out(reg) _,
            word = lateout(reg) word,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Sets the word of the calling thread.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn set(word: usize) {
    // SAFETY: writes the calling thread's own word of the static TLS block.
    unsafe {
        asm!(
            "mrs {base}, tpidr_el0",
            "adrp {offset}, :gottprel:memintro_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:memintro_thread]",
            "str {word}, [{base}, {offset}]",
            base = out(reg) _,
            offset = out(reg) _,
            word = in(reg) word,
            options(nostack, preserves_flags),
        );
    }
}
