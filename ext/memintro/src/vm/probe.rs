//! Reads memory that may not be there.
//!
//! Where the VM keeps what it does not tell has to be guessed before it can be checked, and a wrong guess must not be a
//! crash. The kernel copies what it is asked to write, and refuses with an error where there is nothing to read.
//!
//! Rule for neighbours: for preparations alone, never inside malloc.

/// A pipe that memory is read through.
pub(super) struct Probe {
    read: libc::c_int,
    write: libc::c_int,
}

impl Probe {
    pub(super) fn new() -> Option<Self> {
        let mut ends = [0; 2];
        // Never waiting: whatever goes wrong is an error and not a process that stands still.
        // SAFETY: room for two descriptors.
        let status = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        (status == 0).then_some(Self { read: ends[0], write: ends[1] })
    }

    /// So many words from `address` on; `None` where not all of them can be read.
    pub(super) fn words<const N: usize>(&self, address: usize) -> Option<[usize; N]> {
        let mut words = [0; N];
        let length = size_of_val(&words);
        if address == 0 || length > libc::PIPE_BUF {
            return None;
        }
        // SAFETY: the kernel checks the address itself. No more than PIPE_BUF bytes go in whole or not at all, and all
        // of them are taken out again, into an array of that size.
        unsafe {
            let written = libc::write(self.write, address as *const libc::c_void, length);
            let read = libc::read(self.read, words.as_mut_ptr().cast(), length);
            (usize::try_from(written) == Ok(length) && usize::try_from(read) == Ok(length)).then_some(words)
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: both are this probe's own.
        unsafe {
            libc::close(self.read);
            libc::close(self.write);
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
