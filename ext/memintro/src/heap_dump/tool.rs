//! The copy starts the tool, and waits for its end. Allocates nothing.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::state::{Stage, State};

/// What is started, with texts that were made before the copy.
pub(super) struct Command {
    /// Both end with null.
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// Owners of the texts.
    _texts: [Vec<CString>; 2],
}

impl Command {
    pub(super) fn new(arguments: Vec<CString>) -> Self {
        let environment: Vec<CString> = std::env::vars_os()
            .filter(|(name, _)| {
                let name = name.as_encoded_bytes();
                name != b"LD_PRELOAD" && !name.starts_with(b"MEMINTRO_")
            })
            .filter_map(|(name, value)| {
                CString::new([name.as_encoded_bytes(), value.as_encoded_bytes()].join(&b'=')).ok()
            })
            .collect();
        let pointers = |texts: &[CString]| {
            texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>()
        };
        Self {
            arguments: pointers(&arguments),
            environment: pointers(&environment),
            _texts: [arguments, environment],
        }
    }
}

/// The tool, and the pipe that it reads.
#[derive(Clone, Copy)]
pub(super) struct Tool {
    pid: libc::pid_t,
    pub(super) pipe: i32,
}

/// What the tool's first steps need.
struct Start<'a> {
    command: &'a Command,
    streams: [i32; 3],
    parent: libc::pid_t,
    error: &'a AtomicI32,
}

/// Bytes in the pipe: as many as the kernel lets everybody have.
const PIPE: c_int = 1 << 20;
const STACK: usize = 64 << 10;
/// Descriptors that are copied below this are the streams.
const AWAY: c_int = 16;

/// Starts the tool. `output` and `errors`: its streams. On failure, `error` has the reason.
pub(super) fn start(command: &Command, output: i32, errors: i32, error: &AtomicI32) -> Option<Tool> {
    let mut ends = [0; 2];
    let stack = crate::copy::own_memory::slice::<u128>(STACK / size_of::<u128>())?;
    // SAFETY: system calls with valid arguments; the stack is used until the tool's program begins, for which the
    // kernel has this copy wait.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            error.store(last_error(), Ordering::Release);
            return None;
        }
        let away = |descriptor| libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, AWAY);
        let [input, pipe] = ends.map(away);
        libc::fcntl(pipe, libc::F_SETPIPE_SZ, PIPE);
        let mut begin =
            Start { command, streams: [input, away(output), away(errors)], parent: libc::getpid(), error };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        let pid = libc::clone(become_tool, top, flags, (&raw mut begin).cast());
        if pid < 0 {
            error.store(last_error(), Ordering::Release);
        }
        for descriptor in ends.into_iter().chain(begin.streams).chain([output, errors]) {
            libc::close(descriptor);
        }
        (pid > 0).then_some(Tool { pid, pipe })
    }
}

/// In a process that shares all memory with the copy, until its program begins.
extern "C" fn become_tool(start: *mut c_void) -> c_int {
    const FAILED: c_int = 127;
    // SAFETY: the record of `start`, which waits.
    let start = unsafe { &*start.cast::<Start<'_>>() };
    // SAFETY: system calls with valid arguments.
    unsafe {
        // It must not outlive the copy, which the host ends.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        if libc::getppid() != start.parent {
            libc::_exit(FAILED);
        }
        for (stream, number) in start.streams.into_iter().zip(0..) {
            libc::dup2(stream, number);
        }
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        let Some(program) = start.command.arguments.first() else { libc::_exit(FAILED) };
        libc::execve(*program, start.command.arguments.as_ptr(), start.command.environment.as_ptr());
        start.error.store(last_error(), Ordering::Release);
        libc::_exit(FAILED)
    }
}

fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

impl Tool {
    /// Lets it come to the end of the lines, waits for its end, and ends the copy.
    pub(super) fn finish(self, state: &State, whole: bool) -> ! {
        // SAFETY: our own end of the pipe.
        unsafe { libc::close(self.pipe) };
        state.set(Stage::Written);
        let status = self.wait();
        state.tool.store(status, Ordering::Release);
        state.set(Stage::Done);
        crate::copy::end(whole && status == 0)
    }

    /// Returns its status.
    fn wait(&self) -> i32 {
        let mut status = 0;
        loop {
            // SAFETY: our own child.
            let answer = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
            if answer == self.pid {
                return status;
            }
            if last_error() != libc::EINTR {
                return -1;
            }
        }
    }
}
