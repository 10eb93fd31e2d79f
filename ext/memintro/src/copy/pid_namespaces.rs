//! Processes that have called `unshare(CLONE_NEWPID)`, or `setns`: their children are in another PID namespace.
//!
//! The first child there is what `init` is elsewhere: once it has ended, the kernel lets this process make no further
//! one. A copy must not be that child, and in any such namespace it could not tell whether its maker lives.

use std::ffi::CStr;

/// The error that stands for this refusal. The kernel's clone does not answer it.
pub(super) const REFUSED: i32 = libc::EXDEV;
pub(super) const WORDS: &str = "its children are made in another PID namespace (unshare, setns), where a copy would be \
                                the first process; ask from a process that stays in its own";

pub(super) fn refused() -> std::io::Error {
    std::io::Error::from_raw_os_error(REFUSED)
}

/// Whether what this process makes is not in its own PID namespace. False where there is no /proc. Allocates nothing.
pub(super) fn children_are_elsewhere() -> bool {
    const OF_CHILDREN: &CStr = c"/proc/self/ns/pid_for_children";
    let Some(own) = target(c"/proc/self/ns/pid") else { return false };
    match target(OF_CHILDREN) {
        Some(of_children) => own != of_children,
        // Where the file is, the namespace has no process yet. Kernels before 4.12 do not have it.
        None => is_there(OF_CHILDREN),
    }
}

/// The text of a link of /proc, which names a namespace.
fn target(link: &CStr) -> Option<[u8; 64]> {
    let mut text = [0; 64];
    // SAFETY: a terminated path, and as much room as is said.
    let bytes = unsafe { libc::readlink(link.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    (bytes > 0).then_some(text)
}

fn is_there(link: &CStr) -> bool {
    // SAFETY: a terminated path.
    let found = unsafe { libc::open(link.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) };
    if found >= 0 {
        // SAFETY: opened just now.
        unsafe { libc::close(found) };
    }
    found >= 0
}
