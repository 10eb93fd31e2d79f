//! Measures a request or a job: this thread's allocations and the resident memory, in one call each.
//!
//! Rule for neighbours: both are called twice for each request, so they look up no names and make only the Ruby
//! objects that they return.

use std::sync::atomic::{AtomicU64, Ordering};

use magnus::{Error, RArray, RModule, Ruby, function, prelude::*};
use memintro_abi::{Mode, ThreadFigures};

use crate::hook_link;

/// Counts how often figures began again. A difference across a start, a stop, a clear or a reset has no meaning.
static BEGINNINGS: AtomicU64 = AtomicU64::new(0);

/// Requests and jobs in progress: the process id in the upper half of the word, their number in the lower half.
static IN_FLIGHT: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("thread_traffic", function!(thread_traffic, 0))?;
    native.define_singleton_method("served_begin", function!(served_begin, 1))?;
    native.define_singleton_method("served_end", function!(served_end, 1))?;
    Ok(())
}

/// To be called whenever figures are emptied, or stop growing.
pub(super) fn figures_begin_anew() {
    BEGINNINGS.fetch_add(1, Ordering::Relaxed);
}

/// Number of beginnings so far.
pub(super) fn beginnings() -> u64 {
    BEGINNINGS.load(Ordering::Relaxed)
}

/// Number of the beginning, bytes and calls of this thread's allocations, bytes that it freed, allocations that could
/// not be followed. Nil if this thread is not tracked, so that figures would be incomplete. In sampled mode the
/// allocated bytes are exact nevertheless; calls and freed bytes would be estimates, and are nil.
fn thread_traffic(ruby: &Ruby) -> Option<RArray> {
    let api = hook_link::found()?;
    let exact = match (api.mode)() {
        Mode::FULL => true,
        Mode::SAMPLED => false,
        _ => return None,
    };
    // The array does not belong to the request.
    let depth = (api.untracked_enter)();
    let answer = (depth == 1).then(|| {
        let mut figures = ThreadFigures::default();
        // SAFETY: a valid record.
        unsafe { (api.thread_totals)(&raw mut figures) };
        ruby.ary_from_iter([
            Some(BEGINNINGS.load(Ordering::Relaxed)),
            Some(figures.allocated_bytes),
            exact.then_some(figures.allocations.value),
            exact.then_some(figures.freed_bytes.value),
            Some(figures.dropped),
        ])
    });
    (api.untracked_leave)();
    answer
}

/// A request or job begins. Returns how many are in progress, this one included.
fn served_begin(kind: usize) -> u32 {
    in_flight(kind, |count| count.saturating_add(1))
}

/// A request or job ends. Returns how many were in progress, this one included.
fn served_end(kind: usize) -> u32 {
    in_flight(kind, |count| count.saturating_sub(1)).saturating_add(1)
}

/// A forked child has none of its parent's requests. Process id and count change together, in one word.
fn in_flight(kind: usize, change: impl Fn(u32) -> u32) -> u32 {
    let Some(counter) = IN_FLIGHT.get(kind) else { return 0 };
    let own = u64::from(std::process::id());
    let next = |word: u64| {
        let count = if word >> 32 == own { word as u32 } else { 0 };
        own << 32 | u64::from(change(count))
    };
    let mut word = counter.load(Ordering::Relaxed);
    loop {
        match counter.compare_exchange_weak(word, next(word), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return next(word) as u32,
            Err(found) => word = found,
        }
    }
}
