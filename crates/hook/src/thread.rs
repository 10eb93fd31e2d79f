//! Finds the state of the calling thread, from its first tracked call until after its end.
//!
//! While there is one such thread the table needs no locks, and a locked instruction in malloc would cost
//! more than all the rest of an operation. So this file notifies the table when a second thread comes, and
//! when it has ended. A new thread counts itself first and reads the table's flag second. A thread that ends
//! clears the flag first and reads the count second. So at least one of the two notices the other.

use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use memintro_tracker::mmap::Errno;
use memintro_tracker::stack;
use memintro_tracker::threads::ThreadState;

use crate::shared::{BIRTHS, TABLE, THREADS};
use crate::{sampling, tls};

/// The word of a thread whose destructors have run. Such a thread may still free blocks, but must not keep a state.
/// While it borrows a state, this bit is set beside the state's address.
const DEAD: usize = 1;

/// Stack that a thread's first call may need in addition.
const STACK_BYTES: usize = 2560;

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// Threads that have a state.
static CROWD: AtomicU32 = AtomicU32::new(0);
/// How often the table may still return to a single thread. Each change pauses the world, so a program that starts
/// threads all the time must not cause one each time.
static RETURNS: AtomicU32 = AtomicU32::new(64);

/// The calling thread's state, or a borrowed one for a thread that is ending.
#[derive(Debug)]
pub(crate) enum Own {
    /// Kept until the thread ends.
    Kept(&'static ThreadState),
    /// Borrowed for one operation.
    Borrowed(&'static ThreadState),
}

impl Deref for Own {
    type Target = ThreadState;
    #[inline]
    fn deref(&self) -> &ThreadState {
        match self {
            Self::Kept(state) | Self::Borrowed(state) => state,
        }
    }
}

impl Drop for Own {
    #[inline]
    fn drop(&mut self) {
        if let Self::Borrowed(state) = self {
            if tls::get() & DEAD != 0 {
                tls::set(DEAD);
            }
            give_back(state);
        }
    }
}

/// Creates the key whose destructor releases states. Called once, by the constructor.
pub(crate) fn init() {
    let mut key: libc::pthread_key_t = 0;
    TABLE.set_shared(false);
    // SAFETY: `key` is valid for writing, the destructor is a plain function that lives as long as the process.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Ordering::Release);
    }
}

/// The calling thread's state; `None` when there is no memory for one.
#[inline]
pub(crate) fn own() -> Option<Own> {
    let word = tls::get();
    if word > DEAD {
        // SAFETY: the word is the address of a state, and states are never unmapped.
        return Some(Own::Kept(unsafe { &*((word & !DEAD) as *const ThreadState) }));
    }
    first_call(word)
}

/// The calling thread's state, if it keeps one and is not ending.
#[inline(always)]
pub(crate) fn at_hand() -> Option<&'static ThreadState> {
    let word = tls::get();
    // One comparison excludes 0 and what has the lowest bit set: the rotation makes that the sign.
    let is_kept = const { DEAD == 1 } && word.rotate_right(1).cast_signed() > 0;
    // SAFETY: the word is the address of a state, and states are never unmapped.
    is_kept.then(|| unsafe { &*(word as *const ThreadState) })
}

#[cold]
fn first_call(word: usize) -> Option<Own> {
    stack::touch::<STACK_BYTES>();
    let errno = Errno::save();
    let state: NonNull<ThreadState> = THREADS.acquire()?;
    // SAFETY: states are never unmapped.
    let state_ref: &'static ThreadState = unsafe { state.as_ref() };
    let key = KEY.load(Ordering::Acquire);
    let is_kept = word != DEAD && key != u32::MAX;
    // The thread is counted before its word is set. A signal handler that comes in between counts itself, as another
    // thread would, so it never records as an uncounted thread.
    if CROWD.fetch_add(1, Ordering::SeqCst) > 0 && !TABLE.is_shared() {
        THREADS.announce(state_ref);
    }
    if !is_kept {
        if word == DEAD {
            // Calls that are made meanwhile find the same state, and do not release it.
            tls::set(state.as_ptr() as usize | DEAD);
        }
        return Some(Own::Borrowed(state_ref));
    }
    if let Err(found) = tls::set_first(state.as_ptr() as usize) {
        // A signal handler came in between, and has got a state for this thread.
        give_back(state_ref);
        drop(errno);
        // SAFETY: as in `own`.
        return Some(Own::Kept(unsafe { &*((found & !DEAD) as *const ThreadState) }));
    }
    // This comes after the word is set, because pthread_setspecific may allocate.
    // SAFETY: the key was created and is never deleted.
    unsafe { libc::pthread_setspecific(key, state.as_ptr().cast_const().cast()) };
    drop(errno);
    Some(Own::Kept(state_ref))
}

/// Has the table use locks if several threads may use it. Called by the thread that opens the gate.
pub(crate) fn share_if_crowded() {
    if CROWD.load(Ordering::SeqCst) > 1 && !TABLE.is_shared() {
        TABLE.set_shared(true);
    }
}

unsafe extern "C" fn thread_ends(value: *mut libc::c_void) {
    tls::set(DEAD);
    // SAFETY: the key's value is only ever the address of a state.
    if let Some(state) = unsafe { value.cast::<ThreadState>().as_ref() } {
        if state.is_busy() {
            // The thread was cancelled while it was recording (which no program may do inside malloc), or has
            // left earlier by `longjmp`.
            THREADS.tear(state);
        }
        give_back(state);
    }
}

/// The calling thread's state, if it has one already.
pub(crate) fn kept() -> Option<&'static ThreadState> {
    let word = tls::get();
    // SAFETY: the word is the address of a state, and states are never unmapped.
    (word > DEAD).then(|| unsafe { &*((word & !DEAD) as *const ThreadState) })
}

/// Called in a forked child, when all other states have been released: the calling thread is the only one.
pub(crate) fn is_alone() {
    CROWD.store(u32::from(kept().is_some()), Ordering::SeqCst);
    TABLE.set_shared(false);
}

/// It has the C ABI, so that its callers need no unwind table for clean-up: see
/// [`memintro_tracker::threads::Settle`].
#[cold]
extern "C" fn give_back(state: &'static ThreadState) {
    sampling::forget_distance(state);
    BIRTHS.abandon(&state.measuring);
    if CROWD.fetch_sub(1, Ordering::SeqCst) == 2
        && RETURNS.load(Ordering::Relaxed) > 0
        && let Some(paused) = THREADS.pause_for(state, 0)
    {
        // If another thread has come meanwhile, the table is shared again when the pause ends.
        TABLE.set_shared(false);
        RETURNS.fetch_sub(1, Ordering::Relaxed);
        drop(paused);
    }
    THREADS.release(state);
}
