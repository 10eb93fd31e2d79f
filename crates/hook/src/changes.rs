//! Starts and stops, one at a time, and forks, which must not come into the middle of one.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memintro_abi::Status;
use memintro_tracker::lock::wait_round;

use crate::count::Count;
use crate::shared::is_lost;
use crate::tls;

/// The thread that starts or stops, or that forks, and which of them it does: [`tls::number`] and [`FORK`] or nothing.
static CHANGING: AtomicUsize = AtomicUsize::new(IDLE);
const IDLE: usize = 0;
const FORK: usize = 1;
/// Sleeps of a start or stop until a fork is over: a quarter of a second at least. The fork may have been interrupted
/// by the signal handler that starts or stops.
const SLEEPS_FOR_CHANGES: u32 = 5_000;
/// Sleeps of a fork until it takes part in what another one holds.
const SLEEPS_FOR_FORKS: u32 = 20;
/// Whether anybody has ever wanted to start or stop.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// See [`has_changed`].
static HAS_CHANGED: AtomicBool = AtomicBool::new(false);
/// Forks that hold nothing, as nothing has been tracked when they began. The first start waits for those that began
/// before it.
pub(crate) static UNUSED_FORKS: Count = Count::new();
/// Sleeps of 50 µs of that start.
const SLEEPS_FOR_UNUSED: u32 = 3_000;

/// One transition at a time; whoever comes second is told. A fork is waited for, but not for ever.
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

/// How a fork finds starts and stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// Nobody is at it, and nobody will until [`forget_changes`].
    Held,
    /// Somebody is, perhaps this thread itself, whose signal handler forks.
    NotHeld,
    /// Others fork, and `joined` took part in what they hold.
    Joined,
}

/// Waits until nobody starts or stops, and lets nobody until [`forget_changes`]. Not for ever: whoever forks may have
/// interrupted such a change in a signal handler. Others who fork are waited for only shortly.
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

/// Whether anybody has ever wanted to start or stop; who is the first waits for forks that have seen that nobody has.
pub(crate) fn is_wanted() -> bool {
    IS_WANTED.load(Ordering::SeqCst)
}

/// Whether anybody has begun to.
pub(crate) fn has_changed() -> bool {
    HAS_CHANGED.load(Ordering::Acquire)
}

/// After a fork, in the parent when it held changes, and always in the child: who was at it there is not here.
pub(crate) fn forget_changes() {
    CHANGING.store(IDLE, Ordering::Release);
}
