//! Finds out whether threads that a pauser waits for only lack a processor. See [`super`].

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::Ordering;

use super::{ThreadState, Threads};
use crate::mmap::Errno;
use crate::proc_file::ProcFile;

/// Fewer sleeps are those of a thread that must not wait for long.
const SLEEPS_OF_THE_PATIENT: u32 = 3_000;
/// The factor by which a pauser extends its wait, at most, for threads that lack a processor.
const TIMES: u32 = 20;

/// The wait for threads that are in the middle of recording. It ends after some sleeps, or after [`TIMES`]
/// times as many if these threads lack a processor. So it usually gives up only on a thread that cannot run
/// because it is interrupted by a signal handler that waits.
pub(super) struct Wait<'a> {
    threads: &'a Threads,
    own: &'a ThreadState,
    sleeps: u32,
    rounds: u32,
    times: u32,
}

impl<'a> Wait<'a> {
    pub(super) fn new(threads: &'a Threads, own: &'a ThreadState, sleeps: u32) -> Self {
        Self { threads, own, sleeps, rounds: 0, times: 0 }
    }

    /// Waits one round by `wait`; `false` after the last one.
    pub(super) fn round(&mut self, wait: fn(&mut u32, u32) -> bool) -> bool {
        if wait(&mut self.rounds, self.sleeps) {
            return true;
        }
        self.times += 1;
        let goes_on =
            self.sleeps >= SLEEPS_OF_THE_PATIENT && self.times < TIMES && self.threads.is_starved(self.own);
        if goes_on {
            self.rounds = 0;
        }
        goes_on
    }
}

impl Threads {
    /// Whether another thread that is recording has no processor.
    #[cold]
    fn is_starved(&self, own: &ThreadState) -> bool {
        let is_amid = |state: &ThreadState| {
            state.busy.load(Ordering::Relaxed) != 0 || state.noting.load(Ordering::Relaxed) != 0
        };
        let _errno = Errno::save();
        self.states()
            .filter(|state| !ptr::eq(*state, own) && is_amid(state))
            .any(|state| wants_processor(state.tid.load(Ordering::Relaxed)))
    }
}

/// Bytes of the file that are enough: numbers and names of threads are short.
const BYTES: usize = 64;

/// Whether the kernel says of this thread of the process that it runs or could run, or that it waits for a disk or for memory.
fn wants_processor(tid: u32) -> bool {
    let mut path = [0_u8; 32];
    let digits = tid.checked_ilog10().map_or(1, |last| last as usize + 1);
    let (before, after) = (b"/proc/self/task/", b"/stat");
    let number = before.len()..before.len() + digits;
    for (to, from) in path.iter_mut().zip(before) {
        *to = *from;
    }
    let mut rest = tid;
    for to in path.iter_mut().take(number.end).skip(number.start).rev() {
        *to = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    for (to, from) in path.iter_mut().skip(number.end).zip(after) {
        *to = *from;
    }
    let mut stat = [0_u8; BYTES];
    let Some(file) = CStr::from_bytes_until_nul(&path).ok().and_then(ProcFile::open) else { return false };
    // SAFETY: the array has this room.
    if !unsafe { file.read(0, stat.as_mut_ptr().cast(), BYTES) } {
        return false;
    }
    // The name may have any characters; the state comes behind its parenthesis.
    let name_ends = stat.iter().rposition(|byte| *byte == b')').unwrap_or(BYTES);
    matches!(stat.get(name_ends.saturating_add(2)), Some(b'R' | b'D'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    fn own_number() -> u32 {
        // SAFETY: a plain system call.
        unsafe { libc::syscall(libc::SYS_gettid) as u32 }
    }

    #[test]
    fn a_thread_wants_a_processor_unless_it_sleeps() {
        assert!(wants_processor(own_number()));
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let sleeper = thread::Builder::new().name("a) R (b".to_owned()).spawn(move || {
            tell.send(own_number()).unwrap();
            let _ = ended.recv();
        });
        let number = told.recv().unwrap();
        while wants_processor(number) {
            thread::yield_now();
        }
        drop(end);
        sleeper.unwrap().join().unwrap();
        assert!(!wants_processor(number), "no such thread");
        assert!(!wants_processor(0));
    }
}
