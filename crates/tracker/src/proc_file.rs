//! A file of /proc, read by bare system calls: libc's functions are cancellation points.

use core::ffi::{CStr, c_long, c_void};

/// An open file.
#[derive(Debug)]
pub struct ProcFile(c_long);

impl ProcFile {
    /// Opens it for reading, if that is possible. The caller drops it soon, because the program may close
    /// descriptors that it does not know.
    #[must_use]
    pub fn open(path: &CStr) -> Option<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: a terminated path.
        let file = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        (file >= 0).then_some(Self(file))
    }

    /// Reads `len` bytes at `from`. `false`: they are not there.
    ///
    /// # Safety
    /// `to` has room for them.
    #[must_use]
    pub unsafe fn read(&self, from: usize, to: *mut c_void, len: usize) -> bool {
        // SAFETY: the caller's.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.0, to, len, from) };
        usize::try_from(read) == Ok(len)
    }
}

impl Drop for ProcFile {
    fn drop(&mut self) {
        // SAFETY: opened above.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}
