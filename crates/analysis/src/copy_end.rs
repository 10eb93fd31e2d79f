//! How a frozen copy of the process ended that had not done its work, in words.

/// Whether the signal that ended it, or 0, tells of a fault of the copy's own, so that another copy may do better.
#[must_use]
pub const fn is_crash(signal: i32) -> bool {
    !matches!(signal, 0 | libc::SIGKILL | libc::SIGALRM)
}

/// Such as `crashed (SIGSEGV)`.
pub(crate) fn said(signal: i32) -> String {
    match signal {
        0 => "ended: a limit of the process or the machine's memory left it none".to_owned(),
        libc::SIGKILL => {
            "was ended from outside (SIGKILL), as the kernel does when memory runs out".to_owned()
        }
        libc::SIGALRM => "took too long (SIGALRM)".to_owned(),
        _ => {
            let name = signal_hook::low_level::signal_name(signal);
            format!("crashed ({})", name.map_or_else(|| format!("SIG{signal}"), str::to_owned))
        }
    }
}
