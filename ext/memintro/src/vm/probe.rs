//! Reads memory that may not be mapped.
//!
//! Places that the VM does not tell must be guessed before they can be checked, and a wrong guess must not crash.
//! write(2) makes the kernel copy the memory, and fails with an error where none is mapped. It is called without libc's
//! function: AddressSanitizer, where it is preloaded, checks what that gets, and ends the process.
//!
//! Rule for neighbours: only for preparations, never inside malloc.

/// A pipe through which memory is read.
pub(crate) struct Probe {
    read: libc::c_int,
    write: libc::c_int,
}

impl Probe {
    pub(crate) fn new() -> Option<Self> {
        let mut ends = [0; 2];
        // Never blocks, so that any failure is an error and not a hang.
        // SAFETY: room for two descriptors.
        let status =
            unsafe { libc::syscall(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        (status == 0).then_some(Self { read: ends[0], write: ends[1] })
    }

    /// So many words from `address` on; `None` if not all of them can be read.
    pub(crate) fn words<const N: usize>(&self, address: usize) -> Option<[usize; N]> {
        let mut words = [0; N];
        let length = size_of_val(&words);
        if address == 0 || length > libc::PIPE_BUF {
            return None;
        }
        // SAFETY: the kernel checks the address itself. No more than PIPE_BUF bytes go in whole or not at all, and all
        // of them are taken out again, into an array of that size.
        unsafe {
            let written = libc::syscall(libc::SYS_write, self.write, address, length);
            let read = libc::syscall(libc::SYS_read, self.read, words.as_mut_ptr(), length);
            (usize::try_from(written) == Ok(length) && usize::try_from(read) == Ok(length)).then_some(words)
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: both are this probe's own.
        unsafe {
            libc::syscall(libc::SYS_close, self.read);
            libc::syscall(libc::SYS_close, self.write);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Probe;

    #[test]
    fn reads_what_is_there_and_survives_what_is_not() {
        let probe = Probe::new().expect("a pipe");
        let there = [7_usize, 8, 9];
        for _ in 0..100_000 {
            assert_eq!(probe.words::<3>(there.as_ptr() as usize), Some(there));
        }
        for missing in [0, 8, usize::MAX - 7] {
            assert_eq!(probe.words::<3>(missing), None);
        }
        assert_eq!(probe.words::<3>(there.as_ptr() as usize), Some(there), "nothing is left in the pipe");
    }
}
