//! Memory for tracking, directly from the kernel and never from the heap that is tracked.
//!
//! Rule for neighbours: what is mapped here is counted in [`mapped_bytes`] and survives until [`unmap`].

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::proc_file::ProcFile;
use crate::ranges;

const PAGE: usize = 4096;

static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Address space that a large reservation leaves free for the other mappings of a start, and for the program.
const SPARED: usize = 1 << 20;

/// Maps `len` zeroed bytes, or returns `None` when the kernel has none. `errno` stays as it was.
#[must_use]
pub fn map(len: usize) -> Option<NonNull<u8>> {
    let address = reserve(len)?;
    MAPPED.fetch_add(len, Ordering::Relaxed);
    Some(address)
}

/// Maps `len` zeroed bytes of which only some may ever be written. They are not counted in [`mapped_bytes`].
#[must_use]
pub(crate) fn map_lazily(len: usize) -> Option<NonNull<u8>> {
    reserve(len)
}

/// Reserves zeroed address space, which takes memory only where it is written. It is not counted in [`mapped_bytes`].
#[must_use]
pub(crate) fn reserve(len: usize) -> Option<NonNull<u8>> {
    let address = anonymous(len, libc::PROT_READ | libc::PROT_WRITE)?;
    ranges::note(address.as_ptr().addr(), len);
    Some(address)
}

/// The same, if a mebibyte more could be reserved, so that the last mebibyte of address space stays free. Memory that
/// is not `usable` yet needs an `mprotect`.
pub(crate) fn reserve_large(len: usize, usable: bool) -> Option<NonNull<u8>> {
    let protection = if usable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    let address = anonymous(len.checked_add(SPARED)?, protection)?;
    unreserve(address.as_ptr().wrapping_add(len), SPARED);
    ranges::note(address.as_ptr().addr(), len);
    Some(address)
}

/// Why memory could not be mapped at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another mapping is there.
    InTheWay,
    /// The kernel has no more, or a limit forbids that much.
    Exhausted,
}

/// Reserves address space exactly at `address` if nothing else is there. It leaves the last mebibyte free, too.
pub(crate) fn reserve_at(address: *mut u8, len: usize, usable: bool) -> Result<(), Refusal> {
    let _errno = Errno::save();
    let protection = if usable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: an anonymous private mapping that replaces none.
    let found = unsafe { libc::mmap(address.cast(), len, protection, flags, -1, 0) };
    if found == libc::MAP_FAILED {
        // SAFETY: the location of errno is valid for the calling thread.
        let reason = unsafe { *libc::__errno_location() };
        return Err(if reason == libc::EEXIST { Refusal::InTheWay } else { Refusal::Exhausted });
    }
    if found != address.cast() {
        // Kernels before 4.17 do not know the flag, and treat the address as a hint.
        unreserve(found.cast(), len);
        return Err(Refusal::InTheWay);
    }
    let Some(spared) = anonymous(SPARED, libc::PROT_NONE) else {
        unreserve(address, len);
        return Err(Refusal::Exhausted);
    };
    unreserve(spared.as_ptr(), SPARED);
    ranges::note(address.addr(), len);
    Ok(())
}

/// Whether no memory is mapped at a page. This changes nothing, so it costs a fraction of an attempt to map
/// memory there. If the kernel does not answer, that attempt is made.
pub(crate) fn is_vacant(page: *mut u8, len: usize) -> bool {
    let _errno = Errno::save();
    // With this flag, the kernel only looks whether all of it is mapped. libc's function is a cancellation point.
    // SAFETY: a plain system call that touches no memory.
    if unsafe { libc::syscall(libc::SYS_msync, page, len, libc::MS_ASYNC) } == 0 {
        return false;
    }
    // SAFETY: the location of errno is valid for the calling thread.
    let reason = unsafe { *libc::__errno_location() };
    reason == libc::ENOMEM || reserve_at(page, len, false).map(|()| unreserve(page, len)).is_ok()
}

/// Whether a filter judges the system calls of this thread (seccomp). It may end the process for a call that few programs need.
#[must_use]
pub fn is_filtered() -> bool {
    let _errno = Errno::save();
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) != 0 }
}

/// How many bytes of a mapping, whose length is a multiple of 256 KiB, are in memory. 0 where the kernel does not say.
pub(crate) fn resident(address: *mut u8, len: usize) -> usize {
    let mut pages = [0_u64; 64];
    let mut count = 0;
    for place in (0..len).step_by(pages.len() * BITS * PAGE) {
        let words = pages.len().min((len - place) / (BITS * PAGE));
        let Some(pages) = pages.get_mut(..words) else { break };
        if !list_pages(address.wrapping_add(place), pages, IS_PRESENT) {
            // A program that has changed its user may not read that file.
            return if is_filtered() { 0 } else { resident_by_mincore(address, len) };
        }
        count += pages.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    }
    count * PAGE
}

/// This call is not in systemd's `@system-service`.
fn resident_by_mincore(address: *mut u8, len: usize) -> usize {
    const STEP: usize = BITS * PAGE;
    let _errno = Errno::save();
    let mut pages = 0;
    for place in (0..len).step_by(STEP) {
        let mut is_resident = [0_u8; STEP / PAGE];
        // SAFETY: the kernel reads no memory there, and writes one byte for a page.
        if unsafe { libc::mincore(address.wrapping_add(place).cast(), STEP, is_resident.as_mut_ptr()) } == 0 {
            pages += is_resident.iter().filter(|page| **page & 1 != 0).count();
        }
    }
    pages * PAGE
}

/// Random bits, as good as possible without waiting.
pub(crate) fn random() -> u64 {
    let _errno = Errno::save();
    let mut number = 0u64;
    let into = (&raw mut number).cast::<libc::c_void>();
    // SAFETY: room for eight bytes.
    let given = unsafe { libc::syscall(libc::SYS_getrandom, into, size_of::<u64>(), libc::GRND_NONBLOCK) };
    if given != 8 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid record.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        number ^= (now.tv_nsec as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (into.addr() as u64);
    }
    number
}

fn anonymous(len: usize, protection: libc::c_int) -> Option<NonNull<u8>> {
    let _errno = Errno::save();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) }
}

/// Unmaps address space of [`reserve`], which must not be used any more.
pub(crate) fn unreserve(address: *mut u8, len: usize) {
    ranges::forget(address.addr(), len);
    let _errno = Errno::save();
    // SAFETY: the caller owns exactly this mapping.
    unsafe { libc::munmap(address.cast(), len) };
}

/// Releases the memory of whole pages, which read as zeroes again. `false`: it is locked, and stays as it is.
pub(crate) fn discard(address: *mut u8, len: usize) -> bool {
    let _errno = Errno::save();
    // SAFETY: the pages are anonymous, and zeroes mean "nothing" to their owners.
    unsafe { libc::madvise(address.cast(), len, libc::MADV_DONTNEED) == 0 }
}

/// Sets a bit in `pages` for each page of a mapping that has contents, in memory or in swap. All others were
/// never touched, and are zero. If the kernel does not say, all bits are set. This takes a microsecond for
/// each word, instead of a page fault for each page.
pub(crate) fn find_touched(address: *const u8, pages: &mut [u64]) {
    if !list_pages(address, pages, IS_PRESENT | IS_SWAPPED) {
        pages.fill(u64::MAX);
    }
}

/// In an entry of `/proc/self/pagemap` (admin-guide/mm/pagemap.rst of Linux).
const IS_PRESENT: u64 = 1 << 63;
const IS_SWAPPED: u64 = 1 << 62;
const BITS: usize = u64::BITS as usize;

/// Sets a bit for each page that is of one of these kinds. `false` where the kernel does not say.
fn list_pages(address: *const u8, pages: &mut [u64], kinds: u64) -> bool {
    let _errno = Errno::save();
    let Some(file) = ProcFile::open(c"/proc/self/pagemap") else { return false };
    let mut from = address.addr() / PAGE * 8;
    for word in pages {
        let mut entries = [0_u64; BITS];
        let bytes = size_of_val(&entries);
        // SAFETY: `entries` has this room.
        if !unsafe { file.read(from, entries.as_mut_ptr().cast(), bytes) } {
            return false;
        }
        *word = entries.iter().rev().fold(0, |bits, entry| bits << 1 | u64::from(entry & kinds != 0));
        from = from.wrapping_add(bytes);
    }
    true
}

/// Sets whether the kernel should use huge pages there, where it has any.
pub(crate) fn advise(address: *mut u8, len: usize, huge: bool) {
    let _errno = Errno::save();
    let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: the pages are anonymous; the advice leaves their contents alone.
    unsafe { libc::madvise(address.cast(), len, advice) };
}

/// Unmaps a mapping.
///
/// # Safety
///
/// `address` and `len` must be the result and the argument of one call of [`map`], and the memory must not
/// be used any more.
pub unsafe fn unmap(address: NonNull<u8>, len: usize) {
    unreserve(address.as_ptr(), len);
    MAPPED.fetch_sub(len, Ordering::Relaxed);
}

/// Bytes that are mapped here and not unmapped yet.
#[must_use]
pub fn mapped_bytes() -> usize {
    MAPPED.load(Ordering::Relaxed)
}

/// Keeps `errno` as it was, because the caller of an allocator may read it after a call that succeeded.
#[derive(Debug)]
pub struct Errno(libc::c_int);

impl Errno {
    /// Stores `errno`, which is restored when the value is dropped.
    #[must_use]
    pub fn save() -> Self {
        // SAFETY: the location of errno is valid for the calling thread.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: the location of errno is valid for the calling thread.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_touched_are_found() {
        let memory = map(256 * PAGE).unwrap();
        let mut pages = [u64::MAX; 4];
        advise(memory.as_ptr(), 256 * PAGE, false);
        for page in [0, 63, 64, 200] {
            // SAFETY: within the mapping.
            unsafe { memory.as_ptr().add(page * PAGE).write(1) };
        }
        find_touched(memory.as_ptr(), &mut pages);
        assert_eq!(pages, [1 | 1 << 63, 1, 0, 1 << (200 - 192)]);
        let both = [resident, resident_by_mincore].map(|way| way(memory.as_ptr(), 256 * PAGE));
        assert_eq!(both, [4 * PAGE; 2]);
        assert!(discard(memory.as_ptr(), 64 * PAGE));
        find_touched(memory.as_ptr(), &mut pages);
        assert_eq!(pages, [0, 1, 0, 1 << (200 - 192)]);
        assert!(!is_vacant(memory.as_ptr().wrapping_add(7 * PAGE), PAGE));
        // SAFETY: the mapping above, which is no longer used.
        unsafe { unmap(memory, 256 * PAGE) };
        assert!(is_vacant(ptr::without_provenance_mut(1 << 40), PAGE));
    }
}
