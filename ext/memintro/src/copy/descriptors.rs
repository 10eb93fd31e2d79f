//! Closes descriptors that a copy has from the program. Allocates nothing.
//!
//! `close_range` is the shortest way, but kernels before 5.9 do not have it, and a filter (seccomp) may end the process for
//! it: systems are in use whose lists are older. So where there is a filter, and where the kernel refuses, `/proc` says which
//! descriptors there are. Without `/proc`, each number is tried.

use std::ffi::c_long;

/// Numbers that are tried one by one: as many as the kernel lets a process have, unless its administrator has changed that.
const MOST_TRIED: i32 = 1 << 20;
/// Bytes of a directory that are read at once.
const ROOM: usize = 2048;

/// Whether a filter judges the system calls of this thread. What to do with a call is its own affair: it may end the process.
pub(crate) fn is_filtered() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) != 0 }
}

/// In the copy: closes all descriptors but these, which are sorted then.
pub(crate) fn close_all_but(kept: &mut [i32]) {
    kept.sort_unstable();
    if (is_filtered() || !by_ranges(kept)) && !by_list(kept) {
        one_by_one(kept);
    }
}

/// `kept` is sorted. False if the kernel does not know the call.
fn by_ranges(kept: &[i32]) -> bool {
    let mut from = 0;
    for descriptor in kept.iter().filter_map(|kept| u32::try_from(*kept).ok()) {
        if descriptor > from && !close_range(from, descriptor - 1) {
            return false;
        }
        from = from.max(descriptor + 1);
    }
    close_range(from, u32::MAX)
}

fn close_range(first: u32, last: u32) -> bool {
    // SAFETY: a plain system call, on descriptors that nothing here uses.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
}

/// False if `/proc` does not say which descriptors there are.
fn by_list(kept: &[i32]) -> bool {
    #[repr(align(8))]
    struct Entries([u8; ROOM]);
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY;
    // SAFETY: a terminated path.
    let list = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/proc/self/fd".as_ptr(), flags) };
    let Ok(list) = i32::try_from(list) else { return false };
    if list < 0 {
        return false;
    }
    let mut entries = Entries([0; ROOM]);
    let mut is_true = false;
    let is_whole = loop {
        // SAFETY: as much room as is said.
        let got = unsafe { libc::syscall(libc::SYS_getdents64, list, entries.0.as_mut_ptr(), ROOM) };
        match usize::try_from(got).ok().and_then(|got| entries.0.get(..got)) {
            Some([]) => break true,
            Some(bytes) => each_number(bytes, |descriptor| {
                is_true |= descriptor == list;
                if descriptor != list && !kept.contains(&descriptor) {
                    close(descriptor);
                }
            }),
            None => break false,
        }
    };
    close(list);
    // A directory that somebody has put there does not have this descriptor.
    is_whole && is_true
}

/// Visits the entries of a directory, as `getdents64` gives them, that are numbers.
fn each_number(mut entries: &[u8], mut visit: impl FnMut(i32)) {
    /// Where the length of an entry is, and where its name begins.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    while let Some([low, high]) = entries.get(LENGTH..LENGTH + 2) {
        let length = usize::from(u16::from_ne_bytes([*low, *high]));
        let name = entries.get(NAME..length).unwrap_or_default();
        let digits = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let number = digits.iter().try_fold(0_i32, |number, byte| {
            let digit = byte.is_ascii_digit().then(|| i32::from(byte - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        });
        if let Some(number) = number.filter(|_| !digits.is_empty()) {
            visit(number);
        }
        entries = entries.get(length.max(NAME)..).unwrap_or_default();
    }
}

fn one_by_one(kept: &[i32]) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid record.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let most = i32::try_from(limit.rlim_max).ok().filter(|most| known && *most < MOST_TRIED);
    for descriptor in (0..most.unwrap_or(MOST_TRIED)).filter(|descriptor| !kept.contains(descriptor)) {
        close(descriptor);
    }
}

fn close(descriptor: i32) {
    // SAFETY: nothing here uses it.
    unsafe { libc::syscall(libc::SYS_close, c_long::from(descriptor)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a child: opens descriptors, closes all but some in this way, and ends with the number of those that are wrong.
    fn wrong_after(way: impl FnOnce(&[i32]) -> bool) -> i32 {
        // SAFETY: plain system calls; the child allocates nothing.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                for number in [3, 4, 5, 77, 300, 999] {
                    libc::dup2(2, number);
                }
                let kept = [-1, 4, 300];
                if !way(&kept) {
                    libc::_exit(255);
                }
                let is_open = |number: &i32| libc::fcntl(*number, libc::F_GETFD) >= 0;
                let wrong = (0..1024).filter(|number| is_open(number) != kept.contains(number));
                libc::_exit(wrong.count() as i32);
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            libc::WEXITSTATUS(status)
        }
    }

    #[test]
    fn each_way_closes_all_but_what_is_kept() {
        assert_eq!(wrong_after(by_ranges), 0);
        assert_eq!(wrong_after(by_list), 0);
        assert_eq!(
            wrong_after(|kept| {
                one_by_one(kept);
                true
            }),
            0
        );
        assert!(wrong_after(|_| true) >= 7, "what the others close");
    }
}
