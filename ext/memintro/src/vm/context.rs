//! Does this thread have an execution context of Ruby's?
//!
//! Asking the VM for frames without one crashes Ruby 3.1: a native thread that never met Ruby, or one that has just
//! left it, has none although `ruby_thread_has_gvl_p` may still say yes.
//!
//! | Ruby | how it is told | from |
//! |---|---|---|
//! | 3.1, 3.2 | the thread-local `ruby_current_ec`, an exported symbol | vm.c: `RB_THREAD_LOCAL_SPECIFIER ... ruby_current_ec` |
//! | 3.3 and later | `rb_profile_frames` answers 0 without one | vm_backtrace.c: "If there is no EC ..." |

use std::ffi::c_void;
use std::sync::atomic::{AtomicIsize, Ordering};

use rb_sys::VALUE;

use super::functions;

/// The variable's distance from the thread pointer; `UNKNOWN` where the symbol is not to be had or not static.
static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);
const UNKNOWN: isize = isize::MAX;
/// The static TLS block lies just below the thread pointer (x86-64) or just above it (aarch64); a variable of a
/// library that was loaded late lies elsewhere, at a different distance in every thread.
const STATIC_TLS_REACH: isize = 64 * 1024;

/// Finds the variable.
pub(crate) fn prepare() {
    // SAFETY: a look-up by name; for a thread-local it answers the calling thread's instance.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ruby_current_ec".as_ptr()) };
    if address.is_null() {
        return;
    }
    let offset = (address as isize).wrapping_sub(thread_pointer() as isize);
    if offset.abs() < STATIC_TLS_REACH {
        OFFSET.store(offset, Ordering::Release);
    }
}

/// What is known of the calling thread's execution context.
#[derive(Clone, Copy)]
pub(crate) enum Context {
    /// It has none.
    None,
    /// It has one; this Ruby does not say where.
    Hidden,
    /// It has this one.
    At(*const c_void),
}

/// The calling thread's execution context.
#[inline]
pub(crate) fn current() -> Context {
    let offset = OFFSET.load(Ordering::Relaxed);
    if offset == UNKNOWN {
        return if has_frames() { Context::Hidden } else { Context::None };
    }
    let variable = thread_pointer().wrapping_offset(offset).cast::<*const c_void>();
    // SAFETY: `prepare` found the variable in the static TLS block, which every thread has at the same distance.
    let context = unsafe { *variable };
    if context.is_null() { Context::None } else { Context::At(context) }
}

#[inline]
fn has_frames() -> bool {
    let Some(vm) = functions::get() else { return false };
    let mut frame: VALUE = 0;
    let mut line = 0;
    // SAFETY: room for the one frame asked for; without an execution context this Ruby answers 0.
    unsafe { (vm.profile_frames)(0, 1, &raw mut frame, &raw mut line) > 0 }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    // SAFETY: the first word of the thread control block is its own address.
    unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}
