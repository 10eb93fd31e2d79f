//! Work during which other Ruby threads run.

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use crate::lookup::{self, look_up};

const NAME: &CStr = c"rb_thread_call_without_gvl2";
type Work = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Unblock = unsafe extern "C" fn(*mut c_void);
type CallWithoutGvl = unsafe extern "C" fn(Work, *mut c_void, Option<Unblock>, *mut c_void) -> *mut c_void;

/// The function that this Ruby lacks for it.
pub(super) fn missing() -> Vec<&'static str> {
    lookup::missing(&[NAME])
}

/// Runs code that uses nothing of Ruby without the GVL, if this Ruby has the function. If an interrupt is pending for
/// the thread, the code runs with the GVL: otherwise Ruby would raise across Rust frames. Ruby handles the interrupt
/// right after.
pub(crate) fn without_gvl<T, F: FnOnce() -> T>(work: F) -> T {
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
    static FOUND: OnceLock<Option<CallWithoutGvl>> = OnceLock::new();
    // SAFETY: a function of this type in every Ruby that has it.
    let found = FOUND.get_or_init(|| unsafe { look_up!(NAME, CallWithoutGvl) });
    let mut job = Job { work: Some(work), result: None };
    // SAFETY: the job is valid during the call; this form of the call does not raise.
    unsafe {
        if let Some(call) = found {
            call(run::<T, F>, (&raw mut job).cast(), None, std::ptr::null_mut());
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
