//! A growing text in pages of its own. When it is dropped, they are returned to the kernel at once, whatever the
//! allocator of the process does with large blocks. So a process that is inspected stays as large as it was.

use std::io::{self, Write};
use std::ops::Deref;
use std::ptr;

/// Bytes of the first mapping.
const FIRST: usize = 1 << 18;

/// The text.
pub struct Buffer {
    start: *mut u8,
    length: usize,
    capacity: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// An empty one, which has no page yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: ptr::null_mut(), length: 0, capacity: 0 }
    }

    fn grow(&mut self, least: usize) -> io::Result<()> {
        let capacity = least.max(FIRST).checked_next_power_of_two().ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new private mapping, or the one that this value owns.
        let start = unsafe {
            if self.capacity == 0 {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                libc::mmap(ptr::null_mut(), capacity, protection, flags, -1, 0)
            } else {
                libc::mremap(self.start.cast(), self.capacity, capacity, libc::MREMAP_MAYMOVE)
            }
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.start = start.cast();
        self.capacity = capacity;
        Ok(())
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: so many bytes have been written.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.length.checked_add(bytes.len()).ok_or(io::ErrorKind::OutOfMemory)?;
        if length > self.capacity {
            self.grow(length)?;
        }
        // SAFETY: the capacity has room for them.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(self.length), bytes.len()) };
        self.length = length;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: the mapping is this value's, and nothing uses it any more.
            unsafe { libc::munmap(self.start.cast(), self.capacity) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_written_beyond_its_first_pages() {
        let mut buffer = Buffer::new();
        assert_eq!(&*buffer, b"");
        let mut expected = Vec::new();
        for number in 0..200_000_u32 {
            writeln!(buffer, "{number}").expect("memory");
            writeln!(expected, "{number}").expect("memory");
        }
        assert!(expected.len() > 4 * FIRST);
        assert!(*buffer == *expected);
    }
}
