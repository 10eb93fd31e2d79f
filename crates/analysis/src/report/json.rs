//! A report as JSON: `version`, `process`, `totals`, `call_sites`, and `frames` with `stacks` if there are whole stacks.
//!
//! All stacks are written, because a line may have many small ones. A frame stands there once. A stack is a list: kind,
//! name, line, the figures of [`memintro_abi::BlockFigures::VALUES`], the covariance of ages with frees, what is old, the
//! figures of objects, and the numbers of its frames, the innermost first; null for what is not known. An estimate is a
//! list of its value, variance and skew.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memintro_abi::{Adds, Estimated, Figures, ObjectFigures, TOTAL_FIGURES};
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
            match exact.and_then(|at| figures.cells().get(at).copied()) {
                Some(cell) => map.serialize_entry(figure.name, &cell.value)?,
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
        let is_estimated = record.blocks.estimated != 0;
        for cell in record.blocks.cells() {
            row.serialize_element(&Cell(cell, is_estimated && cell != Estimated::exact(cell.value)))?;
        }
        row.serialize_element(&is_estimated.then_some(record.blocks.age_covariance))?;
        let old = [record.old_bytes, record.old_blocks].map(|cell| Cell(cell, is_estimated));
        row.serialize_element(&self.site.knows_old.then_some(old))?;
        let objects = &record.objects;
        let cells = objects.cells().map(|cell| Cell(cell, objects.estimated != 0));
        row.serialize_element(&(*objects != ObjectFigures::default()).then_some(cells))?;
        row.serialize_element(&self.site.stack.and_then(|index| self.stacks.stacks.get(index as usize)))?;
        row.end()
    }
}

/// A figure, and whether it is an estimate.
struct Cell(Estimated, bool);

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(Estimated { value, variance, skew }, is_estimated) = *self;
        let value = value.cast_signed();
        if is_estimated { (value, variance, skew).serialize(serializer) } else { value.serialize(serializer) }
    }
}

/// Bytes that a snapshot has because they are not UTF-8.
pub(super) fn bytes_of_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
