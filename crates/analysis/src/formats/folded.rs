//! The report for tools that draw flame graphs: a line for each stack, its frames from the outermost on with `;` between
//! them, a blank, and a figure.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::figures::Reader;
use crate::report::Report;
use crate::sites::Frame;
use crate::text::names::{Names, printable};

impl Report {
    /// Writes it, with the stacks in their order. Stacks whose figure is not above zero are left out.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_folded(&self, out: &mut impl Write, figure: Reader, root: Option<&[u8]>) -> io::Result<()> {
        let stacks = self.whole();
        let names = Names::new(root);
        let mut lines: Vec<(String, i64)> = Vec::new();
        let mut known: HashMap<Vec<Frame>, usize> = HashMap::new();
        for site in &stacks.list {
            let value = figure.of(site).approximate().round() as i64;
            if value <= 0 {
                continue;
            }
            let frames = stacks.frames_of(site);
            let line = || frames.iter().rev().map(|frame| text(&names, frame)).collect::<Vec<_>>().join(";");
            let place = *known.entry(frames.clone()).or_insert_with(|| {
                lines.push((line(), 0));
                lines.len() - 1
            });
            if let Some((_, sum)) = lines.get_mut(place) {
                *sum = sum.saturating_add(value);
            }
        }
        for (line, sum) in lines {
            writeln!(out, "{line} {sum}")?;
        }
        Ok(())
    }
}

/// Tools cut a line at its last blank, so blanks within frames are kept.
fn text(names: &Names, frame: &Frame) -> String {
    let place = match frame.line {
        0 => printable(&frame.path),
        line => format!("{}:{line}", names.short(&frame.path, true)),
    };
    let text = match &frame.label {
        Some(label) => format!("{} ({place})", printable(label)),
        None => place,
    };
    // Characters that would end a frame. Line ends are already escaped.
    text.replace(';', "%3B")
}
