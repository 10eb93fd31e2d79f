//! The bodies: one for each replaced function, with the same name and signature.
//!
//! Each calls the real function and reports the result to [`crate::record`]. The fifth argument is the caller's
//! address. `errno` and the return value are those of the real function.

use core::ffi::{c_char, c_int, c_void};

use memintro_tracker::mmap::Errno;

use crate::clear::cleared;
use crate::draw::draw;
use crate::functions;
use crate::in_band::{self, roomy};
use crate::in_full::{self, prefetch};
use crate::nested::{as_one, as_one_unless_libc};
use crate::patch;
use crate::real::call;
use crate::record::{allocated, freeing, moved_to_table, sampled};
use crate::sampling::{self, Debt};
use crate::shared::IN_BAND_RECORDS;

type Pointer = *mut c_void;

/// Calls the allocator, and records the block.
#[inline(always)]
pub(crate) fn allocate(size: usize, caller: usize, real: impl FnOnce() -> Pointer) -> Pointer {
    if sampling::is_on() {
        return allocate_and_pay(size, caller, real);
    }
    let block = real();
    allocated(block, size, caller);
    block
}

/// Calls the allocator, and records the block if it is sampled.
#[inline(always)]
fn allocate_and_pay(size: usize, caller: usize, real: impl FnOnce() -> Pointer) -> Pointer {
    match sampling::charge(size) {
        Ok(()) => real(),
        Err(debt) => allocate_on_debt(size, caller, debt, real),
    }
}

#[cold]
#[inline(never)]
fn allocate_on_debt(size: usize, caller: usize, debt: Debt, real: impl FnOnce() -> Pointer) -> Pointer {
    let mean = draw(size, debt);
    let block = real();
    if let Some(mean) = mean {
        sampled(block, size, caller, mean);
    }
    block
}

/// Tail of the sampled stubs for a block that cannot pay. The stub has already taken the rest of the
/// distance.
#[cfg(target_arch = "x86_64")]
pub(crate) mod on_debt {
    use super::*;

    pub(crate) unsafe extern "C" fn malloc(
        size: usize,
        _: usize,
        _: usize,
        _: usize,
        caller: usize,
        debt: Debt,
    ) -> Pointer {
        allocate_on_debt(size, caller, debt, || {
            // SAFETY: any size may be asked for.
            unsafe { call!(functions::malloc::REAL, fn(usize) -> Pointer)(size) }
        })
    }

    pub(crate) unsafe extern "C" fn calloc(
        count: usize,
        size: usize,
        _: usize,
        _: usize,
        caller: usize,
        debt: Debt,
    ) -> Pointer {
        allocate_on_debt(count.wrapping_mul(size), caller, debt, || {
            // SAFETY: the caller's own arguments.
            unsafe { call!(functions::calloc::REAL, fn(usize, usize) -> Pointer)(count, size) }
        })
    }
}

/// How many bytes of a block may be used. Only called while some blocks have records within themselves.
///
/// Ruby asks for the size of each block only to count it, so it gets the size without the record. Other
/// callers may use all bytes, or may have resized the block without the hook: they get the allocator's
/// answer, and the record moves to the table.
pub(crate) unsafe extern "C" fn malloc_usable_size(
    block: Pointer,
    b: usize,
    c: usize,
    d: usize,
    caller: usize,
) -> usize {
    let _ = (b, c, d);
    // SAFETY: the caller's block, in both cases.
    unsafe {
        match IN_BAND_RECORDS.usable(block as usize) {
            Some(bytes) if in_band::is_of_ruby(caller) || !moved_to_table(block) => bytes,
            _ => call!(functions::malloc_usable_size::REAL, fn(Pointer) -> usize)(block),
        }
    }
}

/// In full mode the stub jumps to [`in_full::malloc`]. In sampled mode the stubs of malloc, calloc and free
/// do the usual case themselves.
pub(crate) unsafe extern "C" fn malloc(size: usize, b: usize, c: usize, d: usize, caller: usize) -> Pointer {
    let _ = (b, c, d);
    allocate(size, caller, || {
        // SAFETY: any size may be asked for.
        cleared(unsafe { call!(functions::malloc::REAL, fn(usize) -> Pointer)(size) }, size)
    })
}

/// Records that a block is about to be freed, if it is followed.
#[inline(always)]
fn release(block: Pointer) {
    if IN_BAND_RECORDS.is_on() && IN_BAND_RECORDS.has(block as usize) {
        // It ends with free, which records the end.
    } else if !sampling::is_on() {
        prefetch(block);
        freeing(block);
    } else if sampling::may_hold(block as usize) {
        freeing(block);
    }
}

/// In full mode the stub jumps to [`in_full::free`].
pub(crate) unsafe extern "C" fn free(block: Pointer) {
    if !sampling::is_on() {
        // SAFETY: the caller's own argument.
        return unsafe { in_full::free::<false>(block) };
    }
    if sampling::may_hold(block as usize) && !freeing(block) {
        return;
    }
    // SAFETY: the caller's own argument.
    unsafe { call!(functions::free::REAL, fn(Pointer))(block) };
}

/// In full mode the stub jumps to [`in_full::calloc`].
pub(crate) unsafe extern "C" fn calloc(
    count: usize,
    size: usize,
    c: usize,
    d: usize,
    caller: usize,
) -> Pointer {
    let _ = (c, d);
    // If the product overflows, the allocator refuses it.
    allocate(count.wrapping_mul(size), caller, || {
        // SAFETY: the caller's own arguments.
        as_one_unless_libc(|| unsafe {
            call!(functions::calloc::REAL, fn(usize, usize) -> Pointer)(count, size)
        })
    })
}

pub(crate) unsafe extern "C" fn memalign(
    alignment: usize,
    size: usize,
    c: usize,
    d: usize,
    caller: usize,
) -> Pointer {
    let _ = (c, d);
    allocate(size, caller, || {
        // SAFETY: the caller's own arguments.
        as_one(|| unsafe {
            call!(functions::memalign::REAL, fn(usize, usize) -> Pointer)(alignment, roomy(size))
        })
    })
}

pub(crate) unsafe extern "C" fn posix_memalign(
    place: *mut Pointer,
    alignment: usize,
    size: usize,
    d: usize,
    caller: usize,
) -> c_int {
    let _ = d;
    let mut error = 0;
    allocate(size, caller, || {
        // SAFETY: the caller's own arguments.
        error = as_one(|| unsafe {
            call!(functions::posix_memalign::REAL, fn(*mut Pointer, usize, usize) -> c_int)(
                place,
                alignment,
                roomy(size),
            )
        });
        // SAFETY: on success the function has written the block's address there.
        if error == 0 { unsafe { *place } } else { core::ptr::null_mut() }
    });
    error
}

pub(crate) unsafe extern "C" fn aligned_alloc(
    alignment: usize,
    size: usize,
    c: usize,
    d: usize,
    caller: usize,
) -> Pointer {
    let _ = (c, d);
    allocate(size, caller, || {
        // SAFETY: the caller's own arguments.
        as_one(|| unsafe {
            call!(functions::aligned_alloc::REAL, fn(usize, usize) -> Pointer)(alignment, roomy(size))
        })
    })
}

pub(crate) unsafe extern "C" fn valloc(size: usize, b: usize, c: usize, d: usize, caller: usize) -> Pointer {
    let _ = (b, c, d);
    allocate(size, caller, || {
        // SAFETY: the caller's own argument.
        as_one(|| unsafe { call!(functions::valloc::REAL, fn(usize) -> Pointer)(roomy(size)) })
    })
}

pub(crate) unsafe extern "C" fn pvalloc(size: usize, b: usize, c: usize, d: usize, caller: usize) -> Pointer {
    let _ = (b, c, d);
    allocate(size, caller, || {
        // SAFETY: the caller's own argument.
        as_one(|| unsafe { call!(functions::pvalloc::REAL, fn(usize) -> Pointer)(roomy(size)) })
    })
}

macro_rules! operators_new {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C-unwind" fn $name(size: usize, b: usize, c: usize, d: usize, caller: usize) -> Pointer {
            let _ = d;
            allocate(size, caller, || {
                // SAFETY: the caller's own arguments; those that the real function does not have are ignored by it.
                as_one(|| unsafe {
                    call!(functions::$name::REAL, unwinding fn(usize, usize, usize) -> Pointer)(size, b, c)
                })
            })
        }
    )*};
}

operators_new!(
    new,
    new_array,
    new_nothrow,
    new_array_nothrow,
    new_aligned,
    new_array_aligned,
    new_aligned_nothrow,
    new_array_aligned_nothrow
);

macro_rules! operators_delete {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(block: Pointer, b: usize, c: usize) {
            release(block);
            // SAFETY: the caller's own arguments; those that the real function does not have are ignored by it.
            unsafe { call!(functions::$name::REAL, fn(Pointer, usize, usize))(block, b, c) };
        }
    )*};
}

operators_delete!(
    delete,
    delete_array,
    delete_nothrow,
    delete_array_nothrow,
    delete_sized,
    delete_array_sized,
    delete_aligned,
    delete_array_aligned,
    delete_aligned_nothrow,
    delete_array_aligned_nothrow,
    delete_sized_aligned,
    delete_array_sized_aligned,
    dallocx,
    sdallocx
);

pub(crate) unsafe extern "C" fn mallocx(
    size: usize,
    flags: c_int,
    c: usize,
    d: usize,
    caller: usize,
) -> Pointer {
    let _ = (c, d);
    allocate(size, caller, || {
        // SAFETY: the caller's own arguments.
        as_one(|| unsafe { call!(functions::mallocx::REAL, fn(usize, c_int) -> Pointer)(size, flags) })
    })
}

macro_rules! duplicates {
    ($name:ident, $text:ident, $limit:ident, $len:expr) => {
        /// The real function. If it calls malloc, that call is part of this one.
        pub(crate) unsafe extern "C" fn $name(
            $text: *const c_char,
            $limit: usize,
            c: usize,
            d: usize,
            caller: usize,
        ) -> Pointer {
            let _ = (c, d);
            let real = || {
                // SAFETY: the caller's own arguments; strdup ignores the second.
                as_one(|| unsafe {
                    call!(functions::$name::REAL, fn(*const c_char, usize) -> Pointer)($text, $limit)
                })
            };
            // The allocator decides what happens with a null pointer.
            if $text.is_null() {
                return real();
            }
            // SAFETY: the caller gives a text, which the real function is about to read as far.
            let len: usize = unsafe { $len };
            allocate(len.wrapping_add(1), caller, real)
        }
    };
}

duplicates!(strdup, text, limit, libc::strlen(text));
duplicates!(strndup, text, limit, libc::strnlen(text, limit));

/// The instructions of a function that reads the first two arguments and then jumps to the real one, with the
/// arguments, the stack and the return address as the caller left them.
#[cfg(target_arch = "x86_64")]
macro_rules! observe_and_jump {
    ($observer:ident, $name:ident) => {
        core::arch::naked_asm!(
            "push rdi", "push rsi", "sub rsp, 8",
            "call {observer}",
            "add rsp, 8", "pop rsi", "pop rdi",
            "jmp qword ptr [rip + {real}]",
            observer = sym $observer, real = sym functions::$name::REAL,
        )
    };
}

/// The same, as above.
#[cfg(target_arch = "aarch64")]
macro_rules! observe_and_jump {
    ($observer:ident, $name:ident) => {
        core::arch::naked_asm!(
            "stp x29, x30, [sp, #-32]!", "stp x0, x1, [sp, #16]",
            "bl {observer}",
            "ldp x0, x1, [sp, #16]", "ldp x29, x30, [sp], #32",
            "adrp x9, {real}", "ldr x9, [x9, :lo12:{real}]", "br x9",
            observer = sym $observer, real = sym functions::$name::REAL,
        )
    };
}

/// Notes that a library may be loaded now. Its symbols may be bound in another order than those of all other modules,
/// and it may lie where another module was unloaded. (The real function is entered by a jump, for the same reason as
/// dlsym.)
///
/// # Safety
/// As dlopen.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen() {
    observe_and_jump!(observe_dlopen, dlopen)
}

extern "C" fn observe_dlopen(_path: *const c_char, mode: c_int) {
    let errno = Errno::save();
    patch::about_to_load(mode);
    if mode & libc::RTLD_DEEPBIND != 0 {
        in_band::is_passed_by();
    }
    drop(errno);
}

/// A program that has loaded a library calls dlsym next, so the library is patched here, before its first function is
/// called. (This cannot be done after dlopen: the loader finds `$ORIGIN` by the return address of dlopen, so the hook
/// cannot call it and wait. For the same reason the real dlsym is entered by a jump, with the caller's return
/// address: `RTLD_NEXT` depends on it.)
///
/// # Safety
/// As dlsym.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym() {
    observe_and_jump!(look_for_new_modules, dlsym)
}

extern "C" fn look_for_new_modules() {
    let errno = Errno::save();
    patch::refresh();
    drop(errno);
}
