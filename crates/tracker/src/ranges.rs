//! The address ranges of the memory of [`crate::mmap`], for an account of the process' pages.
//!
//! The list has a fixed size and takes no lock, because only an account depends on it. A range for which
//! there is no room is left out.

use core::sync::atomic::{AtomicUsize, Ordering};

use memintro_abi::{MOST_RANGES, RANGES_SIGN};

#[repr(C)]
struct Range {
    /// 0: this place is empty.
    start: AtomicUsize,
    /// 0 until the range is complete.
    end: AtomicUsize,
}

static RANGES: [Range; MOST_RANGES] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; MOST_RANGES];
/// Places from here on have never been used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// For readers of core files: what follows is the list's address (crates/core_file).
#[repr(C)]
struct Sign {
    text: [u8; 16],
    list: &'static [Range; MOST_RANGES],
}

static SIGN: Sign = Sign { text: RANGES_SIGN, list: &RANGES };

/// Adds a range.
pub(crate) fn note(start: usize, len: usize) {
    for (place, range) in RANGES.iter().enumerate() {
        if range.start.load(Ordering::Relaxed) == 0
            && range.start.compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            range.end.store(start.wrapping_add(len), Ordering::Release);
            USED.fetch_max(place + 1, Ordering::Release);
            return;
        }
    }
}

/// Takes a range out, which may be a part of one that was added, or several of them.
pub(crate) fn forget(start: usize, len: usize) {
    let gone = start.wrapping_add(len);
    for range in RANGES.iter().take(USED.load(Ordering::Acquire)) {
        let (from, to) = (range.start.load(Ordering::Relaxed), range.end.load(Ordering::Acquire));
        if to <= start || gone <= from {
            continue;
        }
        if start <= from && to <= gone {
            range.end.store(0, Ordering::Relaxed);
            range.start.store(0, Ordering::Release);
        } else if from < start {
            range.end.store(start, Ordering::Relaxed);
        } else {
            range.start.store(gone, Ordering::Relaxed);
        }
    }
}

/// Visits the start and end of each range. Takes no lock.
pub fn each(mut visit: impl FnMut(usize, usize)) {
    // Without this use, the linker would leave the sign out of the library.
    let list = core::hint::black_box(&SIGN).list;
    for range in list.iter().take(USED.load(Ordering::Acquire)) {
        let (start, end) = (range.start.load(Ordering::Relaxed), range.end.load(Ordering::Acquire));
        if start != 0 && start < end {
            visit(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(from: usize, to: usize) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        each(|start, end| {
            if from <= start && start < to {
                found.push((start, end));
            }
        });
        found.sort_unstable();
        found
    }

    // Addresses that no mapping has: other tests of this process map memory meanwhile.
    #[test]
    fn ranges_are_listed_until_they_are_gone_as_a_whole_or_in_part() {
        const AT: usize = 0x7000_0000_0000_0000;
        let end = AT + 0x100_0000;
        note(AT, 0x4000);
        note(AT + 0x10_000, 0x2000);
        assert_eq!(list(AT, end), [(AT, AT + 0x4000), (AT + 0x10_000, AT + 0x12_000)]);
        forget(AT + 0x3000, 0x1000);
        forget(AT, 0x1000);
        assert_eq!(list(AT, end), [(AT + 0x1000, AT + 0x3000), (AT + 0x10_000, AT + 0x12_000)]);
        forget(AT, 0x20_000);
        assert_eq!(list(AT, end), []);
        note(AT + 0x1000, 0x1000);
        assert_eq!(list(AT, end), [(AT + 0x1000, AT + 0x2000)]);
        forget(AT + 0x1000, 0x1000);
    }

    #[test]
    fn memory_is_listed_while_it_is_mapped() {
        let memory = crate::mmap::map(0x5000).unwrap();
        let at = memory.as_ptr().addr();
        assert_eq!(list(at, at + 1), [(at, at + 0x5000)]);
        // SAFETY: mapped above, and not used.
        unsafe { crate::mmap::unmap(memory, 0x5000) };
        assert!(list(at, at + 1).is_empty());
    }
}
