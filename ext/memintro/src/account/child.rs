//! What the copy does: allocates nothing, and ends.

use std::sync::atomic::{AtomicU64, Ordering};

use memintro_abi::HookApi;
use memintro_analysis::account::lines::{Lines, Word};
use memintro_analysis::account::owners::Owners;
use memintro_analysis::account::space::{Area, Space};
use memintro_analysis::account::{PAGE, maps};

use crate::copy;
use crate::copy::own_memory::{read_all, slice};

use super::frozen::{Frozen, LastFile, Region};
use super::{HeapPage, Wanted, glibc, objects, sites};

/// Room for the text of smaps: reserved, not taken. The most that the limits of the process let it have.
const MAPS_ROOM: [usize; 3] = [1 << 30, 64 << 20, 4 << 20];
/// A mapping with more pages is counted as a whole.
const MOST_PAGES: usize = 1 << 32;
/// So is one with more than this where the kernel cannot tell which of its pages are resident but one by one.
const MOST_LISTED_PAGES: usize = 1 << 28;
/// For call sites of blocks.
const SITES_SECONDS: i64 = 2;

pub(crate) struct Plan<'a> {
    pub(crate) wanted: Wanted,
    pub(crate) pages: &'a [HeapPage],
    /// What the hook has mapped for itself.
    pub(crate) own: &'a [(usize, usize)],
    /// The hook, while it tracks.
    pub(crate) hook: Option<&'static HookApi>,
    /// The process that was copied.
    pub(crate) parent: libc::pid_t,
    pub(crate) text: *mut u8,
    pub(crate) room: usize,
    pub(crate) length: &'a AtomicU64,
}

/// The text, whose length everybody sees after each line.
pub(crate) struct Answer<'a> {
    lines: Lines<'a>,
    length: &'a AtomicU64,
    /// Lines that say that something could not be read to its end.
    pub(crate) broken: u64,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(text: &'a mut [u8], length: &'a AtomicU64) -> Self {
        Self { lines: Lines::new(text), length, broken: 0 }
    }

    /// Lines for which there was no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lines.lost()
    }

    pub(crate) fn add(&mut self, key: &str, words: &[Word<'_>]) {
        self.broken += u64::from(key == "broken");
        let length = self.lines.add(key, words);
        self.length.store(length as u64, Ordering::Release);
    }

    pub(crate) fn figure(&mut self, key: &str, bytes: u64) {
        self.add(key, &[Word::Number(bytes)]);
    }
}

pub(crate) fn run(plan: &Plan<'_>) -> ! {
    copy::become_harmless(plan.parent, plan.wanted.seconds, []);
    // SAFETY: the shared memory, which only this copy writes.
    let text = unsafe { std::slice::from_raw_parts_mut(plan.text, plan.room) };
    let mut answer = Answer::new(text, plan.length);
    let done = account(plan, &mut answer).is_some();
    copy::end(done)
}

pub(crate) fn open(path: &std::ffi::CStr) -> i32 {
    // SAFETY: a terminated path.
    unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

fn account(plan: &Plan<'_>, answer: &mut Answer<'_>) -> Option<()> {
    let own = read_all(open(c"/proc/self/smaps"), room_for_maps()?)?;
    let pagemap = open(c"/proc/self/pagemap");
    let mut count = 0;
    maps::each(own, |_| count += 1);
    let regions = slice::<Region>(count)?;
    let areas = slice::<Area>(count)?;
    let (used, pages) = sort_mappings(own, most_pages(pagemap), regions, areas, answer);
    let mut space = Space::new(areas.get(..used)?, slice(Space::words(pages))?);
    let regions = regions.get_mut(..used)?;
    fill(if plan.wanted.pagemap { pagemap } else { -1 }, &mut space, regions, answer)?;
    let mut frozen = Frozen { space, regions, malloc: None, owners: None };
    own_ranges(plan.own, &mut frozen, answer);
    objects::pages(plan.pages, &mut frozen, answer);
    frozen.stacks(answer);
    if !plan.pages.is_empty() {
        // Without memory for these, whose a block is must be told by sizes.
        frozen.malloc = slice(Space::words(pages)).map(|bits| frozen.space.copy(bits));
        frozen.owners = slice(Owners::bytes(pages)).map(|map| Owners::new(frozen.space.areas(), map));
    }
    glibc::walk(&mut frozen, own, answer)?;
    frozen.rest(answer);
    answer.figure("stage", 1);
    // Asks Ruby for sizes, and may fail.
    objects::sizes(plan.pages, &mut frozen, answer);
    answer.figure("stage", 2);
    if let (Some(api), Some(owners)) = (plan.hook, &frozen.owners) {
        // Another thread may have been recording at the instant of the copy, and never ends here.
        set_timer(SITES_SECONDS);
        sites::list(api, owners, answer)?;
        answer.figure("stage", 4);
    }
    answer.figure("lost", answer.lost());
    Some(())
}

/// What the hook has mapped for its tables.
pub(crate) fn own_ranges(list: &[(usize, usize)], frozen: &mut Frozen<'_>, answer: &mut Answer<'_>) {
    let mut resident = 0;
    for (start, end) in list {
        let mut from = *start;
        // A range may lie in several mappings.
        while from < *end
            && let Some(area) = frozen.space.area_from(from).filter(|area| area.start < *end)
        {
            let first = from.max(area.start);
            from = area.end;
            resident += frozen.space.claim(first, area.end.min(*end));
        }
    }
    answer.figure("own", resident);
}

fn set_timer(seconds: i64) {
    let timer = libc::itimerval {
        it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
        it_value: libc::timeval { tv_sec: seconds, tv_usec: 0 },
    };
    // SAFETY: a valid record.
    unsafe { libc::syscall(libc::SYS_setitimer, 0, &raw const timer, 0) };
}

pub(crate) fn room_for_maps() -> Option<&'static mut [u8]> {
    MAPS_ROOM.into_iter().find_map(slice)
}

/// Lists the mappings that are no files'. Returns how many these are, and their pages.
fn sort_mappings(
    own: &'static [u8],
    most_pages: usize,
    regions: &mut [Region],
    areas: &mut [Area],
    answer: &mut Answer<'_>,
) -> (usize, usize) {
    let (mut rss, mut other) = (0, 0);
    let (mut used, mut bit, mut code) = (0_usize, 0, 0);
    let (mut last_file, mut guard_end) = (LastFile::default(), 0);
    maps::each(own, |mapping| {
        let pages = (mapping.end - mapping.start) / PAGE;
        if !mapping.is_anonymous() {
            last_file = LastFile::new(&mapping);
            return;
        }
        if !mapping.readable && !mapping.writable {
            guard_end = mapping.end;
        }
        if mapping.is_kept_back {
            return;
        }
        let named = mapping.name.starts_with(b"[") && mapping.name != b"[heap]" && mapping.name != b"[stack]";
        let is_whole = !mapping.readable || named || pages > most_pages;
        if let Some(last) = used.checked_sub(1)
            && let (Some(area), Some(region)) = (areas.get_mut(last), regions.get_mut(last))
            && !is_whole
            && region.goes_on(area, &mapping)
        {
            rss += mapping.rss;
            region.rss += mapping.rss;
            area.end = mapping.end;
            bit += pages;
            return;
        }
        if mapping.rss == 0 {
            return;
        }
        rss += mapping.rss;
        if mapping.executable && mapping.name != b"[vdso]" {
            code += mapping.rss;
        }
        if is_whole {
            other += mapping.rss;
            return;
        }
        if let (Some(area), Some(region)) = (areas.get_mut(used), regions.get_mut(used)) {
            *area = Area { start: mapping.start, end: mapping.end, first_bit: bit };
            *region = Region {
                rss: mapping.rss,
                is_plain: mapping.writable && !mapping.executable,
                is_stack: mapping.name == b"[stack]",
                is_brk: mapping.name == b"[heap]",
                is_guarded: guard_end == mapping.start,
                file: last_file.of_data(mapping.start),
            };
            used += 1;
            bit += pages;
        }
    });
    answer.figure("other", other);
    answer.figure("code", code);
    answer.figure("rss", rss);
    (used, bit)
}

/// Sets the bits of resident pages. `file`: pagemap, or -1.
fn fill(file: i32, space: &mut Space<'_>, regions: &[Region], answer: &mut Answer<'_>) -> Option<()> {
    const ENTRIES: usize = 1 << 16;
    let entries = slice::<u64>(ENTRIES)?;
    // SAFETY: a number. A kernel with larger pages has other entries: there, sums of mappings must do.
    let mut exact = file >= 0 && unsafe { libc::sysconf(libc::_SC_PAGESIZE) } == PAGE as i64;
    let tells_ranges = exact && tells_ranges(file);
    let mut zero_pages = 0;
    for (area, region) in space.areas().iter().zip(regions) {
        let pages = (area.end - area.start) / PAGE;
        let expected = region.rss as usize / PAGE;
        let mut found = 0;
        let mut at = 0;
        // Ranges are many times as fast as an entry for each page, where the kernel tells them.
        if exact && tells_ranges {
            let is_whole = scan(file, *area, IS_PRESENT, |start, end| {
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
        while exact && at < pages {
            let want = ENTRIES.min(pages - at);
            let place = (area.start / PAGE + at) * 8;
            let Ok(place) = i64::try_from(place) else { break };
            // SAFETY: room for so many entries.
            let got = unsafe { libc::pread(file, entries.as_mut_ptr().cast(), want * 8, place) };
            let got = usize::try_from(got).unwrap_or(0) / 8;
            for (index, entry) in entries.get(..got)?.iter().enumerate() {
                let is_there = entry >> 63 == 1;
                found += usize::from(is_there);
                space.set(area.first_bit + at + index, is_there);
            }
            exact = got > 0;
            at += got.max(1);
        }
        if exact && found > expected {
            // The page of zeroes that all share is in the page table, but is not counted in RSS.
            scan(file, *area, IS_PRESENT | IS_ZERO, |start, end| {
                found = found.saturating_sub(space.claim(start, end) as usize / PAGE);
            });
        }
        if !exact {
            // Spread evenly.
            for page in 0..pages {
                space.set(area.first_bit + page, (page + 1) * expected / pages > page * expected / pages);
            }
            found = expected;
        }
        zero_pages += found.saturating_sub(expected);
    }
    answer.figure("pagemap", u64::from(exact));
    answer.figure("zero", (zero_pages * PAGE) as u64);
    Some(())
}

fn most_pages(pagemap: i32) -> usize {
    if pagemap >= 0 && tells_ranges(pagemap) { MOST_PAGES } else { MOST_LISTED_PAGES }
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
