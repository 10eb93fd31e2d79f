//! An account of resident memory, made by a copy of this process in which nothing moves.
//!
//! The copy is made by the kernel's clone, without libc's fork: no handler of the program runs, and the copy has no
//! exit signal, so the program gets no SIGCHLD and its own `wait` never sees it. It allocates nothing, takes no lock,
//! and ends by itself after a deadline; its answer is plain text in shared memory, which the Ruby side reads as text
//! of a stranger.
//!
//! libc's fork would hold malloc's locks meanwhile. Instead, the copy looks whether one of them was held at its
//! instant, and says so; the caller then makes another one.

mod child;
mod frozen;
mod glibc;
mod objects;
mod own_memory;
mod sites;
mod statistics;

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memintro_abi::{HookApi, Mode, OwnRange};

use crate::hook_link;

pub(crate) use objects::{HeapPage, heap_pages};
pub(crate) use statistics::{of_allocator, purge_jemalloc};

/// Room for the answer: reserved, not taken.
const ROOM: usize = 16 << 20;
/// Before the text, its length.
const HEAD: usize = 64;

/// What is wanted.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Read pagemap; otherwise spread each mapping's resident bytes evenly, as where it cannot be read.
    pub(crate) pagemap: bool,
    /// After so long the copy is ended.
    pub(crate) seconds: u32,
}

/// Memory that this process and its copy share.
pub(crate) struct Shared {
    start: *mut u8,
    bytes: usize,
}

impl Shared {
    fn map(bytes: usize) -> std::io::Result<Self> {
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

    /// The length of the text so far.
    fn length(&self) -> &AtomicU64 {
        // SAFETY: the mapping is longer, and begins at a page.
        unsafe { &*self.start.cast::<AtomicU64>() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nobody uses the mapping any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// A copy at work.
pub(crate) struct Copy {
    pid: libc::pid_t,
    shared: Shared,
    deadline: Instant,
}

/// Makes the copy. The caller holds the GVL, or promises that no page of Ruby's heap is given.
pub(crate) fn begin(wanted: Wanted, pages: &[HeapPage]) -> std::io::Result<Copy> {
    let shared = Shared::map(ROOM)?;
    let hook = hook_link::found();
    let own = own_ranges(hook);
    let maps = File::open("/proc/self/smaps")?;
    let deadline = Instant::now() + Duration::from_secs(u64::from(wanted.seconds) + 1);
    let plan = child::Plan {
        wanted,
        pages,
        own: &own,
        hook: hook.filter(|hook| (hook.mode)() != Mode::OFF),
        maps: maps.as_raw_fd(),
        parent: std::process::id().cast_signed(),
        text: shared.start.wrapping_add(HEAD),
        room: ROOM - HEAD,
        length: shared.length(),
        shared: shared.start as usize,
    };
    let _signals = Blocked::all();
    // SAFETY: a copy of this process on a copy of this stack; it runs `child::run`, which does not return.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    match pid {
        0 => child::run(&plan),
        -1 => Err(std::io::Error::last_os_error()),
        pid => Ok(Copy { pid: pid as libc::pid_t, shared, deadline }),
    }
}

/// What the hook has mapped for itself.
fn own_ranges(hook: Option<&HookApi>) -> Vec<(usize, usize)> {
    unsafe extern "C" fn add(context: *mut c_void, range: *const OwnRange) {
        // SAFETY: the vector below, which has room, and a record that is valid during the visit.
        let (list, range) = unsafe { (&mut *context.cast::<Vec<(usize, usize)>>(), &*range) };
        list.push((range.start as usize, range.end as usize));
    }
    let mut list: Vec<(usize, usize)> = Vec::new();
    if let Some(hook) = hook {
        // SAFETY: the callback fits the record, the context outlives the visit.
        unsafe { (hook.own_memory)((&raw mut list).cast(), add) };
    }
    list
}

impl Copy {
    /// Waits for its end, at most until a second after its deadline. Returns its text, and whether it came to its end.
    pub(crate) fn finish(self) -> (Vec<u8>, bool) {
        let ended = self.wait();
        let length = usize::try_from(self.shared.length().load(Ordering::Acquire)).unwrap_or(0);
        let text = self.shared.start.wrapping_add(HEAD);
        // SAFETY: within the mapping, and nobody writes it any more.
        let text = unsafe { std::slice::from_raw_parts(text, length.min(ROOM - HEAD)) }.to_vec();
        (text, ended)
    }

    fn wait(&self) -> bool {
        let mut status = 0;
        let mut killed = false;
        loop {
            // SAFETY: our own copy, which only a wait for clones sees.
            let answer = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG | libc::__WCLONE) };
            let interrupted =
                answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
            if answer != 0 && !interrupted {
                return answer == self.pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
            }
            if Instant::now() > self.deadline {
                if killed {
                    return false; // It is in the kernel, and will be nobody's.
                }
                killed = true;
                // SAFETY: our own copy, which has not been waited for.
                unsafe { libc::kill(self.pid, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_micros(if killed { 20_000 } else { 500 }));
        }
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
