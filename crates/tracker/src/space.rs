//! Address space that is reserved step by step, and grows in place.
//!
//! Reserved address space counts in `VmSize`, although it takes no memory: alarms read that, and limits count it. So
//! only one step is reserved at a time. The next step must fit right behind the first one. So the first one is put
//! where neither programs nor the kernel put anything by themselves: at a random place between the program and its
//! heap on one side, and libraries, stacks and the kernel's mappings on the other. There are dozens of terabytes
//! between them.
//!
//! Rule for neighbours: no other mapping is ever replaced. If another mapping is in the way, growing fails.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::mmap::{self, Errno, Refusal};

/// The size of a step, unless an eighth of the present size is more.
pub(crate) const STEP: usize = 32 << 20;
/// The size that is reserved at once if there is no such place, because the next step may not fit there.
const AT_ONCE: usize = 256 << 20;
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;
/// Number of random places that are tried.
const DRAWS: u32 = 16;
/// Number of addresses that are checked for room up to the full size.
const CHECKS: usize = 32;

/// The end of the last space that was found at such a place, where the next one is tried. 0: anywhere.
static BESIDE: AtomicUsize = AtomicUsize::new(0);

/// A range of address space.
#[derive(Debug)]
pub(crate) struct Space {
    base: *mut u8,
    /// Bytes that are reserved.
    len: usize,
    /// Most bytes that may be reserved.
    most: usize,
    /// Whether the memory is usable at once, or needs an `mprotect`.
    usable: bool,
}

// SAFETY: the mapping is its owner's, not bound to a thread.
unsafe impl Send for Space {}

impl Space {
    /// No space.
    pub(crate) const fn new() -> Self {
        Self { base: ptr::null_mut(), len: 0, most: 0, usable: false }
    }

    /// A space that begins at the boundary of a huge page, and may grow to `most` bytes.
    pub(crate) fn reserve(most: usize, usable: bool) -> Option<Self> {
        let most = most.checked_next_multiple_of(HUGE)?;
        Self::lonely(most, usable).or_else(|| Self::anywhere(most, usable))
    }

    fn lonely(most: usize, usable: bool) -> Option<Self> {
        let len = most.min(STEP);
        let (first, last) = lonely_places(most)?;
        let mut random = mmap::random();
        // The first choice is beside the last space, as if both were one mapping: each further part of the address
        // space costs page tables.
        let mut place = BESIDE.swap(0, Ordering::Relaxed);
        for _ in 0..DRAWS {
            if place < first || place >= last {
                // The multiplier of Knuth's MMIX.
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                place = first + (((random >> 16) as usize % (last - first)) & !(HUGE - 1));
            }
            let base: *mut u8 = ptr::with_exposed_provenance_mut(place);
            let at = |check| base.wrapping_add((most / CHECKS * check) & !(PAGE - 1));
            if (1..CHECKS).all(|check| mmap::is_vacant(at(check), PAGE))
                && mmap::reserve_at(base, len, usable).is_ok()
            {
                BESIDE.store(place + most, Ordering::Relaxed);
                return Some(Self { base, len, most, usable });
            }
            place = 0;
        }
        None
    }

    fn anywhere(most: usize, usable: bool) -> Option<Self> {
        let len = most.min(AT_ONCE);
        let mapping = mmap::reserve_large(len + HUGE, usable)?.as_ptr();
        let base = mapping.map_addr(|address| address.next_multiple_of(HUGE));
        let before = base.addr() - mapping.addr();
        if before > 0 {
            mmap::unreserve(mapping, before);
        }
        mmap::unreserve(base.wrapping_add(len), HUGE - before);
        Some(Self { base, len, most, usable })
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes that are reserved.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Grows it to at least `bytes`.
    pub(crate) fn cover(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes <= self.len {
            return Ok(());
        }
        let least = bytes.checked_next_multiple_of(HUGE).filter(|least| *least <= self.most);
        let least = least.ok_or(Refusal::Exhausted)? - self.len;
        let step = (self.len / 8).next_multiple_of(HUGE).max(STEP).max(least).min(self.most - self.len);
        let end = self.base.wrapping_add(self.len);
        let grown = match mmap::reserve_at(end, step, self.usable) {
            Ok(()) => step,
            Err(_) => mmap::reserve_at(end, least, self.usable).map(|()| least)?,
        };
        self.len += grown;
        Ok(())
    }

    /// Unmaps the address space, which must not be used any more.
    pub(crate) fn release(&mut self) {
        if let Some(base) = NonNull::new(self.base) {
            mmap::unreserve(base.as_ptr(), self.len);
        }
        *self = Self::new();
    }
}

/// The first and the last address at which a space of that length may begin: from a quarter to five eighths of a
/// program's address space.
fn lonely_places(most: usize) -> Option<(usize, usize)> {
    let _errno = Errno::save();
    // SAFETY: an answer of the loader's; the address is that of something on the first thread's stack, which is at the end.
    let stack = unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
    let end = stack.checked_next_power_of_two()?;
    let (first, last) = (end / 4, (end / 8 * 5).checked_sub(most)?);
    (first < last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_grows_in_place_by_steps_and_is_of_zeroes() {
        let most = 20 << 30;
        let mut space = Space::reserve(most, true).expect("address space");
        assert_eq!((space.len(), space.base().addr() % HUGE), (STEP, 0));
        let base = space.base();
        assert_eq!(space.cover(STEP + 1), Ok(()));
        assert_eq!((space.len(), space.base()), (2 * STEP, base));
        assert_eq!(space.cover(1 << 30), Ok(()));
        assert_eq!(space.cover((1 << 30) + 1), Ok(()));
        assert_eq!(space.len(), (1 << 30) + (128 << 20), "an eighth at a time");
        // SAFETY: both ends lie in the space.
        unsafe {
            let last = space.base().add(space.len() - 1);
            assert_eq!(last.read(), 0);
            last.write(1);
            space.base().write(1);
        }
        assert_eq!(space.cover(most + 1), Err(Refusal::Exhausted));
        assert_eq!(space.cover(most), Ok(()));
        space.release();
        assert_eq!(space.len(), 0);
    }

    #[test]
    fn what_stands_in_the_way_stays() {
        let mut space = Space::reserve(1 << 30, true).expect("address space");
        let neighbour = space.base().wrapping_add(space.len());
        assert_eq!(mmap::reserve_at(neighbour, PAGE, true), Ok(()));
        // SAFETY: just mapped.
        unsafe { neighbour.write(42) };
        assert_eq!(space.cover(STEP + 1), Err(Refusal::InTheWay));
        // SAFETY: as above.
        assert_eq!(unsafe { neighbour.read() }, 42);
        mmap::unreserve(neighbour, PAGE);
        assert_eq!(space.cover(STEP + 1), Ok(()));
        space.release();
    }

    #[test]
    fn a_small_space_is_as_small_as_it_may_become_wherever_it_lies() {
        for space in [Space::lonely(4 << 20, false), Space::anywhere(4 << 20, false)] {
            let mut space = space.expect("address space");
            assert_eq!((space.len(), space.base().addr() % HUGE), (4 << 20, 0));
            assert_eq!(space.cover((4 << 20) + 1), Err(Refusal::Exhausted));
            space.release();
        }
        let mut space = Space::anywhere(20 << 30, false).expect("address space");
        assert_eq!(space.len(), AT_ONCE);
        space.release();
    }
}
