//! What frozen copies of the process have found, line by line.

use crate::copy_lines::{CopyLines, Row, Shape, addressed, numbers};
use crate::text::units::{bytes, counted};

/// What follows each word of the copy's lines that only this one writes.
const SHAPES: &[(&str, Shape)] = &[
    ("unreadable", numbers(1)),
    ("registers", numbers(3)),
    ("doubted", numbers(1)),
    ("kept_back", numbers(1)),
    ("no_pagemap", numbers(1)),
    ("followed", numbers(1)),
    ("sampled", numbers(1)),
    ("chunks", numbers(1)),
    ("given_up", numbers(1)),
    ("searched", numbers(2)),
    ("scanned", numbers(2)),
    ("group", numbers(9)),
    ("words", addressed(8)),
    ("verdict", numbers(4)),
    ("anchored", numbers(11)),
    ("anchored_all", numbers(2)),
    ("owner", numbers(7)),
];
/// Instead of the number of a call site.
pub const NO_SITE: u32 = u32::MAX;
/// What malloc's own sums may differ by: the host allocates a little between them and its copy.
const SLACK: i64 = 256 << 10;
/// Numbers of verdicts.
const UNDECIDED: u64 = 2;

/// Bytes in use in arenas, mapped blocks and their bytes, as malloc has them.
type InUse = (i64, i64, i64);

/// What one look at the process has given.
#[derive(Clone, Debug)]
pub struct Look {
    pub(super) lines: CopyLines,
    is_whole: bool,
    in_use: Option<(InUse, InUse)>,
    /// The signal that ended the copy, or 0.
    pub(super) signal: i32,
}

impl Look {
    /// Reads the lines of a copy. `in_use`: before and after it was made.
    #[must_use]
    pub fn read(text: &[u8], is_whole: bool, in_use: Option<(InUse, InUse)>, signal: i32) -> Self {
        Self { lines: CopyLines::read(text, SHAPES), is_whole, in_use, signal }
    }

    pub(super) fn sum(&self, word: &str, place: usize) -> i64 {
        self.lines.sum_at(word, place)
    }

    /// Whether chunks of glibc were judged.
    pub(super) fn has_chunks(&self) -> bool {
        self.sum("chunks", 0) > 0
    }

    pub(super) fn groups(&self) -> &[Row] {
        self.lines.all("group")
    }

    /// Whether the copy came to its end, and what it says agrees with malloc.
    #[must_use]
    pub fn is_trustworthy(&self) -> bool {
        self.is_whole && self.sum("stage", 0) > 0 && self.difference().is_none()
    }

    /// The call sites of which another look may decide more: threads that ran, or words that were there in one copy only,
    /// leave blocks undecided. What a thread that waits has in registers stays there.
    #[must_use]
    pub fn undecided_sites(&self) -> Vec<u32> {
        if self.sum("registers", 2) == 0 && self.sum("doubted", 0) == 0 {
            return Vec::new();
        }
        self.groups().iter().filter(|row| row.label(0) == UNDECIDED).map(|row| row.label(1) as u32).collect()
    }

    /// Of lost blocks, and of those that are undecided: the number of the verdict, the call site, blocks and bytes.
    #[must_use]
    pub fn lost_sites(&self) -> Vec<(u64, u32, i64, i64)> {
        let row = |row: &Row| (row.label(0), row.label(1) as u32, row.number(3), row.number(4));
        self.groups().iter().map(row).filter(|row| row.1 != NO_SITE).collect()
    }

    /// In what the list of chunks and malloc's own sums differ.
    #[must_use]
    pub fn difference(&self) -> Option<String> {
        if self.in_use.is_none() && !self.has_chunks() {
            return None;
        }
        let broken = self.lines.all("broken").len();
        if broken > 0 {
            return Some(format!(
                "glibc's chunks cannot be read to their end in {}: a block was written beyond its end, or another thread was \
                 in malloc",
                counted(broken as i64, "place")
            ));
        }
        if !self.has_chunks() {
            return Some("glibc's arenas were not found".to_owned());
        }
        self.unequal_sums()
    }

    fn unequal_sums(&self) -> Option<String> {
        let (before, after) = self.in_use?;
        // What was freed while the copy was made, malloc has back only after that.
        let walked = self.sum("arena", 5) - self.sum("fast", 2) - self.sum("given_up", 0);
        let moved = (after.0 - before.0).abs();
        if (walked - after.0).abs() > moved + SLACK {
            return Some(format!(
                "glibc's chunks in use add up to {}, and mallinfo2 says {}",
                bytes(walked),
                bytes(after.0)
            ));
        }
        let (blocks, size) = (self.sum("mmapped", 0), self.sum("mmapped", 1));
        (before == after && (blocks, size) != (after.1, after.2)).then(|| {
            format!(
                "{} of glibc ({}) were found, and mallinfo2 says {} ({})",
                counted(blocks, "mapped block"),
                bytes(size),
                after.1,
                bytes(after.2)
            )
        })
    }
}
