//! Lets a copy end without its caller.
//!
//! The kernel gives back the page tables of a copy when it ends, page by page: of 1 GiB, that takes as long
//! as to make them. The caller that has the answer need not wait for this. Only a thread of the process can
//! take note of the end, so that nothing is left of the copy. It is a bare thread of the kernel: it sleeps in
//! one system call and then is gone, the C library and Ruby do not know it, and it gets no signal.
//!
//! An `exec` ends that thread, and its end goes unnoticed. A process in between, which ends at once, would leave the copy to
//! the first process of the machine instead. In a container that may be the program itself, or one that waits for no child.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Blocked;

/// What the thread has for its few words.
const STACK: usize = 16 << 10;

#[repr(align(64))]
struct Stack(UnsafeCell<[u8; STACK]>);

// SAFETY: one thread at a time uses it, see below.
unsafe impl Sync for Stack {}

static ROOM: Stack = Stack(UnsafeCell::new([0; STACK]));
/// The thread's number, which the kernel writes; 0 once somebody has seen that it is gone. The kernel could clear a word
/// when the thread does not use its stack any more, but counts it as a thread of the process for longer: on a busy machine
/// for seconds, and two of them could not be told from threads of the program.
static NUMBER: AtomicU32 = AtomicU32::new(0);
static STARTING: Mutex<()> = Mutex::new(());

/// Children that were left while the thread waited for another one. It waits for these next; for what it did not see any more, the
/// process looks when it makes its next copy.
static LEFT: [AtomicU32; MOST_LEFT] = [const { AtomicU32::new(0) }; MOST_LEFT];
const MOST_LEFT: usize = 64;

/// Has a thread take note of the end of this child: one of its own, or the one that waits for another child. False if there can be
/// none.
pub(super) fn leave(child: libc::pid_t) -> bool {
    /// The other one may just be ending.
    const TRIES: u32 = 3;
    (0..TRIES).any(|_| {
        take_note(child)
            || threads() > 0 && remember(child) && (threads() > 0 || !is_forgotten(child.cast_unsigned()))
    })
}

/// Whether it was still left, and is not any more.
fn is_forgotten(child: u32) -> bool {
    LEFT.iter().any(|place| place.compare_exchange(child, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

/// Leaves a child to the thread that waits for another one, or to [`sweep`]. False if too many are left.
pub(super) fn remember(child: libc::pid_t) -> bool {
    let child = child.cast_unsigned();
    LEFT.iter().any(|place| place.compare_exchange(0, child, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

/// Takes note of the ends of those that were left. In a fork, they are somebody else's.
pub(super) fn sweep() {
    for place in &LEFT {
        let child = place.load(Ordering::Acquire);
        let options = libc::WNOHANG | libc::__WCLONE;
        // SAFETY: a system call that writes nothing.
        if child != 0 && unsafe { libc::waitpid(child.cast_signed(), std::ptr::null_mut(), options) } != 0 {
            let _ = place.compare_exchange(child, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Whether a thread of this process has this number; `None` where a filter refuses that question. In a fork none has.
fn is_thread(number: u32) -> Option<bool> {
    // SAFETY: no signal, which only asks.
    if number != 0 && unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, 0) } == 0 {
        return Some(true);
    }
    let is_gone = number == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    is_gone.then_some(false)
}

/// Has a thread take note of the end of this child. False if it cannot: one is busy, or may not be started.
fn take_note(child: libc::pid_t) -> bool {
    const FLAGS: c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_PARENT_SETTID;
    // In a fork that was made while this is held, it stays held, and callers wait themselves.
    let Ok(_starting) = STARTING.try_lock() else { return false };
    // SAFETY: a number.
    let own = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    // It would be unknown when the thread is gone, and its stack may be used again.
    let may_ask = is_thread(own).is_some();
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) || !may_ask || threads() > 0 {
        return false;
    }
    let _signals = Blocked::all();
    let argument = ptr::without_provenance_mut::<c_void>(child.cast_unsigned() as usize);
    // SAFETY: the stack is its own while it is a thread of the process; the function needs no thread-local memory, which it
    // shares with this thread.
    unsafe {
        let end = ROOM.0.get().cast::<u8>().add(STACK).cast::<c_void>();
        let none = ptr::null_mut::<c_void>();
        libc::clone(wait, end, FLAGS, argument, NUMBER.as_ptr(), none, none) > 0
    }
}

/// How many threads of the process are no threads of the program: the one that waits for the copy before, if it is
/// under way.
pub(super) fn threads() -> usize {
    let number = NUMBER.load(Ordering::Acquire);
    let is_there = is_thread(number).unwrap_or(true);
    if !is_there && number != 0 {
        // A later thread of the program may get this number.
        let _ = NUMBER.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
    usize::from(is_there)
}

/// Runs on the thread: without `errno`, which is the caller's.
extern "C" fn wait(child: *mut c_void) -> c_int {
    let options = libc::__WCLONE.cast_unsigned() as usize;
    let mut child = child.addr();
    loop {
        while waited(child, options) == -(libc::EINTR as isize) {}
        match LEFT.iter().map(|place| place.swap(0, Ordering::AcqRel)).find(|child| *child != 0) {
            Some(next) => child = next as usize,
            None => return 0,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn waited(child: usize, options: usize) -> isize {
    let mut answer = libc::SYS_wait4 as isize;
    // SAFETY: a system call that writes nothing.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") answer, in("rdi") child, in("rsi") 0, in("rdx") options,
            in("r10") 0, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    answer
}

#[cfg(target_arch = "aarch64")]
fn waited(child: usize, options: usize) -> isize {
    let mut answer = child as isize;
    // SAFETY: a system call that writes nothing.
    unsafe {
        std::arch::asm!("svc 0", in("x8") libc::SYS_wait4, inlateout("x0") answer, in("x1") 0, in("x2") options,
            in("x3") 0, options(nostack));
    }
    answer
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn waited(_child: usize, _options: usize) -> isize {
    0
}
