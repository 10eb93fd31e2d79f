//! Handles `_exit` and fatal signals, which end a process without running any handler of Ruby's.
//!
//! If a dump is wanted ([`arm`]), it is written then ([`crate::dump`]). Signal handlers are installed only when
//! armed, and only for signals without another handler. Ruby's own crash report ends in abort, so SIGABRT comes
//! after it. From 3.3 on it ends in [`raise`] of the same signal, whose action is the default one by then.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use memintro_abi::{EXIT_STATUS_UNKNOWN, Status};

use crate::dump_file::MAX_PATH;
use crate::shared::{PID, PRELOADED};
use crate::{dump, patch};

const FATAL_SIGNALS: [c_int; 5] = [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

static ARMED: AtomicBool = AtomicBool::new(false);
/// The process in which the path was given. Other processes append their process ids to it.
static ARMED_PID: AtomicU32 = AtomicU32::new(0);
static IS_CHILD: AtomicBool = AtomicBool::new(false);
static REAL_EXIT: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static REAL_EXIT_C99: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static REAL_RAISE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

struct Path(UnsafeCell<[u8; MAX_PATH]>);
// SAFETY: written only while not armed, read only while armed.
unsafe impl Sync for Path {}
static PATH: Path = Path(UnsafeCell::new([0; MAX_PATH]));

/// Finds the real functions behind `_exit` and `raise` for a preloaded library.
pub(crate) fn init() {
    for (real, name) in [(&REAL_EXIT, c"_exit"), (&REAL_EXIT_C99, c"_Exit"), (&REAL_RAISE, c"raise")] {
        real.store(patch::next(name).cast_mut(), Ordering::Release);
    }
}

/// Has a dump written to `path` at the end; `None`: no dump.
pub(crate) fn arm(path: Option<&CStr>) -> Status {
    ARMED.store(false, Ordering::Release);
    let Some(path) = path else { return Status::OK };
    let bytes = path.to_bytes_with_nul();
    if bytes.len() > MAX_PATH {
        return Status::BAD_OPTION;
    }
    // SAFETY: not armed, so it is not read; the length was checked.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), PATH.0.get().cast(), bytes.len()) };
    ARMED_PID.store(PID.load(Ordering::Relaxed), Ordering::Relaxed);
    ARMED.store(true, Ordering::Release);
    if PRELOADED.load(Ordering::Relaxed) {
        FATAL_SIGNALS.iter().for_each(|signal| watch(*signal));
    }
    Status::OK
}

/// The same for a program that is not Ruby. It never uses the name that belongs to the first process, and its
/// ordinary exit must write the dump as well, because nothing else reports for it.
pub(crate) fn arm_child(path: &CStr) -> Status {
    let status = arm(Some(path));
    ARMED_PID.store(0, Ordering::Relaxed);
    IS_CHILD.store(true, Ordering::Release);
    status
}

/// Writes the dump of a program that is not Ruby.
pub(crate) fn at_ordinary_exit() {
    if IS_CHILD.load(Ordering::Acquire) {
        leave_dump(0, EXIT_STATUS_UNKNOWN);
    }
}

fn watch(signal: c_int) {
    if !has_default_action(signal) {
        return;
    }
    // SAFETY: zero is a valid sigaction, and the pointers are valid.
    unsafe {
        let mut ours: libc::sigaction = core::mem::zeroed();
        ours.sa_sigaction = on_fatal_signal as *const () as usize;
        // This runs once. All signals are blocked meanwhile, because a handler of the program on the same small stack
        // could overflow it.
        ours.sa_flags = libc::SA_RESETHAND | libc::SA_ONSTACK | libc::SA_SIGINFO;
        libc::sigfillset(&raw mut ours.sa_mask);
        libc::sigaction(signal, &raw const ours, core::ptr::null_mut());
    }
}

extern "C" fn on_fatal_signal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    leave_dump(signal, 0);
    if !has_default_action(signal) {
        // Another handler is installed now and has called this one as its predecessor, instead of the default
        // action.
        // SAFETY: zero is a valid sigaction: the default one.
        unsafe { libc::sigaction(signal, &core::mem::zeroed(), core::ptr::null_mut()) };
    }
    pass_on(signal, info);
}

/// Sends the signal to this thread again, with the same information. It is delivered when the handler returns and
/// ends the process where it was interrupted, so the core shows the program's registers and `si_addr`.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t) {
    // SAFETY: plain system calls; the kernel checks the pointer.
    unsafe {
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) == 0 {
            return;
        }
        // A seccomp filter refused this. A fault is raised again by itself.
        let refused = *libc::__errno_location() != libc::EFAULT;
        if !(refused && (*info).si_code > 0) {
            libc::syscall(libc::SYS_tgkill, process, thread, signal);
        }
    }
}

fn leave_dump(signal: c_int, status: c_int) {
    // SAFETY: a plain system call.
    let pid = unsafe { libc::getpid() }.unsigned_abs();
    let is_its_own = pid == ARMED_PID.load(Ordering::Relaxed) || IS_CHILD.load(Ordering::Acquire);
    // A vfork child runs in its parent's memory and must not report the parent's figures. A child that was
    // forked to exec another program and failed must not do so either (Ruby's `spawn` forks where it may
    // change its user). A child that continues as Ruby is armed itself.
    if pid != PID.load(Ordering::Relaxed)
        || (signal == 0 && !is_its_own)
        || !ARMED.swap(false, Ordering::AcqRel)
    {
        return;
    }
    // SAFETY: the path was complete before it was armed, and it stays: we have just disarmed it.
    let path = unsafe { CStr::from_ptr(PATH.0.get().cast()) };
    let append_pid = pid != ARMED_PID.load(Ordering::Relaxed);
    dump::write_last(path, append_pid, signal, status);
}

fn has_default_action(signal: c_int) -> bool {
    // SAFETY: zero is a valid sigaction, and the pointer is valid.
    unsafe {
        let mut now: libc::sigaction = core::mem::zeroed();
        libc::sigaction(signal, core::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_DFL
    }
}

/// Takes the place of `raise` when preloaded, for a process that sends itself a fatal signal.
///
/// # Safety
/// As `raise`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn raise(signal: c_int) -> c_int {
    if ARMED.load(Ordering::Relaxed) && FATAL_SIGNALS.contains(&signal) && has_default_action(signal) {
        leave_dump(signal, 0);
    }
    let real = REAL_RAISE.load(Ordering::Acquire);
    if real.is_null() {
        // SAFETY: to the calling thread itself.
        return unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
    }
    // SAFETY: the address is that of the real raise.
    let real: extern "C" fn(c_int) -> c_int = unsafe { core::mem::transmute(real) };
    real(signal)
}

/// Takes the place of `_exit` when preloaded, because `_exit` runs no handlers.
///
/// # Safety
/// As `_exit`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    end(&REAL_EXIT, status)
}

/// As [`_exit`], by its C99 name.
///
/// # Safety
/// As `_Exit`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _Exit(status: c_int) -> ! {
    end(&REAL_EXIT_C99, status)
}

fn end(real: &AtomicPtr<()>, status: c_int) -> ! {
    leave_dump(0, status);
    let real = real.load(Ordering::Acquire);
    if !real.is_null() {
        // SAFETY: the address is that of the real function.
        let real: extern "C" fn(c_int) -> ! = unsafe { core::mem::transmute(real) };
        real(status);
    }
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}
