//! The roots of the calling thread: its registers, and its stack from the caller's frame on.

/// Registers that a function leaves as they were, and where the stack of the caller begins.
pub(crate) struct Held {
    pub(super) registers: [usize; 12],
    pub(super) stack: usize,
}

impl Held {
    /// To be called first of all by the function that Ruby calls: what is deeper than its frame is not the program's.
    #[inline(always)]
    pub(crate) fn capture() -> Self {
        let mut registers = [0_usize; 12];
        let place = registers.as_mut_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: writes six words of the array.
        unsafe {
            std::arch::asm!(
                "mov [{0}], rbx", "mov [{0} + 8], rbp", "mov [{0} + 16], r12", "mov [{0} + 24], r13",
                "mov [{0} + 32], r14", "mov [{0} + 40], r15",
                in(reg) place, options(nostack, preserves_flags)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: writes eleven words of the array.
        unsafe {
            std::arch::asm!(
                "stp x19, x20, [{0}]", "stp x21, x22, [{0}, #16]", "stp x23, x24, [{0}, #32]",
                "stp x25, x26, [{0}, #48]", "stp x27, x28, [{0}, #64]", "str x29, [{0}, #80]",
                in(reg) place, options(nostack, preserves_flags)
            );
        }
        Self { registers, stack: place as usize }
    }
}
