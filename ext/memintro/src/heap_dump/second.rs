//! The second copy: a copy of the first one, made where two processors may be used. Both take pages of the heap in turns,
//! and each writes their lines into pieces of memory of its own. Allocates nothing.
//!
//! host ── clone ──► first copy ── clone ──► second copy. It ends with the first one (`PR_SET_PDEATHSIG`). If it ends
//! before it has written all, so does the first one, and the tool finds no last line.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::state::{Stage, State};
use super::tool::{Tool, last_error};
use crate::copy::{self, Life};
use crate::heap::FrozenPage;

/// Smaller heaps are written before another copy is made.
const LEAST_BYTES: usize = 1 << 19;
/// Status of a second copy whose tool has gone.
pub(super) const TOOL_GONE: i32 = 3;

/// What the first copy has of the second one.
#[derive(Clone, Copy)]
pub(super) struct Second {
    /// The end of a pipe whose other end only the second copy has, and closes when it has written all.
    alive: i32,
}

/// Who goes on here.
pub(super) enum Split {
    /// The first copy, which may have a second one.
    First(Option<Second>),
    /// The second copy, and its way to the tool.
    Second(Tool),
}

/// Makes a second copy if that helps and can be.
pub(super) fn split(tool: Tool, pages: &[FrozenPage], seconds: u32, state: &State) -> Split {
    let bytes: usize = pages.iter().map(|page| page.end - page.start).sum();
    let theirs = tool.of_second().filter(|_| bytes >= LEAST_BYTES && has_two_processors());
    let Some(theirs) = theirs else { return Split::First(None) };
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Split::First(None);
    }
    let [alive, mine] = ends;
    let free = theirs.pieces.map_or(-1, |pieces| pieces.free());
    match copy::split(Life { seconds, kept: [theirs.pipe, free, mine] }) {
        Ok(None) => {
            // SAFETY: a signal that would end the copy before it has told why.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            state.second().set(Stage::Walking);
            Split::Second(theirs)
        }
        made => {
            // SAFETY: a descriptor of this function.
            unsafe { libc::close(mine) };
            let Ok(Some(made)) = made else { return Split::First(None) };
            state.second_pid.store(made.go_on(), Ordering::Relaxed);
            Split::First(Some(Second { alive }))
        }
    }
}

/// Whether the kernel may run this process on more than one processor.
fn has_two_processors() -> bool {
    // SAFETY: a set of processors on the stack, as large as is said.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0
            || libc::CPU_COUNT(&set) > 1
    }
}

impl Second {
    /// Waits until it has written all. If it ended before, ends this copy.
    pub(super) fn wait(self, tool: Tool, state: &State) {
        let mut byte = 0_u8;
        // SAFETY: room for one byte; none ever comes.
        while unsafe { libc::read(self.alive, (&raw mut byte).cast(), 1) } < 0 && last_error() == libc::EINTR
        {
        }
        self.check(tool, state);
    }

    /// Waits until something can be read from this descriptor. If the second copy ends before it has written all, ends
    /// this one: the tool may wait for its lines.
    pub(super) fn watch_until_readable(self, descriptor: i32, tool: Tool, state: &State) {
        let mut both =
            [descriptor, self.alive].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: two valid records.
        while unsafe { libc::poll(both.as_mut_ptr(), 2, -1) } < 0 && last_error() == libc::EINTR {}
        if both[1].revents != 0 {
            self.check(tool, state);
        }
    }

    /// It has closed its end, or gone.
    fn check(self, tool: Tool, state: &State) {
        if state.second().stage() == Stage::Done {
            return;
        }
        let status = reap(state);
        // The host is to look at the second copy's.
        state.first().data_type.store(0, Ordering::Relaxed);
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == TOOL_GONE {
            tool.finish(state, false);
        }
        if libc::WIFSIGNALED(status) && matches!(libc::WTERMSIG(status), libc::SIGKILL | libc::SIGALRM) {
            // The host tells a lack of memory, and the deadline, by how this copy ends.
            // SAFETY: a signal to this copy itself.
            unsafe { libc::kill(libc::getpid(), libc::WTERMSIG(status)) };
        }
        copy::end(false)
    }
}

/// In the second copy, which has written all: closes its descriptors, for which the first copy waits, and keeps its memory
/// until the first copy ends it. To give it back now would take the tool's time.
pub(super) fn await_end(state: &State) -> ! {
    /// It also ends when the first copy has gone, where the kernel does not end it then.
    const LOOK: Duration = Duration::from_secs(1);
    // SAFETY: a system call without arguments.
    let first = unsafe { libc::getppid() };
    copy::close_all_but(&mut []);
    // SAFETY: as above.
    while state.over.load(Ordering::Acquire) == 0 && unsafe { libc::getppid() } == first {
        copy::wait_while(&state.over, 0, LOOK);
    }
    copy::end(true)
}

/// Waits for the end of the second copy, so that it is reaped. Its status, or 0 if there is none.
pub(super) fn reap(state: &State) -> i32 {
    let pid = state.second_pid.swap(0, Ordering::Relaxed);
    let mut status = 0;
    if pid == 0 {
        return status;
    }
    loop {
        // SAFETY: our own child, which has not been waited for.
        let answer = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        if answer >= 0 || last_error() != libc::EINTR {
            return status;
        }
    }
}

/// Ends the second copy. Where a filter refuses that, it ends when it has written all, or with its timer.
pub(super) fn kill(state: &State) {
    let pid = state.second_pid.load(Ordering::Relaxed);
    if pid != 0 {
        state.over.store(1, Ordering::Release);
        copy::wake(state.over.as_ptr());
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
