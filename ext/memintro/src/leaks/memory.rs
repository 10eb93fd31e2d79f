//! The memory of the copy: its mappings, which of their pages are there, and reading their words.

use memintro_analysis::account::maps::{self, Mapping};
use memintro_analysis::account::space::{Area, Space};
use memintro_analysis::account::{PAGE, maps::each};
use memintro_analysis::leaks::mark::Memory;
use memintro_analysis::leaks::ranges::around;
use memintro_analysis::leaks::unused::Read;

use crate::account::frozen::{LastFile, Region, prefetch, read};
use crate::account::resident::{IS_PRESENT, IS_SWAPPED, scan};
use crate::copy::own_memory::slice;

/// Larger ranges are read page by page, because most of their pages may never have been written.
const SMALL: usize = 32 << 10;

/// What a mapping is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Anonymous,
    /// Writable data of a module.
    Data,
    /// Code that was made at run time: addresses in it are at any place.
    Code,
}

/// The mappings that are searched.
pub(super) struct Mappings {
    pub(super) areas: &'static [Area],
    pub(super) regions: &'static mut [Region],
    pub(super) kinds: &'static [Kind],
    pub(super) pages: usize,
    /// Bytes that are there but must not be read.
    pub(super) unreadable: u64,
}

/// Lists what a process may keep addresses in: memory of its own, and of files what it has changed.
pub(super) fn mappings(text: &'static [u8]) -> Option<Mappings> {
    let mut count = 0;
    maps::each(text, |_| count += 1);
    let (areas, regions, kinds) = (slice::<Area>(count)?, slice::<Region>(count)?, slice::<Kind>(count)?);
    let (mut used, mut pages, mut unreadable) = (0_usize, 0, 0);
    let (mut last_file, mut guard_end) = (LastFile::default(), 0);
    each(text, |mapping| {
        let is_file = !mapping.is_anonymous();
        if is_file {
            last_file = LastFile::new(&mapping);
        } else if !mapping.readable && !mapping.writable {
            guard_end = mapping.end;
        }
        if let Some(last) = used.checked_sub(1)
            && let (Some(area), Some(region)) = (areas.get_mut(last), regions.get_mut(last))
            && region.goes_on(area, &mapping)
        {
            region.rss += mapping.rss + mapping.swap;
            area.end = mapping.end;
            pages += (mapping.end - mapping.start) / PAGE;
            return;
        }
        if !is_wanted(&mapping) {
            return;
        }
        if !mapping.readable {
            unreadable += mapping.rss;
            return;
        }
        let places = (areas.get_mut(used), regions.get_mut(used), kinds.get_mut(used));
        if let (Some(area), Some(region), Some(kind)) = places {
            *area = Area { start: mapping.start, end: mapping.end, first_bit: pages };
            *region = Region {
                rss: mapping.rss + mapping.swap,
                is_plain: mapping.writable && !mapping.executable,
                is_stack: mapping.name == b"[stack]",
                is_brk: mapping.name == b"[heap]",
                is_guarded: guard_end == mapping.start,
                file: if is_file { mapping.name } else { last_file.of_data(mapping.start) },
            };
            *kind = match (is_file, mapping.executable) {
                (true, _) => Kind::Data,
                (false, true) => Kind::Code,
                (false, false) => Kind::Anonymous,
            };
            used += 1;
            pages += (mapping.end - mapping.start) / PAGE;
        }
    });
    let kinds = kinds.get(..used)?;
    Some(Mappings { areas: areas.get(..used)?, regions: regions.get_mut(..used)?, kinds, pages, unreadable })
}

fn is_wanted(mapping: &Mapping<'_>) -> bool {
    if !mapping.private || mapping.rss + mapping.swap == 0 || mapping.is_kept_back {
        return false;
    }
    if !mapping.is_anonymous() {
        return mapping.anonymous + mapping.swap > 0 && !mapping.executable;
    }
    // The kernel's own are no memory of the process.
    let is_special = mapping.name.starts_with(b"[") && !mapping.name.starts_with(b"[anon");
    !is_special || matches!(mapping.name, b"[heap]" | b"[stack]")
}

/// Sets the bits of pages that are there, swapped ones included. `None` if the kernel does not tell.
pub(super) fn fill(file: i32, space: &mut Space<'_>, regions: &[Region]) -> Option<()> {
    const ENTRIES: usize = 1 << 16;
    const SPARSE: usize = 64;
    let entries = slice::<u64>(ENTRIES)?;
    // SAFETY: a number. A kernel with larger pages has other entries.
    if file < 0 || unsafe { libc::sysconf(libc::_SC_PAGESIZE) } != PAGE as i64 {
        return None;
    }
    for (area, region) in space.areas().iter().zip(regions) {
        let pages = (area.end - area.start) / PAGE;
        if pages > SPARSE * (region.rss as usize / PAGE) && pages > ENTRIES {
            let both = [IS_PRESENT, IS_SWAPPED]
                .iter()
                .all(|kind| scan(file, *area, *kind, |start, end| space.set_range(start, end)));
            if both {
                continue;
            }
        }
        let mut at = 0;
        while at < pages {
            let want = ENTRIES.min(pages - at);
            let place = i64::try_from((area.start / PAGE + at) * 8).ok()?;
            // SAFETY: room for so many entries.
            let got = unsafe { libc::pread(file, entries.as_mut_ptr().cast(), want * 8, place) };
            let got = usize::try_from(got).ok().filter(|got| *got >= 8)? / 8;
            for (index, entry) in entries.get(..got)?.iter().enumerate() {
                if entry >> 62 != 0 {
                    space.set(area.first_bit + at + index, true);
                }
            }
            at += got;
        }
    }
    Some(())
}

/// Words of pages that are there.
pub(super) struct Words<'a> {
    pub(super) there: &'a Space<'a>,
    /// What is out of use, in the order of its addresses.
    pub(super) unused: &'a [(usize, usize)],
}

impl Read for Words<'_> {
    fn word(&self, at: usize) -> Option<u64> {
        // SAFETY: a word of a page that is there.
        (at.is_multiple_of(8) && self.there.is_resident(at)).then(|| unsafe { read(at) })
    }

    #[inline]
    fn known(&self, at: usize) -> Option<usize> {
        // SAFETY: the caller's range lies within a readable mapping of this process.
        Some(unsafe { read(at) } as usize)
    }
}

impl Memory for Words<'_> {
    fn words_in_use(&self, from: usize, to: usize, mut visit: impl FnMut(usize, usize)) {
        around(self.unused, from, to, |from, to| self.words(from, to, &mut visit));
    }

    #[inline]
    fn fetch(&self, address: usize) {
        prefetch(address);
    }

    #[inline]
    fn words(&self, from: usize, to: usize, mut visit: impl FnMut(usize, usize)) {
        if to.saturating_sub(from) <= SMALL {
            // SAFETY: the caller's range lies within a readable mapping of this process, in which nothing else runs.
            unsafe { each_word(from, to, &mut visit) };
            return;
        }
        let Some(area) = self.there.area(from) else { return };
        let to = to.min(area.end);
        let mut at = from & !(PAGE - 1);
        while let Some(page) = self.there.next_resident(area, at).filter(|page| *page < to) {
            // SAFETY: as above.
            unsafe { each_word(page.max(from), (page + PAGE).min(to), &mut visit) };
            at = page + PAGE;
        }
    }
}

/// # Safety
/// The range is readable.
#[inline]
unsafe fn each_word(from: usize, to: usize, visit: &mut impl FnMut(usize, usize)) {
    let mut at = from.next_multiple_of(8);
    while at + 8 <= to {
        // SAFETY: within the caller's range, at a multiple of eight.
        visit(at, unsafe { read(at) } as usize);
        at += 8;
    }
}
