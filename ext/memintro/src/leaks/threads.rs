//! The kernel's data of other threads: for a thread that waits in a system call, its stack pointer and the
//! arguments of that call; for a running thread, none.
//!
//! The kernel does not show the registers that a function must leave as they were, and nothing else reads them without
//! harm: a debugger's stop ends `epoll_wait` with an error, and a signal is the program's. So the copy counts how many of
//! them are unknown ([`super::registers`]).

/// A thread that waits.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Waiting {
    pub(super) thread: usize,
    pub(super) stack_pointer: usize,
    /// Registers that the kernel tells: those of the call's arguments.
    pub(super) arguments: [usize; 6],
}

/// The other threads of this process: those that wait, and how many there are in all.
pub(super) struct Threads {
    pub(super) waiting: Vec<Waiting>,
    pub(super) count: usize,
    /// The number of each, in the kernel's order, and for how long it has run so far, in nanoseconds.
    pub(super) times: Vec<(i64, u64)>,
}

impl Threads {
    /// At most so many are listed.
    pub(super) fn now(most: usize) -> Self {
        let mut found = Self { waiting: Vec::new(), count: 0, times: Vec::new() };
        // SAFETY: a system call without arguments.
        let own = unsafe { libc::syscall(libc::SYS_gettid) };
        let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
            // Unknown, so there may be any number.
            return Self { count: usize::MAX, ..found };
        };
        for thread in threads.flatten() {
            let number = thread.file_name().to_str().and_then(|name| name.parse::<i64>().ok());
            let Some(number) = number.filter(|number| *number != own) else { continue };
            found.count += 1;
            if found.waiting.len() >= most {
                continue;
            }
            if let Some(time) = run_time(&thread.path()) {
                found.times.push((number, time));
            }
            let Ok(text) = std::fs::read_to_string(thread.path().join("syscall")) else { continue };
            if let Some((stack_pointer, arguments)) = waiting(&text) {
                let thread = usize::try_from(number).unwrap_or(0);
                found.waiting.push(Waiting { thread, stack_pointer, arguments });
            }
        }
        found
    }
}

impl Threads {
    /// Whether none of them has run between two looks: then each had the same in its registers all the while.
    pub(super) fn have_rested_until(&self, later: &Self) -> bool {
        self.waiting.len() == self.count && self.times.len() == self.count && self.times == later.times
    }
}

/// For how long a thread has run, if the kernel counts it.
fn run_time(folder: &std::path::Path) -> Option<u64> {
    std::fs::read_to_string(folder.join("schedstat")).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// `number arguments… sp pc`, or `-1 sp pc`; of a thread that runs, `running`.
fn waiting(text: &str) -> Option<(usize, [usize; 6])> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let number = |word: &str| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let [.., pointer, _] = words.as_slice() else { return None };
    let pointer = number(pointer).filter(|pointer| *pointer != 0)?;
    let mut arguments = [0; 6];
    if let [_, given @ .., _, _] = words.as_slice() {
        for (place, word) in arguments.iter_mut().zip(given) {
            *place = number(word)?;
        }
    }
    Some((pointer, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_threads() {
        let waits = "202 0x55d8 0x189 0x0 0x0 0x0 0xffffffff 0x7f9c2c1ffd10 0x7f9c2d2a6e29\n";
        assert_eq!(waiting(waits), Some((0x7f9c_2c1f_fd10, [0x55d8, 0x189, 0, 0, 0, 0xffff_ffff])));
        assert_eq!(waiting("-1 0x7ffc000 0x7f11\n"), Some((0x7ff_c000, [0; 6])));
        assert_eq!((waiting("running\n"), waiting(""), waiting("1 0 0")), (None, None, None));
    }
}
