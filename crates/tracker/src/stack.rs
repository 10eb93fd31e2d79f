//! Touches the stack in advance, and detects whether a stack frame was left by `longjmp`.
//!
//! A stack can overflow in any function, and a handler of SIGSEGV may leave that function by `longjmp` (Ruby's does).
//! So code that is about to take a lock or begin a change first reads the stack as far down as it will need
//! ([`touch`], [`touch_pages`]); then the fault comes before anything is half done. A lock that must not stay taken
//! after a `longjmp` stores the stack pointer ([`pointer()`]): a thread whose stack is less deep than that will not
//! return to that code ([`is_gone`]).

/// Reads a byte so far below the stack pointer, at most a page: Ruby treats a fault further down as no stack
/// overflow.
#[inline(always)]
pub fn touch<const BYTES: usize>() {
    const { assert!(BYTES <= PAGE) };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the calling thread's own stack, or faults as the next call would.
    unsafe {
        core::arch::asm!("test byte ptr [rsp - {depth}], 0", depth = const BYTES, options(nostack, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "sub {at}, sp, #{depth}", "ldrb {at:w}, [{at}]",
            at = out(reg) _, depth = const BYTES, options(nostack, readonly),
        );
    }
}

/// The smallest page size there is, so that no page is skipped.
const PAGE: usize = 4096;

/// Reads so many pages below the stack pointer, one after the other. The stack pointer moves along, as in calls that
/// deep. So a handler sees an ordinary stack overflow, and no read skips a guard page.
#[inline(never)]
pub fn touch_pages<const PAGES: usize>() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the calling thread's own stack, or faults as calls would. The stack pointer is what it was in the end.
    unsafe {
        core::arch::asm!(
            "mov {top}, rsp",
            "2:", "sub rsp, {page}", "test byte ptr [rsp], 0", "dec {pages}", "jnz 2b",
            "mov rsp, {top}",
            top = out(reg) _, pages = inout(reg) PAGES => _, page = const PAGE,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "mov {top}, sp",
            "2:", "sub sp, sp, #{page}", "ldrb {byte:w}, [sp]", "subs {pages}, {pages}, #1", "b.ne 2b",
            "mov sp, {top}",
            top = out(reg) _, byte = out(reg) _, pages = inout(reg) PAGES => _, page = const PAGE,
        );
    }
}

/// The stack pointer now.
#[inline(always)]
#[must_use]
pub fn pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// Whether the code that began with the stack pointer at `frame` was left by `longjmp`, if the stack pointer is
/// `now`. On a signal stack, which may be anywhere, this cannot be told.
#[cold]
#[inline(never)]
#[must_use]
pub fn is_gone(frame: usize, now: usize) -> bool {
    now > frame && !is_on_signal_stack()
}

fn is_on_signal_stack() -> bool {
    let mut stack = libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: only asks, into a valid record.
    let asked = unsafe { libc::sigaltstack(core::ptr::null(), &raw mut stack) };
    asked != 0 || stack.ss_flags & libc::SS_ONSTACK != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn deeper() -> usize {
        core::hint::black_box(pointer())
    }

    #[test]
    fn what_was_deeper_is_gone_and_what_is_not_is_not() {
        touch::<2048>();
        touch_pages::<3>();
        let (here, below) = (pointer(), deeper());
        assert!(below < here);
        assert!(is_gone(below, here));
        assert!(!is_gone(here, below) && !is_gone(here, here));
    }
}
