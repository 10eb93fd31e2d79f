//! Which thread handles signals.

/// Signals that no thread of ours blocks: those that a fault raises in the thread itself, and SIGVTALRM, by which Ruby
/// wakes its threads from system calls. Without it the process could not end.
const KEPT: [libc::c_int; 8] = [
    libc::SIGVTALRM,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Blocks all other signals in the calling thread, beside those that it blocks (`SIG_BLOCK`) or in their place
/// (`SIG_SETMASK`). False if the kernel refuses.
pub(crate) fn mask(how: libc::c_int) -> bool {
    // SAFETY: zero is a valid set, filled before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for signal in KEPT {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) == 0
    }
}
