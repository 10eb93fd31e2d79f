//! Gives back the pages of code that only loading, or only a start, has needed.
//!
//! The kernel maps sixteen pages around each page that is touched. Definitions and a start touch code all over the
//! library, so they would leave most of it resident: half a megabyte in every process that requires memintro.

use std::ffi::c_char;

// What the linker knows of this library: where it begins, and where its code ends.
unsafe extern "C" {
    static __ehdr_start: c_char;
    static etext: c_char;
}

/// The file has them, and the kernel's page cache: whoever comes there next finds them again, a microsecond later.
pub(crate) fn give_back() {
    // SAFETY: a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let begin = (&raw const __ehdr_start).addr() & !(page - 1);
    let end = (&raw const etext).addr() & !(page - 1);
    if begin >= end {
        return;
    }
    // SAFETY: headers, constants and code are mapped from the file and never written, for there are no relocations in
    // them; to read them again brings the same bytes. A kernel that refuses changes nothing.
    unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(begin), end - begin, libc::MADV_DONTNEED) };
}
