//! What is written down when a block is born, moves or dies.
//!
//! A free is recorded **before** the block is given back: in the other order another thread could get the address
//! and record its birth first. A block that moves is taken out before the real call and put back if that fails.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

use memintro_abi::{Frame, FrameKind, Mode, SITE_BOOT, SITE_GC, SITE_OTHER};
use memintro_tracker::samples::{Put, Sample};
use memintro_tracker::table::{Block, Inserted, Removed};
use memintro_tracker::threads::{ThreadState, bump};

use crate::sampling::{self, SAMPLES};
use crate::state::{self, ACTIVE, BOOTING, EPOCH, SITES, TABLE, THREADS};
use crate::thread;

/// A block that was taken out of the table while the allocator moves it.
#[derive(Debug)]
pub(crate) struct Moving {
    old: Old,
    epoch: u32,
}

/// What was known of it.
#[derive(Debug)]
enum Old {
    Nothing,
    Followed(Removed),
    Sampled(Sample),
}

/// How a block is to be recorded that a move has made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Birth {
    /// As every block.
    Every,
    /// As one that was sampled with this mean; `None`: it was not.
    Sampled(Option<u64>),
}

/// A block was born.
#[inline]
pub(crate) fn allocated(block: *mut c_void, size: usize, caller: usize) {
    if block.is_null() {
        return;
    }
    // The table's line is on its way while the VM is asked for the call site.
    TABLE.prefetch(block as usize);
    let Some(own) = thread::own() else { return };
    if own.nested.get() != 0 {
        return;
    }
    let Some(busy) = THREADS.enter(&own) else { return };
    // Again, now that a stop cannot pass by: the stub's look was only a hint.
    if ACTIVE.load(Ordering::Relaxed) == Mode::FULL.0 {
        record(&own, block as usize, size as u64, caller);
    }
    drop(busy);
}

#[inline]
fn record(own: &ThreadState, address: usize, size: u64, caller: usize) {
    if own.untracked.get() != 0 {
        // Nothing is known of a block that is born here; what the table says of its address is stale.
        heal(own, TABLE.remove(address, state::generation()));
        heal_sample(own, address);
        return;
    }
    heal_sample(own, address);
    let (site, generation) = site(own, caller);
    match TABLE.insert(address, Block { site, size, generation }, generation) {
        Inserted::New => {}
        Inserted::Replaced(stale) => heal(own, Some(stale)),
        Inserted::Full => {
            bump(&own.traffic.dropped, 1);
            return;
        }
    }
    bump(&own.traffic.allocations, 1);
    bump(&own.traffic.allocated_bytes, size);
    own.counters.allocated(site, size, |id| SITES.counters(id));
}

/// A block was born that had been sampled with this mean.
pub(crate) fn sampled(block: *mut c_void, size: usize, caller: usize, mean: u64) {
    let Some(own) = thread::own() else { return };
    let Some(busy) = THREADS.enter(&own) else { return };
    if sampling::is_on() && !block.is_null() {
        record_sample(&own, block as usize, size as u64, caller, mean);
    }
    drop(busy);
}

fn record_sample(own: &ThreadState, address: usize, size: u64, caller: usize, mean: u64) {
    let (site, birth) = site(own, caller);
    if SAMPLES.filter.may_hold(address)
        && let Some(stale) = TABLE.remove(address, birth)
    {
        SAMPLES.uncount(address);
        heal(own, Some(stale));
    }
    let sample = Sample { size, mean, site, birth, mark: SAMPLES.marks() };
    match SAMPLES.put(address, sample) {
        Put::New => {}
        Put::Replaced(stale) => {
            bump(&own.traffic.missed_frees, 1);
            SAMPLES.count_death(&stale, birth, &own.estimate);
        }
        Put::Full => {
            bump(&own.traffic.dropped, sample.share().blocks());
            return;
        }
    }
    SAMPLES.count_birth(&sample, &own.estimate);
}

/// As [`heal`], for blocks that were sampled before every block was followed.
#[inline]
fn heal_sample(own: &ThreadState, address: usize) {
    if !SAMPLES.is_empty()
        && let Some(stale) = SAMPLES.take(address)
    {
        bump(&own.traffic.missed_frees, 1);
        SAMPLES.count_death(&stale, state::generation(), &own.estimate);
    }
}

/// An address came up again whose free was never seen.
fn heal(own: &ThreadState, stale: Option<Removed>) {
    if let Some(stale) = stale {
        bump(&own.traffic.missed_frees, 1);
        died(own, &stale);
    }
}

#[inline]
fn died(own: &ThreadState, block: &Removed) {
    bump(&own.traffic.frees, 1);
    bump(&own.traffic.freed_bytes, block.size);
    own.counters.freed(block.site, block.size, block.age, |id| SITES.counters(id));
}

/// Who is asking, and in which generation.
#[inline]
fn site(own: &ThreadState, caller: usize) -> (u32, u32) {
    let Some(vm) = state::vm() else {
        if BOOTING.load(Ordering::Relaxed) {
            return (SITE_BOOT, 0);
        }
        return (native_site(own, caller), 0);
    };
    let mut frame = Frame { key: 0, detail: 0, generation: 0, path: ptr::null(), line: 0 };
    // SAFETY: the lender promises that it may be called from any thread, inside malloc; `frame` is valid.
    let kind = unsafe { (vm.frame)(&raw mut frame) };
    let site = match kind {
        FrameKind::RUBY => own.sites.get(frame.key, frame.detail, frame.generation, || {
            // SAFETY: as above, and the frame was answered just now.
            unsafe { (vm.locate)(&raw mut frame) };
            let site = match (frame.path.is_null(), frame.line) {
                (true, _) => SITE_OTHER,
                (false, 0) => SITE_BOOT,
                // SAFETY: the VM's path is terminated and stays in place while this thread is in malloc.
                (false, line) => unsafe { SITES.ruby(frame.path, line) }.unwrap_or(SITE_OTHER),
            };
            (site, frame.key != 0)
        }),
        FrameKind::GC => SITE_GC,
        _ => native_site(own, caller),
    };
    (site, frame.generation)
}

#[inline]
fn native_site(own: &ThreadState, caller: usize) -> u32 {
    own.sites.get(caller, u32::MAX, 0, || (SITES.native(caller).unwrap_or(SITE_OTHER), true))
}

/// A block is about to be given back.
#[inline]
pub(crate) fn freeing(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    let Some(own) = thread::own() else { return };
    let Some(busy) = THREADS.enter(&own) else { return };
    if ACTIVE.load(Ordering::Relaxed) != 0 {
        match take(block as usize) {
            Old::Nothing => {}
            Old::Followed(removed) => died(&own, &removed),
            Old::Sampled(sample) => SAMPLES.count_death(&sample, state::generation(), &own.estimate),
        }
    }
    drop(busy);
}

/// Takes a block out of whatever knows it.
#[inline]
fn take(address: usize) -> Old {
    if let Some(removed) = TABLE.remove(address, state::generation()) {
        if sampling::is_on() {
            SAMPLES.uncount(address);
        }
        return Old::Followed(removed);
    }
    if SAMPLES.is_empty() {
        return Old::Nothing;
    }
    SAMPLES.take(address).map_or(Old::Nothing, Old::Sampled)
}

/// A block is about to be resized and perhaps moved.
pub(crate) fn moving(block: *mut c_void) -> Moving {
    let mut moving = Moving { old: Old::Nothing, epoch: 0 };
    let Some(own) = thread::own() else { return moving };
    let Some(busy) = THREADS.enter(&own) else { return moving };
    if ACTIVE.load(Ordering::Relaxed) != 0 {
        moving.old = take(block as usize);
        moving.epoch = EPOCH.load(Ordering::Relaxed);
    }
    drop(busy);
    moving
}

/// The move is done: the old block is gone, `new` (unless null) is another one, born here.
pub(crate) fn moved(moving: &Moving, new: *mut c_void, size: usize, caller: usize, birth: Birth) {
    let Some(own) = thread::own() else { return };
    let Some(busy) = THREADS.enter(&own) else { return };
    if ACTIVE.load(Ordering::Relaxed) != 0 {
        if moving.epoch == EPOCH.load(Ordering::Relaxed) {
            match &moving.old {
                Old::Nothing => {}
                Old::Followed(old) => died(&own, old),
                Old::Sampled(old) => SAMPLES.count_death(old, state::generation(), &own.estimate),
            }
        }
        if !new.is_null() && own.nested.get() == 0 {
            match (birth, sampling::is_on()) {
                (Birth::Every, false) => record(&own, new as usize, size as u64, caller),
                (Birth::Sampled(Some(mean)), true) => {
                    record_sample(&own, new as usize, size as u64, caller, mean);
                }
                // The mode has just changed, or it was not drawn.
                _ => {}
            }
        }
    }
    drop(busy);
}

/// The move failed: the block is where it was.
pub(crate) fn stayed(moving: &Moving, block: *mut c_void) {
    if matches!(moving.old, Old::Nothing) {
        return;
    }
    let Some(own) = thread::own() else { return };
    let Some(busy) = THREADS.enter(&own) else { return };
    if ACTIVE.load(Ordering::Relaxed) != 0 && moving.epoch == EPOCH.load(Ordering::Relaxed) {
        put_back(&own, &moving.old, block as usize);
    }
    drop(busy);
}

fn put_back(own: &ThreadState, old: &Old, address: usize) {
    let now = state::generation();
    match old {
        Old::Nothing => {}
        Old::Followed(old) => {
            let again = Block { site: old.site, size: old.size, generation: now.wrapping_sub(old.age) };
            if let Inserted::Full = TABLE.insert(address, again, now) {
                // It can no longer be followed; the books must still balance.
                bump(&own.traffic.dropped, 1);
                died(own, old);
            } else if sampling::is_on() {
                SAMPLES.count_again(address);
            }
        }
        Old::Sampled(old) => {
            if SAMPLES.put(address, *old) == Put::Full {
                bump(&own.traffic.dropped, old.share().blocks());
                SAMPLES.count_death(old, now, &own.estimate);
            }
        }
    }
}
