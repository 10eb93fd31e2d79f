//! Memory and files for code that must not allocate.

use std::ptr;

/// Maps zeroed memory for so many values; they are never unmapped.
pub(crate) fn slice<T: Copy>(count: usize) -> Option<&'static mut [T]> {
    map(count, libc::MAP_PRIVATE)
}

/// Such memory for a copy that has not read its list of mappings yet: as shared memory, it is not taken there for memory
/// of the process that was copied, in a gap of which it may lie.
pub(crate) fn slice_apart<T: Copy>(count: usize) -> Option<&'static mut [T]> {
    map(count, libc::MAP_SHARED)
}

fn map<T: Copy>(count: usize, kind: i32) -> Option<&'static mut [T]> {
    let bytes = count.checked_mul(size_of::<T>())?.max(1);
    let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of its own.
    let start =
        unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: mapped, aligned to a page, and used by no other code. All types used here are valid as zeroes.
    Some(unsafe { std::slice::from_raw_parts_mut(start.cast::<T>(), count) })
}

/// Makes memory of [`slice()`] zeroes again, which take no memory until they are written. False if the kernel refuses.
pub(crate) fn clear(memory: &mut [u8]) -> bool {
    // SAFETY: a private mapping of its own, as a whole. Zeroes are valid.
    unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.len(), libc::MADV_DONTNEED) == 0 }
}

/// Whether the process may take some more memory for what the host does itself. Rust ends a process whose memory is at an end,
/// where Ruby raises an error that the program may rescue: so callers ask before they allocate in the host.
pub(crate) fn has_room() -> bool {
    may_take(4 << 20)
}

/// Whether the process may map so many bytes at once.
pub(crate) fn may_take(bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping of its own, of which nothing is touched, and which is given back at once.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        start != libc::MAP_FAILED && libc::munmap(start, bytes) == 0
    }
}

/// Reads a descriptor to its end.
pub(crate) fn read_all(descriptor: i32, into: &'static mut [u8]) -> Option<&'static [u8]> {
    let mut used = 0;
    loop {
        let rest = into.get_mut(used..)?;
        if rest.is_empty() {
            return None;
        }
        // SAFETY: as much room as is said.
        let got = unsafe { libc::read(descriptor, rest.as_mut_ptr().cast(), rest.len()) };
        match usize::try_from(got) {
            Ok(0) => return into.get(..used),
            Ok(got) => used += got,
            Err(_) => return None,
        }
    }
}
