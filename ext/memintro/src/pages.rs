//! Releases pages of code that were needed only for loading or for a start.
//!
//! The kernel maps sixteen pages around each page that is touched. Definitions and a start touch code all over the
//! library, so they would leave most of it resident: half a megabyte in every process that requires memintro.

use std::ffi::c_char;

// Symbols of the linker: where this library begins, and where its code ends.
unsafe extern "C" {
    static __ehdr_start: c_char;
    static etext: c_char;
}

/// The pages stay in the file and in the kernel's page cache, so the next access finds them again within a
/// microsecond.
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
