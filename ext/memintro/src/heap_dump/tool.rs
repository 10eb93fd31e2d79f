//! The copy starts the tool, and waits for its end. Allocates nothing.
//!
//! A tool that writes a file shares memory with the copy, in pieces: the copy fills one while threads of the tool
//! compress or write others. Which piece has how many bytes goes through the tool's standard input, and the number of
//! a piece that is free again comes back through another pipe. A second copy has pieces and a pipe of its own, so that
//! neither waits for the other one. A tool that answers a question, or where the kernel
//! refuses such memory, reads lines from its standard input.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use super::second::{self, Second};
use super::state::{Stage, State, WRITERS};
use crate::copy;

/// What is started, with texts that were made before the copy.
pub(super) struct Command {
    /// Both end with null.
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// The same arguments for a tool that shares memory; empty for one that does not.
    sharing: Vec<*const c_char>,
    /// Owners of the texts.
    _texts: [Vec<CString>; 3],
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
        let writes = arguments.get(1).is_some_and(|name| name.to_bytes() == WRITES);
        let sharing: Vec<CString> = CString::new(PIECE.to_string()).into_iter().filter(|_| writes).collect();
        Self {
            sharing: match sharing.first() {
                Some(piece) => {
                    arguments.iter().chain([piece]).map(|text| text.as_ptr()).chain([ptr::null()]).collect()
                }
                None => Vec::new(),
            },
            arguments: pointers(&arguments),
            environment: pointers(&environment),
            _texts: [arguments, environment, sharing],
        }
    }
}

/// The command of a tool that writes a file.
const WRITES: &[u8] = b"heap-write";

/// The tool, and the pipe that it reads.
#[derive(Clone, Copy)]
pub(super) struct Tool {
    /// 0 in the second copy, whose child it is not.
    pid: libc::pid_t,
    pub(super) pipe: i32,
    pub(super) pieces: Option<Pieces>,
}

/// Memory that the tool shares.
#[derive(Clone, Copy)]
pub(super) struct Pieces {
    start: *mut u8,
    /// Number of the copy.
    writer: usize,
    /// Tells which piece is free again, of each copy.
    free: [i32; WRITERS],
}

/// Bytes of a piece, and how many each copy has: more than the tool has threads, so that one can always be filled.
pub(super) const PIECE: usize = 512 << 10;
const PIECES: u32 = 5;

impl Pieces {
    /// Which is filled first.
    pub(super) fn first(self) -> u32 {
        self.writer as u32 * PIECES
    }

    /// The bytes of a piece.
    ///
    /// # Safety
    /// No other code uses this piece: it is the first one, or [`Self::next`] has told it.
    pub(super) unsafe fn bytes(self, number: u32) -> &'static mut [u8] {
        let number = number.min(PIECES * WRITERS as u32 - 1) as usize;
        // SAFETY: within the mapping, which stays; the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(number * PIECE), PIECE) }
    }

    /// The pipe that tells this copy of free pieces.
    pub(super) fn free(self) -> i32 {
        self.free.get(self.writer).copied().unwrap_or(-1)
    }

    /// The piece that is filled as the `count`th one, from 0 on: waits until one is free. If the tool or the second copy
    /// has gone, ends the copy.
    pub(super) fn next(self, count: u64, tool: Tool, second: Option<&Second>, state: &State) -> u32 {
        if let Some(unused) = u32::try_from(count).ok().filter(|count| *count < PIECES) {
            return self.first() + unused;
        }
        let mut number = [0; 4];
        loop {
            if let Some(second) = second {
                second.watch_until_readable(self.free(), tool, state);
            }
            // SAFETY: as much room as is said. What is this short is never cut.
            let got = unsafe { libc::read(self.free(), number.as_mut_ptr().cast(), number.len()) };
            match got {
                4 => return u32::from_ne_bytes(number),
                -1 if last_error() == libc::EINTR => {}
                _ => tool.finish(state, false),
            }
        }
    }
}

/// What the copy has, and what the tool gets: the memory, and the ends of the pipes by which it frees pieces.
fn share() -> Option<(Pieces, [i32; 1 + WRITERS])> {
    let bytes = PIECE * PIECES as usize * WRITERS;
    // SAFETY: system calls with valid arguments. What stays open if one fails ends with the copy.
    unsafe {
        let memory = libc::memfd_create(c"memintro".as_ptr(), libc::MFD_CLOEXEC);
        if memory < 0 {
            return None;
        }
        let away = |descriptor| {
            let away = libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, AWAY);
            libc::close(descriptor);
            away
        };
        let memory = away(memory);
        // A limit of the size of files counts here, too.
        if libc::ftruncate(memory, bytes as libc::off_t) != 0 {
            libc::close(memory);
            return None;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let start = libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, memory, 0);
        if start == libc::MAP_FAILED {
            libc::close(memory);
            return None;
        }
        let (mut free, mut theirs) = ([-1; WRITERS], [memory; 1 + WRITERS]);
        for (mine, frees) in free.iter_mut().zip(theirs.iter_mut().skip(1)) {
            let mut ends = [0; 2];
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                libc::close(memory);
                return None;
            }
            [*mine, *frees] = ends.map(away);
        }
        if theirs.iter().chain(&free).any(|descriptor| *descriptor < 0) {
            return None;
        }
        Some((Pieces { start: start.cast(), writer: 0, free }, theirs))
    }
}

/// What the tool's first steps need.
struct Start<'a> {
    command: &'a Command,
    arguments: &'a [*const c_char],
    /// They become 0 to 2; further ones, if memory is shared, 3 to 5.
    streams: [i32; 4 + WRITERS],
    shared: bool,
    parent: libc::pid_t,
    error: &'a AtomicI32,
}

/// Bytes in the pipe: as many as the kernel lets everybody have.
const PIPE: c_int = 1 << 20;
const STACK: usize = 64 << 10;
/// Times, a millisecond apart, that the tool is started again where the user may have no more processes: the copies of the
/// dump before count until they have ended.
const TRIES: u32 = 1_000;
/// Descriptors that are copied below this are the streams.
const AWAY: c_int = 16;

/// Starts the tool. `output` and `errors`: its streams. On failure, `error` has the reason.
pub(super) fn start(command: &Command, output: i32, errors: i32, error: &AtomicI32) -> Option<Tool> {
    let mut ends = [0; 2];
    let stack = copy::own_memory::slice::<u128>(STACK / size_of::<u128>())?;
    // SAFETY: system calls with valid arguments; the stack is used until the tool's program begins, for which the
    // kernel has this copy wait.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            error.store(last_error(), Ordering::Release);
            return None;
        }
        let away = |descriptor| libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, AWAY);
        let [input, pipe] = ends.map(away);
        let shared = if command.sharing.is_empty() { None } else { share() };
        if shared.is_none() {
            libc::fcntl(pipe, libc::F_SETPIPE_SZ, PIPE);
        }
        let [output_away, errors_away] = [output, errors].map(away);
        if [input, pipe, output_away, errors_away].contains(&-1) {
            // A limit of descriptors: all of them end with this copy.
            error.store(libc::EMFILE, Ordering::Release);
            return None;
        }
        let [memory, frees @ ..] = shared.map_or([-1; 1 + WRITERS], |(_, theirs)| theirs);
        let [first, second] = frees;
        let mut begin = Start {
            command,
            arguments: if shared.is_some() { &command.sharing } else { &command.arguments },
            streams: [input, output_away, errors_away, memory, first, second],
            shared: shared.is_some(),
            parent: libc::getpid(),
            error,
        };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        let mut tries = 0;
        let pid = loop {
            let pid = libc::clone(become_tool, top, flags, (&raw mut begin).cast());
            if pid >= 0 || last_error() != libc::EAGAIN || tries == TRIES {
                break pid;
            }
            tries += 1;
            copy::sleep(Duration::from_millis(1));
        };
        if pid < 0 {
            error.store(last_error(), Ordering::Release);
        }
        for descriptor in ends.into_iter().chain(begin.streams).chain([output, errors]) {
            libc::close(descriptor);
        }
        (pid > 0).then_some(Tool { pid, pipe, pieces: shared.map(|(pieces, _)| pieces) })
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
        let mut kept = [0, 1, 2, 3, 4, 5];
        let (kept, _) = kept.split_at_mut(if start.shared { start.streams.len() } else { 3 });
        for (stream, number) in start.streams.into_iter().zip(kept.iter()) {
            libc::dup2(stream, *number);
        }
        copy::close_all_but(kept);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        let Some(program) = start.arguments.first() else { libc::_exit(FAILED) };
        libc::execve(*program, start.arguments.as_ptr(), start.command.environment.as_ptr());
        start.error.store(last_error(), Ordering::Release);
        libc::_exit(FAILED)
    }
}

pub(super) fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

impl Tool {
    /// The same in the second copy, which has been made just now.
    pub(super) fn of_second(self) -> Option<Self> {
        Some(Self { pid: 0, pieces: Some(Pieces { writer: 1, ..self.pieces? }), ..self })
    }

    pub(super) fn is_of_second(self) -> bool {
        self.pid == 0
    }

    /// Writes all into its pipe. If it has gone, ends the copy.
    pub(super) fn write(self, mut rest: &[u8], state: &State) {
        while !rest.is_empty() {
            // SAFETY: these bytes are there.
            let took = unsafe { libc::write(self.pipe, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(took) {
                Ok(took) => rest = rest.get(took..).unwrap_or_default(),
                Err(_) if last_error() == libc::EINTR => {}
                Err(_) => self.finish(state, false),
            }
        }
    }

    /// Lets it come to the end of the lines, waits for its end, and ends the copy. The second copy leaves that to the
    /// first one.
    pub(super) fn finish(self, state: &State, whole: bool) -> ! {
        if self.is_of_second() {
            if whole {
                state.second().set(Stage::Done);
                second::await_end(state);
            }
            copy::end_with(second::TOOL_GONE);
        }
        if !whole {
            second::kill(state);
        }
        // SAFETY: our own end of the pipe.
        unsafe { libc::close(self.pipe) };
        state.first().set(Stage::Written);
        let status = self.wait();
        state.tool.store(status, Ordering::Release);
        state.first().set(Stage::Done);
        let answered = whole && status == 0;
        if answered {
            // The thread that asked may end now, and this copy still has to wait for the end of the second one.
            // SAFETY: a system call that changes nothing else.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
            state.answer();
        }
        // The host goes on meanwhile, and its thread waits for the end of both.
        second::kill(state);
        second::reap(state);
        copy::end(answered)
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
