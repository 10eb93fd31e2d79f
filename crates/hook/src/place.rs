//! Finds the module of a return address, inside malloc.
//!
//! glibc has a function for this that takes no lock, `_dl_find_object` (since 2.35, made for exceptions that are
//! thrown in signal handlers). The caller runs in its module, so the module cannot be unloaded meanwhile. Without
//! that function a native site is its address, as for code that lies in no module.
//!
//! A thread caches the result for a return address until a module is loaded or unloaded, because then another module
//! may be at that address.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use memintro_tracker::sites::Place;

use crate::patch::{build_at, next, path_of};

/// The result of `_dl_find_object`, as in libc's `<dlfcn.h>` for 64-bit machines.
#[repr(C)]
struct Found {
    flags: u64,
    start: *const u8,
    end: *const u8,
    link_map: *const LinkMap,
    unwinding: *const c_void,
    reserved: [u64; 7],
}

/// The part of the link map that `<link.h>` declares.
#[repr(C)]
struct LinkMap {
    base: u64,
    name: *const c_char,
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut Found) -> c_int;

static FIND_OBJECT: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Called once, by the constructor.
pub(crate) fn init() {
    FIND_OBJECT.store(next(c"_dl_find_object").cast_mut(), Ordering::Release);
}

/// Calls `action` with the place of `caller`, which is a return address of this thread.
pub(crate) fn with_place<R>(caller: usize, action: impl FnOnce(Option<Place<'_>>) -> R) -> R {
    let find = FIND_OBJECT.load(Ordering::Acquire);
    if find.is_null() {
        return action(None);
    }
    let mut found = MaybeUninit::<Found>::uninit();
    // The return address may be the first instruction of the next function, so the byte before it is looked up.
    let inside = caller.wrapping_sub(1) as *const c_void;
    // SAFETY: the address is that of libc's function of this name and type.
    let answer = unsafe { core::mem::transmute::<*mut (), FindObject>(find)(inside, found.as_mut_ptr()) };
    if answer != 0 {
        return action(None);
    }
    // SAFETY: libc has filled it.
    let found = unsafe { found.assume_init() };
    // SAFETY: the loader's record of a module that cannot go away while its code runs.
    let Some(map) = (unsafe { found.link_map.as_ref() }) else { return action(None) };
    // SAFETY: not null, terminated, and as lasting as the record.
    let name = if map.name.is_null() { c"" } else { unsafe { CStr::from_ptr(map.name) } };
    let pages = found.start as usize..found.end as usize;
    // SAFETY: the module's pages, mapped while its code runs.
    let build = unsafe { build_at(map.base, name, pages) };
    action(Some(Place { path: path_of(name), build, offset: (caller as u64).wrapping_sub(map.base) }))
}
