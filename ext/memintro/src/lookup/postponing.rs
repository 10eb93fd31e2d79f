//! Postponed jobs, which the VM runs soon. They can be requested where no other function of Ruby may be called: in a
//! signal handler, or in a child before fork returns.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_postponed_job_preregister`, `rb_postponed_job_trigger` | no | yes | yes | the next |
//! | `rb_postponed_job_register_one` | yes | deprecated | deprecated | a process that listens does not notice forks that C code makes |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11), and from
//! `include/ruby/debug.h` of 3.3, which deprecates the older way: it may lose jobs that are asked for in a handler.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::null_mut;

use super::{look_up, missing as lacks};

const PREREGISTER: &CStr = c"rb_postponed_job_preregister";
const TRIGGER: &CStr = c"rb_postponed_job_trigger";
const REGISTER_ONE: &CStr = c"rb_postponed_job_register_one";

/// The job: the VM calls it under the GVL, between two instructions of the program.
pub(crate) type Job = unsafe extern "C" fn(*mut c_void);
type Preregister = unsafe extern "C" fn(c_uint, Job, *mut c_void) -> c_uint;
type Trigger = unsafe extern "C" fn(c_uint);
type RegisterOne = unsafe extern "C" fn(c_uint, Job, *mut c_void) -> c_int;

/// A job, and the way in which this Ruby accepts it.
pub(crate) enum Postponed {
    /// The job has a number.
    Triggered(Trigger, c_uint),
    /// The job is passed each time.
    Registered(RegisterOne, Job),
}

impl Postponed {
    /// Registers the job with the VM; `None` if this Ruby has no way. To be called under the GVL.
    pub(crate) fn new(job: Job) -> Option<Self> {
        // SAFETY: each name stands for a function of the type it is given, in every Ruby that has it.
        unsafe {
            if let (Some(preregister), Some(trigger)) =
                (look_up!(PREREGISTER, Preregister), look_up!(TRIGGER, Trigger))
            {
                let handle = preregister(0, job, null_mut());
                return (handle != c_uint::MAX).then_some(Self::Triggered(trigger, handle));
            }
            look_up!(REGISTER_ONE, RegisterOne).map(|register| Self::Registered(register, job))
        }
    }

    /// Requests the job. May be called anywhere.
    pub(crate) fn ask(&self) {
        // SAFETY: both are made to be called from signal handlers.
        unsafe {
            match self {
                Self::Triggered(trigger, handle) => trigger(*handle),
                Self::Registered(register, job) => {
                    register(0, *job, null_mut());
                }
            }
        }
    }
}

/// The older function, on a Ruby that has no other.
pub(crate) struct Older(RegisterOne);

impl Older {
    /// `None` if there is the newer one.
    pub(crate) fn find() -> Option<Self> {
        if lacks(&[PREREGISTER]).is_empty() {
            return None;
        }
        // SAFETY: the name stands for a function of this type in every Ruby that has it.
        unsafe { look_up!(REGISTER_ONE, RegisterOne) }.map(Self)
    }

    /// Requests a job once.
    pub(crate) fn ask(&self, job: Job, argument: *mut c_void) {
        // SAFETY: made to be called anywhere.
        unsafe { (self.0)(0, job, argument) };
    }
}

/// Functions that this Ruby lacks for it. Of the two ways, the newer one is named.
pub(crate) fn missing() -> Vec<&'static str> {
    if lacks(&[REGISTER_ONE]).is_empty() {
        return Vec::new();
    }
    lacks(&[PREREGISTER, TRIGGER])
}
