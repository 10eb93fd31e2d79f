//! Samples the allocation that cannot pay, and draws the thread's next distance ([`crate::sampling`]).

use core::sync::atomic::Ordering;

use memintro_tracker::mmap::Errno;

use crate::sampling::{Debt, MEAN, RATE, SEEDS, SUSPENDED, seeded};
use crate::{nested, thread, tls};

/// The allocator has refused a block for which [`draw`] has drawn a sample: the request does not count.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn take_back(size: usize) {
    if let Some(own) = thread::own() {
        own.sampler.take_back((size as u64).max(1));
    }
}

/// An allocation could not pay. Returns the mean it was sampled with; none if the thread is not tracked, or draws its
/// first distance now.
#[cold]
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "its callers are Rust's, of the same build")]
pub(crate) extern "C" fn draw(size: usize, debt: Debt) -> Option<u64> {
    let _errno = Errno::save();
    let word = tls::distance();
    let own = thread::own();
    if own.as_ref().is_some_and(|own| nested::forget_if_over(own)) {
        // The exemption of this thread ends, so its saved distance is valid again.
        return None;
    }
    // SAFETY: the calling thread's own word.
    let before = unsafe { word.read() }.wrapping_add(debt.0);
    let rest = |distance| {
        // SAFETY: as above.
        unsafe { word.write(distance) };
    };
    let Some(own) = own else {
        rest(SUSPENDED);
        return None;
    };
    if own.untracked.get() != 0 || own.nested.get() != 0 {
        // Sampling has begun since the exemption: without this, the exemption would last another 128 times
        // the mean.
        if !own.sampler.is_suspended() {
            own.sampler.suspend(before);
        }
        rest(SUSPENDED);
        return None;
    }
    let (rate, mean) = (RATE.load(Ordering::Relaxed), MEAN.load(Ordering::Relaxed));
    let size = (size as u64).max(1);
    let fresh = || own.sampler.draw(SEEDS.load(Ordering::Relaxed), seeded);
    own.distance.set(word);
    let mut reached = before;
    if before == 0 {
        // This is the first allocation of the thread, so it had no distance to pay from.
        reached = fresh();
        own.sampler.settle(0, 0, reached, rate);
        if let Some(left) = size.checked_mul(rate).and_then(|cost| reached.checked_sub(cost)) {
            rest(left);
            return None;
        }
    }
    let next = fresh();
    own.sampler.settle(reached, size, next, rate);
    rest(next);
    Some(mean)
}
