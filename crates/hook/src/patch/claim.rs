//! One thread at a time, without a lock that could be waited for in the wrong place.
//!
//! A `refresh` that finds the claim taken leaves a wish and goes on; whoever has the claim fulfils it. `install`,
//! `remove` and `visit` do wait, but they are not called while the loader's list is locked, and that lock is all
//! that the one with the claim can wait for.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use super::{Book, Outcome, sweep};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody wishes for a refresh.
const WISHED: u32 = 2;

/// A fork waits this long for whoever patches; far longer than patching takes.
const LONGEST_HOLD: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_micros(50);

static STATE: AtomicU32 = AtomicU32::new(FREE);

struct Shared(UnsafeCell<Book>);
// SAFETY: only whoever has the claim touches the book.
unsafe impl Sync for Shared {}

static BOOK: Shared = Shared(UnsafeCell::new(Book::new()));

fn take() -> bool {
    STATE.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
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
    while STATE.swap(FREE, Ordering::Release) == WISHED && take_or_wish() {
        sweep::again(book);
    }
    answer
}

/// Waits for the claim.
pub(super) fn exclusively<R>(action: impl FnOnce(&mut Book) -> R) -> R {
    while !take() {
        pause();
    }
    act(action)
}

/// Does not wait: if the claim is taken, its owner is asked for a refresh.
pub(super) fn if_free(action: impl FnOnce(&mut Book) -> Outcome) -> Outcome {
    if take_or_wish() { act(action) } else { Outcome::default() }
}

/// Takes the claim for the length of a fork.
pub(super) fn hold() -> bool {
    let mut waited = Duration::ZERO;
    while !take() {
        if waited >= LONGEST_HOLD {
            return false;
        }
        pause();
        waited = waited.saturating_add(PAUSE);
    }
    true
}

/// Undoes [`hold`]. A wish is dropped: the next refresh finds the same.
pub(super) fn let_go() {
    STATE.store(FREE, Ordering::Release);
}

/// The claim's owner did not survive a fork. What it was about to write down is read again from the modules.
pub(super) fn reset() {
    // SAFETY: the child of a fork has one thread, this one.
    unsafe { (*BOOK.0.get()).distrust() };
    STATE.store(FREE, Ordering::Release);
}

fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(PAUSE.subsec_nanos()) };
    // SAFETY: reads a local; the rest of an interrupted sleep is of no interest.
    unsafe { libc::nanosleep(&raw const time, core::ptr::null_mut()) };
}
