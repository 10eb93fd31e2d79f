//! Writes the copy's lines, and provides room for its readings.

use std::sync::atomic::{AtomicU64, Ordering};

use memintro_analysis::account::lines::{Lines, Word};

/// Room for the text of smaps: reserved, not taken. The most that the limits of the process let it have.
const MAPS_ROOM: [usize; 3] = [1 << 30, 64 << 20, 4 << 20];

/// The text, whose length everybody sees after each line.
pub(crate) struct AnswerWriter<'a> {
    lines: Lines<'a>,
    length: &'a AtomicU64,
    /// Lines that say that something could not be read to its end.
    pub(crate) broken: u64,
}

impl<'a> AnswerWriter<'a> {
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

pub(crate) fn open(path: &std::ffi::CStr) -> i32 {
    // SAFETY: a terminated path.
    unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

/// `map`: what maps it.
pub(crate) fn room_for_maps(map: fn(usize) -> Option<&'static mut [u8]>) -> Option<&'static mut [u8]> {
    MAPS_ROOM.into_iter().find_map(map)
}
