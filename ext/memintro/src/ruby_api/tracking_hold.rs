//! Full tracking for as long as anything is measured: started or switched to for the first measurement, and put back
//! after the last one, unless the program has started or stopped tracking itself meanwhile.
//!
//! Rule for neighbours: everything here is called with the GVL.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use magnus::{Error, Ruby};
use memintro_abi::{HookApi, Mode, StartOptions};

use super::native::hook;
use super::tracking::{begin_tracking, end_tracking, no_options};
use super::trial::tracked;

/// What to go back to.
#[derive(Clone, Copy)]
enum Before {
    Off,
    Sampled(StartOptions),
}

struct Holds {
    /// The threads that measure, once for each measurement.
    threads: Vec<libc::pthread_t>,
    before: Option<Before>,
}

static HOLDS: Mutex<Holds> = Mutex::new(Holds { threads: Vec::new(), before: None });
/// Counts changes of the mode that kept the figures.
static MODES: AtomicU64 = AtomicU64::new(0);

/// Whoever holds the lock calls nothing that may wait or panic, so it is never poisoned and never waited for.
fn with<R>(use_them: impl FnOnce(&mut Holds) -> R) -> R {
    use_them(&mut HOLDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// To be called when the mode changes and figures are kept.
pub(super) fn mode_changes() {
    MODES.fetch_add(1, Ordering::Relaxed);
}

/// Number of such changes so far.
pub(super) fn modes() -> u64 {
    MODES.load(Ordering::Relaxed)
}

/// The program has started or stopped tracking itself: it stays as it is now.
pub(super) fn let_be() {
    with(|holds| holds.before = None);
}

/// What a hold had to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Had {
    Nothing,
    Started,
    Switched,
}

/// Turns full tracking on for a measurement of this thread. `most_sites` and `most_bytes` are limits, 0 for none, if
/// nothing is tracked yet.
pub(super) fn take(ruby: &Ruby, most_sites: u32, most_bytes: u64) -> Result<(&'static HookApi, Had), Error> {
    let api = hook(ruby)?;
    let mut had = Had::Nothing;
    let mode = (api.mode)();
    if mode != Mode::FULL {
        let mut now = StartOptions {
            mode,
            max_sites: most_sites.into(),
            max_tracker_bytes: most_bytes,
            ..no_options()
        };
        let before = if mode == Mode::SAMPLED {
            // SAFETY: a valid record.
            unsafe { (api.options)(&raw mut now) };
            Before::Sampled(now)
        } else {
            Before::Off
        };
        let wanted = StartOptions { mode: Mode::FULL, sample_bytes: 0, ..now };
        tracked(api, || begin_tracking(ruby, api, &wanted))?;
        with(|holds| holds.before = Some(before));
        had = if mode == Mode::SAMPLED { Had::Switched } else { Had::Started };
    }
    // SAFETY: asks for the calling thread.
    let own = unsafe { libc::pthread_self() };
    with(|holds| holds.threads.push(own));
    Ok((api, had))
}

/// A measurement of this thread needs it no longer.
pub(super) fn give_back(ruby: &Ruby, api: &HookApi) -> Result<(), Error> {
    // SAFETY: asks for the calling thread.
    let own = unsafe { libc::pthread_self() };
    let before = with(|holds| {
        if let Some(at) = holds.threads.iter().position(|thread| *thread == own) {
            holds.threads.swap_remove(at);
        }
        holds.before.take_if(|_| holds.threads.is_empty())
    });
    go_back(ruby, api, before)
}

/// Only the calling thread exists, in a forked child.
pub(super) fn in_child(ruby: &Ruby, api: &HookApi) -> Result<(), Error> {
    // SAFETY: asks for the calling thread.
    let own = unsafe { libc::pthread_self() };
    let before = with(|holds| {
        holds.threads.retain(|thread| *thread == own);
        holds.before.take_if(|_| holds.threads.is_empty())
    });
    go_back(ruby, api, before)
}

fn go_back(ruby: &Ruby, api: &HookApi, before: Option<Before>) -> Result<(), Error> {
    if before.is_none() || (api.mode)() != Mode::FULL {
        return Ok(());
    }
    match before {
        Some(Before::Sampled(options)) => tracked(api, || begin_tracking(ruby, api, &options)).map(|_| ()),
        _ => end_tracking(ruby, api).map(|_| ()),
    }
}
