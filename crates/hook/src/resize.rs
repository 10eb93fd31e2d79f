//! The bodies of the functions that resize a block, as those of [`crate::intercept`].

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use memintro_tracker::stack;

use crate::apply::{Lookup, Moving};
use crate::clear::grown;
use crate::draw::{draw, take_back};
use crate::functions;
use crate::in_band::roomy;
use crate::intercept::allocate;
use crate::nested::{STACK_BYTES, as_one, as_one_unless_libc};
use crate::real::call;
use crate::record::{Birth, copied, moved, moving, sampled, stayed};
use crate::sampling::{self, Debt};
use crate::shared::BODIES_ONLY;

type Pointer = *mut c_void;

pub(crate) unsafe extern "C" fn realloc(
    block: Pointer,
    size: usize,
    c: usize,
    d: usize,
    caller: usize,
) -> Pointer {
    let _ = (c, d);
    if sampling::is_on() {
        let charged = sampling::charge(size);
        if charged.is_ok() && !sampling::may_hold(block as usize) && !BODIES_ONLY.load(Ordering::Relaxed) {
            // SAFETY: the caller's own arguments.
            return unsafe { call!(functions::realloc::REAL, fn(Pointer, usize) -> Pointer)(block, size) };
        }
        return resize_sampled(block, size, caller, charged, || really_realloc(block, size, size));
    }
    // realloc of a block to nothing frees it.
    let asked = if size == 0 && !block.is_null() { 0 } else { roomy(size) };
    resize_in_full(block, size, caller, || really_realloc(block, size, asked))
}

#[inline(always)]
fn really_realloc(block: Pointer, size: usize, asked: usize) -> Pointer {
    // SAFETY: the caller's own arguments, or a greater size.
    let real = || unsafe { call!(functions::realloc::REAL, fn(Pointer, usize) -> Pointer)(block, asked) };
    as_one_unless_libc(|| grown(block, size, real))
}

pub(crate) unsafe extern "C" fn reallocarray(
    block: Pointer,
    count: usize,
    size: usize,
    d: usize,
    caller: usize,
) -> Pointer {
    let _ = d;
    let Some(bytes) = count.checked_mul(size) else {
        // SAFETY: the caller's own arguments; the real function refuses them in its own way.
        return unsafe {
            call!(functions::reallocarray::REAL, fn(Pointer, usize, usize) -> Pointer)(block, count, size)
        };
    };
    let (times, asked) = match roomy(bytes) {
        _ if bytes == 0 && !block.is_null() => (count, size),
        same if same == bytes => (count, size),
        more => (1, more),
    };
    resize(block, bytes, caller, || {
        as_one(|| {
            // SAFETY: the caller's own arguments.
            unsafe {
                call!(functions::reallocarray::REAL, fn(Pointer, usize, usize) -> Pointer)(
                    block, times, asked,
                )
            }
        })
    })
}

#[inline(always)]
fn resize(block: Pointer, size: usize, caller: usize, real: impl FnOnce() -> Pointer) -> Pointer {
    if sampling::is_on() {
        let charged = sampling::charge(size);
        if charged.is_ok() && !sampling::may_hold(block as usize) {
            return real();
        }
        return resize_sampled(block, size, caller, charged, real);
    }
    resize_in_full(block, size, caller, real)
}

#[inline(never)]
fn resize_in_full(block: Pointer, size: usize, caller: usize, real: impl FnOnce() -> Pointer) -> Pointer {
    if block.is_null() {
        return allocate(size, caller, real);
    }
    replace(block, size, caller, Birth::Full, real)
}

/// The block is sampled or followed, or the real function has more to do.
#[cold]
#[inline(never)]
fn resize_sampled(
    block: Pointer,
    size: usize,
    caller: usize,
    charged: Result<(), Debt>,
    real: impl FnOnce() -> Pointer,
) -> Pointer {
    let mean = charged.err().and_then(|debt| draw(size, debt));
    if !block.is_null() && (mean.is_some() || sampling::may_hold(block as usize)) {
        return replace(block, size, caller, Birth::Sampled(mean), real);
    }
    let new = real();
    if let Some(mean) = mean {
        sampled(new, size, caller, mean);
    }
    new
}

#[inline(never)]
fn replace(
    block: Pointer,
    size: usize,
    caller: usize,
    birth: Birth,
    real: impl FnOnce() -> Pointer,
) -> Pointer {
    // The block is taken out before the call, because a stack overflow in the allocator would leave it in an unknown
    // state.
    stack::touch::<STACK_BYTES>();
    let moving = moving(block);
    if let Lookup::InBand = moving.block {
        return copied(block, size, caller);
    }
    let new = real();
    if new.is_null() && size != 0 {
        refused(&moving, block, size, birth);
    } else {
        moved(&moving, new, size, caller, birth);
    }
    new
}

/// The block is unchanged. (Inlined: a call that might unwind would give its callers a cleanup table.)
#[inline(always)]
fn refused(moving: &Moving, block: Pointer, size: usize, birth: Birth) {
    stayed(moving, block);
    if let Birth::Sampled(Some(_)) = birth {
        take_back(size);
    }
}

pub(crate) unsafe extern "C" fn rallocx(
    block: Pointer,
    size: usize,
    flags: c_int,
    d: usize,
    caller: usize,
) -> Pointer {
    let _ = d;
    resize(block, size, caller, || {
        // SAFETY: the caller's own arguments.
        as_one(|| unsafe {
            call!(functions::rallocx::REAL, fn(Pointer, usize, c_int) -> Pointer)(block, size, flags)
        })
    })
}

pub(crate) unsafe extern "C" fn xallocx(
    block: Pointer,
    size: usize,
    extra: usize,
    flags: c_int,
    caller: usize,
) -> usize {
    // SAFETY: the caller's own arguments.
    let usable = unsafe {
        call!(functions::xallocx::REAL, fn(Pointer, usize, usize, c_int) -> usize)(block, size, extra, flags)
    };
    // It resizes in place or not at all, and returns the usable size. If that is below the request, nothing
    // happened. The caller owns the address throughout, so everything is recorded after the outcome is known.
    // While the gate is closed, a block that has been taken out could not be put back.
    if usable >= size {
        let birth = if sampling::is_on() {
            Birth::Sampled(sampling::charge(size).err().and_then(|debt| draw(size, debt)))
        } else {
            Birth::Full
        };
        moved(&moving(block), block, size, caller, birth);
    }
    usable
}
