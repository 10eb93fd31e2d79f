//! The report for www.speedscope.app: a profile for each figure, whose samples are stacks and whose weights are bytes.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::table::{FIGURES, OF_OBJECTS, Row, Table};
use crate::json;
use crate::report::Report;
use crate::sites::Frame;
use crate::text::names::{Names, printable};

/// The address of the format's schema.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";
/// Names of the profiles, in the order of a row's figures.
const PROFILES: [&str; FIGURES] = [
    "live bytes of malloc",
    "bytes allocated by malloc",
    "growth of malloc",
    "bytes of live objects",
    "bytes of objects made",
    "growth of objects",
];

impl Report {
    /// Writes it, with the stacks in their order. Profiles of objects are left out if no object was tracked.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_speedscope(&self, out: &mut impl Write, root: Option<&[u8]>) -> io::Result<()> {
        let program = self.process.program.as_deref().unwrap_or("ruby");
        let document = Document {
            name: format!("{} (pid {})", printable(program.as_bytes()), self.process.pid.unwrap_or_default()),
            version: self.process.memintro.as_deref().unwrap_or_default(),
            names: Names::new(root),
            table: Table::new(self.whole()),
        };
        json::write(out, &document)?;
        out.write_all(b"\n")
    }
}

struct Document<'a> {
    name: String,
    version: &'a str,
    names: Names,
    table: Table,
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = &self.table.rows;
        let is_any =
            |at: usize| rows.iter().any(|row| row.figures.get(at).is_some_and(|figure| *figure != 0));
        let profiles: Vec<_> = PROFILES
            .iter()
            .enumerate()
            .filter(|(at, _)| *at < OF_OBJECTS || is_any(*at))
            .map(|(at, name)| Profile { name, rows, at })
            .collect();
        let frames: Vec<_> = self.table.frames.iter().map(|frame| FrameOf(frame, &self.names)).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("$schema", SCHEMA)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("exporter", &format!("memintro {}", self.version))?;
        map.serialize_entry("activeProfileIndex", &0)?;
        map.serialize_entry("shared", &Shared { frames })?;
        map.serialize_entry("profiles", &profiles)?;
        map.end()
    }
}

struct Shared<'a> {
    frames: Vec<FrameOf<'a>>,
}

impl Serialize for Shared<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("frames", &self.frames)?;
        map.end()
    }
}

struct FrameOf<'a>(&'a Frame, &'a Names);

impl Serialize for FrameOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(frame, names) = self;
        let mut map = serializer.serialize_map(None)?;
        if frame.line == 0 {
            map.serialize_entry("name", &printable(&frame.path))?;
            return map.end();
        }
        let place = [&frame.path, format!(":{}", frame.line).as_bytes()].concat();
        let name = frame.label.as_ref().map_or_else(|| names.short(&place, true), |label| printable(label));
        map.serialize_entry("name", &name)?;
        map.serialize_entry("file", &printable(&frame.path))?;
        map.serialize_entry("line", &frame.line)?;
        map.end()
    }
}

struct Profile<'a> {
    name: &'a str,
    rows: &'a [Row],
    at: usize,
}

impl Serialize for Profile<'_> {
    /// Weights must not be negative: what has shrunk is left out.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let weight = |row: &Row| row.figures.get(self.at).copied().unwrap_or(0);
        let rows: Vec<_> = self.rows.iter().filter(|row| weight(row) > 0).collect();
        let weights: Vec<i64> = rows.iter().map(|row| weight(row)).collect();
        let samples: Vec<&[u32]> = rows.iter().map(|row| row.frames.as_slice()).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "sampled")?;
        map.serialize_entry("name", self.name)?;
        map.serialize_entry("unit", "bytes")?;
        map.serialize_entry("startValue", &0)?;
        map.serialize_entry(
            "endValue",
            &weights.iter().fold(0_i64, |sum, weight| sum.saturating_add(*weight)),
        )?;
        map.serialize_entry("samples", &samples)?;
        map.serialize_entry("weights", &weights)?;
        map.end()
    }
}
