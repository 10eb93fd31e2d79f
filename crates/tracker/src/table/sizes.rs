//! The dictionary of large sizes. It gives a size of 64 KiB or more a code of 16 bits, as long as a block of that
//! size lives.
//!
//! Rule for neighbours: codes are acquired, read and released under the lock of the bucket that holds them. So if the
//! buckets are emptied before the dictionary, no code remains in use. Reading takes no other lock. 65,536 different
//! large sizes can live at once; blocks of one size share a code.

use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::lock::SpinLock;
use crate::mmap;

const CODES: usize = 1 << 16;

/// End of a chain. A link is a code plus one, so that zeroed memory is an empty dictionary.
const END: u32 = 0;

/// A size and the number of its users. The lock guards everything except the size of a code in use.
struct Entry {
    size: AtomicU64,
    users: AtomicU32,
    next: AtomicU32,
}

/// Lies in zeroed memory of its own.
struct Memory {
    chains: [AtomicU32; CODES],
    entries: [Entry; CODES],
}

impl Memory {
    fn chain(&self, size: u64) -> Option<&AtomicU32> {
        // The top 16 bits of a product depend on all bits of the size.
        self.chains.get((size.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as usize)
    }

    fn linked(&self, link: u32) -> Option<&Entry> {
        self.entries.get(link.wrapping_sub(1) as usize)
    }
}

/// The free codes.
#[derive(Debug)]
struct Free {
    /// Codes from here on were never used.
    fresh: u32,
    /// First link of the codes that were given back.
    again: u32,
}

pub(super) struct Sizes {
    memory: AtomicPtr<Memory>,
    free: SpinLock<Free>,
    /// Number of codes ever used, to account for their memory.
    used: AtomicUsize,
}

impl fmt::Debug for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sizes").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Sizes {
    pub(super) const fn new() -> Self {
        Self {
            memory: AtomicPtr::new(ptr::null_mut()),
            free: SpinLock::new(Free { fresh: 0, again: END }),
            used: AtomicUsize::new(0),
        }
    }

    /// Reserves the memory, of which only the used part is touched and counted. Returns `false` if the kernel has none.
    pub(super) fn init(&self) -> bool {
        let _free = self.free.lock();
        if self.memory().is_none() {
            let Some(memory) = mmap::reserve(size_of::<Memory>()) else { return false };
            // Release: a thread that sees the pointer sees a complete mapping.
            self.memory.store(memory.as_ptr().cast(), Ordering::Release);
        }
        true
    }

    /// Forgets all sizes and gives their memory back.
    pub(super) fn clear(&self) {
        let mut free = self.free.lock();
        if let Some(memory) = NonNull::new(self.memory.load(Ordering::Acquire)) {
            let _errno = mmap::Errno::save();
            // SAFETY: the mapping is this dictionary's own, and zeroed memory is an empty dictionary.
            unsafe { libc::madvise(memory.as_ptr().cast(), size_of::<Memory>(), libc::MADV_DONTNEED) };
        }
        *free = Free { fresh: 0, again: END };
        self.used.store(0, Ordering::Relaxed);
    }

    /// Bytes touched, roughly.
    pub(super) fn resident_bytes(&self) -> usize {
        let used = self.used.load(Ordering::Relaxed);
        // Heads of chains are touched at random: this assumes a page for each of the first 64 sizes.
        used.wrapping_mul(size_of::<Entry>()).wrapping_add(used.min(64).wrapping_mul(4096))
    }

    /// A code for `size`, or `None` when all are taken.
    pub(super) fn acquire(&self, size: u64) -> Option<u32> {
        let memory = self.memory()?;
        let mut free = self.free.lock_in_time()?;
        let chain = memory.chain(size)?;
        let head = chain.load(Ordering::Relaxed);
        let mut link = head;
        while let Some(entry) = memory.linked(link) {
            if entry.size.load(Ordering::Relaxed) == size {
                entry.users.fetch_add(1, Ordering::Relaxed);
                return Some(link.wrapping_sub(1));
            }
            link = entry.next.load(Ordering::Relaxed);
        }
        let (link, entry) = match memory.linked(free.again) {
            Some(entry) => {
                let link = free.again;
                free.again = entry.next.load(Ordering::Relaxed);
                (link, entry)
            }
            None => {
                let link = free.fresh.wrapping_add(1);
                let entry = memory.linked(link)?;
                free.fresh = link;
                self.used.store(link as usize, Ordering::Relaxed);
                (link, entry)
            }
        };
        entry.size.store(size, Ordering::Relaxed);
        entry.users.store(1, Ordering::Relaxed);
        entry.next.store(head, Ordering::Relaxed);
        chain.store(link, Ordering::Relaxed);
        Some(link.wrapping_sub(1))
    }

    /// The size of a code in use.
    pub(super) fn get(&self, code: u32) -> u64 {
        let entry = self.memory().and_then(|memory| memory.entries.get(code as usize));
        entry.map_or(0, |entry| entry.size.load(Ordering::Relaxed))
    }

    /// Subtracts one user. The code is free again after the last one.
    pub(super) fn release(&self, code: u32) {
        let Some(memory) = self.memory() else { return };
        // If the lock is not free in time, the code stays in use.
        let Some(mut free) = self.free.lock_in_time() else { return };
        let own = code.wrapping_add(1);
        let Some(entry) = memory.linked(own) else { return };
        if entry.users.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        let Some(mut link) = memory.chain(entry.size.load(Ordering::Relaxed)) else { return };
        while link.load(Ordering::Relaxed) != own {
            let Some(before) = memory.linked(link.load(Ordering::Relaxed)) else { return };
            link = &before.next;
        }
        link.store(entry.next.load(Ordering::Relaxed), Ordering::Relaxed);
        entry.next.store(free.again, Ordering::Relaxed);
        free.again = own;
    }

    fn memory(&self) -> Option<&Memory> {
        // Acquire: see `init`.
        let memory = self.memory.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or the memory stays mapped as long as this dictionary lives and holds only
        // atomics.
        unsafe { memory.as_ref() }
    }
}

impl Drop for Sizes {
    fn drop(&mut self) {
        if let Some(memory) = NonNull::new(self.memory.load(Ordering::Acquire)) {
            // SAFETY: the mapping came from `map` with this length, and a dropped dictionary is not used any more.
            unsafe { mmap::unmap(memory.cast(), size_of::<Memory>()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CODES, Sizes};

    fn sizes() -> Sizes {
        let sizes = Sizes::new();
        assert!(sizes.init());
        sizes
    }

    #[test]
    fn blocks_of_one_size_share_a_code_until_the_last_is_gone() {
        let sizes = sizes();
        let code = sizes.acquire(5 << 30).expect("room");
        assert_eq!(sizes.acquire(5 << 30), Some(code));
        assert_eq!(sizes.get(code), 5 << 30);
        sizes.release(code);
        assert_eq!(sizes.get(code), 5 << 30);
        sizes.release(code);
        assert_eq!(sizes.acquire(1 << 47), Some(code), "the code is free again");
        assert_eq!(sizes.get(code), 1 << 47);
    }

    #[test]
    fn all_codes_can_be_taken_given_back_in_any_order_and_taken_again() {
        let sizes = sizes();
        for round in 0..2u64 {
            let size = |i: u64| (1 << 16) + i * 4096 + round;
            let codes: Vec<u32> = (0..CODES as u64).map(|i| sizes.acquire(size(i)).expect("room")).collect();
            assert_eq!(sizes.acquire(77), None);
            assert!(codes.iter().zip(0..).all(|(code, i)| sizes.get(*code) == size(i)));
            let (odd, even): (Vec<u32>, Vec<u32>) = codes.iter().partition(|code| *code % 2 == 1);
            even.iter().rev().chain(&odd).for_each(|code| sizes.release(*code));
        }
        sizes.clear();
        assert_eq!(sizes.acquire(1 << 20), Some(0));
    }
}
