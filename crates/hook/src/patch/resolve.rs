//! The real functions: for each, the first module in load order that *defines* it. Never what a slot holds (that may
//! be a stub which binds itself), and never a non-PIE program's PLT entry of that name (that leads back to a slot).

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering};

use memintro_elf::Definition;

use super::modules::{Loaded, walk};
use crate::functions::{FUNCTIONS, Function};

/// Functions (one bit each) that different modules could be bound to differently: a later module defines them as
/// well, and the first is not one of those that every module looks into first.
static AMBIGUOUS: AtomicU64 = AtomicU64::new(0);

/// Whether an unbound slot of this function may be bound to something else than the real function that we know.
pub(super) fn is_ambiguous(index: u8) -> bool {
    AMBIGUOUS.load(Ordering::Relaxed) & bit(index.into()) != 0
}

/// The real function, if it has been found.
pub(super) fn real(function: &Function) -> Option<usize> {
    let real = function.real.load(Ordering::Acquire).cast_const();
    (!core::ptr::eq(real, function.boot)).then_some(real as usize)
}

/// The bit that stands for the function of this index in a set.
pub(super) fn bit(index: usize) -> u64 {
    u32::try_from(index).ok().and_then(|index| 1_u64.checked_shl(index)).unwrap_or(0)
}

/// Finds the real functions that are not known yet. Allocates nothing and takes no lock but the loader's; may be
/// called by several threads at once, and inside malloc.
///
/// Preloaded behind another library that stands before the allocator (another profiler), we are what that one calls:
/// our exported functions go on to what comes behind us.
pub(crate) fn resolve() {
    let (mut defined, mut again, mut after_libc) = (0, 0, 0);
    let mut is_after_libc = false;
    let mut is_before_us = are_we_before_libc();
    walk(|loaded| {
        is_before_us &= !loaded.is_own();
        if loaded.is_excluded() {
            return ControlFlow::Continue(());
        }
        let here = look_into(loaded, defined, is_before_us, is_after_libc);
        again |= here & defined;
        if is_after_libc {
            after_libc |= here & !defined;
        }
        defined |= here;
        is_after_libc |= loaded.is_libc();
        ControlFlow::Continue(())
    });
    // What was loaded at start-up, up to libc, comes first in the scope of every module.
    AMBIGUOUS.store(again & after_libc, Ordering::Relaxed);
}

/// Whether this library was preloaded, by its place in the list: the constructor may not have run yet.
fn are_we_before_libc() -> bool {
    let mut first_is_ours = false;
    walk(|loaded| {
        first_is_ours = loaded.is_own();
        if first_is_ours || loaded.is_libc() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    first_is_ours
}

/// Takes the module's definitions of functions that nobody before it defines. Answers the set of all that it has;
/// from a module before us, only those that we do not export and that do not go with malloc.
fn look_into(loaded: &Loaded<'_>, defined_before: u64, is_before_us: bool, is_after_libc: bool) -> u64 {
    let mut here = 0;
    let Ok(module) = loaded.module() else { return here };
    // strdup is the allocator's only where the malloc is that comes before libc's.
    let is_before_libc = !is_after_libc && !loaded.is_libc();
    let has_malloc = is_before_libc && matches!(module.defined(b"malloc"), Ok(Some(_)));
    let is_sought = |function: &Function| {
        if function.is_optional() {
            has_malloc && !is_before_us
        } else {
            !(is_before_us && function.exported)
        }
    };
    for (index, function) in FUNCTIONS.iter().enumerate().filter(|(_, function)| is_sought(function)) {
        if let Ok(Some(definition)) = module.defined(function.name.to_bytes()) {
            here |= bit(index);
            if defined_before & bit(index) == 0 && real(function).is_none() {
                // Another thread may have found the same.
                let new = address(definition).cast_mut();
                let boot = function.boot.cast_mut();
                let _ = function.real.compare_exchange(boot, new, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
    here
}

/// The function's address. An indirect one is asked for it, as the loader does, under the loader's locks.
fn address(definition: Definition) -> *const () {
    let address = definition.address as *const ();
    if !definition.indirect {
        return address;
    }
    // SAFETY: reads the auxiliary vector.
    let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP) };
    // SAFETY: the module says that a resolver is at this address; where it takes an argument, it is this one.
    unsafe {
        core::mem::transmute::<*const (), unsafe extern "C" fn(u64) -> *const ()>(address)(capabilities)
    }
}

/// Forgets real functions whose module is gone; they are looked for again at their next call.
pub(super) fn forget_unloaded() {
    let mut present = 0;
    walk(|loaded| {
        for (index, function) in FUNCTIONS.iter().enumerate() {
            if real(function).is_some_and(|real| loaded.holds(real as u64)) {
                present |= bit(index);
            }
        }
        ControlFlow::Continue(())
    });
    for (index, function) in FUNCTIONS.iter().enumerate() {
        if present & bit(index) == 0 {
            function.real.store(function.boot.cast_mut(), Ordering::Release);
        }
    }
}
