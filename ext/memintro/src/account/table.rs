//! The mappings that the copy has, in memory that it shares with the process: what the process alone has of its own is
//! kept from copies.

use std::sync::atomic::{AtomicU64, Ordering};

use memintro_analysis::account::maps::Mapping;

/// First and last address, and resident bytes.
type Entry = [u64; 3];

/// Where the table is, with its length before it.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    start: *mut u8,
    room: usize,
}

impl Place {
    /// # Safety
    /// Shared memory of so many bytes at a multiple of eight, zeroes at first, which outlives this.
    pub(super) unsafe fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start, room: bytes / size_of::<Entry>() - 1 }
    }

    fn length(&self) -> &AtomicU64 {
        // SAFETY: the promise of `new`.
        unsafe { &*self.start.cast::<AtomicU64>() }
    }

    fn entries(&self) -> *mut Entry {
        self.start.wrapping_add(size_of::<Entry>()).cast()
    }

    /// In the copy, once.
    pub(super) fn table(&self) -> Table {
        // SAFETY: the promise of `new`; it is not read before the length is there.
        let entries = unsafe { std::slice::from_raw_parts_mut(self.entries(), self.room) };
        Table { place: *self, entries, used: 0 }
    }

    /// Once the copy has answered; `None` if it has not listed all.
    pub(super) fn read(&self) -> Option<Found<'_>> {
        let length = usize::try_from(self.length().load(Ordering::Acquire)).ok()?;
        if !(1..=self.room).contains(&length) {
            return None;
        }
        // SAFETY: the promise of `new`; the copy writes no more after it has said the length.
        Some(Found { entries: unsafe { std::slice::from_raw_parts(self.entries(), length) } })
    }
}

/// The table while it is written, in the order of addresses.
pub(super) struct Table {
    place: Place,
    entries: &'static mut [Entry],
    used: usize,
}

impl Table {
    pub(super) fn add(&mut self, mapping: &Mapping<'_>) {
        if let Some(entry) = self.entries.get_mut(self.used) {
            *entry = [mapping.start as u64, mapping.end as u64, mapping.rss];
        }
        self.used += 1;
    }

    pub(super) fn finish(&self) {
        let length = if self.used <= self.entries.len() { self.used } else { 0 };
        self.place.length().store(length as u64, Ordering::Release);
    }
}

/// The table of a copy that has answered.
pub(super) struct Found<'a> {
    entries: &'a [Entry],
}

impl Found<'_> {
    /// Whether the copy has pages of this mapping. Called in the order of addresses.
    pub(super) fn has(&mut self, mapping: &Mapping<'_>) -> bool {
        let (start, end) = (mapping.start as u64, mapping.end as u64);
        let before = self.entries.partition_point(|entry| entry[1] <= start);
        self.entries = self.entries.get(before..).unwrap_or_default();
        self.entries.iter().take_while(|entry| entry[0] < end).any(|entry| entry[2] > 0)
    }
}
