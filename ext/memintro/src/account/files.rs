//! Mappings of files, of the process itself: a fork does not copy their pages. And what is kept from copies.

use std::fs::File;
use std::os::fd::AsRawFd;

use memintro_analysis::account::lines::{Lines, Word};
use memintro_analysis::account::maps;
use memintro_analysis::account::space::Area;

use super::ROOM;
use super::answer::room_for_maps;
use super::resident::{measure_file, scan_but_zeroes, tells_ranges};
use super::table::Found;
use crate::copy::own_memory::{read_all, slice};

/// Bytes of the answer.
pub(super) const LINES: usize = 8 << 20;
/// Those of them that are kept for what comes after the files.
const KEPT: usize = 64 << 10;

/// What the copy does not have, without its table, is kept from it: more than so much must be sure. Other threads may have
/// mapped it since the copy was made.
const MOST_UNSURE: u64 = 256 << 10;

/// Where the kernel tells ranges of pages: the files that tell.
pub(super) struct Quick {
    maps: File,
    pagemap: File,
}

impl Quick {
    pub(super) fn new() -> Option<Self> {
        let [maps, pagemap] = ["/proc/self/maps", "/proc/self/pagemap"].map(|path| File::open(path).ok());
        let pagemap = pagemap.filter(|file| tells_ranges(file.as_raw_fd()))?;
        Some(Self { maps: maps?, pagemap })
    }

    /// As [`list()`], once the copy has answered. `None` also where only that can tell.
    pub(super) fn list(&self, shared: usize, mut table: Found<'_>) -> Option<Vec<u8>> {
        let pagemap = self.pagemap.as_raw_fd();
        let (mut unsure, mut is_told) = (0, true);
        let lines = list_with(&self.maps, shared, 1, |mapping| {
            if !mapping.is_anonymous() {
                is_told = is_told && measure_file(pagemap, mapping);
            } else if mapping.may_be_asked() && !table.has(mapping) {
                let area = Area { start: mapping.start, end: mapping.end, first_bit: 0 };
                let mut there = 0;
                is_told &= scan_but_zeroes(pagemap, area, |start, end| there += (end - start) as u64);
                (mapping.rss, mapping.is_kept_back) = (there, there > 0);
                unsure += there;
            }
        });
        lines.filter(|_| is_told && unsure <= MOST_UNSURE)
    }
}

/// Writes what is known of files, and what is kept from copies. `shared`: the memory that the copy writes. `None` if
/// the list cannot be read.
pub(super) fn list(smaps: &File, shared: usize) -> Option<Vec<u8>> {
    list_with(smaps, shared, 0, |_| {})
}

fn list_with(
    maps: &File,
    shared: usize,
    by_ranges: u64,
    mut complete: impl FnMut(&mut maps::Mapping<'_>),
) -> Option<Vec<u8>> {
    // Mapped, because a block that long would change how malloc takes memory from then on.
    let room = Mapped::new(room_for_maps(slice)?);
    let out = Mapped::new(slice(LINES)?);
    let text = read_all(maps.as_raw_fd(), room.bytes())?;
    let mut lines = Lines::new(out.bytes());
    let (mut rss, mut other, mut own) = (0, 0, 0);
    let mut files = Files::default();
    maps::each(text, |mut mapping| {
        complete(&mut mapping);
        // What is kept from copies is not there, and so is known as a whole only.
        if (mapping.is_anonymous() && !mapping.is_kept_back) || mapping.rss == 0 {
            return;
        }
        rss += mapping.rss;
        if mapping.start <= shared && shared < mapping.end && mapping.end - mapping.start <= ROOM {
            own += mapping.rss;
        } else if mapping.is_anonymous() {
            other += mapping.rss;
        } else {
            files.add(&mapping, &mut lines);
        }
    });
    files.finish(&mut lines);
    for (key, bytes) in [("own", own), ("other", other), ("rss", rss), ("ranges", by_ranges)] {
        lines.add(key, &[Word::Number(bytes)]);
    }
    lines.add("lost", &[Word::Number(lines.lost())]);
    Some(lines.text().to_vec())
}

/// Memory of [`slice()`], given back.
pub(super) struct Mapped(*mut [u8]);

impl Mapped {
    pub(super) fn new(memory: &'static mut [u8]) -> Self {
        Self(memory)
    }

    /// Called once.
    pub(super) fn bytes(&self) -> &'static mut [u8] {
        // SAFETY: mapped until this is dropped, after all that is made of it.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: a mapping of its own, which is no longer used.
        unsafe { libc::munmap(self.0.cast(), self.0.len()) };
    }
}

/// Sums up neighbours of one name, so that tens of thousands of mappings of one file take one line.
#[derive(Default)]
pub(super) struct Files<'a> {
    name: &'a [u8],
    resident: u64,
    anonymous: u64,
    others: (u64, u64),
}

impl<'a> Files<'a> {
    pub(super) fn add(&mut self, mapping: &maps::Mapping<'a>, lines: &mut Lines<'_>) {
        if mapping.name != self.name {
            self.write(lines);
            self.name = mapping.name;
        }
        self.resident += mapping.rss;
        self.anonymous += mapping.anonymous;
    }

    fn write(&mut self, lines: &mut Lines<'_>) {
        let (resident, anonymous) = (std::mem::take(&mut self.resident), std::mem::take(&mut self.anonymous));
        if resident == 0 {
        } else if lines.room() < KEPT {
            self.others.0 += resident;
            self.others.1 += anonymous;
        } else {
            let numbers = [Word::Number(resident), Word::Number(anonymous), Word::Text(self.name)];
            lines.add("file", &numbers);
        }
    }

    pub(super) fn finish(mut self, lines: &mut Lines<'_>) {
        self.write(lines);
        if self.others.0 > 0 {
            let numbers =
                [Word::Number(self.others.0), Word::Number(self.others.1), Word::Text(b"(further files)")];
            lines.add("file", &numbers);
        }
    }
}
