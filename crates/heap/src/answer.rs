//! An answer: a sentence, lists for people, and the same as JSON for programs.

use crate::graph::About;
use crate::read::load::ReadOutcome;
use memintro_analysis::text::units;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The result of a command.
#[derive(Debug, Default)]
pub struct Answer {
    /// The first line, with the main result.
    pub sentence: String,
    /// The command's own fields.
    pub fields: Map<String, Value>,
    /// The lines below the sentence.
    pub lines: String,
    /// The limits of the answer.
    pub notes: Vec<String>,
}

impl Answer {
    /// Begins an answer.
    pub fn new(sentence: String) -> Answer {
        Answer { sentence, ..Answer::default() }
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: impl Into<Value>) -> &mut Answer {
        self.fields.insert(name.to_string(), value.into());
        self
    }

    /// Adds a line for people.
    pub fn line(&mut self, text: impl AsRef<str>) -> &mut Answer {
        self.lines.push_str(text.as_ref());
        self.lines.push('\n');
        self
    }

    /// Adds a note.
    pub fn note(&mut self, text: impl Into<String>) -> &mut Answer {
        self.notes.push(text.into());
        self
    }

    /// Adds the columns of a table for people: numbers to the right, the last column as it is.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Answer {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([head[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let mut text = String::new();
        let head: Vec<String> = head.iter().map(|name| (*name).to_string()).collect();
        for row in std::iter::once(&head).chain(rows) {
            for (column, cell) in row.iter().enumerate() {
                // Writing to a String cannot fail.
                let _ = match column + 1 == row.len() {
                    true => writeln!(text, "  {cell}"),
                    false => write!(text, "  {cell:>width$}", width = widths[column]),
                };
            }
        }
        self.lines.push_str(&text);
        self
    }
}

/// The dump, for the head of every answer.
#[derive(Debug)]
pub struct Read<'a> {
    /// The dump's own header and end.
    pub about: &'a About,
    /// Problems of the reading.
    pub reading: &'a ReadOutcome,
    /// Objects, bytes and references.
    pub counts: (u64, u64, u64),
}

impl Read<'_> {
    /// The limits of every answer from this dump.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let (objects, ..) = self.counts;
        if self.about.truncated && !self.reading.problems.iter().any(|problem| problem.ends) {
            notes.push(format!(
                "the dump has no last line: it ends early, and this is of the {} read",
                objects_text(objects)
            ));
        }
        if let Some(written) = self.about.objects
            && written != objects
        {
            notes.push(format!(
                "the writer counted {}, and {} are here",
                objects_text(written),
                commas(objects)
            ));
        }
        if self.about.same_address > 0 {
            notes.push(format!(
                "{} at the address of another one left out",
                objects_text(self.about.same_address)
            ));
        }
        let nowhere = self.about.to_nowhere;
        if nowhere > 0 {
            notes.push(format!("{} to addresses without an object left out", counted(nowhere, "reference")));
        }
        notes
    }

    /// Whether the answer is of a part of the dump.
    pub fn damaged(&self) -> bool {
        self.about.truncated || !self.reading.problems.is_empty()
    }

    /// The error for people, if the dump is damaged.
    pub fn error(&self, name: &str) -> Option<String> {
        let objects = objects_text(self.counts.0);
        let Some(first) =
            self.reading.problems.iter().find(|problem| problem.ends).or(self.reading.problems.first())
        else {
            return self.about.truncated.then(|| {
                let end = self.reading.bytes;
                format!("{name}: byte {end}: the dump ends early, after {objects}")
            });
        };
        let mut text = format!("{name}: byte {}: {}", first.offset, first.message);
        if self.reading.bad_lines > 0 {
            let _ = write!(text, "; {} left out", counted(self.reading.bad_lines, "line"));
        }
        let _ = write!(text, "; {objects} could be read");
        Some(text)
    }
}

/// The whole answer as JSON.
pub fn json(command: &str, answer: &Answer, read: &[Read]) -> Value {
    let mut whole = Map::new();
    let problems: Vec<Value> = read
        .iter()
        .enumerate()
        .flat_map(|(dump, read)| read.reading.problems.iter().map(move |problem| (dump, problem)))
        .map(|(dump, problem)| json!({ "dump": dump, "offset": problem.offset, "message": problem.message }))
        .collect();
    let notes: Vec<String> = read.iter().flat_map(Read::notes).chain(answer.notes.iter().cloned()).collect();
    let (objects, bytes, edges) = read.last().map_or((0, 0, 0), |read| read.counts);
    whole.insert("version".into(), 1.into());
    whole.insert("command".into(), command.into());
    whole.insert("sentence".into(), answer.sentence.clone().into());
    whole.insert("objects".into(), objects.into());
    whole.insert("bytes".into(), bytes.into());
    whole.insert("edges".into(), edges.into());
    whole.insert("truncated".into(), read.iter().any(Read::damaged).into());
    whole.insert("problems".into(), problems.into());
    whole.insert("notes".into(), notes.into());
    whole.extend(answer.fields.clone());
    whole.into()
}

/// The whole answer for people.
pub fn text(answer: &Answer, read: &[Read]) -> String {
    let mut text = format!("{}\n", answer.sentence);
    if !answer.lines.is_empty() {
        let _ = write!(text, "\n{}", answer.lines);
    }
    let notes: Vec<String> = read.iter().flat_map(Read::notes).chain(answer.notes.iter().cloned()).collect();
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text
}

/// 1,234,567
pub fn commas(number: u64) -> String {
    units::count(number.cast_signed())
}

/// `1 line`, `2 lines`
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", commas(number), if number == 1 { "" } else { "s" })
}

/// `1 line takes`, `2 lines take`
pub fn taking(number: u64, noun: &str) -> String {
    format!("{} take{}", counted(number, noun), if number == 1 { "s" } else { "" })
}

fn objects_text(number: u64) -> String {
    counted(number, "object")
}

/// 1.5 MiB
pub fn human(bytes: u64) -> String {
    units::bytes(bytes.cast_signed())
}

/// A part of bytes and all of them: `27.7 of 28.1 MiB`, `212.0 KiB of 28.1 MiB`; only once if they are the same.
pub fn of_human(part: u64, all: u64) -> String {
    let (part_text, all_text) = (human(part), human(all));
    if part == all {
        return all_text;
    }
    match (part_text.split_once(' '), all_text.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} of {all_text}"),
        _ => format!("{part_text} of {all_text}"),
    }
}

/// A part of a whole in percent.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "0%".to_string() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}
