//! The report as a page with a flame graph.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::table::{FIGURES, Row, Table};
use crate::estimates::Totals;
use crate::json;
use crate::page;
use crate::report::Report;
use crate::sites::Frame;
use crate::text::names::{Names, is_of_gem, is_of_ruby, printable};
use crate::text::units::counted;
use crate::text::{caution, caveats};

const BODY: &str = include_str!("../page/flame.html");
/// Advice for a report without stacks.
const FLAT: &str =
    "Each line stands alone. With stack_depth: 16 (--stack-depth 16) its callers are above it.";

impl Report {
    /// Writes the page, with the stacks in their order. `most` stacks have a frame each, the others share one.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_page(
        &self,
        out: &mut impl Write,
        most: Option<usize>,
        root: Option<&[u8]>,
    ) -> io::Result<()> {
        let mut table = Table::new(self.whole());
        if let Some(most) = most
            && table.rows.len() > most
        {
            let beyond = table.rows.len() - most;
            table.sum_beyond(most, format!("({})", counted(beyond.cast_signed() as i64, "more call site")));
        }
        let mut data = Vec::new();
        json::write(&mut data, &Page { report: self, table, names: Names::new(root) })?;
        let data = String::from_utf8_lossy(&data);
        page::Page {
            title: &self.title(),
            facts: &[self.facts()],
            body: BODY,
            script: Some((page::FLAME, &data)),
            ..page::Page::default()
        }
        .write(out)
    }

    fn title(&self) -> String {
        let program = self.process.program.as_deref().unwrap_or("memory by line");
        format!("memintro: {}, pid {}", printable(program.as_bytes()), self.process.pid.unwrap_or_default())
    }

    fn facts(&self) -> String {
        let process = &self.process;
        let mut facts = vec![format!("pid {}", process.pid.unwrap_or_default())];
        facts.extend(process.ruby.as_ref().map(|ruby| format!("ruby {ruby}")));
        facts.extend(process.mode.as_ref().map(|mode| format!("{mode} mode")));
        facts.extend(process.program.clone());
        facts.extend(process.time.clone());
        facts.push(format!("memintro {}", process.memintro.as_deref().unwrap_or_default()));
        printable(facts.join(", ").as_bytes())
    }
}

/// The data of the page: a prefix tree in columns, so that 100,000 stacks stay small.
///
/// - `paths`: `[whole, short, family]` of each file; `frames`: path, line and label (or 0) of each frame;
/// - `depth` and `frame` of each node, parents before their children: the last node before it with a smaller depth is a
///   node's parent;
/// - `at`: the node of each stack, less that of the stack before; `figures`: a column for each; `variances`: of these, if
///   some are estimates.
pub(super) struct Page<'a> {
    report: &'a Report,
    table: Table,
    names: Names,
}

impl Serialize for Page<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let report = self.report;
        let is_estimated = report.totals.estimated != 0;
        let is_sampled = report.sites.has_sampled_objects();
        let is_flat = self.table.rows.iter().all(|row| row.frames.len() <= 1);
        let sample_bytes = report.process.sample_bytes;
        let mut notes = Vec::new();
        if is_estimated || is_sampled {
            notes.push(caution(sample_bytes));
        }
        notes.extend(caveats(&report.totals));
        notes.extend(report.process.problem.clone());
        notes.extend(is_flat.then(|| FLAT.to_owned()));
        let live = Totals::of(&report.totals, sample_bytes.unwrap_or(0).max(0) as u64).live_bytes;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("version", &1)?;
        map.serialize_entry("estimated", &is_estimated)?;
        map.serialize_entry("sampled", &is_sampled)?;
        map.serialize_entry("objects", &report.sites.has_objects())?;
        map.serialize_entry("per_sample", &(if is_estimated { live.per_sample.round() as i64 } else { 0 }))?;
        map.serialize_entry("notes", &notes)?;
        let (paths, frames) = self.frames();
        map.serialize_entry("paths", &paths)?;
        map.serialize_entry("frames", &frames)?;
        let tree = Tree::new(&self.table.rows);
        map.serialize_entry("depth", &tree.depth)?;
        map.serialize_entry("frame", &tree.frame)?;
        map.serialize_entry("at", &tree.at)?;
        map.serialize_entry("figures", &tree.figures)?;
        if let Some(variances) = &tree.variances {
            map.serialize_entry("variances", variances)?;
        }
        map.end()
    }
}

/// Whole and short path, and [`family`].
type PathOf = (String, String, u32);

/// A label, or 0.
struct Label<'a>(&'a Option<Vec<u8>>);

impl Serialize for Label<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(label) => serializer.serialize_str(&printable(label)),
            None => serializer.serialize_u32(0),
        }
    }
}

impl Page<'_> {
    fn frames(&self) -> (Vec<PathOf>, Vec<(usize, u32, Label<'_>)>) {
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut paths = Vec::new();
        let mut frames = Vec::new();
        for Frame { path, line, label } in &self.table.frames {
            let place = *places.entry(path).or_insert_with(|| {
                paths.push((printable(path), self.names.short(path, true), family(path, *line)));
                paths.len() - 1
            });
            frames.push((place, *line, Label(label)));
        }
        (paths, frames)
    }
}

/// The owner of a file: 0, the application; 1, a gem; 2, Ruby's own library; 3, no line of Ruby.
fn family(path: &[u8], line: u32) -> u32 {
    match line {
        0 => 3,
        _ if is_of_gem(path) => 1,
        _ if is_of_ruby(path) => 2,
        _ => 0,
    }
}

/// The prefix tree.
#[derive(Default)]
struct Tree {
    depth: Vec<usize>,
    frame: Vec<u32>,
    at: Vec<usize>,
    figures: [Vec<i64>; FIGURES],
    variances: Option<[Vec<i64>; FIGURES]>,
}

impl Tree {
    /// Sorted stacks visit the nodes in order: each begins with what it has in common with the one before.
    fn new(rows: &[Row]) -> Self {
        let mut sorted: Vec<&Row> = rows.iter().collect();
        sorted.sort_by(|one, other| one.frames.cmp(&other.frames));
        let mut tree = Self::default();
        let (mut before, mut last): (&[u32], usize) = (&[], 0);
        for row in sorted {
            let common = row.frames.iter().zip(before).take_while(|(one, other)| one == other).count();
            for (depth, frame) in row.frames.iter().enumerate().skip(common) {
                tree.depth.push(depth);
                tree.frame.push(*frame);
            }
            let node = tree.depth.len().saturating_sub(1);
            tree.at.push(node - last);
            last = node;
            before = &row.frames;
            tree.add(row);
        }
        tree
    }

    /// Rows before the first estimate are exact.
    fn add(&mut self, row: &Row) {
        for (column, figure) in self.figures.iter_mut().zip(row.figures) {
            column.push(figure);
        }
        if row.variances.is_none() && self.variances.is_none() {
            return;
        }
        let before = self.at.len() - 1;
        let columns = self.variances.get_or_insert_with(|| std::array::from_fn(|_| vec![0; before]));
        for (column, variance) in columns.iter_mut().zip(row.variances.unwrap_or_default()) {
            column.push(variance.round() as i64);
        }
    }
}
