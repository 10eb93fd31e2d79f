//! The claim lets one thread at a time patch. It is not a lock, because a thread could wait for a lock while
//! the loader's list is locked.
//!
//! A `refresh` that finds the claim taken leaves a request and returns; the owner of the claim does the refresh.
//! `install`, `remove` and `visit` do wait. But they are not called while the loader's list is locked, and that lock
//! is all that the owner can wait for. Their wait is limited, and they never wait for their own thread: a signal
//! handler may have interrupted the owner.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use memintro_tracker::lock::wait_round;

use crate::tls;

use super::book::Book;
use super::{Outcome, sweep};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// The claim is taken, and another thread has requested a refresh.
const WISHED: u32 = 2;

/// Sleeps of a thread that does not fork. The owner may wait for the loader to load a library, so this is seconds.
const SLEEPS: u32 = 50_000;

#[unsafe(link_section = ".data.fork")]
static STATE: AtomicU32 = AtomicU32::new(FREE);
/// The thread that has the claim.
#[unsafe(link_section = ".data.fork")]
static OWNER: AtomicUsize = AtomicUsize::new(0);

struct Shared(UnsafeCell<Book>);
// SAFETY: only the holder of the claim touches the book.
unsafe impl Sync for Shared {}

static BOOK: Shared = Shared(UnsafeCell::new(Book::new()));

fn take() -> bool {
    let is_mine = STATE.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if is_mine {
        OWNER.store(tls::number(), Ordering::Relaxed);
    }
    is_mine
}

fn give() -> u32 {
    OWNER.store(0, Ordering::Relaxed);
    STATE.swap(FREE, Ordering::Release)
}

/// Whether this very thread has the claim, further down its stack.
pub(super) fn is_mine() -> bool {
    OWNER.load(Ordering::Relaxed) == tls::number()
}

fn take_or_wish() -> bool {
    loop {
        if take() {
            return true;
        }
        match STATE.compare_exchange(TAKEN, WISHED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) | Err(WISHED) => return false,
            Err(_) => {}
        }
    }
}

/// The caller has the claim.
fn act<R>(action: impl FnOnce(&mut Book) -> R) -> R {
    // SAFETY: the caller has the claim, so this is the only reference.
    let book = unsafe { &mut *BOOK.0.get() };
    let answer = action(book);
    while give() == WISHED && take_or_wish() {
        sweep::again(book);
    }
    answer
}

/// Waits for the claim. `None`: it did not become free in time.
pub(super) fn exclusively<R>(action: impl FnOnce(&mut Book) -> R) -> Option<R> {
    take_within(SLEEPS).then(|| act(action))
}

fn take_within(sleeps: u32) -> bool {
    let mut rounds = 0;
    while !take() {
        if is_mine() || !wait_round(&mut rounds, sleeps) {
            return false;
        }
    }
    true
}

/// Does not wait. If the claim is taken, this requests a refresh from its owner.
pub(super) fn if_free(action: impl FnOnce(&mut Book) -> Outcome) -> Outcome {
    if take_or_wish() { act(action) } else { Outcome::default() }
}

/// Takes the claim for the duration of a fork.
pub(super) fn hold(sleeps: u32) -> bool {
    take_within(sleeps)
}

/// Undoes [`hold`]. A request is dropped, because the next refresh finds the same changes.
pub(super) fn let_go() {
    give();
}

/// The claim's owner does not exist after a fork. What it was about to record is read again from the modules.
pub(super) fn reset() {
    // SAFETY: the child of a fork has one thread, this one.
    unsafe { (*BOOK.0.get()).distrust() };
    give();
}
