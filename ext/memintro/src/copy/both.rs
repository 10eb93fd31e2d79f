//! Two pieces of work of a copy at the same time.
//!
//! The second one runs on a bare thread of the copy, which shares all with the first but its stack: neither may write what
//! the other one uses, and the second has no thread-local memory of its own, `errno` included.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::leaving::wait_while;
use super::own_memory::slice;

/// For walks, which keep little there.
const STACK: usize = 256 << 10;

struct Second<F> {
    work: Option<F>,
    done: AtomicU32,
}

/// In the copy: runs both, at the same time where a thread can be made, and returns when both are done.
pub(crate) fn both<F: FnOnce() + Send>(first: impl FnOnce(), second: F) {
    const FLAGS: c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    const SLEEP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    let mut state = Second { work: Some(second), done: AtomicU32::new(0) };
    let place: *mut Second<F> = &raw mut state;
    let number = slice::<u128>(STACK / 16).map_or(-1, |stack| {
        // SAFETY: a stack of its own, which is never given back, and a record that outlives the thread's use of it: below,
        // this function waits for that.
        unsafe { libc::clone(run::<F>, stack.as_mut_ptr_range().end.cast(), FLAGS, place.cast()) }
    });
    first();
    if number == -1 {
        run::<F>(place.cast());
    }
    // SAFETY: the record above, of which the thread writes this word last.
    let done = unsafe { &(*place).done };
    while done.load(Ordering::Acquire) == 0 {
        wait_while(done, 0, &SLEEP);
    }
}

extern "C" fn run<F: FnOnce()>(place: *mut c_void) -> c_int {
    let place = place.cast::<Second<F>>();
    // SAFETY: the record of `both`, of which that uses nothing but the word until the word is set.
    let (work, done) = unsafe { (ptr::replace(&raw mut (*place).work, None), &(*place).done) };
    if let Some(work) = work {
        work();
    }
    let word = done.as_ptr();
    done.store(1, Ordering::Release);
    // SAFETY: nothing is read there; the word may be used for something else by now, whose waiters look again.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1) };
    0
}
