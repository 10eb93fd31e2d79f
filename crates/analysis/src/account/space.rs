//! Which pages of the process are resident, and which of them have found their owner.

use super::PAGE;

const WORD_BITS: usize = 64;

/// Memory whose pages have a bit each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Area {
    /// Its first address, at a page.
    pub start: usize,
    /// The address after its last page.
    pub end: usize,
    /// Number of the bit of its first page.
    pub first_bit: usize,
}

impl Area {
    /// Whether all of this range is in the area.
    #[must_use]
    pub fn holds(&self, from: usize, to: usize) -> bool {
        self.start <= from && from <= to && to <= self.end
    }
}

/// Areas in the order of their addresses, and a bit for each page: it is resident, and not claimed yet.
#[derive(Debug)]
pub struct Space<'a> {
    areas: &'a [Area],
    bits: &'a mut [u64],
    /// The resident pages that sums count; all where there is none.
    counted: Option<&'a [u64]>,
}

impl<'a> Space<'a> {
    /// The bits are zero at first.
    pub fn new(areas: &'a [Area], bits: &'a mut [u64]) -> Self {
        Self { areas, bits, counted: None }
    }

    /// From now on, sums count only pages that have a bit here. What is resident, and what was claimed, stays as it is.
    pub fn count_only(&mut self, pages: &'a [u64]) {
        self.counted = Some(pages);
    }

    /// The same pages, with bits of their own. These are zero at first.
    #[must_use]
    pub fn copy<'b>(&self, bits: &'b mut [u64]) -> Space<'b>
    where
        'a: 'b,
    {
        for (to, from) in bits.iter_mut().zip(self.bits.iter()) {
            // Memory of zeroes that is not written takes none.
            if *from != 0 {
                *to = *from;
            }
        }
        Space { areas: self.areas, bits, counted: self.counted }
    }

    /// Words that the bits of so many pages need.
    #[must_use]
    pub fn words(pages: usize) -> usize {
        pages / WORD_BITS + 1
    }

    /// All areas.
    #[must_use]
    pub fn areas(&self) -> &'a [Area] {
        self.areas
    }

    /// The area that an address is in.
    #[must_use]
    #[inline]
    pub fn area(&self, address: usize) -> Option<&'a Area> {
        let next = self.areas.partition_point(|area| area.end <= address);
        self.areas.get(next).filter(|area| area.start <= address)
    }

    /// The area that an address is in, or else the next one.
    #[must_use]
    pub fn area_from(&self, address: usize) -> Option<&'a Area> {
        self.areas.get(self.areas.partition_point(|area| area.end <= address))
    }

    /// Notes whether a page is resident.
    pub fn set(&mut self, bit: usize, resident: bool) {
        if let Some(word) = self.bits.get_mut(bit / WORD_BITS) {
            let mask = 1 << (bit % WORD_BITS);
            *word = if resident { *word | mask } else { *word & !mask };
        }
    }

    /// Whether the page at this address is resident and not claimed.
    #[must_use]
    pub fn is_resident(&self, address: usize) -> bool {
        let Some(area) = self.area(address) else { return false };
        let bit = area.first_bit + (address - area.start) / PAGE;
        self.word_at(bit / WORD_BITS) >> (bit % WORD_BITS) & 1 == 1
    }

    /// Resident bytes of a range that are not claimed. What lies outside of the range's first area is not counted.
    #[must_use]
    pub fn resident(&self, from: usize, to: usize) -> u64 {
        self.area(from).map_or(0, |area| self.resident_in(area, from, to))
    }

    /// The same where the area of the first address is known.
    #[must_use]
    #[inline]
    pub fn resident_in(&self, area: &Area, from: usize, to: usize) -> u64 {
        let to = to.min(area.end);
        if to <= from {
            return 0;
        }
        let page = |address: usize| area.first_bit + (address - area.start) / PAGE;
        let (first, last) = (page(from), page(to - 1));
        if first == last {
            return if self.bit(first) { (to - from) as u64 } else { 0 };
        }
        let mut bytes = 0;
        if self.bit(first) {
            bytes += PAGE - (from - area.start) % PAGE;
        }
        if self.bit(last) {
            bytes += (to - 1 - area.start) % PAGE + 1;
        }
        (bytes + self.count(first + 1, last) * PAGE) as u64
    }

    /// Whether all of a range within the area is resident and not claimed. False also where that is not seen at once.
    #[must_use]
    #[inline]
    pub fn is_whole(&self, area: &Area, from: usize, to: usize) -> bool {
        if to <= from || to > area.end {
            return false;
        }
        let page = |address: usize| area.first_bit + (address - area.start) / PAGE;
        let (first, last) = (page(from), page(to - 1));
        let mask = (u64::MAX << (first % WORD_BITS)) & (u64::MAX >> (WORD_BITS - 1 - last % WORD_BITS));
        first / WORD_BITS == last / WORD_BITS && self.counted_at(first / WORD_BITS) & mask == mask
    }

    /// Claims the pages of a range: returns the resident bytes that were not claimed before. The range is rounded
    /// outwards to pages.
    pub fn claim(&mut self, from: usize, to: usize) -> u64 {
        let Some(area) = self.area(from).copied() else { return 0 };
        let to = to.min(area.end);
        if to <= from {
            return 0;
        }
        let first = area.first_bit + (from - area.start) / PAGE;
        let end = area.first_bit + (to - area.start).div_ceil(PAGE);
        let mut pages = 0;
        each_word(first, end, |word, mask| {
            pages += (self.counted_at(word) & mask).count_ones() as usize;
            if let Some(word) = self.bits.get_mut(word).filter(|word| **word & mask != 0) {
                *word &= !mask;
            }
        });
        (pages * PAGE) as u64
    }

    /// The first page of the area, from this address on, that is resident and not claimed. Steps over 64
    /// pages at a time, so that a mapping of terabytes with few pages costs little.
    #[must_use]
    pub fn next_resident(&self, area: &Area, from: usize) -> Option<usize> {
        let end = area.first_bit + (area.end - area.start) / PAGE;
        let mut bit = area.first_bit + from.max(area.start).checked_sub(area.start)?.div_ceil(PAGE);
        while bit < end {
            let ahead = self.bits.get(bit / WORD_BITS).copied().unwrap_or(0) >> (bit % WORD_BITS);
            if ahead != 0 {
                bit += ahead.trailing_zeros() as usize;
                return (bit < end).then(|| area.start + (bit - area.first_bit) * PAGE);
            }
            bit = (bit / WORD_BITS + 1) * WORD_BITS;
        }
        None
    }

    /// Notes that all pages of a range within one area are resident.
    pub fn set_range(&mut self, from: usize, to: usize) {
        let Some(area) = self.area(from) else { return };
        let first = area.first_bit + (from - area.start) / PAGE;
        let end = area.first_bit + (to.min(area.end) - area.start) / PAGE;
        each_word(first, end, |word, mask| {
            if let Some(word) = self.bits.get_mut(word) {
                *word |= mask;
            }
        });
    }

    fn word_at(&self, word: usize) -> u64 {
        self.bits.get(word).copied().unwrap_or(0)
    }

    /// Those of these pages that sums count.
    #[inline]
    fn counted_at(&self, word: usize) -> u64 {
        let counted = self.counted.map_or(u64::MAX, |pages| pages.get(word).copied().unwrap_or(0));
        self.word_at(word) & counted
    }

    fn bit(&self, bit: usize) -> bool {
        self.counted_at(bit / WORD_BITS) >> (bit % WORD_BITS) & 1 == 1
    }

    /// Bits that count, from the first up to the end.
    fn count(&self, first: usize, end: usize) -> usize {
        let mut count = 0;
        each_word(first, end, |word, mask| {
            count += (self.counted_at(word) & mask).count_ones() as usize;
        });
        count
    }
}

/// Visits the words that have these bits, with a mask of those that are meant.
#[inline]
fn each_word(first: usize, end: usize, mut visit: impl FnMut(usize, u64)) {
    let mut bit = first;
    while bit < end {
        let offset = bit % WORD_BITS;
        let here = (WORD_BITS - offset).min(end - bit);
        let mask = if here == WORD_BITS { u64::MAX } else { ((1 << here) - 1) << offset };
        visit(bit / WORD_BITS, mask);
        bit += here;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREAS: [Area; 2] = [
        Area { start: 0x10_000, end: 0x10_000 + 200 * PAGE, first_bit: 0 },
        Area { start: 0x200_000, end: 0x204_000, first_bit: 200 },
    ];

    /// Bytes one by one.
    fn slowly(resident: &[bool], from: usize, to: usize) -> u64 {
        (from..to).filter(|address| resident[(address - 0x10_000) / PAGE]).count() as u64
    }

    #[test]
    fn resident_bytes_are_those_of_a_count_byte_by_byte() {
        let mut bits = [0; 4];
        let mut space = Space::new(&AREAS, &mut bits);
        let resident: Vec<bool> = (0..200).map(|page| page % 3 != 0 || page > 120).collect();
        for (page, is) in resident.iter().enumerate() {
            space.set(page, *is);
        }
        let mut whole = 0;
        for (from, to) in [
            (0, 10),
            (4095, 4097),
            (4096, 8192),
            (5000, 6000),
            (4096, 12_288),
            (4096, 12_289),
            (100, 700_000),
            (520_000, 780_000),
            (523_000, 525_000),
            (530_000, 780_000),
            (260_000, 819_200),
        ] {
            let (from, to) = (0x10_000 + from, 0x10_000 + to);
            assert_eq!(space.resident(from, to), slowly(&resident, from, to), "{from:#x} to {to:#x}");
            if space.is_whole(&AREAS[0], from, to) {
                whole += 1;
                assert_eq!(space.resident(from, to), (to - from) as u64, "{from:#x} to {to:#x}");
            }
        }
        // Pages 127 and 128 are in two words, which is not seen at once.
        assert_eq!(whole, 4);
        assert!(!space.is_whole(&AREAS[0], AREAS[0].end, usize::MAX));
        assert_eq!(space.resident(0x10_000, usize::MAX), slowly(&resident, 0x10_000, AREAS[0].end));
        assert_eq!((space.resident(0, 4096), space.resident(0x200_000, 0x204_000)), (0, 0));
    }

    #[test]
    fn the_next_resident_page_and_ranges_of_them() {
        let mut bits = [0; 4];
        let mut space = Space::new(&AREAS, &mut bits);
        assert_eq!(space.next_resident(&AREAS[0], 0), None);
        space.set_range(0x10_000 + 70 * PAGE, 0x10_000 + 130 * PAGE);
        space.set_range(0x201_000, usize::MAX);
        assert_eq!(space.resident(0x10_000, AREAS[0].end), 60 * PAGE as u64);
        assert_eq!(space.next_resident(&AREAS[0], 0), Some(0x10_000 + 70 * PAGE));
        assert_eq!(space.next_resident(&AREAS[0], 0x10_001 + 100 * PAGE), Some(0x10_000 + 101 * PAGE));
        // The next area's bits follow directly.
        assert_eq!(space.next_resident(&AREAS[0], 0x10_000 + 130 * PAGE), None);
        assert_eq!(space.next_resident(&AREAS[1], 0x200_000), Some(0x201_000));
        assert_eq!(space.claim(0x200_000, usize::MAX), 3 * PAGE as u64);
    }

    #[test]
    fn sums_of_some_pages_only_and_the_others_make_the_sums_of_all() {
        let first = 0x10_000;
        let sums = |counted: Option<&[u64; 4]>| {
            let mut bits = [0; 4];
            let mut space = Space::new(&AREAS, &mut bits);
            space.set_range(first, first + 190 * PAGE);
            if let Some(counted) = counted {
                space.count_only(counted);
            }
            assert!(space.is_resident(first) && !space.is_resident(first + 190 * PAGE));
            assert_eq!(space.next_resident(&AREAS[0], first + 3), Some(first + PAGE));
            let parts = [
                space.resident(first + 5, first + 7000),
                space.resident(first + 60 * PAGE + 9, first + 150 * PAGE + 1),
                space.claim(first + 10 * PAGE, first + 80 * PAGE),
                space.claim(first, usize::MAX),
            ];
            assert!(!space.is_resident(first), "pages that do not count are claimed too");
            parts
        };
        let some = [0x5555_0f0f_1234_5671, 0, u64::MAX, 0x3f];
        let others = some.map(|word: u64| !word);
        let (all, some, others) = (sums(None), sums(Some(&some)), sums(Some(&others)));
        assert_eq!(all.map(|sum| sum as usize), [6995, 90 * PAGE - 8, 70 * PAGE, 120 * PAGE]);
        for (all, (some, others)) in all.iter().zip(some.iter().zip(others)) {
            assert!(*some > 0 && others > 0);
            assert_eq!(*all, some + others);
        }
    }

    #[test]
    fn a_page_is_claimed_once() {
        let mut bits = [u64::MAX; 4];
        let mut space = Space::new(&AREAS, &mut bits);
        assert_eq!(space.claim(0x11_000, 0x12_001), 2 * 4096);
        assert_eq!(space.claim(0x10_000, 0x10_000 + 5 * PAGE), 3 * 4096);
        assert_eq!(space.resident(0x10_000, 0x10_000 + 6 * PAGE), 4096);
        assert_eq!(space.claim(0x10_000, usize::MAX), 195 * 4096);
        assert!(
            !space.is_resident(0x10_000) && space.is_resident(0x203_fff) && !space.is_resident(0x204_000)
        );
    }
}
