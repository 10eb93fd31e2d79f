//! What the control socket needs of the system: the kernel's process id, a thread that signals leave alone, and to be
//! told of every fork, also those that C code makes behind Ruby's back.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use magnus::{Error, RModule, Ruby, Value, function, prelude::*};
use rb_sys::VALUE;

use crate::lookup::postponing::{self, Postponed};
use crate::lookup::{self, look_up};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("pid", function!(pid, 0))?;
    native.define_singleton_method("block_signals", function!(block_signals, 0))?;
    native.define_singleton_method("watch_forks", function!(watch_forks, 0))
}

/// The kernel's answer: since 3.3 Ruby remembers its own, also in a child that C code forked.
fn pid() -> i32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// Has the calling thread leave all signals to others. Excepted are those that a fault raises in the thread itself, and
/// SIGVTALRM, by which Ruby wakes its own threads from system calls: without it the process could not end.
fn block_signals() -> bool {
    // Threads that share native ones would leave their mask to each other.
    if std::env::var_os("RUBY_MN_THREADS").is_some_and(|value| value == "1") {
        return false;
    }
    let kept = [
        libc::SIGVTALRM,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSYS,
    ];
    // SAFETY: zero is a valid signal set, filled before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for signal in kept {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) == 0
    }
}

const CREATE: &CStr = c"rb_thread_create";

/// What this Ruby lacks for noticing forks.
pub(super) fn missing() -> Vec<&'static str> {
    let mut names = lookup::missing(&[CREATE]);
    names.extend(postponing::missing());
    names
}

type CreateThread = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void) -> VALUE, *mut c_void) -> VALUE;

static POSTPONED: OnceLock<Option<Postponed>> = OnceLock::new();
static CREATE_THREAD: OnceLock<CreateThread> = OnceLock::new();
static WATCHED: AtomicBool = AtomicBool::new(false);
static LAST_PID: AtomicUsize = AtomicUsize::new(0);

/// From now on `Memintro::Control.forked` is called in every forked child, in a thread of its own. False where this Ruby
/// offers no way to.
fn watch_forks() -> bool {
    let able = POSTPONED.get_or_init(postpone).is_some();
    if able && !WATCHED.swap(true, Ordering::AcqRel) {
        LAST_PID.store(pid() as usize, Ordering::Release);
        // SAFETY: the handler lives as long as this library, which Ruby never unloads.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    able
}

fn postpone() -> Option<Postponed> {
    // SAFETY: a function of this type in every Ruby that has it.
    let create = unsafe { look_up!(CREATE, CreateThread) }?;
    CREATE_THREAD.get_or_init(|| create);
    Postponed::new(begin_thread)
}

/// Runs in the child before fork returns, where next to nothing is allowed.
unsafe extern "C" fn in_child() {
    if let Some(Some(postponed)) = POSTPONED.get() {
        postponed.ask();
    }
}

/// A postponed job: Ruby calls it between two instructions of the program, which must not notice.
unsafe extern "C" fn begin_thread(_: *mut c_void) {
    let now = pid() as usize;
    if LAST_PID.swap(now, Ordering::AcqRel) == now {
        return;
    }
    unsafe extern "C" fn create(_: VALUE) -> VALUE {
        let Some(create) = CREATE_THREAD.get() else { return rb_sys::Qnil as VALUE };
        // SAFETY: a postponed job holds the GVL.
        unsafe { create(in_thread, std::ptr::null_mut()) }
    }
    let mut state = 0;
    // SAFETY: a postponed job holds the GVL. No thread to be had is no reason to disturb the program.
    unsafe {
        rb_sys::rb_protect(Some(create), rb_sys::Qnil as VALUE, &raw mut state);
        if state != 0 {
            rb_sys::rb_set_errinfo(rb_sys::Qnil as VALUE);
        }
    }
}

unsafe extern "C" fn in_thread(_: *mut c_void) -> VALUE {
    if let Ok(ruby) = Ruby::get() {
        let _ = ruby
            .class_object()
            .const_get::<_, RModule>("Memintro")
            .and_then(|memintro| memintro.const_get::<_, RModule>("Control"))
            .and_then(|control| control.funcall::<_, _, Value>("forked", ()));
    }
    rb_sys::Qnil as VALUE
}
