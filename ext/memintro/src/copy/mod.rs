//! Frozen copies of this process.
//!
//! The copy is made by the kernel's clone, without libc's fork: no handler of the program runs, and the copy has no
//! exit signal, so the program gets no SIGCHLD and its own `wait` never sees it. Whoever runs in the copy allocates
//! nothing by malloc and takes no lock that another thread may have held at its instant.

mod both;
mod descriptors;
mod leaving;
pub(crate) mod own_memory;

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
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

pub(crate) use both::both;
pub(crate) use descriptors::{close_all_but, is_filtered};
pub(crate) use leaving::threads;

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

// SAFETY: an address; whoever reads there uses atomics, or knows that the copy has ended.
unsafe impl Send for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nobody uses the mapping any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// A copy at work. Whoever holds this waits for its end.
pub(crate) struct Copy {
    pid: libc::pid_t,
    /// How long the kernel took to make it: it takes as long to end it.
    took: Duration,
}

/// Makes a copy, in which `run` runs and does not return.
pub(crate) fn make(run: impl FnOnce()) -> std::io::Result<Copy> {
    /// A copy that was left behind is gone after so long.
    const LEFT: Duration = Duration::from_secs(1);
    let _signals = Blocked::all();
    let first = Instant::now();
    let (pid, begun, error) = loop {
        let begun = Instant::now();
        // SAFETY: a copy of this process on a copy of this stack; it ends below.
        let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        let error = std::io::Error::last_os_error();
        let refused = pid == -1 && error.raw_os_error() == Some(libc::EAGAIN);
        // The user may have no more processes, and the last copy and its thread count, too.
        if !refused || leaving::threads() == 0 || first.elapsed() > LEFT {
            break (pid, begun, error);
        }
        sleep(Duration::from_millis(1));
    };
    match pid {
        0 => {
            run();
            end(false)
        }
        -1 => Err(error),
        pid => Ok(Copy { pid: pid as libc::pid_t, took: begun.elapsed() }),
    }
}

/// Makes a copy, which goes on here as well: `None` is what the copy gets. No signal is delivered there.
pub(crate) fn split() -> std::io::Result<Option<Copy>> {
    let signals = Blocked::all();
    let begun = Instant::now();
    // SAFETY: a copy of this process on a copy of this stack, which its caller ends.
    match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
        0 => {
            std::mem::forget(signals);
            Ok(None)
        }
        -1 => Err(std::io::Error::last_os_error()),
        pid => Ok(Some(Copy { pid: pid as libc::pid_t, took: begun.elapsed() })),
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
    pub(crate) fn pid(&self) -> libc::pid_t {
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
            return (answer != 0).then_some(if answer == self.pid { status } else { -1 });
        }
    }

    /// Waits until it has answered; returns whether it did. What remains of it then, it gives back by itself: while that
    /// takes long, a bare thread waits for it.
    pub(crate) fn answered(&self, outcome: &Outcome, deadline: Instant) -> bool {
        const SLEEP: Duration = Duration::from_millis(10);
        while outcome.told() == 0 && Instant::now() < deadline {
            if self.ended().is_some() {
                return outcome.told() == Outcome::WHOLE;
            }
            wait_while(&outcome.0, 0, SLEEP);
        }
        if outcome.told() != Outcome::WHOLE {
            return self.wait_until(deadline);
        }
        self.leave();
        true
    }

    /// It has answered, and is not waited for: it gives back its memory by itself, and while that takes long, a bare
    /// thread waits for its end.
    pub(crate) fn leave(&self) {
        self.leave_after(libc::SIGKILL);
    }

    /// The same of a copy that has a child of its own: it waits for the end of that before it ends. Nobody else would.
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
        if !leaving::take_note(self.pid) {
            self.wait_until(Instant::now() + Duration::from_secs(1));
        }
    }

    pub(crate) fn kill(&self) {
        // SAFETY: our own copy, which has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// Waits; after the deadline, ends it. Returns whether it came to its end.
    pub(crate) fn wait_until(&self, mut deadline: Instant) -> bool {
        let mut killed = false;
        loop {
            if let Some(status) = self.ended() {
                return status == 0;
            }
            if Instant::now() > deadline {
                if killed {
                    return false; // It is in the kernel, and will be nobody's.
                }
                killed = true;
                // What was killed still has its memory to give back, on a busy machine.
                deadline = Instant::now() + Duration::from_secs(3);
                self.kill();
            }
            sleep(Duration::from_micros(if killed { 2_000 } else { 500 }));
        }
    }
}

/// In the copy: no handler, descriptor, core file or long life of the program. `kept`: descriptors.
pub(crate) fn become_harmless<const N: usize>(parent: libc::pid_t, seconds: u32, mut kept: [i32; N]) {
    // SAFETY: system calls with valid arguments; each may fail, and then changes nothing.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::syscall(libc::SYS_exit_group, 1);
        }
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
        let timer = libc::itimerval {
            it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
            it_value: libc::timeval { tv_sec: i64::from(seconds.max(1)), tv_usec: 0 },
        };
        libc::syscall(libc::SYS_setitimer, 0, &raw const timer, 0);
        // Sockets and pipes of the program must not stay open because of this copy.
        close_all_but(&mut kept);
        // If memory runs out now, this copy goes first.
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        libc::write(score, c"1000".as_ptr().cast(), 4);
        libc::close(score);
    }
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
