//! The whole of Ruby's heap as lines of JSON, written by a frozen copy of this process.
//!
//! host ── [`crate::copy`] ──► the copy: walks the heap, writes lines ──► `memintro-tool`, started by the copy.
//! For a file, the lines go through memory that the copies share with the tool ([`tool`]); for questions such as
//! `holders`, and where the kernel refuses such memory, through a pipe. The tool's answer (its standard output) and its
//! complaints (standard error) come back through two pipes.
//!
//! From Rust: [`begin`] with a [`Question`] makes the copy; [`Asking::wait`] waits for a while without the GVL.
//! From Ruby: `Memintro::HeapCopy.ask(["heap", "holders", "-", …], redaction:, seconds:) { |progress| … }` returns the
//! tool's standard output, can be interrupted, repeats a copy that came to nothing, and raises `HeapDumpError`.

mod births;
mod child;
mod direct;
pub(crate) mod edges;
mod flags;
mod float;
mod heads;
pub(crate) mod inside;
mod names;
mod output;
mod redaction;
mod second;
mod singletons;
mod sizes;
mod state;
mod strings;
mod text;
mod tool;
mod variables;
mod vm;
mod writer;

use std::ffi::CString;
use std::fs::File;
use std::hash::RandomState;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use magnus::Ruby;

use crate::atlas;
use crate::copy::{self, Copy, Shared};
use crate::heap::{self, FrozenPage, Trouble};
pub(crate) use redaction::Redaction;
use state::{Stage, State, WRITERS};
pub(crate) use vm::missing;

/// What is asked of the tool, which reads this process's heap from its standard input.
pub(crate) struct Question {
    /// Arguments of the program; the first is its path.
    pub(crate) arguments: Vec<CString>,
    /// What is left out.
    pub(crate) redaction: Redaction,
    /// After so long, the copy and the tool are ended.
    pub(crate) seconds: u32,
    /// Types of data objects whose functions are not called.
    pub(crate) skipped: Vec<usize>,
    /// Whether other Ractors run.
    pub(crate) ractors: bool,
    /// Further members of the first line: JSON that begins with a comma.
    pub(crate) head: Vec<u8>,
    /// Whether the lines that made objects must be there, if objects are tracked.
    pub(crate) needs_births: bool,
}

/// Why there is no copy.
pub(crate) enum Refused {
    Heap(Trouble),
    Missing(Vec<&'static str>),
    System(std::io::Error),
    Raised(magnus::Error),
    /// The hook's figures cannot be read now.
    Hook(memintro_abi::Status),
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

/// After so long without a step, a copy hangs: in a function of a C extension, or at a lock of malloc.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of an answer, and of complaints.
const LONGEST_ANSWER: usize = 256 << 20;
const LONGEST_COMPLAINT: usize = 64 << 10;

/// A copy and a tool at work. Ended when this is dropped.
pub(crate) struct Asking {
    copy: Copy,
    shared: Shared,
    answer: Pipe,
    complaints: Pipe,
    deadline: Instant,
    /// For each copy: how far it was, and when that was seen first.
    seen: [(u64, Instant); WRITERS],
    outcome: Option<Outcome>,
    /// How long Ruby stood still.
    pub(crate) pause: Duration,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The tool has answered.
    Answered,
    /// The tool has ended with this status, as `waitpid` has it.
    ToolFailed(i32),
    /// The tool could not be started: a number of `errno`.
    NoTool(i32),
    /// The copy stood still or crashed; in a function of this type of data objects, or 0.
    Stuck(usize),
    /// The deadline has passed.
    TooLate,
    /// The copy was ended from outside, as the kernel does when memory runs out.
    Killed,
    /// The copy got no memory for itself, by a limit or because none is left.
    NoMemory,
}

/// One end of a pipe, and what came through it.
struct Pipe {
    file: File,
    bytes: Vec<u8>,
    most: usize,
}

impl Pipe {
    fn new(most: usize) -> std::io::Result<(Self, OwnedFd)> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which no other code owns.
        let (read, write) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            libc::fcntl(ends[0], libc::F_SETFL, libc::O_NONBLOCK);
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        Ok((Self { file: File::from(read), bytes: Vec::new(), most }, write))
    }

    /// Reads what is there. Of what is too long, the rest is lost.
    fn drain(&mut self) {
        let mut piece = [0; 1 << 16];
        while let Ok(length @ 1..) = self.file.read(&mut piece) {
            let room = self.most.saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(piece.get(..length.min(room)).unwrap_or_default());
        }
    }
}

/// Makes the copy. The caller holds the GVL.
pub(crate) fn begin(ruby: &Ruby, question: Question) -> Result<Asking, Refused> {
    if !atlas::IS_KNOWN {
        return Err(Refused::Heap(Trouble::UnknownObjects));
    }
    let vm = vm::Vm::get(ruby).map_err(Refused::Raised)?.ok_or_else(|| Refused::Missing(vm::missing()))?;
    edges::prepare();
    let sites = match births::Sites::read() {
        Err(status) if question.needs_births => return Err(Refused::Hook(status)),
        read => read.unwrap_or_default(),
    };
    let shared = Shared::map(size_of::<State>())?;
    let (answer, output) = Pipe::new(LONGEST_ANSWER)?;
    let (complaints, errors) = Pipe::new(LONGEST_COMPLAINT)?;
    let command = tool::Command::new(question.arguments);
    let seconds = question.seconds.clamp(1, 86_400);
    let plan = child::Plan {
        seconds,
        command: &command,
        output: output.as_raw_fd(),
        errors: errors.as_raw_fd(),
        state: state_of(&shared),
        vm: &vm,
        key: &RandomState::new(),
        redaction: question.redaction,
        skipped: &question.skipped,
        head: &question.head,
        sites: sites.as_ref(),
        needs_births: question.needs_births && sites.is_some(),
    };
    plan.state.tool.store(-1, Ordering::Relaxed);
    let begun = Instant::now();
    let copy = if question.ractors { copy_alone(&plan)? } else { copy_now(&plan)? };
    Ok(Asking {
        copy,
        shared,
        answer,
        complaints,
        deadline: begun + Duration::from_secs(u64::from(seconds) + 1),
        seen: [(0, begun); WRITERS],
        outcome: None,
        pause: begun.elapsed(),
    })
}

fn copy_now(plan: &child::Plan<'_>) -> Result<Copy, Refused> {
    let mut pages = Vec::new();
    heap::list_pages(|page| {
        pages.push(page);
        ControlFlow::Continue(())
    })
    .map_err(Refused::Heap)?;
    pages.sort_unstable_by_key(|page: &FrozenPage| page.start);
    Ok(copy::make(plan.life(), || child::run(plan, &pages))?)
}

/// While other Ractors run, the copy needs the VM's lock, which one of their threads may have held at its instant. So
/// it is made where this thread holds that lock: within Ruby's visit of what some object holds. The other Ractors go on
/// meanwhile; a copy that finds an object half made crashes, and another one is made.
fn copy_alone(plan: &child::Plan<'_>) -> Result<Copy, Refused> {
    let mut pages: Vec<FrozenPage> = Vec::new();
    heap::list_pages_alone(|page| pages.push(page)).map_err(Refused::Heap)?;
    pages.sort_unstable_by_key(|page| page.start);
    let mut making = Making { plan, pages: &pages, made: None };
    // SAFETY: the class Object holds its constants; the record outlives the call.
    unsafe { (plan.vm.functions.references)(rb_sys::rb_cObject, on_lock, (&raw mut making).cast()) };
    match making.made {
        Some(made) => Ok(made?),
        None => Ok(copy::make(plan.life(), || child::run(plan, &pages))?),
    }
}

struct Making<'a> {
    plan: &'a child::Plan<'a>,
    pages: &'a [FrozenPage],
    made: Option<std::io::Result<Copy>>,
}

unsafe extern "C" fn on_lock(_: rb_sys::VALUE, making: *mut std::ffi::c_void) {
    // SAFETY: the record of `copy_alone`.
    let making = unsafe { &mut *making.cast::<Making<'_>>() };
    if making.made.is_none() {
        making.made = Some(copy::make(making.plan.life(), || child::run(making.plan, making.pages)));
    }
}

fn state_of(shared: &Shared) -> &State {
    // SAFETY: the mapping is of this size, and zero at the beginning, which is valid.
    unsafe { &*shared.start().cast::<State>() }
}

impl Asking {
    /// Waits until then at most: `Some`, with how it has ended if it has. `None`, some milliseconds after the flag is set. Uses
    /// nothing of Ruby.
    pub(crate) fn wait(&mut self, due: Instant, interrupted: &AtomicBool) -> Option<Option<Outcome>> {
        while self.outcome.is_none() {
            self.answer.drain();
            self.complaints.drain();
            // The kernel takes longer to end a copy than to make it.
            if self.state().is_answered() {
                self.answer.drain();
                self.complaints.drain();
                self.copy.leave_in_order();
                self.outcome = Some(Outcome::Answered);
                break;
            }
            if let Some(status) = self.copy.ended() {
                self.answer.drain();
                self.complaints.drain();
                self.outcome = Some(self.judge(status));
                break;
            }
            let now = Instant::now();
            if now > self.deadline {
                self.end(Outcome::TooLate);
            } else if let Some(data_type) = self.stands_still(now) {
                self.end(Outcome::Stuck(data_type));
            } else if interrupted.load(Ordering::Relaxed) {
                return None;
            } else if now >= due {
                break;
            } else {
                self.sleep(due - now);
            }
        }
        Some(self.outcome)
    }

    /// Whether nothing is left to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// Until the tool says something, or for a while.
    fn sleep(&self, time: Duration) {
        const LONGEST: Duration = Duration::from_millis(5);
        let wanted =
            |pipe: &Pipe| libc::pollfd { fd: pipe.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut both = [wanted(&self.answer), wanted(&self.complaints)];
        let time = time.min(LONGEST).max(Duration::from_millis(1)).as_millis();
        // SAFETY: two valid records.
        unsafe { libc::poll(both.as_mut_ptr(), 2, time as libc::c_int) };
        if both.iter().any(|one| one.revents & libc::POLLHUP != 0) {
            // The tool ends, and the copy is about to say so.
            self.state().wait_for_answer(Duration::from_millis(1));
        }
    }

    /// If a copy does not go on, the type of the data object at which it is, or 0.
    fn stands_still(&mut self, now: Instant) -> Option<usize> {
        let mut still = None;
        for (number, (writer, seen)) in state_of(&self.shared).writers.iter().zip(&mut self.seen).enumerate()
        {
            let beat = writer.beat.load(Ordering::Relaxed);
            let waits = match writer.stage() {
                Stage::Writing | Stage::Written | Stage::Done => true,
                // There may be no second one.
                Stage::Made => number > 0,
                Stage::Walking => false,
            };
            if beat != seen.0 || waits {
                *seen = (beat, now);
            } else if now - seen.1 > PATIENCE {
                still = Some(writer.data_type.load(Ordering::Relaxed));
            }
        }
        still
    }

    fn end(&mut self, outcome: Outcome) {
        self.copy.kill();
        self.copy.end_by(Instant::now() + Duration::from_secs(1));
        self.outcome = Some(outcome);
    }

    fn judge(&self, status: i32) -> Outcome {
        let state = self.state();
        let error = state.error.load(Ordering::Acquire);
        let tool = state.tool.load(Ordering::Acquire);
        if error != 0 {
            return Outcome::NoTool(error);
        }
        // Whatever the tool has made of what came.
        if state.no_memory.load(Ordering::Acquire) != 0 {
            return Outcome::NoMemory;
        }
        match state.first().stage() {
            Stage::Done if tool == 0 && status == 0 => Outcome::Answered,
            Stage::Done => Outcome::ToolFailed(tool),
            _ if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM => Outcome::TooLate,
            _ if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL => Outcome::Killed,
            // The copy that crashed: the first one ends in order if that is the second one.
            _ if libc::WIFSIGNALED(status) => Outcome::Stuck(state.first().data_type.load(Ordering::Relaxed)),
            _ => Outcome::Stuck(state.second().data_type.load(Ordering::Relaxed)),
        }
    }

    fn state(&self) -> &State {
        state_of(&self.shared)
    }

    /// Objects and bytes so far.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.state().objects(), self.state().bytes())
    }

    /// What the tool has answered, and what it complained of.
    pub(crate) fn take_answer(&mut self) -> (Vec<u8>, Vec<u8>) {
        (std::mem::take(&mut self.answer.bytes), std::mem::take(&mut self.complaints.bytes))
    }
}
