//! Records that a block is born, moves or is freed.
//!
//! A free is recorded **before** the block is given back: in the other order another thread could get the address
//! and record its birth first. A block that moves is taken out before the real call and put back if that fails.
//!
//! Events during a pause are written down instead ([`crate::defer`]) and recorded when the pause ends
//! ([`crate::replay`]), by the same functions ([`crate::apply`]).

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

use memintro_abi::{Frame, FrameKind, SITE_BOOT, SITE_GC, SITE_OTHER, VmSource};
use memintro_tracker::chance;
use memintro_tracker::in_band::EXTRA;
use memintro_tracker::lock::given_up;
use memintro_tracker::threads::{Busy, ThreadState, bump};

use crate::apply::{
    Lookup, Moving, Origin, born, born_sampled, born_untracked, died, gone, put_back, take, take_block,
    take_sample, unnote,
};
use crate::callers;
use crate::defer;
use crate::draw;
use crate::functions;
use crate::in_band;
use crate::line;
use crate::nested;
use crate::patch;
use crate::place;
use crate::real::call;
use crate::sampling;
use crate::shared::{self, ACTIVE, BIRTHS, EPOCH, IN_BAND_RECORDS, SITES, STACK_DEPTH, TABLE, THREADS};
use crate::stacks;
use crate::thread::{self, Own};

/// Begins to record. `None`: the event has been written down, or must not be recorded. `write_down` returns `false`
/// when that is no longer needed.
#[inline(always)]
fn enter(own: &Own, write_down: impl Fn() -> bool) -> Option<Busy<'_>> {
    loop {
        if let Some(busy) = THREADS.enter(own) {
            return Some(busy);
        }
        if write_down() {
            return None;
        }
    }
}

/// How to record the block that a move has made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Birth {
    /// As in full mode.
    Full,
    /// As a sampled block with this mean; `None`: it was not sampled.
    Sampled(Option<u64>),
}

/// A block was born.
#[inline(never)]
pub(crate) extern "C" fn allocated(block: *mut c_void, size: usize, caller: usize) {
    if block.is_null() {
        return;
    }
    // Prefetches the table's cache line, which arrives while the VM is asked for the call site.
    TABLE.prefetch(block as usize);
    let Some(own) = thread::own() else { return };
    if in_band::is_due() {
        in_band::go_on(&own);
    }
    if nested::is_nested(&own) {
        return;
    }
    let (address, size) = (block as usize, size as u64);
    let Some(busy) = enter(&own, || defer::birth(&own, address, size, caller, None)) else { return };
    // The mode is read again, because a stop cannot happen from here on. The stub's check was only a hint.
    if shared::is_full() {
        record(&own, Origin::of_thread(&own), address, size, caller);
    }
    drop(busy);
}

fn record(own: &ThreadState, origin: Origin<'_>, address: usize, size: u64, caller: usize) {
    if own.untracked.get() != 0 {
        born_untracked(origin, address, shared::generation());
        return;
    }
    let known = line::running()
        .and_then(|line| Some((own.sites.known(line.key, line.detail, line.generation)?, line.generation)));
    let (site, generation) = match known {
        Some(known) => known,
        None => site(own, caller),
    };
    record_at(origin, address, size, caller, site, generation);
}

/// Records a block that was born at this site. The thread is busy.
#[inline(always)]
pub(crate) fn record_at(
    origin: Origin<'_>,
    address: usize,
    size: u64,
    caller: usize,
    site: u32,
    generation: u32,
) {
    if let Some(weight) = born(origin, address, size, site, generation) {
        callers::sample(site, weight.get(), address, size, caller);
    }
}

/// A sampled block was born; `mean` is that of its sample.
pub(crate) extern "C" fn sampled(block: *mut c_void, size: usize, caller: usize, mean: u64) {
    if block.is_null() {
        return draw::take_back(size);
    }
    let Some(own) = thread::own() else { return };
    let (address, size) = (block as usize, size as u64);
    let Some(busy) = enter(&own, || defer::birth(&own, address, size, caller, Some(mean))) else { return };
    if sampling::is_on() {
        record_sample(&own, address, size, caller, mean);
    }
    drop(busy);
}

fn record_sample(own: &Own, address: usize, size: u64, caller: usize, mean: u64) {
    let (site, birth) = site(own, caller);
    born_sampled(Origin::of_thread(own), address, size, site, birth, mean);
    callers::sample(site, chance::weight(size, mean) as u32, address, size, caller);
}

/// The site of the caller, and the generation.
#[inline(never)]
pub(crate) fn site(own: &ThreadState, caller: usize) -> (u32, u32) {
    let Some(vm) = shared::vm() else {
        if shared::is_booting() {
            return (SITE_BOOT, 0);
        }
        return (native_site(own, caller), 0);
    };
    let mut frame = Frame { key: 0, detail: 0, generation: 0, path: ptr::null(), line: 0 };
    let depth = STACK_DEPTH.load(Ordering::Relaxed);
    if depth > 1 {
        return stacks::site(own, vm, depth, &mut frame)
            .unwrap_or_else(|generation| (native_site(own, caller), generation));
    }
    // SAFETY: the lender promises that it may be called from any thread, inside malloc; `frame` is valid.
    let kind = unsafe { (vm.frame)(&raw mut frame) };
    let site = match kind {
        FrameKind::RUBY => line_site(own, vm, &mut frame),
        FrameKind::GC => SITE_GC,
        _ => native_site(own, caller),
    };
    (site, frame.generation)
}

/// The same for the line of an object that was made, if the VM has named it.
#[inline]
pub(crate) fn object_site(own: &ThreadState, frame: &mut Frame) -> (u32, u32) {
    match shared::vm() {
        Some(vm) if frame.key != 0 && STACK_DEPTH.load(Ordering::Relaxed) <= 1 => {
            (line_site(own, vm, frame), frame.generation)
        }
        _ => site(own, 0),
    }
}

/// The site of the running line, whose key was answered just now.
#[inline]
fn line_site(own: &ThreadState, vm: &VmSource, frame: &mut Frame) -> u32 {
    own.sites.get(frame.key, frame.detail, frame.generation, || {
        // SAFETY: the lender promises that it may be called from any thread, inside malloc.
        unsafe { (vm.locate)(&raw mut *frame) };
        // The substitute for a site whose lock was not free in time must not be cached.
        let given_up_before = given_up();
        let site = stacks::line_site(frame);
        (site, frame.key != 0 && given_up() == given_up_before)
    })
}

#[inline]
fn native_site(own: &ThreadState, caller: usize) -> u32 {
    own.sites.get(caller, u32::MAX, patch::loads(), || {
        let given_up_before = given_up();
        let site = place::with_place(caller, |place| SITES.native(caller, place));
        (site.unwrap_or(SITE_OTHER), given_up() == given_up_before)
    })
}

/// A block is about to be freed. `false`: the caller must not give it back; the thread that opens the gate
/// does.
#[inline(never)]
pub(crate) extern "C" fn freeing(block: *mut c_void) -> bool {
    if block.is_null() {
        return true;
    }
    let Some(own) = thread::own() else { return true };
    let address = block as usize;
    let leaving = defer::Leaving::default();
    let Some(busy) = enter(&own, || defer::free(&own, address, &leaving)) else {
        return !leaving.stays.get();
    };
    if ACTIVE.load(Ordering::Relaxed) != 0 {
        match leaving.taken.get() {
            None => forget(&own, address),
            Some(taken) if taken.epoch == EPOCH.load(Ordering::Relaxed) => {
                gone(Origin::of_thread(&own), &taken.block, taken.generation);
            }
            Some(_) => {}
        }
    }
    drop(busy);
    true
}

/// Takes out a block that is freed.
#[inline(always)]
pub(crate) fn forget(own: &ThreadState, address: usize) {
    let given_up_before = given_up();
    let now = shared::generation();
    match take_block(address, now) {
        Some(removed) => {
            unnote(address);
            died(Origin::of_thread(own), &removed, now);
        }
        None => forget_unusual(own, address, now, given_up_before),
    }
}

/// The same for a block that is not in the table: it is unknown, or was sampled.
#[inline(never)]
fn forget_unusual(own: &ThreadState, address: usize, now: u32, given_up_before: u64) {
    let old = take_sample(address);
    unnote(address);
    if matches!(old, Lookup::Unknown) && given_up() != given_up_before {
        // Another thread blocked the look-up. The block counts as live until its address is returned again.
        bump(&own.traffic.dropped, 1);
    }
    gone(Origin::of_thread(own), &old, now);
}

/// A block is about to be resized, and perhaps moved.
pub(crate) fn moving(block: *mut c_void) -> Moving {
    let mut moving =
        Moving { block: Lookup::Unknown, epoch: 0, generation: 0, birth: None, had_record: false };
    let Some(own) = thread::own() else { return moving };
    let address = block as usize;
    let has_record = Cell::new(false);
    let write_down = || {
        has_record.set(IN_BAND_RECORDS.is_on() && IN_BAND_RECORDS.has(address) && defer::is_wanted(&own));
        has_record.get() || defer::free(&own, address, &defer::Leaving::default())
    };
    let Some(busy) = enter(&own, write_down) else {
        if has_record.get() {
            moving.block = Lookup::InBand;
        } else if !own.is_busy() {
            moving.block = Lookup::Queued;
        }
        return moving;
    };
    if ACTIVE.load(Ordering::Relaxed) != 0 {
        moving.generation = shared::generation();
        let has_record = IN_BAND_RECORDS.is_on() && IN_BAND_RECORDS.has(address);
        moving.block = take(address, moving.generation);
        moving.had_record = has_record && matches!(moving.block, Lookup::Followed(_));
        if let Lookup::Followed(removed) = &moving.block {
            own.begin_move(removed.site, removed.size);
        }
        moving.birth = unnote(address);
        moving.epoch = EPOCH.load(Ordering::Relaxed);
    }
    drop(busy);
    moving
}

/// Moves a block's record to the table, so that the program owns all its bytes. `false`: it must stay,
/// because another thread may be reading it, or this thread is already recording.
pub(crate) extern "C" fn moved_to_table(block: *mut c_void) -> bool {
    let Some(own) = thread::own() else { return false };
    let Some(busy) = THREADS.enter(&own) else { return false };
    let (address, now) = (block as usize, shared::generation());
    // SAFETY: the caller's own block.
    if let Some(removed) = unsafe { IN_BAND_RECORDS.claim(address, now) } {
        put_back(Origin::of_thread(&own), &Lookup::Followed(removed), address, now);
    }
    drop(busy);
    true
}

/// The move is done: the old block is freed, and `new` (unless null) is another block, born here.
#[allow(improper_ctypes_definitions, reason = "its callers are Rust's, of the same build")]
pub(crate) extern "C" fn moved(moving: &Moving, new: *mut c_void, size: usize, caller: usize, birth: Birth) {
    let Some(own) = thread::own() else { return };
    let (address, size) = (new as usize, size as u64);
    let is_followed = !new.is_null() && !nested::is_nested(&own);
    let mean = match birth {
        Birth::Full => None,
        Birth::Sampled(mean) => mean,
    };
    let is_born = is_followed && (matches!(birth, Birth::Full) || mean.is_some());
    // The gate may open between these two steps.
    let is_gone = Cell::new(false);
    let write_down = || {
        is_gone.set(is_gone.get() || defer::settled(&own, moving, None));
        is_gone.get() && (!is_born || defer::birth(&own, address, size, caller, mean))
    };
    let Some(busy) = enter(&own, write_down) else { return };
    own.end_move();
    if ACTIVE.load(Ordering::Relaxed) != 0 {
        if !is_gone.get() && moving.epoch == EPOCH.load(Ordering::Relaxed) {
            gone(Origin::of_thread(&own), &moving.block, moving.generation);
        }
        if is_born {
            match (mean, sampling::is_on()) {
                (None, false) => record(&own, Origin::of_moved(&own, moving), address, size, caller),
                (Some(mean), true) => record_sample(&own, address, size, caller, mean),
                // The mode has changed just now.
                _ => {}
            }
        }
    }
    drop(busy);
}

/// The move failed, so the block is where it was.
#[allow(improper_ctypes_definitions, reason = "its callers are Rust's, of the same build")]
pub(crate) extern "C" fn stayed(moving: &Moving, block: *mut c_void) {
    let Some(own) = thread::own() else { return };
    let address = block as usize;
    match moving.block {
        Lookup::Unknown | Lookup::InBand => return,
        // It was written down as freed, or will be.
        Lookup::Queued => return defer::lost(&own),
        Lookup::Followed(_) | Lookup::Sampled(_) => {}
    }
    let write_down = || defer::settled(&own, moving, Some(address));
    let Some(busy) = enter(&own, write_down) else { return };
    own.end_move();
    if ACTIVE.load(Ordering::Relaxed) != 0 && moving.epoch == EPOCH.load(Ordering::Relaxed) {
        put_back(Origin::of_thread(&own), &moving.block, address, moving.generation);
        if let Some(birth) = moving.birth.filter(|_| BIRTHS.is_on()) {
            BIRTHS.put(address, birth);
        }
    }
    drop(busy);
}

/// realloc of a block whose record another thread may be reading: the block stays until the gate opens.
pub(crate) extern "C" fn copied(block: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    // This copies the bytes behind the size as well, as the allocator does: a program may have written there.
    // SAFETY: the caller's own block; the new one has at least so many bytes.
    unsafe {
        if size == 0 {
            give_back(block);
            return ptr::null_mut();
        }
        let new = call!(functions::malloc::REAL, fn(usize) -> *mut c_void)(size.saturating_add(EXTRA));
        if new.is_null() {
            return new;
        }
        let usable = call!(functions::malloc_usable_size::REAL, fn(*mut c_void) -> usize)(block);
        ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), usable.min(size.saturating_add(EXTRA)));
        allocated(new, size, caller);
        give_back(block);
        new
    }
}

/// free, which records that first, the long way.
///
/// # Safety
/// As free.
#[inline(never)]
pub(crate) unsafe extern "C" fn give_back(block: *mut c_void) {
    if freeing(block) {
        // SAFETY: the caller's.
        unsafe { call!(functions::free::REAL, fn(*mut c_void))(block) };
    }
}
