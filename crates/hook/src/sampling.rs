//! Sampling: who pays, and the blocks that were drawn ([`crate::draw`] draws them).
//!
//! Every thread has a distance, counted in parts of the mean. An allocation pays for each of its bytes; one that cannot
//! is sampled, and a fresh distance is drawn. So an allocation that is not sampled costs a multiplication and a
//! subtraction, and no question of whose it is; a free costs one look at [`SAMPLES`]' filter. The arithmetic is
//! [`memintro_tracker::chance`]'s.
//!
//! As distances are relative to the mean and have no memory, one that is under way serves whatever comes next: another
//! mean, another start.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use memintro_abi::Mode;
use memintro_tracker::chance::{self, Generator};
use memintro_tracker::samples::Samples;
use memintro_tracker::threads::ThreadState;

use crate::pending::{self, Pending};
use crate::shared::{ACTIVE, THREADS};
use crate::tls;

/// The sampled blocks.
pub(crate) static SAMPLES: Samples = Samples::new();

/// Mean distance unless told otherwise.
pub(crate) const DEFAULT_MEAN: u64 = 512 * 1024;

/// Parts of the mean that a byte costs.
pub(crate) static RATE: AtomicU64 = AtomicU64::new(0);
pub(crate) static MEAN: AtomicU64 = AtomicU64::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);
/// Counts starts: each seeds the threads' generators anew.
pub(crate) static SEEDS: AtomicU32 = AtomicU32::new(0);
/// Counts generators.
static STREAM: AtomicU64 = AtomicU64::new(0);
/// Whether there has been sampling since everything was empty.
static ESTIMATES: AtomicBool = AtomicBool::new(false);

/// The distance of a thread that is not tracked: further than it will come before somebody looks.
pub(crate) const SUSPENDED: u64 = u64::MAX;

/// Whether blocks are sampled now.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    // Acquire: the filter that this mode needs is complete.
    ACTIVE.load(Ordering::Acquire) == Mode::SAMPLED.0
}

/// Whether a block at this address may be one that is followed; never a false no.
#[inline(always)]
pub(crate) fn may_hold(address: usize) -> bool {
    pending::is_pending() || SAMPLES.filter.may_hold(address)
}

/// Counts anew which pages may hold a block that is followed. The world is paused, but threads go on to ask.
pub(crate) fn recount(others: impl FnOnce(&mut dyn FnMut(usize))) {
    let pending = Pending::begin();
    SAMPLES.recount(others);
    drop(pending);
}

/// Whether some figures are estimates.
pub(crate) fn has_estimates() -> bool {
    ESTIMATES.load(Ordering::Relaxed)
}

/// The mean of the last sampling; 0 before the first.
pub(crate) fn mean() -> u64 {
    MEAN.load(Ordering::Relaxed)
}

/// What an allocation could not pay: what was taken from the distance all the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debt(pub(crate) u64);

/// Lets an allocation pay.
#[inline(always)]
pub(crate) fn charge(size: usize) -> Result<(), Debt> {
    // A block of no bytes pays for one.
    let (cost, is_huge) = (size as u64 | u64::from(size == 0)).overflowing_mul(RATE.load(Ordering::Relaxed));
    if is_huge {
        return Err(Debt(0));
    }
    if tls::pay(cost) { Ok(()) } else { Err(Debt(cost)) }
}

pub(crate) fn seeded() -> Generator {
    Generator::seeded(SEED.load(Ordering::Relaxed), STREAM.fetch_add(1, Ordering::Relaxed))
}

/// This thread's allocations pay nothing from here on, if they do now.
pub(crate) fn suspend(own: &ThreadState) {
    if !own.sampler.is_suspended() {
        let word = tls::distance();
        // SAFETY: the calling thread's own word.
        unsafe {
            own.sampler.suspend(word.read());
            word.write(SUSPENDED);
        }
    }
}

/// This thread's allocations pay again, unless there is another reason why not.
pub(crate) fn resume(own: &ThreadState) {
    if own.untracked.get() == 0
        && own.nested.get() == 0
        && let Some(distance) = own.sampler.resume()
    {
        // SAFETY: the calling thread's own word.
        unsafe { tls::distance().write(distance) };
    }
}

/// Bytes that the calling thread has asked for while sampling.
pub(crate) fn bytes_of(own: &ThreadState) -> u64 {
    // SAFETY: the calling thread's own word.
    own.sampler.bytes(own.sampler.suspended().unwrap_or_else(|| unsafe { tls::distance().read() }))
}

/// Sets the mean. The world is paused, but threads go on paying.
pub(crate) fn set_mean(mean: u64, seed: u64) {
    let rate = chance::rate(mean);
    MEAN.store(mean, Ordering::Relaxed);
    SEED.store(if seed == 0 { clock() } else { seed }, Ordering::Relaxed);
    STREAM.store(0, Ordering::Relaxed);
    SEEDS.fetch_add(1, Ordering::Relaxed);
    RATE.store(rate, Ordering::Relaxed);
    ESTIMATES.store(true, Ordering::Relaxed);
    each_distance(|state, now| state.sampler.settle(now, 0, now, rate));
}

/// Forgets all samples, and what threads asked for. The world is paused.
pub(crate) fn empty() {
    ESTIMATES.store(is_on(), Ordering::Relaxed);
    SAMPLES.clear();
    each_distance(|state, now| state.sampler.restart(now, RATE.load(Ordering::Relaxed)));
}

/// Where each thread's distance stands. None of them can end meanwhile.
fn each_distance(mut visit: impl FnMut(&ThreadState, u64)) {
    let _words = THREADS.words.lock();
    for state in THREADS.states().filter(|state| state.is_owned()) {
        let word = state.distance.get();
        if !word.is_null() {
            // SAFETY: its thread lives: on its way out it takes the word's address away before anything else.
            let now = state.sampler.suspended().unwrap_or_else(|| unsafe { word.read_volatile() });
            visit(state, now);
        }
    }
}

/// This thread ends, and its distance with it.
pub(crate) fn forget_distance(own: &ThreadState) {
    // A reader has the lock for some instructions; one that is gone cannot read any more.
    let words = THREADS.words.lock_in_time();
    own.distance.set(core::ptr::null_mut());
    drop(words);
}

/// In a forked child, whose parent must not draw the same blocks.
pub(crate) fn in_child(own: &ThreadState, pid: u32) {
    SEED.fetch_xor(Generator::seeded(1, u64::from(pid)).bits(), Ordering::Relaxed);
    SEEDS.fetch_add(1, Ordering::Relaxed);
    let bytes = bytes_of(own);
    own.sampler.restart(0, RATE.load(Ordering::Relaxed));
    own.sampler.settle(0, bytes, 0, RATE.load(Ordering::Relaxed));
    if own.sampler.is_suspended() {
        own.sampler.suspend(0);
    } else {
        // SAFETY: the calling thread's own word.
        unsafe { tls::distance().write(0) };
    }
}

fn clock() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid record.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // SAFETY: a plain system call.
    let pid = unsafe { libc::getpid() }.unsigned_abs();
    Generator::seeded(now.tv_sec.unsigned_abs() << 30 ^ now.tv_nsec.unsigned_abs(), u64::from(pid)).bits()
}
