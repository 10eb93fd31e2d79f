//! What the control socket needs from the system: the kernel's process id, a thread that handles no signals, and a
//! notice of each fork, including those that C code makes without Ruby.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use magnus::{Error, RArray, RModule, Ruby, Value, function, prelude::*};
use rb_sys::VALUE;

use super::at_fork;
use crate::lookup::postponing::{self, Postponed};
use crate::lookup::{self, look_up};
use crate::moving_threads::shares_native_threads;
use crate::signals;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("pid", function!(pid, 0))?;
    native.define_singleton_method("block_signals", function!(block_signals, 0))?;
    native.define_singleton_method("watch_forks", function!(watch_forks, 0))?;
    native.define_singleton_method("unwatch_forks", function!(unwatch_forks, 0))?;
    native.define_singleton_method("threads_can_start", function!(threads_can_start, 0))
}

/// The kernel's process id. Since 3.3 Ruby caches its own, also in a child that C code forked.
fn pid() -> i32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// Blocks signals in the calling thread, so that other threads handle them.
fn block_signals() -> bool {
    // Ruby threads that share a native thread would inherit its signal mask from each other.
    if shares_native_threads() {
        return false;
    }
    signals::mask(libc::SIG_BLOCK)
}

const CREATE: &CStr = c"rb_thread_create";
const TELL: &CStr = c"rb_thread_atfork";

/// Functions that this Ruby lacks for noticing forks.
pub(super) fn missing() -> Vec<&'static str> {
    let mut names = lookup::missing(&[CREATE, TELL]);
    names.extend(postponing::missing());
    names
}

type CreateThread = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void) -> VALUE, *mut c_void) -> VALUE;

static POSTPONED: OnceLock<Option<Postponed>> = OnceLock::new();
static CREATE_THREAD: OnceLock<CreateThread> = OnceLock::new();
static WATCHED: AtomicBool = AtomicBool::new(false);
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The id of the last such child.
static FORKED_BY_C: AtomicUsize = AtomicUsize::new(0);
static LAST_PID: AtomicUsize = AtomicUsize::new(0);

/// From now on `Memintro::Control.forked` is called in each child that Ruby forks, in a thread of its own, and
/// `Memintro::Control.abandon_inherited` in each child that C code forks. False if this Ruby offers no way to do that.
fn watch_forks() -> bool {
    let able = POSTPONED.get_or_init(postpone).is_some();
    LAST_PID.store(pid() as usize, Ordering::Release);
    WATCHED.store(able, Ordering::Release);
    at_fork::prepare();
    if able && !INSTALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler lives as long as this library, which Ruby never unloads.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    able
}

fn unwatch_forks() {
    WATCHED.store(false, Ordering::Release);
}

fn postpone() -> Option<Postponed> {
    // SAFETY: a function of this type in every Ruby that has it.
    let create = unsafe { look_up!(CREATE, CreateThread) }?;
    CREATE_THREAD.get_or_init(|| create);
    Postponed::new(in_forked_child)
}

/// Runs in the child before fork returns, where almost nothing is allowed.
unsafe extern "C" fn in_child() {
    if let Some(Some(postponed)) = POSTPONED.get()
        && WATCHED.load(Ordering::Acquire)
    {
        postponed.ask();
    }
}

/// Which threads are in Ruby's list.
#[derive(PartialEq)]
enum Listed {
    /// Threads of this process.
    Living,
    /// C code forked the process: until now Ruby listed threads of the parent.
    Forgotten,
    /// C code forked the process, and it has started new threads, so it is not known which threads of the list exist.
    Mixed,
}

/// In a child that C code forked, Ruby lists threads that do not exist. When such a child ends, Ruby wakes them by a
/// timer that does not exist either, and crashes. Libc reuses their stacks for new threads, while Ruby marks the
/// frames that were there, and crashes. So Ruby is told of the fork (`rb_thread_atfork`), as its API requires. Then
/// it lists only the thread that forked, as after its own `fork`.
fn forget_dead_threads() -> Listed {
    let Some(running) = running_threads() else { return Listed::Living };
    let listed = Ruby::get().map_or(Ok(0), |ruby| {
        ruby.class_thread().funcall::<_, _, RArray>("list", ()).map(|threads| threads.len())
    });
    if listed.is_ok_and(|listed| listed <= running) {
        return Listed::Living;
    }
    // With M:N threads a native thread runs several Ruby threads, and Ruby's timer thread exists as well.
    if running > 1 {
        return if shares_native_threads() { Listed::Living } else { Listed::Mixed };
    }
    // SAFETY: a function of this type in every Ruby that has it.
    let Some(tell) = (unsafe { look_up!(TELL, unsafe extern "C" fn()) }) else { return Listed::Mixed };
    // SAFETY: called under the GVL, in the only thread of the process, while Ruby lists others: they died in a fork.
    unsafe { tell() };
    Listed::Forgotten
}

/// To be called before a thread is started. False in a child that C code forked while Ruby had several threads: the
/// pipe by which Ruby wakes a sleeping thread belongs to the parent, so a thread that waits for another may wait for
/// ever.
fn threads_can_start() -> bool {
    if forget_dead_threads() != Listed::Living {
        FORKED_BY_C.store(pid() as usize, Ordering::Release);
    }
    FORKED_BY_C.load(Ordering::Acquire) != pid() as usize
}

/// The kernel's count: each thread is a folder, and so adds a link. `None` without /proc.
fn running_threads() -> Option<usize> {
    use std::os::unix::fs::MetadataExt;
    let links = std::fs::metadata("/proc/self/task").ok()?.nlink();
    usize::try_from(links).ok()?.checked_sub(2)
}

/// A postponed job. Ruby calls it between two instructions of the program, which must not be affected.
unsafe extern "C" fn in_forked_child(_: *mut c_void) {
    let now = pid() as usize;
    if LAST_PID.swap(now, Ordering::AcqRel) == now {
        return;
    }
    at_fork::note(now);
    let work = match forget_dead_threads() {
        Listed::Living => create_thread,
        Listed::Forgotten => {
            FORKED_BY_C.store(now, Ordering::Release);
            abandon_inherited
        }
        Listed::Mixed => return,
    };
    let mut state = 0;
    // SAFETY: a postponed job holds the GVL. An error, such as no thread to be had, must not disturb the program.
    unsafe {
        let before = rb_sys::rb_errinfo();
        rb_sys::rb_protect(Some(work), rb_sys::Qnil as VALUE, &raw mut state);
        if state != 0 {
            rb_sys::rb_set_errinfo(before);
        }
    }
}

unsafe extern "C" fn create_thread(_: VALUE) -> VALUE {
    let Some(create) = CREATE_THREAD.get() else { return rb_sys::Qnil as VALUE };
    // SAFETY: a postponed job holds the GVL.
    unsafe { create(in_thread, std::ptr::null_mut()) }
}

unsafe extern "C" fn abandon_inherited(_: VALUE) -> VALUE {
    call_control("abandon_inherited");
    rb_sys::Qnil as VALUE
}

unsafe extern "C" fn in_thread(_: *mut c_void) -> VALUE {
    call_control("forked");
    rb_sys::Qnil as VALUE
}

/// Errors in the method are ignored: a child without a control socket still works.
fn call_control(method: &str) {
    if let Ok(ruby) = Ruby::get() {
        let _ = ruby
            .class_object()
            .const_get::<_, RModule>("Memintro")
            .and_then(|memintro| memintro.const_get::<_, RModule>("Control"))
            .and_then(|control| control.funcall::<_, _, Value>(method, ()));
    }
}
