//! Serialises starts and stops, and keeps forks from happening in the middle of one.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memintro_abi::Status;
use memintro_tracker::lock::wait_round;

use crate::count::Count;
use crate::shared::is_lost;
use crate::tls;

/// The thread that starts, stops or forks: its [`tls::number`], plus [`FORK`] if it forks; 0 if there is none.
#[unsafe(link_section = ".data.fork")]
static CHANGING: AtomicUsize = AtomicUsize::new(IDLE);
const IDLE: usize = 0;
const FORK: usize = 1;
/// Sleeps of a start or stop that waits for a fork: a quarter of a second at least. It has a limit because the fork
/// may have been interrupted by the signal handler that starts or stops.
const SLEEPS_FOR_CHANGES: u32 = 5_000;
/// Sleeps of a fork until it joins other forks that already hold everything.
const SLEEPS_FOR_FORKS: u32 = 20;
/// Whether a start or stop was ever asked for.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// See [`has_changed`].
static HAS_CHANGED: AtomicBool = AtomicBool::new(false);
/// Forks that hold nothing because nothing had been tracked when they began. The first start waits for those that
/// began before it.
#[unsafe(link_section = ".data.fork")]
pub(crate) static UNUSED_FORKS: Count = Count::new();
/// Sleeps of 50 µs of the first start.
const SLEEPS_FOR_UNUSED: u32 = 3_000;

/// Allows one transition at a time; a second one is refused. It waits for a fork, but only for a limited time.
pub(crate) fn exclusively(change: impl FnOnce() -> Status) -> Status {
    if !IS_WANTED.swap(true, Ordering::SeqCst) {
        UNUSED_FORKS.wait_for_none(SLEEPS_FOR_UNUSED);
    }
    HAS_CHANGED.store(true, Ordering::Release);
    let mut rounds = 0;
    while let Err(now) = CHANGING.compare_exchange(IDLE, tls::number(), Ordering::Acquire, Ordering::Relaxed)
    {
        if now & FORK == 0 || now & !FORK == tls::number() || !wait_round(&mut rounds, SLEEPS_FOR_CHANGES) {
            return Status::BUSY;
        }
    }
    let status = if is_lost() { Status::FIGURES_LOST } else { change() };
    CHANGING.store(IDLE, Ordering::Release);
    status
}

/// What a fork finds out about starts and stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// No start or stop is under way, and none can begin until [`forget_changes`].
    Held,
    /// A start or stop is under way, perhaps in this very thread, whose signal handler forks.
    NotHeld,
    /// Other threads fork, and `joined` shares what they hold.
    Joined,
}

/// Waits until no start or stop is under way, and keeps new ones from beginning until [`forget_changes`]. The wait is
/// limited, because the fork may come from a signal handler that has interrupted such a change. The wait for other
/// forks is short.
pub(crate) fn hold_changes(sleeps: u32, joined: impl Fn() -> bool) -> Changes {
    let mut rounds = 0;
    let mut shortly = 0;
    while let Err(now) =
        CHANGING.compare_exchange(IDLE, tls::number() | FORK, Ordering::Acquire, Ordering::Relaxed)
    {
        if now & !FORK == tls::number() {
            return Changes::NotHeld;
        }
        if !wait_round(&mut shortly, SLEEPS_FOR_FORKS) && joined() {
            return Changes::Joined;
        }
        if !wait_round(&mut rounds, sleeps) {
            return Changes::NotHeld;
        }
    }
    Changes::Held
}

/// Whether a start or stop was ever asked for. The first one waits for forks that saw that there was none.
pub(crate) fn is_wanted() -> bool {
    IS_WANTED.load(Ordering::SeqCst)
}

/// Whether a start or stop has ever begun.
pub(crate) fn has_changed() -> bool {
    HAS_CHANGED.load(Ordering::Acquire)
}

/// Called after a fork: in the parent if it held off changes, and always in the child, which does not have the thread
/// that made a change.
pub(crate) fn forget_changes() {
    CHANGING.store(IDLE, Ordering::Release);
}
