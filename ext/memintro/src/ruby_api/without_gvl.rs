//! Work during which other Ruby threads run.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lookup::{self, look_up};

const NAME: &CStr = c"rb_thread_call_without_gvl2";
type Work = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Unblock = unsafe extern "C" fn(*mut c_void);
type NoGvl = unsafe extern "C" fn(Work, *mut c_void, Option<Unblock>, *mut c_void, c_int) -> *mut c_void;
type CallWithoutGvl = unsafe extern "C" fn(Work, *mut c_void, Option<Unblock>, *mut c_void) -> *mut c_void;

/// The function that this Ruby lacks for it.
pub(super) fn missing() -> Vec<&'static str> {
    lookup::missing(&[NAME])
}

/// Runs code that uses nothing of Ruby without the GVL, if this Ruby has the function. If an interrupt is pending for
/// the thread, the code runs with the GVL: otherwise Ruby would raise across Rust frames. Ruby handles the interrupt
/// right after.
pub(crate) fn without_gvl<T, F: FnOnce() -> T>(work: F) -> T {
    call_without_gvl(work, None)
}

/// The same for work that may take long. It is to end soon after the flag is set, as it is when Ruby interrupts the thread,
/// or has interrupted it before.
pub(crate) fn without_gvl_until<T, F: FnOnce() -> T>(interrupted: &AtomicBool, work: F) -> T {
    call_without_gvl(work, Some(interrupted))
}

unsafe extern "C" fn interrupt(flag: *mut c_void) {
    // SAFETY: the flag of the caller below, which outlives the call.
    unsafe { &*flag.cast::<AtomicBool>() }.store(true, Ordering::Relaxed);
}

fn call_without_gvl<T, F: FnOnce() -> T>(work: F, flag: Option<&AtomicBool>) -> T {
    struct Job<T, F> {
        work: Option<F>,
        result: Option<std::thread::Result<T>>,
    }
    unsafe extern "C" fn run<T, F: FnOnce() -> T>(job: *mut c_void) -> *mut c_void {
        // SAFETY: the job below, which outlives the call.
        let job = unsafe { &mut *job.cast::<Job<T, F>>() };
        job.result = job.work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
        std::ptr::null_mut()
    }
    /// As the other function; and the function that sets the flag may run in a signal handler. Otherwise Ruby starts a
    /// thread for it.
    const FLAGS: c_int = 1 | 2;
    static NOGVL: OnceLock<Option<NoGvl>> = OnceLock::new();
    // SAFETY: a function of this type in every Ruby that has it.
    let nogvl = *NOGVL.get_or_init(|| unsafe { look_up!(c"rb_nogvl", NoGvl) });
    static FOUND: OnceLock<Option<CallWithoutGvl>> = OnceLock::new();
    // SAFETY: a function of this type in every Ruby that has it.
    let found = FOUND.get_or_init(|| unsafe { look_up!(NAME, CallWithoutGvl) });
    let mut job = Job { work: Some(work), result: None };
    // SAFETY: the job is valid during the call; this form of the call does not raise.
    unsafe {
        if let Some(call) = found {
            match (flag, nogvl) {
                (Some(flag), Some(nogvl)) => {
                    let place = std::ptr::from_ref(flag).cast_mut().cast();
                    nogvl(run::<T, F>, (&raw mut job).cast(), Some(interrupt), place, FLAGS);
                    flag.fetch_or(job.work.is_some(), Ordering::Relaxed);
                }
                _ => {
                    call(run::<T, F>, (&raw mut job).cast(), None, std::ptr::null_mut());
                }
            }
        }
        if job.work.is_some() {
            run::<T, F>((&raw mut job).cast());
        }
    }
    match job.result {
        Some(Ok(value)) => value,
        Some(Err(panic)) => resume_unwind(panic),
        None => unreachable!("the job runs in one of the two places"),
    }
}
