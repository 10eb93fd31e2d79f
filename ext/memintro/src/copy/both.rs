//! Two pieces of work of a copy at the same time.
//!
//! The second one runs on a bare thread of the copy, which shares all with the first but its stack: neither may write what
//! the other one uses, and the second has no thread-local memory of its own, `errno` included.
//!
//! The kernel often starts a thread on the processor of the one that makes it, and moves it some milliseconds later, when
//! the work is done. So the second thread leaves that processor at once, if it may run on another one.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{mem, ptr};

use super::own_memory::slice;
use super::{wait_while, wake};

/// For walks, which keep little there.
const STACK: usize = 256 << 10;
/// More do not fit into a set of this size.
const MOST_PROCESSORS: usize = 8 * size_of::<libc::cpu_set_t>();

struct Second<F> {
    work: Option<F>,
    /// Processors other than the first thread's, if it may use any.
    elsewhere: Option<libc::cpu_set_t>,
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
    const SLEEP: Duration = Duration::from_millis(10);
    let mut state = Second { work: Some(second), elsewhere: elsewhere(), done: AtomicU32::new(0) };
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
        wait_while(done, 0, SLEEP);
    }
}

/// Processors that this thread may run on, without the one that it runs on.
fn elsewhere() -> Option<libc::cpu_set_t> {
    // SAFETY: a plain number.
    let here =
        usize::try_from(unsafe { libc::sched_getcpu() }).ok().filter(|here| *here < MOST_PROCESSORS)?;
    // SAFETY: zeroes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: a set of this size.
    let asked = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if asked != 0 {
        return None;
    }
    // SAFETY: the number is within the set, see above.
    let others = unsafe {
        libc::CPU_CLR(here, &mut set);
        libc::CPU_COUNT(&set)
    };
    (others > 0).then_some(set)
}

extern "C" fn run<F: FnOnce()>(place: *mut c_void) -> c_int {
    let place = place.cast::<Second<F>>();
    // SAFETY: the record of `both`, of which that uses nothing but the word until the word is set.
    let (work, elsewhere, done) =
        unsafe { (ptr::replace(&raw mut (*place).work, None), &(*place).elsewhere, &(*place).done) };
    if let Some(processors) = elsewhere {
        // SAFETY: a valid set, and this thread alone, which is the copy's.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), processors) };
    }
    if let Some(work) = work {
        work();
    }
    let word = done.as_ptr();
    done.store(1, Ordering::Release);
    wake(word);
    0
}
