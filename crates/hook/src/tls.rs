//! The two thread-local words of the hook: the address of this thread's state, and its distance to the next sample.
//!
//! Stable Rust's `thread_local!` in a loaded library goes through `__tls_get_addr`, which is slow and may itself call
//! malloc. So the words are in `.tbss` and are read by the initial-exec model: one load of the offset, one load
//! through the thread pointer. glibc reserves room for such words of libraries that are loaded later.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicUsize, Ordering};

macro_rules! word {
    ($name:literal, $nobits:literal) => {
        global_asm!(
            concat!(".pushsection .tbss.", $name, ",\"awT\",", $nobits),
            ".balign 8",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@object"),
            concat!(".size ", $name, ", 8"),
            concat!($name, ":"),
            ".zero 8",
            ".popsection",
        );
    };
}

#[cfg(target_arch = "x86_64")]
word!("memintro_thread", "@nobits");
#[cfg(target_arch = "x86_64")]
word!("memintro_distance", "@nobits");
#[cfg(target_arch = "aarch64")]
word!("memintro_thread", "%nobits");
#[cfg(target_arch = "aarch64")]
word!("memintro_distance", "%nobits");

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

/// The address of a word in the calling thread's static TLS block, by the word's symbol.
#[cfg(target_arch = "x86_64")]
macro_rules! own_word {
    ($symbol:literal) => {{
        let address;
        // SAFETY: the thread pointer's own word holds its address.
        unsafe {
            asm!(
                "mov {address}, qword ptr fs:[0]",
                concat!("add {address}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                address = out(reg) address,
                options(nostack, readonly),
            );
        }
        address
    }};
}

/// The address of a word in the calling thread's static TLS block, by the word's symbol.
#[cfg(target_arch = "aarch64")]
macro_rules! own_word {
    ($symbol:literal) => {{
        let address;
        // SAFETY: reads the thread pointer and an offset from it.
        unsafe {
            asm!(
                "mrs {base}, tpidr_el0",
                concat!("adrp {address}, :gottprel:", $symbol),
                concat!("ldr {address}, [{address}, :gottprel_lo12:", $symbol, "]"),
                "add {address}, {base}, {address}",
                base = out(reg) _,
                address = out(reg) address,
                options(nostack, preserves_flags, readonly),
            );
        }
        address
    }};
}

/// A word of another library's, at the same distance from the thread pointer in each thread.
///
/// # Safety
/// Each thread has a word there.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn word_at(distance: isize) -> usize {
    let word: usize;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "mov {word}, qword ptr fs:[{distance}]",
            distance = in(reg) distance,
            word = lateout(reg) word,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// A word of another library's, at the same distance from the thread pointer in each thread.
///
/// # Safety
/// Each thread has a word there.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn word_at(distance: isize) -> usize {
    let word: usize;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "mrs {base}, tpidr_el0",
            "ldr {word}, [{base}, {distance}]",
            base = out(reg) _,
            distance = in(reg) distance,
            word = lateout(reg) word,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// The address of the calling thread's word.
fn address() -> *mut usize {
    own_word!("memintro_thread")
}

/// Sets the word of the calling thread unless a signal handler has set it; returns the handler's value.
#[cold]
pub(crate) fn set_first(word: usize) -> Result<(), usize> {
    // SAFETY: the calling thread's own word, which is aligned and lives as long as the thread.
    let own = unsafe { AtomicUsize::from_ptr(address()) };
    own.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).map(|_| ())
}

/// Takes `cost` from the calling thread's distance; `false` if the distance was less and is now negative. It is one
/// instruction, so a signal handler comes before it or after it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn pay(cost: u64) -> bool {
    let paid: u8;
    // SAFETY: changes the calling thread's own word of the static TLS block.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + memintro_distance@GOTTPOFF]",
            "sub qword ptr fs:[{offset}], {cost}",
            "setae {paid}",
            offset = out(reg) _,
            cost = in(reg) cost,
            paid = lateout(reg_byte) paid,
            options(nostack),
        );
    }
    paid != 0
}

/// Takes `cost` from the calling thread's distance; `false` if the distance was less and is now negative.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn pay(cost: u64) -> bool {
    let word = distance();
    // SAFETY: the calling thread's own word of the static TLS block.
    unsafe {
        let (left, short) = word.read().overflowing_sub(cost);
        word.write(left);
        !short
    }
}

/// The address of the calling thread's distance, valid while the thread lives; 0 in a thread that has never drawn
/// one.
#[inline(always)]
pub(crate) fn distance() -> *mut u64 {
    own_word!("memintro_distance")
}

/// A number that no other thread has while this one lives. It is even, because threads begin at even addresses, and
/// not 0.
pub(crate) fn number() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize & !1 }
}
