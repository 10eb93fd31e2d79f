//! The page of a diff.

use std::io::{self, Write};

use super::Change;
use super::diff::{Section, Shown, Writer};
use crate::page::{Page, bar, cell, named_cell, row, table};

pub(super) fn write(out: &mut impl Write, writer: &Writer<'_>) -> io::Result<()> {
    let diff = writer.diff;
    let mut facts = vec![diff.header.clone()];
    facts.extend(diff.program.clone());
    let tables: Vec<String> =
        diff.sections.iter().filter_map(|section| of_section(writer, section)).collect();
    Page {
        title: &diff.header,
        heading: Some(&format!("What changed in {}", diff.period)),
        facts: &facts,
        verdict: &writer.verdict(),
        notes: &diff.notes,
        body: &tables.join("\n"),
        script: None,
    }
    .write(out)
}

fn of_section(writer: &Writer<'_>, section: &Section) -> Option<String> {
    let Shown { rows, rest } = writer.shown(section);
    let unit = rows.first()?.unit;
    let counted = rows.iter().any(|change| change.count.is_some());
    let mut heads = vec!["", "growth"];
    heads.extend(counted.then_some("count"));
    heads.extend(["before", "now"]);
    heads.extend(counted.then_some("count now"));
    heads.push(&section.last);
    // Bars of different units would compare bytes with milliseconds.
    let is_one_unit = rows.iter().all(|change| change.unit == unit);
    let lengths = rows.iter().map(|change| change.growth().abs());
    let widest = if is_one_unit { lengths.fold(0.0, f64::max) } else { 0.0 };
    let cells = |change: &Change| {
        let growth = change.growth();
        let mut cells = vec![bar(100.0 * growth.abs() / widest, growth), cell(&change.growth_text(), growth)];
        cells.extend(counted.then(|| cell(&change.count_growth_text(), 0.0)));
        cells.push(cell(&change.before_text(), 0.0));
        cells.push(cell(&change.after_text(), 0.0));
        cells.extend(counted.then(|| cell(&change.count_after_text(), 0.0)));
        cells.push(named_cell(&change.name, &writer.short(&section.key, &change.name)));
        row(&cells)
    };
    let rows: Vec<String> = rows.iter().map(|change| cells(change)).collect();
    Some(table(&section.title, &heads, &rows, rest.as_deref()))
}
