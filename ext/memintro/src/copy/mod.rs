//! Frozen copies of this process.
//!
//! The copy is made by the kernel's clone, without libc's fork: no handler of the program runs, and the copy has no
//! exit signal, so the program gets no SIGCHLD and its own `wait` never sees it.
//!
//! Another thread may have held any lock at the copy's instant, and it is never opened there. So each copy comes from [`split`]
//! or [`make`], and keeps three rules:
//!
//! 1. **It becomes harmless before anything else** ([`become_harmless`]): it ends with its maker and after a deadline, and has
//!    nothing of the program open. So whatever goes wrong in it later does no harm.
//! 2. **It calls neither the allocator nor the loader**, directly or through Rust's collections, `format!` or `dlsym`. Libc's fork
//!    would take their locks; here, they stay as they were. Memory comes from [`own_memory`], and what must be looked up
//!    is looked up before. Functions of Ruby and of extensions that a copy has to call may break this rule (to mark a class frees its
//!    outdated call caches): its maker sees that the copy stands still, or that it ended without an answer.
//! 3. **It opens no gate of the hook**: to record what was written down, and to free what was given up meanwhile, is for the
//!    host. The hook's readings keep this rule by themselves in a process that is not its own (`state::paused_anywhere`).
//!
//! `spec/integration/harm_copies_spec.rb` runs each kind of copy where calls of the allocator and the loader are noted, and where
//! locks of the allocator are never opened.
//!
//! The maker waits without the GVL, until the copy has answered, the deadline is over, or Ruby interrupts the thread
//! (`ruby_api::without_gvl`). A [`struct@Copy`] that is dropped before it was waited for is ended.

mod descriptors;
mod leaving;
pub(crate) mod own_memory;
mod pid_namespaces;

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Memory that this process and its copy share.
pub(crate) struct Shared {
    start: *mut u8,
    bytes: usize,
}

impl Shared {
    pub(crate) fn map(bytes: usize) -> std::io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a mapping of its own.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let shared = Self { start: start.cast(), bytes };
        // A program that locks its memory, also what it maps in the future (mlockall), would have all of this resident.
        // SAFETY: the mapping of before.
        let ready = unsafe {
            libc::munlock(start, bytes);
            libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE)
        };
        if ready == 0 { Ok(shared) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Its first byte, at the beginning of a page.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

pub(crate) use descriptors::{close_all_but, is_filtered};

/// Wakes who waits for this word, in this process or in another one that shares it. The word may be gone by now.
pub(crate) fn wake(word: *mut u32) {
    // SAFETY: the kernel reads nothing there. If the word is used for something else, its waiters look again.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1) };
}

/// Sleeps while the word is this, until somebody wakes it or the time is over.
pub(crate) fn wait_while(word: &AtomicU32, value: u32, time: Duration) {
    let time =
        libc::timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: a word that outlives the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, ptr::from_ref(&time));
    }
}

/// Sleeps for so long. Rust's own function ends the program where a filter refuses the call that it makes.
pub(crate) fn sleep(time: Duration) {
    let end = Instant::now() + time;
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return;
        }
        wait_while(&AtomicU32::new(0), 0, rest);
    }
}

/// For so long it is not checked whether a copy has ended, or the wait for it.
const LOOK: Duration = Duration::from_millis(10);

/// Whether the copy has answered, in memory that it shares with its maker. Zero at first.
#[repr(transparent)]
pub(crate) struct Outcome(AtomicU32);

impl Outcome {
    const WHOLE: u32 = 1;
    const TORN: u32 = 2;

    /// In the copy, directly before it ends.
    pub(crate) fn tell(&self, done: bool) {
        self.0.store(if done { Self::WHOLE } else { Self::TORN }, Ordering::Release);
        wake(self.0.as_ptr());
    }

    fn told(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

// SAFETY: an address; readers use atomics, or know that the copy has ended.
unsafe impl Send for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is no longer used.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// A copy at work. It is ended when this is dropped before its end is known, or left to itself ([`Copy::leave`]).
pub(crate) struct Copy {
    pid: libc::pid_t,
    /// Its maker. A forked child of it has this, too, but not the copy.
    host: libc::pid_t,
    /// How long the kernel took to make it: it takes as long to end it.
    took: Duration,
    is_gone: Cell<bool>,
    /// The signal that has ended it.
    signal: Cell<i32>,
}

/// The limits of a copy.
#[derive(Clone, Copy)]
pub(crate) struct Life<const N: usize> {
    /// Seconds after which it ends.
    pub(crate) seconds: u32,
    /// Descriptors that stay open in it.
    pub(crate) kept: [i32; N],
}

/// Why no copy could be made, in words.
pub(crate) fn refusal(error: &std::io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            "no more processes are allowed: raise the limit (ulimit -u, pids.max of the control group)"
        }
        Some(libc::ENOMEM) => "there is no memory for it, or a limit (ulimit -v) forbids it",
        Some(libc::EMFILE | libc::ENFILE) => "no more files may be open: raise the limit (ulimit -n)",
        Some(libc::ENOENT) => {
            "a file of /proc is missing: mount /proc where this process sees it (chroot, mount namespaces)"
        }
        Some(pid_namespaces::REFUSED) => pid_namespaces::WORDS,
        Some(libc::EPERM | libc::ENOSYS) => "a filter of system calls (seccomp) forbids it",
        _ => return error.to_string(),
    };
    why.to_owned()
}

/// Makes a copy, in which `run` runs once it is harmless, and does not return.
pub(crate) fn make<const N: usize>(life: Life<N>, run: impl FnOnce()) -> std::io::Result<Copy> {
    match split(life)? {
        Some(copy) => Ok(copy),
        None => {
            run();
            end(false)
        }
    }
}

/// Makes a copy, which goes on here as well: `None` is what the copy gets, once it is harmless. Its caller ends it. No
/// signal is delivered there.
pub(crate) fn split<const N: usize>(life: Life<N>) -> std::io::Result<Option<Copy>> {
    /// A copy that was left behind is gone after so long.
    const LEFT: Duration = Duration::from_secs(1);
    leaving::sweep();
    if pid_namespaces::children_are_elsewhere() {
        return Err(pid_namespaces::refused());
    }
    let signals = Blocked::all();
    // SAFETY: a system call without arguments.
    let host = unsafe { libc::getpid() };
    let first = Instant::now();
    loop {
        let begun = Instant::now();
        // SAFETY: a copy of this process on a copy of this stack, which its caller ends.
        match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
            0 => {
                become_harmless(host, life);
                std::mem::forget(signals);
                return Ok(None);
            }
            -1 => {}
            pid => {
                let (pid, took) = (pid as libc::pid_t, begun.elapsed());
                return Ok(Some(Copy { pid, host, took, is_gone: Cell::new(false), signal: Cell::new(0) }));
            }
        }
        let error = std::io::Error::last_os_error();
        // The user may have no more processes, and the last copy and its thread count, too.
        if error.raw_os_error() != Some(libc::EAGAIN) || leaving::threads() == 0 || first.elapsed() > LEFT {
            return Err(error);
        }
        sleep(Duration::from_millis(1));
    }
}

/// Ends the copy without running anything of the program.
pub(crate) fn end(done: bool) -> ! {
    end_with(i32::from(!done))
}

/// The same, with this status.
pub(crate) fn end_with(status: i32) -> ! {
    // SAFETY: a system call that does not return.
    unsafe {
        libc::syscall(libc::SYS_exit_group, status);
        // A filter may refuse that.
        libc::syscall(libc::SYS_exit, status);
        loop {
            libc::pause();
        }
    }
}

impl Copy {
    /// The signal that has ended it; 0 if none has.
    pub(crate) fn signal(&self) -> i32 {
        self.signal.get()
    }

    /// Its number, for somebody who waits for it otherwise.
    pub(crate) fn go_on(self) -> libc::pid_t {
        self.is_gone.set(true);
        self.pid
    }

    /// The status of its end, as `waitpid` has it, once it has ended; -1 if that is not known.
    pub(crate) fn ended(&self) -> Option<i32> {
        let mut status = 0;
        loop {
            // SAFETY: our own copy, which only a wait for clones sees.
            let answer = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG | libc::__WCLONE) };
            if answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            self.is_gone.set(answer != 0);
            if answer == self.pid && libc::WIFSIGNALED(status) {
                self.signal.set(libc::WTERMSIG(status));
            }
            return (answer != 0).then_some(if answer == self.pid { status } else { -1 });
        }
    }

    /// Waits until it has answered; returns whether it did. What remains of it then, it gives back by itself: while that
    /// takes long, a bare thread waits for it. `None`: the flag was set before.
    pub(crate) fn answered(
        &self,
        outcome: &Outcome,
        deadline: Instant,
        interrupted: &AtomicBool,
    ) -> Option<bool> {
        while outcome.told() == 0 && Instant::now() < deadline {
            if self.ended().is_some() {
                return Some(outcome.told() == Outcome::WHOLE);
            }
            if interrupted.load(Ordering::Relaxed) {
                return None;
            }
            wait_while(&outcome.0, 0, LOOK);
        }
        if outcome.told() != Outcome::WHOLE {
            return self.wait_until(deadline, interrupted);
        }
        self.leave();
        Some(true)
    }

    /// It has answered, and is not waited for: it gives back its memory by itself, and while that takes long, a bare
    /// thread waits for its end.
    pub(crate) fn leave(&self) {
        self.leave_after(libc::SIGKILL);
    }

    /// The same of a copy that has a child of its own: it waits for the end of that before it ends. No other process would.
    pub(crate) fn leave_in_order(&self) {
        self.leave_after(libc::SIGCONT);
    }

    fn leave_after(&self, signal: libc::c_int) {
        const LONG: Duration = Duration::from_millis(2);
        for _ in 0..if self.took < LONG { 5 } else { 1 } {
            if self.ended().is_some() {
                return;
            }
            sleep(Duration::from_micros(50));
        }
        // Somebody may have stopped it.
        // SAFETY: our own copy, which has not been waited for.
        unsafe { libc::kill(self.pid, signal) };
        if !leaving::leave(self.pid)
            && !self.end_by(Instant::now() + Duration::from_secs(1))
            && !self.is_gone.get()
        {
            leaving::remember(self.pid);
        }
        self.is_gone.set(true);
    }

    pub(crate) fn kill(&self) {
        // SAFETY: our own copy, which has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// Waits; after the deadline, ends it. Returns whether it came to its end. `None`: the flag was set before.
    pub(crate) fn wait_until(&self, deadline: Instant, interrupted: &AtomicBool) -> Option<bool> {
        const STEP: Duration = Duration::from_micros(500);
        loop {
            if let Some(status) = self.ended() {
                return Some(status == 0);
            }
            if Instant::now() > deadline {
                self.kill();
                // On a busy machine, a killed copy still has to give back its memory.
                let has_ended = self.end_by(Instant::now() + Duration::from_secs(3));
                // It was not ended from outside: it took too long.
                if self.signal.get() == libc::SIGKILL {
                    self.signal.set(libc::SIGALRM);
                }
                return Some(has_ended);
            }
            if interrupted.load(Ordering::Relaxed) {
                return None;
            }
            sleep(STEP);
        }
    }

    /// Waits for the end of what ends by itself. After that, it is in the kernel, and has no owner.
    pub(crate) fn end_by(&self, deadline: Instant) -> bool {
        const STEP: Duration = Duration::from_millis(2);
        loop {
            if let Some(status) = self.ended() {
                return status == 0;
            }
            if Instant::now() > deadline {
                return false;
            }
            sleep(STEP);
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // SAFETY: a system call without arguments.
        if !self.is_gone.get() && self.host == unsafe { libc::getpid() } {
            self.kill();
            self.leave();
        }
    }
}

/// In the copy: no handler, descriptor, core file or long life of the program. What bounds its life comes first.
fn become_harmless<const N: usize>(parent: libc::pid_t, life: Life<N>) {
    let Life { seconds, mut kept } = life;
    // SAFETY: system calls with valid arguments; each may fail, and then changes nothing.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::syscall(libc::SYS_exit_group, 1);
        }
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=64 {
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
        let mut faults: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut faults);
        for signal in [libc::SIGALRM, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT]
        {
            libc::sigaddset(&raw mut faults, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const faults, ptr::null_mut());
        set_timer(seconds.max(1));
        // Sockets and pipes of the program must not stay open because of this copy.
        close_all_but(&mut kept);
        libc::prctl(libc::PR_SET_NAME, c"memintro".as_ptr());
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        // What the copy reserves and opens is no part of the program.
        for limit in [libc::RLIMIT_AS, libc::RLIMIT_DATA, libc::RLIMIT_NOFILE] {
            let mut both = none;
            if libc::getrlimit(limit, &raw mut both) == 0 {
                both.rlim_cur = both.rlim_max;
                libc::setrlimit(limit, &raw const both);
            }
        }
        // If memory runs out now, this copy goes first.
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        libc::write(score, c"1000".as_ptr().cast(), 4);
        libc::close(score);
    }
}

/// In the copy: sets the time after which it ends.
pub(crate) fn set_timer(seconds: u32) {
    let timer = libc::itimerval {
        it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
        it_value: libc::timeval { tv_sec: i64::from(seconds), tv_usec: 0 },
    };
    // SAFETY: a valid record.
    unsafe { libc::syscall(libc::SYS_setitimer, 0, &raw const timer, 0) };
}

/// All signals are blocked in this thread, so that no handler of the program runs in the copy.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> Self {
        // SAFETY: sets on the stack, changed by the calls.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
