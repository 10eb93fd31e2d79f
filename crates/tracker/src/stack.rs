//! How far down the calling thread's stack reaches, and whether what was on it is gone.
//!
//! A stack overflow comes wherever a stack ends, and a handler of SIGSEGV may leave it by `longjmp` (Ruby's does). So whoever is
//! about to take something reads the stack first as far down as will be needed ([`touch`], [`touch_pages`]): then the fault
//! comes before anything is half done. What must not stay taken for ever, whatever leaves it by `longjmp`, keeps where the
//! stack ended when it was taken ([`pointer()`]): a thread that is less deep than that now will not come back to it ([`is_gone`]).

/// Reads a byte so far below the stack pointer, at most a page: Ruby takes no fault further down for a stack overflow.
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

/// The smallest there are: no page is passed over.
const PAGE: usize = 4096;

/// Reads so many pages below the stack pointer, one after the other. The stack pointer goes with it, as in calls that would
/// reach as deep: a handler sees an ordinary stack overflow, and none jumps over a guard page.
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

/// Where the stack ends now.
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

/// Whether what began where the stack ended at `frame` is gone, as the stack ends at `now`: somebody has left it by `longjmp`.
/// On a signal stack, which may lie anywhere, nobody can say.
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
