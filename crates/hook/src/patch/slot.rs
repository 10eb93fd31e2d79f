//! One slot: an aligned word through which other threads call while it is changed.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use memintro_elf::Module;

/// Why a slot was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It no longer held the expected value.
    Changed,
    /// The kernel refused to make it writable.
    Refused,
    /// Its module is still being relocated by another thread.
    Loading,
}

/// The value of a slot; `None` if it is not aligned, so that it cannot be changed atomically.
pub(super) fn read(slot: u64) -> Option<usize> {
    // SAFETY: the parser has checked that the slot lies in a segment of a module that is loaded.
    (slot.is_multiple_of(8)).then(|| unsafe { word(slot) }.load(Ordering::Acquire))
}

/// # Safety
/// The slot must be aligned and mapped for as long as the answer is used.
unsafe fn word<'a>(slot: u64) -> &'a AtomicUsize {
    // SAFETY: the caller's promise.
    unsafe { AtomicUsize::from_ptr(slot as *mut usize) }
}

/// Writes to the slots of one module. Pages that the loader has made read-only become writable at the first write,
/// and read-only again when this is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    relro: Range<u64>,
    is_open: bool,
}

impl Writer {
    pub(super) fn new(module: &Module<'_>) -> Self {
        Self { relro: module.relro(page_size()), is_open: false }
    }

    /// Replaces `old` by the stub.
    pub(super) fn put_in(&mut self, slot: u64, old: usize, ours: usize) -> Result<(), Kept> {
        self.replace(slot, old, ours, Err(Kept::Loading))
    }

    /// Replaces the stub by `old`. A slot that was patched had been relocated before.
    pub(super) fn put_back(&mut self, slot: u64, ours: usize, old: usize) -> Result<(), Kept> {
        self.replace(slot, ours, old, Ok(()))
    }

    /// `if_open` is the result for a slot that can be written to although its page is to be read-only. The loader
    /// makes these pages read-only as its last step for a module. Until then, restoring the protection here could
    /// make them read-only too early for the loader, and the loader could make them read-only during a write here.
    fn replace(&mut self, slot: u64, old: usize, new: usize, if_open: Result<(), Kept>) -> Result<(), Kept> {
        let in_relro = self.relro.contains(&slot);
        if !(in_relro && self.is_open) {
            match (in_relro, is_writable(slot)) {
                (true, Some(true)) => if_open?,
                (true, _) => self.open()?,
                (false, Some(false)) => return Err(Kept::Refused),
                (false, _) => {}
            }
        }
        // SAFETY: `read` has accepted the slot; it is mapped, and writable as just seen.
        let word = unsafe { word(slot) };
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            .map_err(|_| Kept::Changed)
    }

    fn open(&mut self) -> Result<(), Kept> {
        self.is_open = self.protect(libc::PROT_READ | libc::PROT_WRITE);
        if self.is_open { Ok(()) } else { Err(Kept::Refused) }
    }

    fn protect(&self, protection: libc::c_int) -> bool {
        let len = self.relro.end.saturating_sub(self.relro.start) as usize;
        // SAFETY: these are whole pages of the module's RELRO segment, which stay readable throughout.
        unsafe { libc::mprotect(self.relro.start as *mut libc::c_void, len, protection) == 0 }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.is_open {
            self.protect(libc::PROT_READ);
        }
    }
}

/// Whether the slot can be written to now; `None` if the kernel does not say. The kernel is asked to OR 0 into the
/// word, which changes nothing, and fails where a write would be fatal.
fn is_writable(slot: u64) -> Option<bool> {
    const OR_NOTHING: libc::c_int = libc::FUTEX_OP_OR << 28;
    static NOBODY_WAITS_HERE: AtomicU32 = AtomicU32::new(0);
    // SAFETY: the kernel checks the address itself, and wakes no thread.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_futex,
            NOBODY_WAITS_HERE.as_ptr(),
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            core::ptr::null::<libc::timespec>(),
            slot as *mut u32,
            OR_NOTHING,
        )
    };
    if answer >= 0 {
        return Some(true);
    }
    // SAFETY: the location of errno is valid for the calling thread.
    (unsafe { *libc::__errno_location() } == libc::EFAULT).then_some(false)
}

fn page_size() -> u64 {
    // SAFETY: reads the auxiliary vector.
    let size = unsafe { libc::getauxval(libc::AT_PAGESZ) };
    if size.is_power_of_two() { size } else { 4096 }
}
