//! Which pages of the copy's anonymous memory are resident: what pagemap says, or else mincore, or else how many there
//! are in each mapping, spread evenly.

use memintro_analysis::account::PAGE;
use memintro_analysis::account::space::{Area, Space};

use super::answer::{Answer, open};
use super::frozen::Region;
use crate::copy::own_memory::slice;

/// A mapping with more pages is counted as a whole.
const MOST_PAGES: usize = 1 << 32;
/// So is one with more than this where the kernel cannot tell which of its pages are resident but one by one.
const MOST_LISTED_PAGES: usize = 1 << 28;
/// Pages that are asked for at a time.
const ENTRIES: usize = 1 << 16;

/// Who tells which pages are resident.
pub(crate) struct Source {
    /// pagemap, or -1.
    file: i32,
    tells_ranges: bool,
    may_ask: bool,
}

/// Room for one answer.
struct Room {
    entries: &'static mut [u64],
    bytes: &'static mut [u8],
}

impl Source {
    /// `may_ask`: otherwise all is spread evenly.
    pub(super) fn new(may_ask: bool) -> Self {
        // SAFETY: a number. A kernel with larger pages has other entries: there, sums of mappings must do.
        let may_ask = may_ask && unsafe { libc::sysconf(libc::_SC_PAGESIZE) } == PAGE as i64;
        let file = if may_ask { open(c"/proc/self/pagemap") } else { -1 };
        Self { file, tells_ranges: file >= 0 && tells_ranges(file), may_ask }
    }

    pub(super) fn most_pages(&self) -> usize {
        if self.tells_ranges { MOST_PAGES } else { MOST_LISTED_PAGES }
    }

    /// Sets the bits of resident pages. Returns whether some were spread evenly; `None` without memory.
    pub(super) fn fill(
        &self,
        space: &mut Space<'_>,
        regions: &[Region],
        answer: &mut Answer<'_>,
    ) -> Option<bool> {
        let room = &mut Room { entries: slice(ENTRIES)?, bytes: slice(ENTRIES)? };
        let (mut zero_pages, mut is_exact, mut is_spread) = (0, true, false);
        let mut asks_pagemap = self.file >= 0;
        for (area, region) in space.areas().iter().zip(regions) {
            let expected = region.rss as usize / PAGE;
            let mut told = None;
            if asks_pagemap {
                told = self.by_pagemap(space, area, expected, room);
                asks_pagemap = told.is_some();
            }
            if told.is_none() && self.may_ask {
                space.claim(area.start, area.end);
                told = by_mincore(space, area, expected, room);
                // mincore does not tell the page of zeroes and pages of the swap cache from those that count.
                is_exact &= told == Some(expected);
            }
            if told.is_none() {
                space.claim(area.start, area.end);
                spread(space, area, expected);
                (is_exact, is_spread) = (false, true);
            }
            zero_pages += told.unwrap_or(expected).saturating_sub(expected);
        }
        answer.figure("pagemap", u64::from(is_exact));
        answer.figure("zero", (zero_pages * PAGE) as u64);
        Some(is_spread)
    }

    /// Returns how many pages there are; `None` if the file does not tell.
    fn by_pagemap(
        &self,
        space: &mut Space<'_>,
        area: &Area,
        expected: usize,
        room: &mut Room,
    ) -> Option<usize> {
        let pages = (area.end - area.start) / PAGE;
        let (mut found, mut at) = (0, 0);
        // Ranges are many times as fast as an entry for each page, where the kernel tells them.
        if self.tells_ranges {
            let is_whole = scan(self.file, *area, IS_PRESENT, |start, end| {
                space.set_range(start, end);
                found += (end - start) / PAGE;
            });
            if is_whole {
                at = pages;
            } else {
                space.claim(area.start, area.end);
                found = 0;
            }
        }
        while at < pages {
            let want = ENTRIES.min(pages - at);
            let place = i64::try_from((area.start / PAGE + at) * 8).ok()?;
            // SAFETY: room for so many entries.
            let got = unsafe { libc::pread(self.file, room.entries.as_mut_ptr().cast(), want * 8, place) };
            let got = usize::try_from(got).unwrap_or(0) / 8;
            if got == 0 {
                return None;
            }
            for (index, entry) in room.entries.get(..got)?.iter().enumerate() {
                let is_there = entry >> 63 == 1;
                found += usize::from(is_there);
                space.set(area.first_bit + at + index, is_there);
            }
            at += got;
        }
        if found > expected {
            // The page of zeroes that all share is in the page table, but is not counted in RSS.
            scan(self.file, *area, IS_PRESENT | IS_ZERO, |start, end| {
                found = found.saturating_sub(space.claim(start, end) as usize / PAGE);
            });
        }
        Some(found)
    }
}

/// Returns how many pages there are; `None` if that cannot be: some kernels say of every page that it is there.
fn by_mincore(space: &mut Space<'_>, area: &Area, expected: usize, room: &mut Room) -> Option<usize> {
    let pages = (area.end - area.start) / PAGE;
    let mut found = 0;
    for at in (0..pages).step_by(ENTRIES) {
        let want = ENTRIES.min(pages - at);
        let start = std::ptr::with_exposed_provenance_mut(area.start + at * PAGE);
        // SAFETY: room for a byte for each page. Only this call writes it.
        if unsafe { libc::mincore(start, want * PAGE, room.bytes.as_mut_ptr()) } != 0 {
            return None;
        }
        for (index, page) in room.bytes.get(..want)?.iter().enumerate() {
            if page & 1 == 1 {
                found += 1;
                space.set(area.first_bit + at + index, true);
            }
        }
    }
    (found >= expected && found - expected <= expected / 4).then_some(found)
}

/// The last page is always among them, because a stack is used from its end.
fn spread(space: &mut Space<'_>, area: &Area, expected: usize) {
    let pages = (area.end - area.start) / PAGE;
    for number in 1..=expected.min(pages) {
        space.set(area.first_bit + (number * pages).div_ceil(expected) - 1, true);
    }
}

fn tells_ranges(pagemap: i32) -> bool {
    scan(pagemap, Area { start: PAGE, end: 2 * PAGE, first_bit: 0 }, IS_PRESENT, |_, _| {})
}

pub(crate) const IS_PRESENT: u64 = 1 << 3;
pub(crate) const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;

/// Visits the ranges of pages that are all of these kinds; Linux can tell since 6.7. Returns whether it told of all.
pub(crate) fn scan(file: i32, area: Area, kinds: u64, mut visit: impl FnMut(usize, usize)) -> bool {
    const PAGEMAP_SCAN: u64 = 0xC060_6610;
    const RANGES: usize = 128;
    let mut ranges = [[0_u64; 3]; RANGES];
    let mut from = area.start as u64;
    while from < area.end as u64 {
        // size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, returned
        let mut ask = [
            96,
            0,
            from,
            area.end as u64,
            0,
            ranges.as_mut_ptr() as u64,
            RANGES as u64,
            0,
            0,
            kinds,
            0,
            kinds,
        ];
        // SAFETY: the record of this call, and as much room as it says.
        let got = unsafe { libc::ioctl(file, PAGEMAP_SCAN, ask.as_mut_ptr()) };
        let Some(found) = usize::try_from(got).ok().and_then(|got| ranges.get(..got)) else { return false };
        for [start, end, _] in found {
            visit(*start as usize, *end as usize);
        }
        let [.., walked, _, _, _, _, _, _, _] = ask;
        if walked <= from {
            return false;
        }
        from = walked;
    }
    true
}
