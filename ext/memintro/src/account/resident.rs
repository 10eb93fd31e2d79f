//! Which pages of the copy's anonymous memory are resident: what pagemap says, or else mincore, or else how many there
//! are in each mapping, spread evenly.

use memintro_analysis::account::PAGE;
use memintro_analysis::account::maps::Mapping;
use memintro_analysis::account::space::{Area, Space};

use super::answer::{AnswerWriter, open};
use super::frozen::Region;
use crate::copy::{
    is_filtered,
    own_memory::{slice, slice_apart},
};

/// A mapping with more pages is counted as a whole.
const MOST_PAGES: usize = 1 << 32;
/// So is one with more than this where the kernel cannot tell which of its pages are resident but one by one.
pub(super) const MOST_LISTED_PAGES: usize = 1 << 28;
/// Pages that are asked for at a time.
const ENTRIES: usize = 1 << 16;

/// Who tells which pages are resident.
pub(crate) struct Source {
    /// pagemap, or -1.
    file: i32,
    tells_ranges: bool,
    asks_mincore: bool,
}

/// Ranges of resident pages that are kept, before each area is asked for again.
const MOST_RANGES: usize = 1 << 20;
/// Pages of this size have one entry in page tables of x86-64 and, with pages of 4 KiB, aarch64.
const HUGE_PAGE: usize = 2 << 20;

/// The resident pages, if the kernel lists them by ranges. This takes a fourth of the time of smaps, which
/// looks at each page's description as well.
pub(super) struct Ranges {
    file: i32,
    /// In the order of their addresses.
    list: &'static mut [(usize, usize)],
    used: usize,
    /// All had room.
    is_whole: bool,
    /// Pages that are the page of zeroes.
    zero_pages: usize,
}

/// Says what smaps would say of a file's mapping. False where pages may be ones that are no part of RSS: devices have
/// such, and huge pages that were reserved.
pub(super) fn measure_file(pagemap: i32, mapping: &mut Mapping<'_>) -> bool {
    let in_memory = [&b"/dev/shm/"[..], b"/dev/zero"].iter().any(|start| mapping.name.starts_with(start));
    let of_kernel = [&b"/dev/"[..], b"/sys/", b"/proc/"].iter().any(|start| mapping.name.starts_with(start));
    if !mapping.name.starts_with(b"/") || (of_kernel && !in_memory) {
        return false;
    }
    let (mut rss, mut anonymous, mut has_huge) = (0, 0, false);
    let area = Area { start: mapping.start, end: mapping.end, first_bit: 0 };
    let kinds = Kinds { all: IS_PRESENT, any: 0, told: IS_FILE | IS_ZERO | IS_HUGE };
    let is_told = ranges(pagemap, area, kinds, |start, end, kind| {
        has_huge |= kind & IS_HUGE != 0;
        if kind & IS_ZERO == 0 {
            rss += end - start;
            anonymous += if kind & IS_FILE == 0 { end - start } else { 0 };
        }
    });
    (mapping.rss, mapping.anonymous) = (rss as u64, anonymous as u64);
    is_told && !has_huge
}

impl Ranges {
    /// Says what smaps would say of this mapping, in the order of addresses; false if the kernel does not tell.
    pub(super) fn measure(&mut self, mapping: &mut Mapping<'_>) -> bool {
        let area = Area { start: mapping.start, end: mapping.end, first_bit: 0 };
        let (mut there, mut swapped, mut zero) = (0, 0, 0);
        let kinds = Kinds { any: IS_PRESENT | IS_SWAPPED, told: IS_PRESENT | IS_ZERO | IS_HUGE, all: 0 };
        let is_told = ranges(self.file, area, kinds, |start, end, kind| {
            let pages = (end - start) / PAGE;
            if kind & IS_PRESENT == 0 {
                swapped += pages;
            } else if kind & IS_ZERO != 0 {
                zero += pages;
            } else if kind & IS_HUGE == 0 {
                there += pages;
                self.add(start, end);
            } else {
                for page in (start..end).step_by(HUGE_PAGE) {
                    let end = end.min(page + HUGE_PAGE);
                    if is_no_ones(self.file, page) {
                        zero += (end - page) / PAGE;
                    } else {
                        there += (end - page) / PAGE;
                        self.add(page, end);
                    }
                }
            }
        });
        self.zero_pages += zero;
        (mapping.rss, mapping.swap) = ((there * PAGE) as u64, (swapped * PAGE) as u64);
        is_told
    }

    fn add(&mut self, start: usize, end: usize) {
        match self.list.get_mut(self.used) {
            Some(place) => {
                *place = (start, end);
                self.used += 1;
            }
            None => self.is_whole = false,
        }
    }
}

/// Whether this page of private memory belongs to no process: not all kernels say of a huge page of zeroes that it is one.
fn is_no_ones(pagemap: i32, page: usize) -> bool {
    const IS_SHARED: u64 = 1 << 61;
    let mut entry = 0_u64;
    let place = (page / PAGE * 8) as i64;
    // SAFETY: room for one entry.
    let got = unsafe { libc::pread(pagemap, (&raw mut entry).cast(), 8, place) };
    got == 8 && entry & IS_SHARED != 0
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
        // A filter may end this copy for a call that is not in systemd's `@system-service`.
        let asks_mincore = may_ask && !is_filtered();
        Self { file, tells_ranges: file >= 0 && tells_ranges(file), asks_mincore }
    }

    /// `None` where the kernel does not tell ranges.
    pub(super) fn ranges(&self) -> Option<Ranges> {
        let list = if self.tells_ranges { slice_apart(MOST_RANGES) } else { None }?;
        Some(Ranges { file: self.file, list, used: 0, is_whole: true, zero_pages: 0 })
    }

    pub(super) fn most_pages(&self) -> usize {
        if self.tells_ranges { MOST_PAGES } else { MOST_LISTED_PAGES }
    }

    /// Sets the bits of resident pages. Returns whether some were spread evenly; `None` without memory. `ranges`: of all
    /// mappings.
    pub(super) fn fill(
        &self,
        space: &mut Space<'_>,
        regions: &[Region],
        ranges: Option<&Ranges>,
        answer: &mut AnswerWriter<'_>,
    ) -> Option<bool> {
        if let Some(ranges) = ranges.filter(|ranges| ranges.is_whole) {
            for (start, end) in ranges.list.get(..ranges.used)? {
                space.set_range(*start, *end);
            }
            answer.figure("pagemap", 1);
            answer.figure("zero", (ranges.zero_pages * PAGE) as u64);
            return Some(false);
        }
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
            if told.is_none() && self.asks_mincore {
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

pub(super) fn tells_ranges(pagemap: i32) -> bool {
    scan(pagemap, Area { start: PAGE, end: 2 * PAGE, first_bit: 0 }, IS_PRESENT, |_, _| {})
}

const IS_FILE: u64 = 1 << 2;
pub(crate) const IS_PRESENT: u64 = 1 << 3;
pub(crate) const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;

/// Kinds of pages.
#[derive(Clone, Copy)]
struct Kinds {
    /// Pages that are all of these,
    all: u64,
    /// and one of these, unless there is none,
    any: u64,
    /// are told, with the kinds of these that each is.
    told: u64,
}

/// Visits the ranges of pages that are all of these kinds; Linux can tell since 6.7. Returns whether it told of all.
pub(crate) fn scan(file: i32, area: Area, kinds: u64, mut visit: impl FnMut(usize, usize)) -> bool {
    ranges(file, area, Kinds { all: kinds, any: 0, told: kinds }, |start, end, _| visit(start, end))
}

/// Visits the ranges of resident pages that count.
pub(super) fn scan_but_zeroes(file: i32, area: Area, mut visit: impl FnMut(usize, usize)) -> bool {
    let kinds = Kinds { all: IS_PRESENT, any: 0, told: IS_ZERO };
    ranges(file, area, kinds, |start, end, kind| {
        if kind & IS_ZERO == 0 {
            visit(start, end);
        }
    })
}

/// Visits ranges, with their kinds.
fn ranges(file: i32, area: Area, kinds: Kinds, mut visit: impl FnMut(usize, usize, u64)) -> bool {
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
            kinds.all,
            kinds.any,
            kinds.told,
        ];
        // SAFETY: the record of this call, and as much room as it says.
        let got = unsafe { libc::ioctl(file, PAGEMAP_SCAN, ask.as_mut_ptr()) };
        let Some(found) = usize::try_from(got).ok().and_then(|got| ranges.get(..got)) else { return false };
        for [start, end, kind] in found {
            visit(*start as usize, *end as usize, *kind);
        }
        let [.., walked, _, _, _, _, _, _, _] = ask;
        if walked <= from {
            return false;
        }
        from = walked;
    }
    true
}
