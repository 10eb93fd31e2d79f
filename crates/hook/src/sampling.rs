//! Sampling: how allocations pay, and the table of sampled blocks ([`crate::draw`] samples them).
//!
//! Each thread has a distance, counted in parts of the mean. An allocation pays for each of its bytes. One that
//! cannot pay is sampled, and a new distance is drawn. So an allocation that is not sampled costs a multiplication
//! and a subtraction, and its call site is not looked up. A free costs one read of [`SAMPLES`]' filter. The
//! arithmetic is in [`memintro_tracker::chance`].
//!
//! Distances are relative to the mean and have no memory, so a distance that was drawn before stays valid after a
//! change of the mean or another start.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use memintro_abi::Mode;
use memintro_tracker::chance::{self, Generator};
use memintro_tracker::samples::Samples;
use memintro_tracker::threads::ThreadState;

use crate::pending::{self, Pending};
use crate::shared::{ACTIVE, THREADS};
use crate::tls;

/// The sampled blocks.
pub(crate) static SAMPLES: Samples = Samples::new();

/// Parts of the mean that a byte costs.
#[unsafe(link_section = ".bss.path")]
pub(crate) static RATE: AtomicU64 = AtomicU64::new(0);
/// Where the filter has its counts, for stubs, once a start has sampled.
#[unsafe(link_section = ".bss.path")]
pub(crate) static COUNTS: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
pub(crate) static MEAN: AtomicU64 = AtomicU64::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);
/// Counts starts. Each start seeds the threads' generators again.
pub(crate) static SEEDS: AtomicU32 = AtomicU32::new(0);
/// Counts generators.
static STREAM: AtomicU64 = AtomicU64::new(0);
/// Whether anything was sampled since the figures were last empty.
static ESTIMATES: AtomicBool = AtomicBool::new(false);

/// The distance of a thread that is not tracked: more than it will use up.
pub(crate) const SUSPENDED: u64 = u64::MAX;

/// Whether blocks are sampled now.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    // Acquire: the filter that this mode needs is complete.
    ACTIVE.load(Ordering::Acquire) == Mode::SAMPLED.0
}

/// Makes room for sampled blocks within this budget. `false`: there is no memory. The world is paused.
pub(crate) fn make_room(max_bytes: usize) -> bool {
    let is_ready = SAMPLES.init(max_bytes);
    COUNTS.store(SAMPLES.filter.start(), Ordering::Release);
    is_ready
}

/// Whether a block at this address may be followed. It may be true for a block that is not, but never false for one
/// that is.
#[inline(always)]
pub(crate) fn may_hold(address: usize) -> bool {
    pending::is_pending() || SAMPLES.filter.may_hold(address)
}

/// Counts again which pages may hold a followed block. The world is paused, but threads still read the filter.
pub(crate) fn recount(others: impl FnOnce(&mut dyn FnMut(usize))) {
    let pending = Pending::begin();
    SAMPLES.recount(others);
    drop(pending);
}

/// Whether some figures are estimates.
pub(crate) fn has_estimates() -> bool {
    ESTIMATES.load(Ordering::Relaxed)
}

/// The mean of the last sampling; 0 before the first one.
pub(crate) fn mean() -> u64 {
    MEAN.load(Ordering::Relaxed)
}

/// An allocation that could not pay, with the amount that was still taken from the distance.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Debt(pub(crate) u64);

/// Takes the price of an allocation from the distance.
#[inline(always)]
pub(crate) fn charge(size: usize) -> Result<(), Debt> {
    // A block of no bytes pays for one byte.
    let (cost, is_huge) = (size as u64 | u64::from(size == 0)).overflowing_mul(RATE.load(Ordering::Relaxed));
    if is_huge {
        return Err(Debt(0));
    }
    if tls::pay(cost) { Ok(()) } else { Err(Debt(cost)) }
}

pub(crate) fn seeded() -> Generator {
    Generator::seeded(SEED.load(Ordering::Relaxed), STREAM.fetch_add(1, Ordering::Relaxed))
}

/// Exempts this thread's allocations from paying, if they pay now.
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

/// Makes this thread's allocations pay again, unless there is another reason for an exemption.
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

/// Sets the mean. The world is paused, but threads still pay.
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

/// Forgets all samples, and the bytes that threads asked for. The world is paused.
pub(crate) fn empty() {
    ESTIMATES.store(is_on(), Ordering::Relaxed);
    SAMPLES.clear();
    each_distance(|state, now| state.sampler.restart(now, RATE.load(Ordering::Relaxed)));
}

/// Visits the address of each thread's distance. No thread can end meanwhile.
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

/// Called when this thread ends, because its distance no longer exists then.
pub(crate) fn forget_distance(own: &ThreadState) {
    // A reader holds the lock for some instructions only. A reader that no longer exists cannot read any more.
    let words = THREADS.words.lock_in_time();
    own.distance.set(core::ptr::null_mut());
    drop(words);
}

/// Called in a forked child, which must not draw the same samples as its parent.
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

/// Random bits of this moment.
pub(crate) fn clock() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid record.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // SAFETY: a plain system call.
    let pid = unsafe { libc::getpid() }.unsigned_abs();
    Generator::seeded(now.tv_sec.unsigned_abs() << 30 ^ now.tv_nsec.unsigned_abs(), u64::from(pid)).bits()
}
