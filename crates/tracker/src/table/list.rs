//! Compares all cells of a short array at once.

use super::cell;

/// Greatest length of a short array.
pub(super) const MOST: usize = 16;

/// Which of the first 16 cells from here on have this tag, one bit each, the first one in the lowest bit. Those behind
/// the array's end may be anything.
///
/// # Safety
/// So many cells can be read.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn with_tag(first: *const u64, tag: u64) -> u32 {
    use core::arch::x86_64::{
        __m128i, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8,
        _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32, _mm_shuffle_ps, _mm_srli_epi32,
    };
    const SHIFT: i32 = cell::TAG_SHIFT.cast_signed() - 32;
    // The upper halves of two and two cells, in order.
    const UPPER: i32 = 0b11_01_11_01;
    // SAFETY: the caller's promise; the instructions are those of each such processor. Another thread may write what is
    // behind the array's end, and that counts for nothing.
    unsafe {
        let wanted = _mm_set1_epi32(tag as i32);
        let four = |at: usize| -> __m128i {
            let front = _mm_castsi128_ps(_mm_loadu_si128(first.add(at).cast()));
            let back = _mm_castsi128_ps(_mm_loadu_si128(first.add(at + 2).cast()));
            let upper = _mm_castps_si128(_mm_shuffle_ps::<UPPER>(front, back));
            _mm_cmpeq_epi32(_mm_srli_epi32::<SHIFT>(upper), wanted)
        };
        let (front, back) = (_mm_packs_epi32(four(0), four(4)), _mm_packs_epi32(four(8), four(12)));
        _mm_movemask_epi8(_mm_packs_epi16(front, back)).cast_unsigned()
    }
}

/// The same, as above.
///
/// # Safety
/// So many cells can be read.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) unsafe fn with_tag(first: *const u64, tag: u64) -> u32 {
    (0..MOST).fold(0, |found, at| {
        // SAFETY: the caller's promise.
        let cell = unsafe { first.add(at).read_volatile() };
        found | (u32::from(cell::tag(cell) == tag) << at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_what_a_search_finds(tags in proptest::collection::vec(0u64..512, MOST), body: u64, wanted in 0u64..512, at in 0..MOST) {
            let mut cells: Vec<u64> = tags.iter().map(|tag| (tag << cell::TAG_SHIFT) | (body >> cell::TAG_BITS)).collect();
            for wanted in [wanted, tags[at]] {
                let twin = tags.iter().enumerate().fold(0, |found, (at, tag)| found | (u32::from(*tag == wanted) << at));
                // SAFETY: there are so many.
                prop_assert_eq!(unsafe { with_tag(cells.as_ptr(), wanted) }, twin);
            }
            cells.fill(0);
            // SAFETY: as above.
            prop_assert_eq!(unsafe { with_tag(cells.as_ptr(), 0) }, 0xFFFF);
        }
    }
}
