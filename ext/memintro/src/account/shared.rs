//! Which pages this process shares with others, read before the copy is made: the copy shares all of them.
//!
//! Pages of files are summed up by name. Of anonymous ones, which a fork leaves to both processes until one of them writes,
//! each has a bit in memory that the copy sees.

use std::fs::File;
use std::os::fd::AsRawFd;

use memintro_analysis::account::PAGE;
use memintro_analysis::account::lines::{Lines, Word};
use memintro_analysis::account::maps;
use memintro_analysis::account::space::Area;

use super::answer::room_for_maps;
use super::files::{Files, LINES, Mapped};
use super::resident::{IS_PRESENT, MOST_LISTED_PAGES, scan, tells_ranges};
use crate::copy::own_memory::{read_all, slice};

/// Pages of a group, which begins at a multiple of so many.
const GROUP: usize = 64;
/// Entries of pagemap that are read at a time.
const ENTRIES: usize = 512;
/// Bits of an entry: the page is there; no other mapping has it.
const IS_THERE: u64 = 1 << 63;
const IS_ALONE: u64 = 1 << 56;

/// An address and the pages from there on that are shared.
type Group = [u64; 2];

/// Room for groups, in memory that the copy has as well.
#[derive(Clone, Copy)]
pub(super) struct Room {
    start: *mut Group,
    most: usize,
}

/// The shared pages.
pub(crate) struct SharedPages {
    room: Room,
    used: usize,
    /// Lines about files, in the form of the others.
    pub(super) files: Vec<u8>,
}

impl Room {
    /// # Safety
    /// Shared memory of so many bytes at a multiple of eight, which outlives all that is made of this.
    pub(super) unsafe fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start: start.cast(), most: bytes / size_of::<Group>() }
    }

    /// Reads which pages are shared; `None` where the kernel does not tell, or if there are too many.
    pub(super) fn read(self) -> Option<SharedPages> {
        // SAFETY: a number. A kernel with larger pages has other entries.
        if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } != PAGE as i64 {
            return None;
        }
        let [smaps, pagemap] = ["/proc/self/smaps", "/proc/self/pagemap"].map(|path| File::open(path).ok());
        let (smaps, pagemap) = (smaps?, pagemap?);
        let text = Mapped::new(room_for_maps(slice)?);
        let out = Mapped::new(slice(LINES)?);
        let text = read_all(smaps.as_raw_fd(), text.bytes())?;
        let (mut lines, mut files, mut rss) = (Lines::new(out.bytes()), Files::default(), 0);
        let mut reader = Reader {
            pagemap: pagemap.as_raw_fd(),
            tells_ranges: tells_ranges(pagemap.as_raw_fd()),
            entries: [0; ENTRIES],
            room: self,
            used: 0,
        };
        let mut is_told = true;
        maps::each(text, |mapping| {
            if mapping.shared == 0 || !is_told {
            } else if mapping.is_anonymous() {
                is_told = reader.add(&mapping).is_some();
            } else {
                rss += mapping.shared;
                files.add(&maps::Mapping { rss: mapping.shared, anonymous: 0, ..mapping }, &mut lines);
            }
        });
        files.finish(&mut lines);
        lines.add("rss", &[Word::Number(rss)]);
        is_told.then(|| SharedPages { room: self, used: reader.used, files: lines.text().to_vec() })
    }
}

struct Reader {
    pagemap: i32,
    tells_ranges: bool,
    entries: [u64; ENTRIES],
    room: Room,
    used: usize,
}

impl Reader {
    /// Adds the shared pages of an anonymous mapping.
    fn add(&mut self, mapping: &maps::Mapping<'_>) -> Option<()> {
        let area = Area { start: mapping.start, end: mapping.end, first_bit: 0 };
        if !self.tells_ranges {
            return if (area.end - area.start) / PAGE <= MOST_LISTED_PAGES {
                self.range(area.start, area.end)
            } else {
                None
            };
        }
        let mut is_told = true;
        let pagemap = self.pagemap;
        let is_whole = scan(pagemap, area, IS_PRESENT, |start, end| {
            is_told = is_told && self.range(start, end).is_some();
        });
        (is_whole && is_told).then_some(())
    }

    fn range(&mut self, start: usize, end: usize) -> Option<()> {
        let mut at = start;
        while at < end {
            let want = ENTRIES.min((end - at) / PAGE);
            let place = i64::try_from(at / PAGE * 8).ok()?;
            // SAFETY: room for so many entries.
            let got = unsafe { libc::pread(self.pagemap, self.entries.as_mut_ptr().cast(), want * 8, place) };
            let got = usize::try_from(got).ok().map(|got| got / 8).filter(|got| *got > 0)?;
            for index in 0..got {
                let entry = self.entries.get(index).copied().unwrap_or(0);
                if entry & IS_THERE != 0 && entry & IS_ALONE == 0 {
                    self.set(at + index * PAGE)?;
                }
            }
            at += got * PAGE;
        }
        Some(())
    }

    /// Pages come in the order of their addresses.
    fn set(&mut self, page: usize) -> Option<()> {
        let first = page / PAGE / GROUP * GROUP * PAGE;
        let bit = 1_u64 << (page / PAGE % GROUP);
        // SAFETY: the promise of `Room::new`; no other thread has this memory yet.
        let groups = unsafe { std::slice::from_raw_parts_mut(self.room.start, self.room.most) };
        if let Some(last) = self.used.checked_sub(1).and_then(|last| groups.get_mut(last))
            && last[0] == first as u64
        {
            last[1] |= bit;
            return Some(());
        }
        *groups.get_mut(self.used)? = [first as u64, bit];
        self.used += 1;
        Some(())
    }
}

impl SharedPages {
    /// Bytes of anonymous memory in shared pages.
    pub(super) fn bytes(&self) -> u64 {
        let mut pages = 0;
        self.each(|_| pages += 1);
        pages * PAGE as u64
    }

    /// Visits the addresses of all shared pages of anonymous memory, in their order.
    pub(super) fn each(&self, mut visit: impl FnMut(usize)) {
        // SAFETY: the promise of `Room::new`; so many were written.
        let groups = unsafe { std::slice::from_raw_parts(self.room.start, self.used) };
        for [first, bits] in groups {
            for number in (0..GROUP).filter(|number| bits >> number & 1 == 1) {
                visit(*first as usize + number * PAGE);
            }
        }
    }
}
