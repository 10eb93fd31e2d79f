//! The text of a diff: a verdict, then a table for each list.

use std::io::{self, Write};

use super::spread::Spread;
use super::{Amount, Change, Doubts, Measure, Number, Options, account, page};
use crate::advice::Advice;
use crate::text::names::Names;
use crate::text::printable;
use crate::text::tables::{Aligned, dressed};
use crate::text::units::{bytes, count};

/// How the verdict names one row of a list, and several rows.
const PLACES: [(&str, &str, &str); 5] = [
    ("call_sites", "at %s", "lines"),
    ("iseqs", "of %s", "files"),
    ("classes", "of class %s", "classes"),
    ("internals", "of kind %s", "kinds"),
    ("object_sites", "at %s", "lines"),
];
/// Lists whose names are in folders.
const FOLDERS: [&str; 4] = ["retained", "object_sites", "call_sites", "iseqs"];
/// Number of names in the verdict if no single one has most of the growth.
const NAMED: usize = 3;
/// Growth below this gets no sentence.
const WORTH_A_WORD: f64 = 65_536.0;
/// Lists of counters. Most of these counters do not help to find memory.
const COUNTERS: [&str; 4] = ["malloc", "occupancy", "gc", "gc_heaps"];
/// The counters that help; the others are shown only if all rows are.
const TELLING: [&[u8]; 16] = [
    b"count",
    b"minor_gc_count",
    b"major_gc_count",
    b"time",
    b"heap_live_slots",
    b"heap_allocated_pages",
    b"old_objects",
    b"total_allocated_objects",
    b"total_freed_objects",
    b"live_bytes",
    b"live_blocks",
    b"allocations",
    b"frees",
    b"pages",
    b"live_slots",
    b"sparse_pages",
];

/// A list of changes, the greatest growth first.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its name: `call_sites` and so on.
    pub key: String,
    /// Its title.
    pub title: String,
    /// What the names of its changes are.
    pub last: String,
    /// The changes.
    pub changes: Vec<Change>,
}

/// The changes between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// The first line.
    pub header: String,
    /// The time between the snapshots.
    pub period: String,
    /// The program.
    pub program: Option<String>,
    /// For whom advice is.
    pub advice: Advice,
    /// The limits of the comparison.
    pub notes: Vec<String>,
    /// All lists.
    pub sections: Vec<Section>,
    /// The sum of each kind of thing, with the list that it sums up.
    pub kinds: Vec<(String, Change)>,
}

impl Diff {
    /// As a text.
    #[must_use]
    pub fn text(&self, options: &Options) -> String {
        let writer = Writer { diff: self, options, names: Names::new(options.root.as_deref()) };
        let mut lines = vec![dressed(options.colour, "1", &self.header)];
        lines.extend(self.program.clone());
        lines.extend(writer.verdict());
        lines.extend(
            self.notes.iter().map(|note| format!("{}{note}", dressed(options.colour, "33", "note: "))),
        );
        for section in &self.sections {
            writer.table(section, &mut lines);
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// The sentences that a text begins with: how much the process grew, how much of each kind there is more, and where.
    #[must_use]
    pub fn verdict(&self, options: &Options) -> Vec<String> {
        Writer { diff: self, options, names: Names::new(options.root.as_deref()) }.verdict()
    }

    /// As a page.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_page(&self, out: &mut impl Write, options: &Options) -> io::Result<()> {
        let writer = Writer { diff: self, options, names: Names::new(options.root.as_deref()) };
        page::write(out, &writer)
    }

    pub(super) fn section(&self, key: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.key == key)
    }
}

pub(super) struct Writer<'a> {
    pub(super) diff: &'a Diff,
    options: &'a Options,
    names: Names,
}

/// The rows of a table: the folder that has most of them, if the list was cut; and a sentence about those left out.
pub(super) struct Shown<'a> {
    pub(super) rows: Vec<std::borrow::Cow<'a, Change>>,
    pub(super) rest: Option<String>,
}

impl Writer<'_> {
    pub(super) fn verdict(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        sentences.extend(self.memory());
        sentences.extend(account::sentences(self.diff, self.diff.advice));
        for (key, change) in self.diff.kinds.iter().filter(|(_, change)| change.growth() >= WORTH_A_WORD) {
            let name = printable(&change.name);
            let mut letters = name.chars();
            let first = letters.next().map(|first| first.to_ascii_uppercase());
            let place =
                self.place(key, change.growth()).map_or_else(String::new, |place| format!(", {place}"));
            sentences.push(format!(
                "{}{} {}{place}.",
                first.map_or_else(String::new, String::from),
                letters.as_str(),
                amount(change)
            ));
        }
        if sentences.is_empty() {
            sentences.push("Nothing has changed.".to_owned());
        }
        sentences
    }

    fn memory(&self) -> Option<String> {
        let memory = self.diff.section("memory")?;
        let rss = memory.changes.iter().find(|change| change.name == b"rss_bytes")?;
        let verb = if rss.growth() > 0.0 { "grew" } else { "shrank" };
        Some(format!(
            "RSS {verb} by {}, from {} to {}.",
            bytes(rss.growth().abs() as i64),
            bytes(rss.amount.before.value as i64),
            bytes(rss.amount.after.value as i64)
        ))
    }

    /// Where a kind of thing grew.
    fn place(&self, key: &str, growth: f64) -> Option<String> {
        let (_, form, several) = PLACES.iter().find(|(name, ..)| *name == key)?;
        let has_iseqs = self.diff.section("iseqs").is_some();
        // A thing that is in two lists is counted in one of them.
        let counts = |change: &&Change| match key {
            "classes" => !change.name.starts_with(b"imemo_"),
            "internals" => !(has_iseqs && change.name == b"imemo_iseq"),
            _ => true,
        };
        let changes = self.diff.section(key).map_or(&[][..], |section| &section.changes);
        let spread = Spread::new(changes.iter().filter(counts), growth);
        if spread.grown.is_empty() {
            return None;
        }
        if let Some(place) = spread.place() {
            let share = spread.share(place);
            let named = form.replacen("%s", &self.short(key, &place.name), 1);
            let amount = if share == "most" { format!(" ({})", amount(place)) } else { String::new() };
            return Some(format!("{share} {named}{amount}"));
        }
        let Some((folder, inside)) = spread.folder().filter(|_| FOLDERS.contains(&key)) else {
            return Some(self.above_all(key, form, several, &spread.grown));
        };
        let inside_of = format!("in {} {several} of {}", count(inside.len() as i64), self.short(key, folder));
        Some(if spread.all_in(&inside) {
            inside_of
        } else {
            format!("most {inside_of} ({})", sum_of_growth(&inside))
        })
    }

    fn above_all(&self, key: &str, form: &str, several: &str, grown: &[&Change]) -> String {
        let first: Vec<String> = grown
            .iter()
            .take(NAMED)
            .map(|change| format!("{} ({})", self.short(key, &change.name), change.growth_text()))
            .collect();
        let rest = grown.len() - first.len();
        let more =
            if rest > 0 { format!(" and {} more {several}", count(rest as i64)) } else { String::new() };
        format!("above all {}{more}", form.replacen("%s", &first.join(", "), 1))
    }

    /// Printable; paths are shortened.
    pub(super) fn short(&self, key: &str, name: &[u8]) -> String {
        if FOLDERS.contains(&key) || key == "iseq_locations" {
            self.names.short(name, true)
        } else {
            printable(name)
        }
    }

    pub(super) fn shown<'a>(&self, section: &'a Section) -> Shown<'a> {
        use std::borrow::Cow::{Borrowed, Owned};
        let Some(top) = self.options.top else {
            return Shown { rows: section.changes.iter().map(Borrowed).collect(), rest: None };
        };
        let is_shown = |change: &&Change| {
            !COUNTERS.contains(&section.key.as_str()) || TELLING.contains(&change.name.as_slice())
        };
        let chosen: Vec<&Change> = section.changes.iter().filter(is_shown).collect();
        let rows = most(&chosen, top);
        let left = chosen.len() - rows.len();
        if left == 0 {
            return Shown { rows: rows.into_iter().map(Borrowed).collect(), rest: None };
        }
        let rest = format!("{} more changed{}", count(left as i64), remainder(&chosen, &rows));
        let folder = Spread::new(chosen.iter().copied(), 0.0)
            .folder()
            .filter(|_| FOLDERS.contains(&section.key.as_str()))
            .map(|(folder, inside)| Owned(sum([folder, b"*"].concat(), &inside)));
        Shown { rows: folder.into_iter().chain(rows.into_iter().map(Borrowed)).collect(), rest: Some(rest) }
    }

    fn table(&self, section: &Section, lines: &mut Vec<String>) {
        let Shown { rows, rest } = self.shown(section);
        if rows.is_empty() {
            return;
        }
        let counted = rows.iter().any(|change| change.count.is_some());
        let titles: &[&str] =
            if counted { &["growth", "count", "now", "count now"] } else { &["growth", "now"] };
        let cells = |change: &Change| match counted {
            true => vec![
                change.growth_text(),
                change.count_growth_text(),
                change.after_text(),
                change.count_after_text(),
            ],
            false => vec![change.growth_text(), change.after_text()],
        };
        let cells: Vec<Vec<String>> = rows.iter().map(|change| cells(change)).collect();
        let aligned = Aligned::new(titles, &cells);
        lines.push(String::new());
        lines.push(dressed(self.options.colour, "1", &format!("{}:", section.title)));
        lines.push(dressed(self.options.colour, "2", &aligned.head(&section.last)));
        for (change, cells) in rows.iter().zip(&cells) {
            lines.push(aligned.line(cells, &self.short(&section.key, &change.name)));
        }
        lines.extend(rest);
    }
}

/// The greatest growth and, if there is room, the greatest shrinkage.
fn most<'a>(changes: &[&'a Change], top: usize) -> Vec<&'a Change> {
    if changes.len() <= top {
        return changes.to_vec();
    }
    let grown = changes.iter().take_while(|change| change.growth() > 0.0).count();
    let shrunk = top.saturating_sub(grown);
    let first = changes.iter().take(grown.min(top));
    first.chain(changes.iter().skip(changes.len() - shrunk)).copied().collect()
}

fn amount(change: &Change) -> String {
    let text = change.growth_text();
    let growth = change.count_growth();
    if growth < 0.0 {
        format!("{text}, though there are {} fewer", change.count_growth_text().replace('-', ""))
    } else if growth > 0.0 {
        format!("{text} in {}", change.count_growth_text().replace('+', ""))
    } else {
        text
    }
}

/// Sums of estimates, whose samples were drawn independently.
fn sum_of_growth(changes: &[&Change]) -> String {
    let growth = changes.iter().map(|change| change.growth()).sum();
    let error = changes.iter().any(|change| change.is_estimated()).then(|| variance(changes).sqrt());
    Measure::Bytes.growth(Number { value: growth, is_whole: true }, error)
}

fn variance(changes: &[&Change]) -> f64 {
    changes.iter().map(|change| change.variance()).sum()
}

/// By how much those grew together that are not shown.
fn remainder(all: &[&Change], shown: &[&Change]) -> String {
    if !all.iter().all(|change| change.unit == Measure::Bytes) {
        return String::new();
    }
    let sum = |changes: &[&Change]| changes.iter().map(|change| change.growth()).sum::<f64>();
    let error = all
        .iter()
        .any(|change| change.is_estimated())
        .then(|| (variance(all) - variance(shown)).max(0.0).sqrt());
    let growth = Number { value: sum(all) - sum(shown), is_whole: true };
    format!(", by {} together", Measure::Bytes.growth(growth, error))
}

/// The sum of changes in bytes, without a count where that of one of them is not known.
fn sum(name: Vec<u8>, changes: &[&Change]) -> Change {
    let add = |of: &dyn Fn(&Change) -> Option<Amount>| {
        let amounts = changes.iter().map(|change| of(change)).collect::<Option<Vec<Amount>>>()?;
        let number = |of: fn(&Amount) -> Number| Number {
            value: amounts.iter().map(|amount| of(amount).value).sum(),
            is_whole: true,
        };
        let doubts = changes.iter().any(|change| change.is_estimated()).then(|| {
            let mut doubts = Doubts::default();
            for (at, sum) in doubts.variances.iter_mut().enumerate() {
                let variance = |amount: &Amount| amount.doubts.and_then(|of| of.variances.get(at).copied());
                *sum = amounts.iter().filter_map(variance).sum();
            }
            doubts
        });
        Some(Amount { before: number(|amount| amount.before), after: number(|amount| amount.after), doubts })
    };
    Change {
        name,
        unit: Measure::Bytes,
        amount: add(&|change| Some(change.amount)).unwrap_or_default(),
        count: add(&|change| change.count),
        at_least: changes.iter().any(|change| change.at_least),
    }
}
