//! The cells of a heap page: an array in which each block lies as near as possible to the place that its tag
//! determines.
//!
//! The home of a cell is its tag scaled to the length of the array. Tags are the numbers of granules, spread over their
//! range ([`super::cell::tag_at`]). Blocks at equal distances therefore have homes at nearly equal distances and seldom
//! collide, even if only a part of the heap page is in use. A cell whose home is taken lies behind it, in the order
//! of homes (the first place follows the last one). So no place between a cell and its home is empty.
//!
//! A *short* array, of at most 16 cells, is a list instead: its cells lie at the front, in no order, and may fill it. With
//! so few, homes meet by chance, and each cell that has to be passed is a branch that no processor foresees. So all cells
//! are compared at once.
//!
//! Rule for neighbours: only a thread that holds its heap page uses an array; one that is not short has at least one
//! empty place. What is behind a short array can be read, up to the length of the longest one.

use super::cell;
use super::page_map::Word;

/// Greatest length of a short array.
pub(super) const MOST_LISTED: usize = 16;

/// An array of cells in the arena, with the word of its heap page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Array {
    first: *mut u64,
    word: Word,
}

impl Array {
    /// # Safety
    /// The array that `word` says is at `first`, no other thread uses it meanwhile, and it is as the rule above says.
    #[inline(always)]
    pub(super) unsafe fn new(first: *mut u64, word: Word) -> Self {
        Self { first, word }
    }

    /// The word of its heap page, with the cells that are in use now.
    #[inline(always)]
    pub(super) fn word(self) -> Word {
        self.word
    }

    #[inline(always)]
    pub(super) fn home(self, tag: u64) -> usize {
        (tag as usize).wrapping_mul(self.word.len()) >> cell::TAG_BITS
    }

    /// Whether it is a list.
    #[inline(always)]
    pub(super) fn is_short(self) -> bool {
        self.word.len() <= MOST_LISTED
    }

    /// Whether a list has no cell with this tag.
    #[inline(always)]
    pub(super) fn lists_none(self, tag: u64) -> bool {
        self.listed(tag).trailing_zeros() as usize >= self.word.used()
    }

    /// The cells of a list that have this tag, one bit each, the first one in the lowest bit. Bits that are not below the
    /// number of cells mean nothing.
    #[inline(always)]
    fn listed(self, tag: u64) -> u32 {
        // SAFETY: what is behind the array can be read.
        unsafe { with_tag(self.first, tag) }
    }

    /// The place behind a place; behind the last one it is the first.
    #[inline(always)]
    pub(super) fn next(self, place: usize) -> usize {
        let next = place.wrapping_add(1);
        if next == self.word.len() { 0 } else { next }
    }

    /// The cell at a place below the length, which may be empty.
    #[inline(always)]
    pub(super) fn get(self, place: usize) -> u64 {
        debug_assert!(place < self.word.len());
        // SAFETY: homes and the places after them are below the length.
        unsafe { self.first.add(place).read() }
    }

    #[inline(always)]
    pub(super) fn set(self, place: usize, cell: u64) {
        debug_assert!(place < self.word.len());
        // SAFETY: as in `get`.
        unsafe { self.first.add(place).write(cell) }
    }

    /// How far a cell is from its home.
    #[inline]
    fn way(self, cell: u64, place: usize) -> usize {
        let way = place.wrapping_sub(self.home(cell::tag(cell)));
        if way > self.word.len() { way.wrapping_add(self.word.len()) } else { way }
    }

    /// The first cell with this tag that is as asked, and its place.
    #[inline(always)]
    fn seek(self, tag: u64, is_it: impl Fn(u64) -> bool) -> Option<(usize, u64)> {
        if self.is_short() {
            let mut listed = self.listed(tag);
            loop {
                let place = listed.trailing_zeros() as usize;
                if place >= self.word.used() {
                    return None;
                }
                let cell = self.get(place);
                if is_it(cell) {
                    return Some((place, cell));
                }
                listed &= listed.wrapping_sub(1);
            }
        }
        let mut place = self.home(tag);
        loop {
            let cell = self.get(place);
            if is_it(cell) {
                return Some((place, cell));
            }
            if cell == 0 {
                return None;
            }
            place = self.next(place);
        }
    }

    /// The block with this tag: its place and cell.
    #[inline]
    pub(super) fn find(self, tag: u64) -> Option<(usize, u64)> {
        self.seek(tag, |cell| cell::is_block(cell, tag))
    }

    /// As [`Array::find`], but blocks with two cells are not found.
    #[inline(always)]
    pub(super) fn find_short(self, tag: u64) -> Option<(usize, u64)> {
        self.seek(tag, |cell| cell::is_short_block(cell, tag))
    }

    /// The extension of the block with this tag, if it has one.
    #[cold]
    #[inline(never)]
    pub(super) fn extension(self, tag: u64) -> Option<(usize, u64)> {
        self.seek(tag, |cell| cell::is_extension(cell, tag))
    }

    /// Puts a cell behind all others with its home. The array must have two empty places or more; one, if it is short.
    #[inline]
    pub(super) fn put(&mut self, mut cell: u64) {
        if self.is_short() {
            self.set(self.word.used(), cell);
        } else {
            let mut place = self.home(cell::tag(cell));
            let mut way = 0;
            loop {
                let other = self.get(place);
                if other == 0 {
                    break self.set(place, cell);
                }
                let its = self.way(other, place);
                if its < way {
                    self.set(place, cell);
                    (cell, way) = (other, its);
                }
                place = self.next(place);
                way = way.wrapping_add(1);
            }
        }
        self.word = self.word.with_more();
    }

    /// Empties a place. In a list, the last cell takes it; otherwise cells behind it that are not at home move one place
    /// forward.
    #[inline(always)]
    pub(super) fn take(&mut self, place: usize) {
        self.word = self.word.with_fewer();
        if self.is_short() {
            let last = self.word.used();
            self.set(place, self.get(last));
            return self.set(last, 0);
        }
        let mut hole = place;
        loop {
            let next = self.next(hole);
            let cell = self.get(next);
            if cell == 0 || self.home(cell::tag(cell)) == next {
                return self.set(hole, 0);
            }
            self.set(hole, cell);
            hole = next;
        }
    }

    /// All cells that are not empty, with their places.
    pub(super) fn cells(self) -> impl Iterator<Item = (usize, u64)> {
        (0..self.word.len()).map(move |place| (place, self.get(place))).filter(|(_, cell)| *cell != 0)
    }

    /// Makes all places empty.
    pub(super) fn empty(self) {
        // SAFETY: the array has this length, and zeroes are empty cells.
        unsafe { self.first.write_bytes(0, self.word.len()) }
    }
}

/// Which of the first 16 cells from here on have this tag, one bit each, the first one in the lowest bit. Those behind
/// the array's end may be anything.
///
/// # Safety
/// So many cells can be read.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn with_tag(first: *const u64, tag: u64) -> u32 {
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
unsafe fn with_tag(first: *const u64, tag: u64) -> u32 {
    (0..MOST_LISTED).fold(0, |found, at| {
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
        fn it_finds_what_a_search_finds(tags in proptest::collection::vec(0u64..512, MOST_LISTED), body: u64, wanted in 0u64..512, at in 0..MOST_LISTED) {
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
