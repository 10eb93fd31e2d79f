//! Which state belongs to the calling thread, from its first tracked call to after its death.
//!
//! While there is one such thread the table needs no locks, and a locked instruction in malloc would cost more than
//! all the rest of an operation. So the table is told when a second thread comes, and when it is gone again. A thread
//! that joins counts itself first and looks at the table's flag second; one that leaves clears the flag first and looks
//! at the count second: one of the two always notices the other.

use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use memintro_tracker::mmap::Errno;
use memintro_tracker::stack;
use memintro_tracker::threads::ThreadState;

use crate::shared::{TABLE, THREADS};
use crate::{sampling, tls};

/// The word of a thread whose destructors have run: frees still come, and it must not take a state for good. Beside the
/// address of a state: one that such a thread has borrowed.
const DEAD: usize = 1;

/// Stack that a thread's first call may use besides.
const STACK_BYTES: usize = 2560;

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// Threads that have a state.
static CROWD: AtomicU32 = AtomicU32::new(0);
/// How often the table may still go back to one thread: each change pauses the world, which a program that starts
/// threads all the time should not pay for ever.
static RETURNS: AtomicU32 = AtomicU32::new(64);

/// The calling thread's state, or a borrowed one for a dying thread.
#[derive(Debug)]
pub(crate) enum Own {
    /// Kept until the thread ends.
    Kept(&'static ThreadState),
    /// For one operation only.
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

/// Creates the key whose destructor gives states back. Called once, by the constructor.
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

#[cold]
fn first_call(word: usize) -> Option<Own> {
    stack::touch::<STACK_BYTES>();
    let errno = Errno::save();
    let state: NonNull<ThreadState> = THREADS.acquire()?;
    // SAFETY: states are never unmapped.
    let state_ref: &'static ThreadState = unsafe { state.as_ref() };
    let key = KEY.load(Ordering::Acquire);
    let is_kept = word != DEAD && key != u32::MAX;
    // Counted first, found by the word second: a signal handler that comes before that arrives by itself, as another thread
    // would, and does not record as one that nobody knows of.
    if CROWD.fetch_add(1, Ordering::SeqCst) > 0 && !TABLE.is_shared() {
        THREADS.announce(state_ref);
    }
    if !is_kept {
        if word == DEAD {
            // What is called meanwhile finds the same state, and does not give it back.
            tls::set(state.as_ptr() as usize | DEAD);
        }
        return Some(Own::Borrowed(state_ref));
    }
    if let Err(found) = tls::set_first(state.as_ptr() as usize) {
        // A handler has come, and has got a state for this thread.
        give_back(state_ref);
        drop(errno);
        // SAFETY: as in `own`.
        return Some(Own::Kept(unsafe { &*((found & !DEAD) as *const ThreadState) }));
    }
    // After the word: pthread_setspecific may allocate.
    // SAFETY: the key was created and is never deleted.
    unsafe { libc::pthread_setspecific(key, state.as_ptr().cast_const().cast()) };
    drop(errno);
    Some(Own::Kept(state_ref))
}

/// Whoever opens the gate sees to it that the table is locked where more than one thread may use it.
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
            // It was cancelled while it was recording (which no program may do to malloc), or has left by `longjmp` before.
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

/// In a forked child, when all others' states are free: the calling thread is the only one.
pub(crate) fn is_alone() {
    CROWD.store(u32::from(kept().is_some()), Ordering::SeqCst);
    TABLE.set_shared(false);
}

/// As C's functions are, so that nothing that calls it needs a table of what to clean up: see [`memintro_tracker::threads::Settle`].
#[cold]
extern "C" fn give_back(state: &'static ThreadState) {
    sampling::forget_distance(state);
    if CROWD.fetch_sub(1, Ordering::SeqCst) == 2
        && RETURNS.load(Ordering::Relaxed) > 0
        && let Some(paused) = THREADS.pause_for(state, 0)
    {
        // When the pause ends, it is shared again if somebody has come meanwhile.
        TABLE.set_shared(false);
        RETURNS.fetch_sub(1, Ordering::Relaxed);
        drop(paused);
    }
    THREADS.release(state);
}
