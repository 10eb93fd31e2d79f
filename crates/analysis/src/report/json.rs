//! A report as JSON: `version`, `process`, `totals`, `call_sites`, and `frames` with `stacks` if there are whole stacks.
//!
//! All stacks are written, because a line may have many small ones. A frame stands there once. A stack is a list: kind,
//! name, line, the figures of [`BlockFigures::VALUES`], their doubts, what is old, the figures of objects, and the numbers
//! of its frames, the innermost first; null for what is not known.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memintro_abi::{Adds, BlockFigures, Estimated, Figures, ObjectFigures, TOTAL_FIGURES, Unit};
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use super::{LAYOUT, Report};
use crate::estimates::Totals;
use crate::json::{self, Bytes, Text};
use crate::sites::{Frame, Site, Sites};

impl Report {
    /// Writes it as JSON, with the sites in their order. `tail`: more members, as JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: &mut impl Write, tail: &str) -> io::Result<()> {
        out.write_all(b"{")?;
        if self.older_than.is_none() {
            writeln!(out, "\"version\":{LAYOUT},")?;
        }
        out.write_all(b"\"process\":")?;
        json::write(out, &self.process)?;
        if self.older_than.is_none() {
            out.write_all(b",\n\"totals\":")?;
            json::write(out, &TotalsJson(&self.totals, self.process.sample_bytes))?;
        }
        out.write_all(b",\n\"call_sites\":")?;
        json::sites(out, &self.sites, Bytes::Shown)?;
        if let Some(stacks) = &self.stacks {
            out.write_all(b",\n\"frames\":")?;
            json::list(out, stacks.frames.iter().map(FrameJson))?;
            out.write_all(b",\n\"stacks\":")?;
            json::list(out, stacks.list.iter().map(|site| StackJson { stacks, site }))?;
        }
        if !tail.is_empty() {
            write!(out, ",\n{tail}")?;
        }
        out.write_all(b"}\n")
    }
}

/// The totals, with their standard errors and intervals if they are estimates.
struct TotalsJson<'a>(&'a Figures, Option<i64>);

impl Serialize for TotalsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (figures, sample_bytes) = (self.0, self.1.unwrap_or(0).max(0) as u64);
        let totals = Totals::of(figures, sample_bytes);
        let mut map = serializer.serialize_map(None)?;
        for figure in TOTAL_FIGURES.iter().filter(|figure| figure.adds != Adds::State) {
            let exact = Figures::VALUES.iter().position(|name| *name == figure.name);
            match exact.and_then(|at| figures.values().get(at).copied()) {
                Some(value) => map.serialize_entry(figure.name, &value)?,
                None => map.serialize_entry(
                    figure.name,
                    &(totals.named(figure.name).map_or(0, |of| of.value as i64)),
                )?,
            }
        }
        if figures.estimated != 0 {
            map.serialize_entry("estimated", &true)?;
            let estimates =
                || TOTAL_FIGURES.iter().filter_map(|figure| Some((figure, totals.named(figure.name)?)));
            for (figure, of) in estimates() {
                json::standard_error(&mut map, figure.name, of)?;
            }
            for (figure, of) in estimates() {
                json::interval(&mut map, figure.name, of.interval())?;
            }
            for (figure, of) in estimates().filter(|(figure, _)| figure.adds == Adds::Sum) {
                map.serialize_entry(&format!("{}_per_sample", figure.name), &of.own_per_sample)?;
            }
        }
        map.end()
    }
}

struct FrameJson<'a>(&'a Frame);

impl Serialize for FrameJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Frame { path, line, label } = self.0;
        (Text(path, Bytes::Shown), line, label.as_ref().map(|label| Text(label, Bytes::Shown)))
            .serialize(serializer)
    }
}

struct StackJson<'a> {
    stacks: &'a Sites,
    site: &'a Site,
}

impl Serialize for StackJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = &self.site.record;
        let mut row = serializer.serialize_seq(None)?;
        row.serialize_element(json::kind(record.kind))?;
        row.serialize_element(&Text(self.stacks.text(self.site), Bytes::Shown))?;
        row.serialize_element(&record.line)?;
        for value in record.blocks.values() {
            row.serialize_element(&value.cast_signed())?;
        }
        row.serialize_element(&(record.blocks.estimated != 0).then(|| doubts(&record.blocks)))?;
        row.serialize_element(&self.site.knows_old.then_some(Old(record.old_bytes, record.old_blocks)))?;
        let objects = &record.objects;
        row.serialize_element(&(*objects != ObjectFigures::default()).then_some(Objects(objects)))?;
        row.serialize_element(&self.site.stack.and_then(|index| self.stacks.stacks.get(index as usize)))?;
        row.end()
    }
}

/// Bytes and blocks, and their doubts.
struct Old(Estimated, Estimated);

impl Serialize for Old {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(bytes, blocks) = self;
        let mut row = serializer.serialize_seq(None)?;
        for value in [bytes.value, blocks.value] {
            row.serialize_element(&value)?;
        }
        for doubt in [bytes.variance, blocks.variance, bytes.skew, blocks.skew] {
            row.serialize_element(&doubt.max(0.0))?;
        }
        row.end()
    }
}

struct Objects<'a>(&'a ObjectFigures);

impl Serialize for Objects<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_seq(None)?;
        for value in self.0.values() {
            row.serialize_element(&value)?;
        }
        if self.0.estimated != 0 {
            for doubt in self.0.doubts() {
                row.serialize_element(&doubt)?;
            }
        }
        row.end()
    }
}

/// The doubts of blocks, as rows have them in JSON and in Ruby: variances of sums of blocks and bytes, of growth, of sums of
/// ages; the covariance of ages with frees; the skews of the first.
#[must_use]
pub fn doubts(blocks: &BlockFigures) -> Vec<f64> {
    let sums = || blocks.sums().into_iter().zip(BlockFigures::SUM_UNITS);
    let skewed = || sums().filter(|(_, unit)| *unit != Unit::Ages).map(|(of, _)| of);
    let ages = sums().filter(|(_, unit)| *unit == Unit::Ages).map(|(of, _)| of.variance);
    let mut doubts: Vec<f64> = skewed().map(|of| of.variance).collect();
    doubts.push(blocks.marked_bytes.variance);
    doubts.extend(ages);
    doubts.push(blocks.age_covariance);
    doubts.extend(skewed().map(|of| of.skew));
    doubts
}

/// Figures of blocks from [`BlockFigures::VALUES`] and [`doubts`].
#[must_use]
pub fn blocks_of(values: &[u64], doubts: Option<&[f64]>) -> BlockFigures {
    let units = BlockFigures::SUM_UNITS;
    let skewed = units.iter().filter(|unit| **unit != Unit::Ages).count();
    let doubt = |at: usize| doubts.and_then(|doubts| doubts.get(at)).copied().unwrap_or(0.0);
    let value = |name: &str| {
        BlockFigures::VALUES
            .iter()
            .position(|one| *one == name)
            .and_then(|at| values.get(at))
            .copied()
            .unwrap_or(0)
    };
    let (mut seen_skewed, mut seen_ages) = (0, 0);
    let mut words = Vec::new();
    for field in BlockFigures::FIELDS {
        let at = BlockFigures::VALUES.iter().position(|one| *one == field.name);
        match (field.name, at.and_then(|at| units.get(at))) {
            ("estimated", _) => words.push(u64::from(doubts.is_some())),
            ("age_covariance", _) => words.push(0),
            ("marked_bytes", _) => words.extend([value(field.name), doubt(skewed).to_bits(), 0]),
            (name, Some(Unit::Ages)) => {
                words.extend([value(name), doubt(skewed + 1 + seen_ages).to_bits(), 0]);
                seen_ages += 1;
            }
            (name, Some(_)) => {
                let skew = doubt(units.len() + 2 + seen_skewed);
                words.extend([value(name), doubt(seen_skewed).to_bits(), skew.to_bits()]);
                seen_skewed += 1;
            }
            (name, None) => words.push(value(name)),
        }
    }
    let mut blocks = of_words(words, BlockFigures::read);
    blocks.age_covariance = doubt(units.len() + 1);
    blocks
}

/// Figures of objects from [`ObjectFigures::VALUES`], and if they are a sample also from [`ObjectFigures::DOUBTS`].
#[must_use]
pub fn objects_of(numbers: &[f64]) -> ObjectFigures {
    let values = ObjectFigures::VALUES.len();
    let of = |names: &[&str], name: &str, first: usize| {
        names
            .iter()
            .position(|one| *one == name)
            .and_then(|at| numbers.get(first + at))
            .copied()
            .unwrap_or(0.0)
    };
    let mut words = Vec::new();
    for field in ObjectFigures::FIELDS {
        if field.name == "estimated" {
            words.push(u64::from(numbers.len() > values));
            continue;
        }
        words.push((of(&ObjectFigures::VALUES, field.name, 0) as i64).cast_unsigned());
        if field.c_type == "memintro_estimated" {
            let doubt =
                |kind: &str| of(&ObjectFigures::DOUBTS, &format!("{}_{kind}", field.name), values).to_bits();
            words.extend([doubt("variance"), doubt("skew")]);
        }
    }
    of_words(words, ObjectFigures::read)
}

/// Bytes and blocks of some age, as rows have them: both values, and if they are estimates both variances and both skews.
#[must_use]
pub fn old_of(numbers: &[f64]) -> (Estimated, Estimated) {
    let at = |index: usize| numbers.get(index).copied().unwrap_or(0.0);
    let one = |index: usize| Estimated {
        value: (at(index) as i64).cast_unsigned(),
        variance: at(index + 2),
        skew: at(index + 4),
    };
    (one(0), one(1))
}

/// A record from the numbers that make it up in memory.
pub(super) fn of_words<T: Default>(
    words: Vec<u64>,
    read: impl FnOnce(&mut dyn FnMut() -> Option<u64>) -> Option<T>,
) -> T {
    let mut words = words.into_iter();
    read(&mut || words.next()).unwrap_or_default()
}

/// Bytes that a snapshot has because they are not UTF-8.
pub(super) fn bytes_of_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
