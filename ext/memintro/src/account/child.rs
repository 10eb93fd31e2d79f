//! What the copy does: allocates nothing, and ends.

use std::sync::atomic::{AtomicU64, Ordering};

use memintro_analysis::account::lines::{Lines, Word};
use memintro_analysis::account::space::{Area, Space};
use memintro_analysis::account::{PAGE, maps};

use super::frozen::{Frozen, Region};
use super::own_memory::{read_all, slice};
use super::{HeapPage, ROOM, Wanted, glibc, objects};

/// Room for the text of smaps: reserved, not taken.
const MAPS_ROOM: usize = 64 << 20;
/// A mapping with more pages is counted as a whole.
const MOST_PAGES: usize = 1 << 28;

pub(super) struct Plan<'a> {
    pub(super) wanted: Wanted,
    pub(super) pages: &'a [HeapPage],
    /// Of the process that was copied.
    pub(super) maps: i32,
    pub(super) text: *mut u8,
    pub(super) room: usize,
    pub(super) length: &'a AtomicU64,
    pub(super) shared: usize,
}

/// The text, whose length everybody sees after each line.
pub(super) struct Answer<'a> {
    lines: Lines<'a>,
    length: &'a AtomicU64,
}

impl Answer<'_> {
    pub(super) fn add(&mut self, key: &str, words: &[Word<'_>]) {
        let length = self.lines.add(key, words);
        self.length.store(length as u64, Ordering::Release);
    }

    pub(super) fn figure(&mut self, key: &str, bytes: u64) {
        self.add(key, &[Word::Number(bytes)]);
    }
}

pub(super) fn run(plan: &Plan<'_>) -> ! {
    become_harmless(plan);
    // SAFETY: the shared memory, which only this copy writes.
    let text = unsafe { std::slice::from_raw_parts_mut(plan.text, plan.room) };
    let mut answer = Answer { lines: Lines::new(text), length: plan.length };
    let done = account(plan, &mut answer).is_some();
    // SAFETY: ends this process without running anything of the program.
    unsafe {
        libc::syscall(libc::SYS_exit_group, i32::from(!done));
        loop {
            libc::pause();
        }
    }
}

/// No handler, descriptor, core file or long life of the program.
fn become_harmless(plan: &Plan<'_>) {
    // SAFETY: system calls with valid arguments; each may fail, and then changes nothing.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"memintro".as_ptr());
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=64 {
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        }
        let mut faults: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut faults);
        for signal in [libc::SIGALRM, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT]
        {
            libc::sigaddset(&raw mut faults, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const faults, std::ptr::null_mut());
        let seconds = i64::from(plan.wanted.seconds.max(1));
        let timer = libc::itimerval {
            it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
            it_value: libc::timeval { tv_sec: seconds, tv_usec: 0 },
        };
        libc::syscall(libc::SYS_setitimer, 0, &raw const timer, 0);
        // Sockets and pipes of the program must not stay open because of this copy.
        let maps = plan.maps.cast_unsigned();
        if maps > 0 {
            libc::syscall(libc::SYS_close_range, 0, maps - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, maps + 1, u32::MAX, 0);
        // If memory runs out now, this copy goes first.
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        libc::write(score, c"1000".as_ptr().cast(), 4);
        libc::close(score);
    }
}

fn open(path: &std::ffi::CStr) -> i32 {
    // SAFETY: a terminated path.
    unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

fn account(plan: &Plan<'_>, answer: &mut Answer<'_>) -> Option<()> {
    // Anonymous memory is read here, where nothing moves; files' pages are not copied by a fork, and are read there.
    let own = read_all(open(c"/proc/self/smaps"), slice(MAPS_ROOM)?)?;
    let theirs = read_all(plan.maps, slice(MAPS_ROOM)?)?;
    let mut count = 0;
    maps::each(own, |_| count += 1);
    let regions = slice::<Region>(count)?;
    let areas = slice::<Area>(count)?;
    let (used, pages) = sort_mappings(plan, own, theirs, regions, areas, answer);
    let mut space = Space::new(areas.get(..used)?, slice(Space::words(pages))?);
    let regions = regions.get_mut(..used)?;
    fill(plan.wanted, &mut space, regions, answer)?;
    let mut frozen = Frozen { space, regions };
    objects::pages(plan.pages, &mut frozen, answer);
    frozen.stacks(answer);
    glibc::walk(&mut frozen, own, answer)?;
    frozen.rest(answer);
    answer.figure("stage", 1);
    // Asks Ruby for sizes, and may fail.
    objects::sizes(plan.pages, &frozen, answer);
    answer.figure("lost", answer.lines.lost());
    answer.figure("stage", 2);
    Some(())
}

/// Writes what is known of mappings of files, and lists the others. Returns how many these are, and their pages.
fn sort_mappings(
    plan: &Plan<'_>,
    own: &'static [u8],
    theirs: &[u8],
    regions: &mut [Region],
    areas: &mut [Area],
    answer: &mut Answer<'_>,
) -> (usize, usize) {
    let mut rss = 0;
    maps::each(theirs, |mapping| {
        if mapping.is_anonymous() || mapping.rss == 0 {
            return;
        }
        rss += mapping.rss;
        if mapping.start <= plan.shared && plan.shared < mapping.end && mapping.end - mapping.start <= ROOM {
            answer.figure("own", mapping.rss);
        } else {
            let numbers =
                [Word::Number(mapping.rss), Word::Number(mapping.anonymous), Word::Text(mapping.name)];
            answer.add("file", &numbers);
        }
    });
    let (mut used, mut bit) = (0, 0);
    let (mut last_file, mut last_file_end, mut guard_end): (&'static [u8], _, _) = (b"", 0, 0);
    maps::each(own, |mapping| {
        let pages = (mapping.end - mapping.start) / PAGE;
        if !mapping.is_anonymous() {
            (last_file, last_file_end) = (mapping.name, if mapping.writable { mapping.end } else { 0 });
            return;
        }
        if !mapping.readable && !mapping.writable {
            guard_end = mapping.end;
        }
        if mapping.rss == 0 {
            return;
        }
        rss += mapping.rss;
        let named = mapping.name.starts_with(b"[") && mapping.name != b"[heap]" && mapping.name != b"[stack]";
        if !mapping.readable || named || pages > MOST_PAGES {
            return answer.add("other", &[Word::Number(mapping.rss), Word::Text(mapping.name)]);
        }
        if let (Some(area), Some(region)) = (areas.get_mut(used), regions.get_mut(used)) {
            *area = Area { start: mapping.start, end: mapping.end, first_bit: bit };
            *region = Region {
                rss: mapping.rss,
                is_stack: mapping.name == b"[stack]",
                is_brk: mapping.name == b"[heap]",
                is_guarded: guard_end == mapping.start,
                file: if mapping.start == last_file_end { last_file } else { b"" },
            };
            used += 1;
            bit += pages;
        }
    });
    answer.figure("rss", rss);
    (used, bit)
}

/// Sets the bits of resident pages.
fn fill(wanted: Wanted, space: &mut Space<'_>, regions: &[Region], answer: &mut Answer<'_>) -> Option<()> {
    const ENTRIES: usize = 1 << 16;
    let entries = slice::<u64>(ENTRIES)?;
    let file = if wanted.pagemap { open(c"/proc/self/pagemap") } else { -1 };
    // SAFETY: a number. A kernel with larger pages has other entries: there, sums of mappings must do.
    let mut exact = file >= 0 && unsafe { libc::sysconf(libc::_SC_PAGESIZE) } == PAGE as i64;
    let mut zero_pages = 0;
    for (area, region) in space.areas().iter().zip(regions) {
        let pages = (area.end - area.start) / PAGE;
        let expected = region.rss as usize / PAGE;
        let mut found = 0;
        let mut at = 0;
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
            found -= without_zero_pages(file, space, *area);
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

/// The page of zeroes that all share is in the page table, but is not counted in RSS. From Linux 6.7 on, the kernel
/// tells which pages these are. Returns how many bits were cleared.
fn without_zero_pages(file: i32, space: &mut Space<'_>, area: Area) -> usize {
    const PAGEMAP_SCAN: u64 = 0xC060_6610;
    const IS_ZERO: u64 = 1 << 5;
    const RANGES: usize = 128;
    let mut ranges = [[0_u64; 3]; RANGES];
    let mut from = area.start as u64;
    let mut cleared = 0;
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
            IS_ZERO,
            0,
            IS_ZERO,
        ];
        // SAFETY: the record of this call, and as much room as it says.
        let got = unsafe { libc::ioctl(file, PAGEMAP_SCAN, ask.as_mut_ptr()) };
        let Some(found) = usize::try_from(got).ok().and_then(|got| ranges.get(..got)) else { break };
        for [start, end, _] in found {
            cleared += space.claim(*start as usize, *end as usize) as usize / PAGE;
        }
        let [.., walked, _, _, _, _, _, _, _] = ask;
        if walked <= from {
            break;
        }
        from = walked;
    }
    cleared
}
