//! Work during which other Ruby threads run.
//!
//! If an interrupt is pending for the thread, such as a signal whose handler has not run yet, Ruby does not begin without the
//! GVL. So it handles the interrupt first, here, and the work begins after it. An interrupt may raise: then the work is not done, or
//! not waited for, and the caller hands the error on to Ruby.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use magnus::Error;
use magnus::rb_sys::protect;

use crate::lookup::{self, look_up};

const NAME: &CStr = c"rb_thread_call_without_gvl2";
type Work = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Unblock = unsafe extern "C" fn(*mut c_void);
type NoGvl = unsafe extern "C" fn(Work, *mut c_void, Option<Unblock>, *mut c_void, c_int) -> *mut c_void;
type CallWithoutGvl = unsafe extern "C" fn(Work, *mut c_void, Option<Unblock>, *mut c_void) -> *mut c_void;

/// So often in a row Ruby may have something to do for the thread before the work; then it is done with the GVL. Signals that come
/// as fast as their handlers run must not put it off for ever.
const MOST_TRIES: u32 = 1_000;

/// The function that this Ruby lacks for it.
pub(super) fn missing() -> Vec<&'static str> {
    lookup::missing(&[NAME])
}

/// Runs code that uses nothing of Ruby without the GVL, if this Ruby has the function. An interrupt that comes meanwhile
/// is handled after it.
pub(crate) fn without_gvl<T, F: FnOnce() -> T>(work: F) -> Result<T, Error> {
    let mut work = Some(work);
    for _ in 0..MOST_TRIES {
        if let Some(value) = call_without_gvl(&mut work, None) {
            return Ok(value);
        }
        handle_interrupts()?;
    }
    match work {
        Some(work) => Ok(work()),
        None => unreachable!("the work was not done yet"),
    }
}

/// Waits without the GVL for what may take long. `wait` is called until it has an answer. It is to return soon after the flag is
/// set: then Ruby interrupts the thread.
pub(crate) fn wait_without_gvl<T>(mut wait: impl FnMut(&AtomicBool) -> Option<T>) -> Result<T, Error> {
    loop {
        let interrupted = AtomicBool::new(false);
        let mut once = Some(|| wait(&interrupted));
        if let Some(Some(value)) = call_without_gvl(&mut once, Some(&interrupted)) {
            return Ok(value);
        }
        handle_interrupts()?;
    }
}

/// What Ruby has to do for the thread now: handlers of signals, errors of other threads, its end.
fn handle_interrupts() -> Result<(), Error> {
    protect(|| {
        // SAFETY: called with the GVL; what it raises is caught.
        unsafe { rb_sys::rb_thread_check_ints() };
        rb_sys::Qnil.into()
    })
    .map(|_| ())
}

unsafe extern "C" fn interrupt(flag: *mut c_void) {
    // SAFETY: the flag of the caller below, which outlives the call.
    unsafe { &*flag.cast::<AtomicBool>() }.store(true, Ordering::Relaxed);
}

/// Does the work without the GVL, once. `None`, and the work is still there, if an interrupt is pending. Does not raise. The flag is
/// set if Ruby interrupts the thread meanwhile.
fn call_without_gvl<T, F: FnOnce() -> T>(work: &mut Option<F>, flag: Option<&AtomicBool>) -> Option<T> {
    struct Job<'a, T, F> {
        work: &'a mut Option<F>,
        result: Option<std::thread::Result<T>>,
    }
    unsafe extern "C" fn run<T, F: FnOnce() -> T>(job: *mut c_void) -> *mut c_void {
        // SAFETY: the job below, which outlives the call.
        let job = unsafe { &mut *job.cast::<Job<'_, T, F>>() };
        job.result = job.work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
        ptr::null_mut()
    }
    /// As the other function; and the function that sets the flag may run in a signal handler. Otherwise Ruby starts a
    /// thread for it.
    const FLAGS: c_int = 1 | 2;
    static NOGVL: OnceLock<Option<NoGvl>> = OnceLock::new();
    // SAFETY: a function of this type in every Ruby that has it.
    let nogvl = *NOGVL.get_or_init(|| unsafe { look_up!(c"rb_nogvl", NoGvl) });
    static FOUND: OnceLock<Option<CallWithoutGvl>> = OnceLock::new();
    // SAFETY: a function of this type in every Ruby that has it.
    let found = *FOUND.get_or_init(|| unsafe { look_up!(NAME, CallWithoutGvl) });
    let mut job = Job { work, result: None };
    let place: *mut c_void = (&raw mut job).cast();
    // SAFETY: the job is valid during the call; these forms of the call do not raise.
    unsafe {
        match (found, nogvl, flag) {
            (Some(_), Some(nogvl), Some(flag)) => {
                nogvl(run::<T, F>, place, Some(interrupt), ptr::from_ref(flag).cast_mut().cast(), FLAGS);
            }
            (Some(call), _, _) => {
                call(run::<T, F>, place, None, ptr::null_mut());
            }
            (None, ..) => {
                run::<T, F>(place);
            }
        }
    }
    match job.result? {
        Ok(value) => Some(value),
        Err(panic) => resume_unwind(panic),
    }
}
