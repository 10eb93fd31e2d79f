//! Tells the compiler where to compute a value. In the few functions that run in every call of malloc, it
//! would otherwise keep too many values in registers, and save some of them first.

/// Does nothing. Later values are not computed before it.
#[inline(always)]
pub fn keep() {
    // SAFETY: there is no instruction.
    unsafe { core::arch::asm!("", options(nomem, nostack, preserves_flags)) };
}

/// The value, which is computed here, and not where it is used.
#[inline(always)]
#[must_use]
pub fn here(mut value: u64) -> u64 {
    // SAFETY: there is no instruction.
    unsafe { core::arch::asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The reference, whose address is computed here as a whole.
#[inline(always)]
#[must_use]
#[allow(clippy::pointers_in_nomem_asm_block, reason = "there is no instruction")]
pub fn as_whole<T>(reference: &T) -> &T {
    let mut address = core::ptr::from_ref(reference);
    // SAFETY: there is no instruction, so it is the same reference as before.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) address, options(nomem, nostack, preserves_flags));
        &*address
    }
}
