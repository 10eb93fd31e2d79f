//! Counts objects and bytes by type, class, line and generation, without an object graph.

use crate::graph::About;
use crate::kinds::{Kinds, NO_GENERATION};
use crate::read::Wants;
use crate::read::line::{Line, Type};
use crate::read::load::{self, Fold, ReadOutcome};
use crate::read::source::Source;

/// Objects, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    /// Adds one object.
    pub fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Adds many.
    pub fn merge(&mut self, other: Count) {
        self.objects += other.objects;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// All objects of a dump, counted by kind.
#[derive(Debug, Default)]
pub struct Tally {
    /// Types, classes and lines.
    pub kinds: Kinds,
    /// For each kind.
    pub counts: Vec<Count>,
    /// The dump's own header and end.
    pub about: About,
    /// Problems of the reading.
    pub reading: ReadOutcome,
    header: bool,
}

impl Tally {
    /// Reads a dump.
    pub fn load(source: Source, budget: Option<usize>) -> Tally {
        let (parts, reading) =
            load::fold(source, Wants { sites: true, ..Wants::default() }, budget, Tally::default);
        let mut parts = parts.into_iter();
        let mut tally = parts.next().unwrap_or_default();
        for part in parts {
            let numbers = tally.kinds.merge(&part.kinds);
            tally.counts.resize(tally.kinds.list.len(), Count::default());
            for (count, number) in part.counts.iter().zip(numbers) {
                tally.counts[number as usize].merge(*count);
            }
            tally.header |= part.header;
            tally.about.objects = tally.about.objects.or(part.about.objects);
            tally.about.one_in = tally.about.one_in.max(part.about.one_in);
        }
        tally.about.format = u64::from(tally.header);
        tally.about.truncated = tally.header && tally.about.objects.is_none();
        tally.about.sites = tally.kinds.list.iter().any(|kind| kind.file != 0);
        tally.about.generations = tally.kinds.list.iter().any(|kind| kind.generation != NO_GENERATION);
        tally.kinds.complete();
        tally.reading = reading;
        tally
    }

    /// All objects.
    pub fn total(&self) -> Count {
        self.counts.iter().fold(Count::default(), |mut total, count| {
            total.merge(*count);
            total
        })
    }
}

impl Fold for Tally {
    fn line(&mut self, line: &Line) {
        if line.kind == Type::Root {
            if line.root == b"memintro" {
                self.header = true;
                self.about.note_births(line);
            }
            if line.root == b"end" {
                self.about.objects = line.objects;
            }
            return;
        }
        let kind = self.kinds.number(&line.facts()) as usize;
        if kind >= self.counts.len() {
            self.counts.resize(self.kinds.list.len(), Count::default());
        }
        self.counts[kind].add(line.memsize);
    }

    fn memory_bytes(&self) -> usize {
        self.kinds.memory_bytes() + self.counts.capacity() * 16
    }
}
