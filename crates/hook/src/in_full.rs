//! Fast paths of malloc, calloc and free in full mode.
//!
//! They assume: the thread has a state and records nothing yet; the gate is open; the running line of Ruby
//! has allocated before (or Ruby is still starting); the table and the counters have room. They check all of
//! this before they change anything. In all other cases the body *ends* with a jump to a slow function (see
//! [`crate::record`]). So no value must be kept over a call, and the fast path is short. A body may jump
//! while the thread is busy.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use memintro_abi::SITE_BOOT;
use memintro_tracker::counters::AtHand;
use memintro_tracker::in_band::{EXTRA, with_extra};
use memintro_tracker::table::{Block, Removed};
use memintro_tracker::threads::{Busy, ThreadState};

use crate::apply::Origin;
use crate::clear;
use crate::functions;
use crate::in_band;
use crate::line;
use crate::nested::as_one_unless_libc;
use crate::real::call;
use crate::record::{allocated, forget, give_back, record_at, site};
use crate::sampling::SAMPLES;
use crate::shared::{self, ACTIVE, BIRTHS, FOLLOWED, IN_BAND_RECORDS, TABLE, THREADS};
use crate::stacks;
use crate::thread;

type Pointer = *mut c_void;

/// Prefetches the allocator's own words in front of a block. The table's cache line and the block's header are two
/// cache misses, which overlap this way.
#[inline(always)]
pub(crate) fn prefetch(block: Pointer) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
            block.cast::<i8>().wrapping_sub(16),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

/// True if an assumption of the fast paths fails. The world is paused. Code that breaks an assumption later,
/// without a pause, calls [`memintro_tracker::threads::Threads::make_unusual`].
pub(crate) fn is_unusual() -> bool {
    !shared::is_full() || BIRTHS.is_on() || clear::is_on() || !SAMPLES.is_empty() || in_band::is_due()
}

/// malloc.
///
/// # Safety
/// As malloc.
pub(crate) unsafe extern "C" fn malloc<const IN_BAND: bool>(size: usize) -> Pointer {
    let asked = if IN_BAND { size.saturating_add(EXTRA) } else { size };
    // SAFETY: any size may be asked for.
    let block = unsafe { call!(functions::malloc::REAL, fn(usize) -> Pointer)(asked) };
    record::<IN_BAND>(block, size)
}

/// calloc. In a memory check its block is cleared like one of malloc's, which changes nothing.
///
/// # Safety
/// As calloc.
pub(crate) unsafe extern "C" fn calloc<const IN_BAND: bool>(count: usize, size: usize) -> Pointer {
    // If the product overflows, the allocator refuses it.
    let (asked, times) = if IN_BAND { with_extra(count, size) } else { (count, size) };
    // SAFETY: the caller's own arguments, or a greater size.
    let real = || unsafe { call!(functions::calloc::REAL, fn(usize, usize) -> Pointer)(asked, times) };
    record::<IN_BAND>(as_one_unless_libc(real), count.wrapping_mul(size))
}

/// A function of its own, so that no value is kept over a call.
#[inline(never)]
extern "C" fn record<const IN_BAND: bool>(block: Pointer, size: usize) -> Pointer {
    // SAFETY: each is ended with.
    unsafe {
        let Some(own) = thread::at_hand() else { return unusual(block, size) };
        if IN_BAND && block.is_null() || !own.is_plain() || !THREADS.enter_fast(own) {
            return unusual(block, size);
        }
        if IN_BAND && ACTIVE.load(Ordering::Relaxed) != shared::IN_BAND {
            // Records have gone to the table since the stub looked.
            own.leave();
            return unusual(block, size);
        }
        let (site, generation) = match line::running() {
            Some(line) => match own.sites.known(line.key, line.detail, line.generation) {
                Some(site) => (site, line.generation),
                None => return somewhere(block, size, own),
            },
            None if shared::is_booting() => (SITE_BOOT, 0),
            None if line::reads_stacks() => return record_stack::<IN_BAND>(block, size, own),
            None => return somewhere(block, size, own),
        };
        record_fast::<IN_BAND>(block, size, own, site, generation)
    }
}

/// The same where a call site is a whole stack. The thread is busy.
#[inline(never)]
unsafe extern "C" fn record_stack<const IN_BAND: bool>(
    block: Pointer,
    size: usize,
    own: &ThreadState,
) -> Pointer {
    // SAFETY: each is ended with.
    unsafe {
        let Some((site, generation)) = stacks::at_hand(own) else { return somewhere(block, size, own) };
        record_fast::<IN_BAND>(block, size, own, site, generation)
    }
}

/// The block was born at this site. The thread is busy.
///
/// # Safety
/// The caller ends with it.
#[inline(always)]
unsafe fn record_fast<const IN_BAND: bool>(
    block: Pointer,
    size: usize,
    own: &ThreadState,
    site: u32,
    generation: u32,
) -> Pointer {
    // SAFETY: each is ended with.
    unsafe {
        let Some(counters) = own.counters.at_hand(site, 0, generation) else {
            return known(block, size, own, site, generation);
        };
        let born = Block { site, size: size as u64, generation };
        if counters.is_due() {
            return known(block, size, own, site, generation);
        }
        let is_in = if IN_BAND {
            IN_BAND_RECORDS.put_fast(block as usize, &born)
        } else {
            TABLE.insert_fast(block as usize, &born, generation)
        };
        if !is_in {
            return known(block, size, own, site, generation);
        }
        count_birth(own, counters, born.size);
        own.leave();
    }
    block
}

/// Adds a birth to the cached figures of its site and to those of its thread. [`crate::apply::born`] handles
/// all other births.
#[inline(always)]
fn count_birth(own: &ThreadState, counters: AtHand<'_>, size: u64) {
    counters.allocated(size);
    own.traffic.born(size);
}

/// Declares a function to which the functions above jump, with the caller of malloc as an additional
/// argument. It is naked, because only at its first instruction the return address on the stack is that of
/// malloc's caller: optimised code turns a final call into a jump. (Specs of native call sites fail
/// otherwise.)
macro_rules! with_caller {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*), $x86:literal, $arm:literal, $body:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Nothing else comes after it.
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($argument: $type),*) -> Pointer {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                ".cfi_startproc", concat!("mov ", $x86, ", [rsp]"), "jmp {body}", ".cfi_endproc", body = sym $body,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                ".cfi_startproc", concat!("mov ", $arm, ", x30"), "b {body}", ".cfi_endproc", body = sym $body,
            );
        }
    };
}

with_caller! {
    /// The block was born at this site. The thread is busy.
    known(block: Pointer, size: usize, own: &ThreadState, site: u32, generation: u32), "r9", "x5", record_known
}

with_caller! {
    /// The VM must be asked for the site, or the allocation has failed. The thread is busy.
    somewhere(block: Pointer, size: usize, own: &ThreadState), "rcx", "x3", record_somewhere
}

with_caller! {
    /// Something else.
    unusual(block: Pointer, size: usize), "rdx", "x2", record_unusual
}

extern "C" fn record_known(
    block: Pointer,
    size: usize,
    own: &ThreadState,
    site: u32,
    generation: u32,
    caller: usize,
) -> Pointer {
    let busy = Busy::taken_over(own);
    if !block.is_null() {
        let born = Block { site, size: size as u64, generation };
        match own.counters.at_hand(site, 0, generation) {
            Some(counters)
                if !counters.is_due()
                    && !IN_BAND_RECORDS.is_on()
                    && TABLE.insert_in_order(block as usize, &born, generation) =>
            {
                count_birth(own, counters, born.size);
            }
            _ => record_at(Origin::of_thread(own), block as usize, born.size, caller, site, generation),
        }
    }
    drop(busy);
    block
}

extern "C" fn record_somewhere(block: Pointer, size: usize, own: &ThreadState, caller: usize) -> Pointer {
    let busy = Busy::taken_over(own);
    if !block.is_null() {
        TABLE.prefetch(block as usize);
        let (site, generation) = site(own, caller);
        record_at(Origin::of_thread(own), block as usize, size as u64, caller, site, generation);
    }
    drop(busy);
    block
}

extern "C" fn record_unusual(block: Pointer, size: usize, caller: usize) -> Pointer {
    allocated(clear::cleared(block, size), size, caller);
    block
}

/// free.
///
/// # Safety
/// As free.
pub(crate) unsafe extern "C" fn free<const IN_BAND: bool>(block: Pointer) {
    prefetch(block);
    let address = block as usize;
    // SAFETY: the caller's own argument, in each case.
    unsafe {
        let Some(own) = thread::at_hand() else { return give_back(block) };
        if !THREADS.enter_fast(own) {
            return give_back(block);
        }
        if FOLLOWED.may_follow(address as u64) {
            return free_slowly(block, own);
        }
        let Some(now) = shared::known_generation() else { return free_slowly(block, own) };
        let at_hand = |removed: &Removed| own.counters.at_hand(removed.site, removed.age, now);
        let taken = if IN_BAND {
            IN_BAND_RECORDS
                .take_fast(address, now, at_hand)
                .map(|(removed, counters)| (removed, counters, false))
        } else {
            TABLE.remove_fast(address, now, at_hand)
        };
        let Some((removed, counters, is_untidy)) = taken else { return free_slowly(block, own) };
        counters.freed(removed.size, removed.age);
        own.traffic.died(removed.size);
        if is_untidy {
            return free_and_tidy(block, own);
        }
        own.leave();
        real_free(block);
    }
}

/// The block may be followed, but its record is not in the fast path's reach, or the address is null. The
/// thread is busy.
#[inline(never)]
unsafe extern "C" fn free_slowly(block: Pointer, own: &ThreadState) {
    let busy = Busy::taken_over(own);
    if !block.is_null() {
        forget(own, block as usize);
    }
    drop(busy);
    // SAFETY: the argument of `free`.
    unsafe { real_free(block) };
}

/// The table has to follow up. The thread is busy.
#[inline(never)]
unsafe extern "C" fn free_and_tidy(block: Pointer, own: &ThreadState) {
    let busy = Busy::taken_over(own);
    TABLE.tidy(block as usize);
    drop(busy);
    // SAFETY: the argument of `free`.
    unsafe { real_free(block) };
}

/// # Safety
/// As free.
#[inline(always)]
unsafe fn real_free(block: Pointer) {
    // SAFETY: the caller's promise.
    unsafe { call!(functions::free::REAL, fn(Pointer))(block) };
}
