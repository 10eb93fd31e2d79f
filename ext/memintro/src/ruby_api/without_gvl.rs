//! Work during which other Ruby threads run.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs what touches nothing of Ruby's without Ruby's lock. Where an interrupt waits for the thread already it runs with
/// the lock: Ruby would raise across our frames otherwise, and sees to the interrupt right after.
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
    let mut job = Job { work: Some(work), result: None };
    // SAFETY: the job is valid during the call; this form of the call does not raise.
    unsafe {
        rb_sys::rb_thread_call_without_gvl2(
            Some(run::<T, F>),
            (&raw mut job).cast(),
            None,
            std::ptr::null_mut(),
        );
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
