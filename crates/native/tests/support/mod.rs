//! The modules of this process, its registers, and a copy of its stack.

use std::ffi::{c_int, c_void};

use memintro_abi::ModuleRecord;
use memintro_native::{Loaded, Registers};

/// What the loader says.
pub(crate) struct Own;

impl Loaded for Own {
    fn each(&self, visit: &mut dyn FnMut(&ModuleRecord)) {
        unsafe extern "C" fn one(info: *mut libc::dl_phdr_info, _: usize, context: *mut c_void) -> c_int {
            // SAFETY: the loader's record, and the closure below.
            let (info, visit) = unsafe { (&*info, &mut *context.cast::<&mut dyn FnMut(&ModuleRecord)>()) };
            visit(&ModuleRecord {
                path: info.dlpi_name,
                base: info.dlpi_addr,
                headers: info.dlpi_phdr.cast(),
                header_count: info.dlpi_phnum.into(),
                loaded: info.dlpi_adds,
                unloaded: info.dlpi_subs,
            });
            0
        }
        let mut visit = visit;
        // SAFETY: the callback fits the context.
        unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut visit).cast()) };
    }
}

/// The registers here.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn registers() -> Registers {
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: reads registers.
    unsafe {
        std::arch::asm!(
            "lea {ip}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp",
            ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp, options(nostack, preserves_flags),
        );
    }
    Registers { ip, sp, bp }
}

/// Words of the calling thread's stack from here up to an address.
pub(crate) fn stack(from: u64, to: u64) -> impl Fn(u64) -> Option<u64> {
    let words: Vec<u64> = (from..to)
        .step_by(8)
        // SAFETY: both are in frames of the calling thread that have not returned.
        .map(|address| unsafe { (address as *const u64).read_volatile() })
        .collect();
    move |address| {
        let at = address.checked_sub(from).filter(|at| at.is_multiple_of(8))?;
        words.get(usize::try_from(at / 8).ok()?).copied()
    }
}
