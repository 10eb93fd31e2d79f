//! The growth over several snapshots: a verdict, then a table; a page also has the course of each figure.

use std::io::{self, Write};

use super::{Measure, Number, Options};
use crate::estimates::Estimate;
use crate::page::{Page, cell, named_cell, row, table};
use crate::text::names::Names;
use crate::text::printable;
use crate::text::tables::{Aligned, dressed};
use crate::text::units::{count, counted};

/// Titles of the columns.
const HEADS: [&str; 5] = ["a minute", "sure", "each step", "first", "last"];
/// Title of the names.
const LAST: &str = "what";
/// Width of a course, in its own units.
const WIDTH: f64 = 128.0;
/// Height of a course.
const HEIGHT: f64 = 24.0;
const LEGEND: &str =
    "Each course goes from its own lowest to its highest value; the dashed line is the slope (Theil-Sen).";

/// The values of one figure in all snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What its name is: `call site`, `class` and so on.
    pub kind: String,
    /// Its name.
    pub name: Vec<u8>,
    /// Whether that is a path.
    pub is_path: bool,
    /// What it is in.
    pub unit: Measure,
    /// Of each snapshot.
    pub values: Vec<Number>,
    /// Growth in a minute.
    pub slope: f64,
    /// From 0 to 1.
    pub confidence: f64,
    /// Whether it was greater in each snapshot than in the one before.
    pub every_step: bool,
    /// Variances of the first and the last value; `None`: they are exact.
    pub variances: Option<(f64, f64)>,
}

/// What grew.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trend {
    /// The first line.
    pub header: String,
    /// The time from the first snapshot to the last.
    pub duration: String,
    /// The program.
    pub program: Option<String>,
    /// The limits of the result.
    pub notes: Vec<String>,
    /// When each snapshot was taken, in minutes since the first.
    pub minutes: Vec<f64>,
    /// The confidence that was asked for.
    pub confidence: f64,
    /// How many figures grow with it.
    pub sure: usize,
    /// These, or if there are none all that are greater now.
    pub series: Vec<Series>,
}

impl Trend {
    /// As a text.
    #[must_use]
    pub fn text(&self, options: &Options) -> String {
        let names = Names::new(options.root.as_deref());
        let (series, rest) = self.shown(options);
        let mut lines = vec![dressed(options.colour, "1", &self.header)];
        lines.extend(
            self.notes.iter().map(|note| format!("{}{note}", dressed(options.colour, "33", "note: "))),
        );
        lines.push(self.introduction());
        if !series.is_empty() {
            let cells: Vec<Vec<String>> = series.iter().map(|one| one.cells().to_vec()).collect();
            let aligned = Aligned::new(&HEADS, &cells);
            lines.push(String::new());
            lines.push(dressed(options.colour, "2", &aligned.head(LAST)));
            lines.extend(
                series.iter().zip(&cells).map(|(one, cells)| aligned.line(cells, &one.short(&names))),
            );
        }
        if let Some(rest) = rest {
            lines.extend([String::new(), rest]);
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// As a page.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_page(&self, out: &mut impl Write, options: &Options) -> io::Result<()> {
        let names = Names::new(options.root.as_deref());
        let (series, rest) = self.shown(options);
        let mut facts = vec![self.header.clone()];
        facts.extend(self.program.clone());
        let mut verdict = vec![format!("{}.", self.verdict())];
        verdict.extend((!self.series.is_empty()).then(|| LEGEND.to_owned()));
        let title = if self.sure == 0 { "greater now than at first" } else { "what grows" };
        let mut heads = vec!["course"];
        heads.extend(HEADS);
        heads.push(LAST);
        let rows: Vec<String> = series.iter().map(|one| self.row(one, &names)).collect();
        let body = if rows.is_empty() { String::new() } else { table(title, &heads, &rows, rest.as_deref()) };
        Page {
            title: &self.header,
            heading: Some(&format!("What grew in {}", self.duration)),
            facts: &facts,
            verdict: &verdict,
            notes: &self.notes,
            body: &body,
            script: None,
        }
        .write(out)
    }

    fn shown(&self, options: &Options) -> (&[Series], Option<String>) {
        let most = options.top.unwrap_or(usize::MAX).min(self.series.len());
        let left = self.series.len() - most;
        let shown = self.series.get(..most).unwrap_or_default();
        (shown, (left > 0).then(|| format!("{} more", count(left as i64))))
    }

    /// A sentence, without its full stop.
    fn verdict(&self) -> String {
        let asked = percent(self.confidence);
        match (self.series.len(), self.sure) {
            (0, _) => "Nothing has grown".to_owned(),
            (_, 0) => format!("Nothing grows with {asked} certainty"),
            (_, sure) => {
                let verb = if sure == 1 { "grows" } else { "grow" };
                format!("{} {verb}, at least {asked} sure (Mann-Kendall)", counted(sure as i64, "figure"))
            }
        }
    }

    fn introduction(&self) -> String {
        let verdict = self.verdict();
        if self.series.is_empty() {
            format!("{verdict}.")
        } else if self.sure == 0 {
            format!("{verdict}. Larger than in the first snapshot:")
        } else {
            format!("{verdict}. Growth a minute (Theil-Sen):")
        }
    }

    fn row(&self, series: &Series, names: &Names) -> String {
        let mut cells = vec![format!("<td>{}</td>", self.course(series))];
        for (at, text) in series.cells().iter().enumerate() {
            cells.push(cell(text, if at == 0 { series.slope } else { 0.0 }));
        }
        cells.push(named_cell(&series.name, &series.short(names)));
        row(&cells)
    }

    /// The values from lowest to highest, a dot for the last one, and the slope as a dashed line.
    fn course(&self, series: &Series) -> String {
        let values = || series.values.iter().map(|number| number.value);
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        // Only figures that are larger in the last snapshot are drawn, so `high` is above `low`.
        let y = |value: f64| tenths(HEIGHT - 2.0 - (value - low) / (high - low) * (HEIGHT - 4.0));
        let points: Vec<String> =
            values().enumerate().map(|(at, value)| format!("{},{}", self.x(at), y(value))).collect();
        let about = |value: f64| {
            let is_whole = series.values.iter().all(|number| number.is_whole);
            let mark = if series.variances.is_some() { "~" } else { "" };
            format!("{mark}{}", series.unit.plain(Number { value, is_whole }))
        };
        let said = format!("from {} to {}", about(low), about(high));
        // As many values are above the line as below.
        let level =
            median(self.minutes.iter().zip(values()).map(|(minute, value)| value - series.slope * minute));
        let end = level + series.slope * self.minutes.last().copied().unwrap_or(0.0);
        let last = series.values.len().saturating_sub(1);
        let latest = values().next_back().unwrap_or(low);
        format!(
            "<svg class=\"course\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{said}\">\
             <title>{said}</title><line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"></line>\
             <polyline points=\"{}\"></polyline><circle cx=\"{}\" cy=\"{}\" r=\"2\"></circle></svg>",
            self.x(0),
            y(level),
            self.x(last),
            y(end),
            points.join(" "),
            self.x(last),
            y(latest)
        )
    }

    /// Snapshots of the same instant are drawn side by side.
    fn x(&self, at: usize) -> String {
        let whole = self.minutes.last().copied().unwrap_or(0.0);
        let share = if whole > 0.0 {
            self.minutes.get(at).copied().unwrap_or(0.0) / whole
        } else {
            at as f64 / self.minutes.len().saturating_sub(1).max(1) as f64
        };
        tenths(2.0 + share * (WIDTH - 4.0))
    }
}

impl Series {
    /// What stands under [`HEADS`].
    fn cells(&self) -> [String; 5] {
        let mark = if self.variances.is_some() { "~" } else { "" };
        let slope = Number { value: self.slope.round(), is_whole: true };
        let end = |number: Option<&Number>, variance: Option<f64>| {
            let number = number.copied().unwrap_or_default();
            let estimate = variance.map(|variance| Estimate::new(number.value, variance, 0.0, 0.0));
            self.unit.shown(number, estimate)
        };
        [
            format!("{mark}{}", self.unit.signed(slope)),
            percent(self.confidence),
            if self.every_step { "yes".to_owned() } else { String::new() },
            end(self.values.first(), self.variances.map(|(first, _)| first)),
            end(self.values.last(), self.variances.map(|(_, last)| last)),
        ]
    }

    fn short(&self, names: &Names) -> String {
        let name = if self.is_path { names.short(&self.name, true) } else { printable(&self.name) };
        format!("{} {name}", self.kind)
    }
}

/// Such as `99%`, `99.9%`.
fn percent(share: f64) -> String {
    let text = format!("{:.1}", share * 100.0);
    format!("{}%", text.strip_suffix(".0").unwrap_or(&text))
}

fn tenths(number: f64) -> String {
    format!("{:?}", (number * 10.0).round() / 10.0)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    if sorted.len() % 2 == 1 { at(middle) } else { (at(middle.saturating_sub(1)) + at(middle)) / 2.0 }
}
