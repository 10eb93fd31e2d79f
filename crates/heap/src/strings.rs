//! Strings: their number, lengths and duplicates.

use crate::answer::{Answer, commas, counted, human, percent, taking};
use crate::graph::About;
use crate::intern::{Keyed, Map, plain_text};
use crate::options::Options;
use crate::read::Wants;
use crate::read::line::{Line, Type, hex};
use crate::read::load::{self, Fold, ReadOutcome};
use crate::read::source::Source;
use crate::tally::Count;
use crate::values::Values;
use memintro_analysis::text::printable;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::hash::{BuildHasher, Hasher};

/// Characters of a value that are shown.
const EXCERPT_BYTES: usize = 80;

/// The strings of one thread; at the end, those of all threads.
#[derive(Debug, Default)]
pub struct Strings {
    hasher: Keyed,
    values: Values,
    lines: crate::intern::Texts,
    by_line: Map<u32, Count>,
    /// By the number of bits of the length.
    by_length: Vec<Count>,
    largest: Vec<(u64, u64, u32)>,
    all: Count,
    objects: Count,
    /// Strings whose value is not in the dump.
    untold: Count,
    redacted: bool,
    keep: usize,
    /// The dump's own header and end.
    pub about: About,
    /// Problems of the reading.
    pub reading: ReadOutcome,
    header: bool,
}

impl Strings {
    /// Reads the strings of a dump.
    pub fn load(source: Source, options: &Options) -> Strings {
        let wants = Wants { sites: true, values: true, ..Wants::default() };
        // All threads must come to the same hash of the same value.
        let hasher = Keyed::default();
        let make = || Strings {
            hasher,
            values: Values::new(options.top),
            keep: options.top,
            by_length: vec![Count::default(); 65],
            ..Strings::default()
        };
        let (parts, reading) = load::fold(source, wants, options.budget, make);
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        parts.for_each(|part| all.merge(part));
        all.about.truncated = all.header && all.about.objects.is_none();
        all.reading = reading;
        all
    }

    /// All objects of the dump.
    pub fn total(&self) -> Count {
        self.objects
    }

    fn merge(&mut self, other: Strings) {
        self.values.take(other.values, |line| self.lines.number(other.lines.bytes_of(line)));
        for (line, count) in &other.by_line {
            let line = self.lines.number(other.lines.bytes_of(*line));
            self.by_line.entry(line).or_default().merge(*count);
        }
        for (mine, theirs) in self.by_length.iter_mut().zip(other.by_length) {
            mine.merge(theirs);
        }
        for (bytes, address, line) in &other.largest {
            let line = self.lines.number(other.lines.bytes_of(*line));
            self.largest.push((*bytes, *address, line));
        }
        self.trim_largest(self.keep);
        self.all.merge(other.all);
        self.objects.merge(other.objects);
        self.untold.merge(other.untold);
        self.redacted |= other.redacted;
        self.header |= other.header;
        self.about.objects = self.about.objects.or(other.about.objects);
    }

    fn trim_largest(&mut self, keep: usize) {
        self.largest.sort_by_key(|(bytes, address, _)| (Reverse(*bytes), *address));
        self.largest.truncate(keep);
    }

    fn value(&mut self, line: &Line, site: u32) {
        let hash = if line.has_value {
            let mut hasher = self.hasher.build_hasher();
            hasher.write(line.value);
            hasher.finish()
        } else if let Some(hash) = hex(line.value_hash) {
            self.redacted = true;
            hash
        } else {
            return self.untold.add(line.memsize);
        };
        let at = self.values.add(hash, Count { objects: 1, bytes: line.memsize }, line.bytesize, site);
        if line.has_value && self.values.wants_text(at) {
            self.values.tell(at, excerpt(line.value).into());
        }
    }
}

fn excerpt(value: &[u8]) -> String {
    let whole = value.len() <= EXCERPT_BYTES;
    let text = plain_text(if whole { value } else { &value[..EXCERPT_BYTES] });
    let text = text.trim_end_matches(['\u{fffd}', '\\']);
    let text: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    let text = if whole { text } else { format!("{text}…") };
    printable(text.as_bytes())
}

impl Fold for Strings {
    fn line(&mut self, line: &Line) {
        if line.kind == Type::Root {
            self.header |= line.root == b"memintro";
            if line.root == b"end" {
                self.about.objects = line.objects;
            }
            return;
        }
        self.objects.add(line.memsize);
        if line.kind != Type::String {
            return;
        }
        self.all.add(line.memsize);
        self.by_length[64 - line.bytesize.leading_zeros() as usize].add(line.memsize);
        let mut site = 0;
        if !line.file.is_empty() {
            let facts = line.facts();
            site = self.lines.number(&[facts.file, b":", facts.line.to_string().as_bytes()].concat());
        }
        self.by_line.entry(site).or_default().add(line.memsize);
        self.largest.push((line.bytesize, line.address, site));
        if self.largest.len() > 4 * self.keep + 1000 {
            self.trim_largest(self.keep);
        }
        self.value(line, site);
    }

    fn memory_bytes(&self) -> usize {
        self.values.memory_bytes() + self.lines.memory_bytes()
    }
}

/// Answers `duplicates`: values that occur more than once.
pub fn duplicates(strings: &Strings, options: &Options) -> Result<Answer, String> {
    if strings.all.objects == 0 {
        return Err("there is no string in the dump".to_string());
    }
    let values = &strings.values;
    let mut list = values.copied();
    list.sort_by_key(|at| (Reverse(values.spare_bytes(*at)), values.hash(*at)));
    let copies: u64 = list.iter().map(|at| values.count(*at).objects - 1).sum();
    let wasted: u64 = list.iter().map(|at| values.spare_bytes(*at)).sum();
    let told = |at: u32| match values.text(at) {
        Some(text) => format!("{text:?}"),
        None => format!("[{}]", counted(values.bytesize(at), "byte")),
    };
    let mut sentence = format!(
        "{} of {} {}, {} in all",
        commas(copies),
        counted(strings.all.objects, "string"),
        if copies == 1 { "is a copy of another" } else { "are copies of others" },
        human(wasted)
    );
    if let Some(at) = list.first() {
        sentence += &format!("; most by {}, there {} times", told(*at), commas(values.count(*at).objects));
    }
    let mut answer = Answer::new(sentence);
    let line = |at: u32| Some(strings.lines.text(values.line(at))).filter(|line| !line.is_empty());
    let rows: Vec<Vec<String>> = list
        .iter()
        .take(options.top)
        .map(|at| {
            let line = line(*at).map(|line| format!("  first at {line}")).unwrap_or_default();
            let objects = commas(values.count(*at).objects);
            vec![human(values.spare_bytes(*at)), objects, format!("{}{line}", told(*at))]
        })
        .collect();
    answer.table(&["could go", "strings", "value"], &rows);
    if strings.redacted {
        answer.note("the dump has hashes instead of values; equal hashes are equal values");
    }
    if strings.untold.objects > 0 {
        answer.note(format!("the dump lacks the value of {}", counted(strings.untold.objects, "string")));
    }
    let rows: Vec<Value> = list
        .iter()
        .take(options.top)
        .map(|at| {
            let count = values.count(*at);
            json!({ "value": values.text(*at), "bytesize": values.bytesize(*at), "strings": count.objects,
                    "bytes": count.bytes, "spare_bytes": values.spare_bytes(*at), "line": line(*at) })
        })
        .collect();
    answer.field("strings", strings.all.objects).field("copies", copies).field("spare_bytes", wasted);
    answer.field("more", (list.len() - rows.len()) as u64).field("rows", rows);
    Ok(answer)
}

/// Answers `strings`: their number, their lengths, and the lines that made them.
pub fn strings(strings: &Strings, options: &Options) -> Result<Answer, String> {
    if strings.all.objects == 0 {
        return Err("there is no string in the dump".to_string());
    }
    let mut lines: Vec<(String, Count)> = strings
        .by_line
        .iter()
        .filter(|(line, _)| **line != 0)
        .map(|(line, count)| (strings.lines.text(*line), *count))
        .collect();
    lines.sort_by(|a, b| (Reverse(a.1.bytes), &a.0).cmp(&(Reverse(b.1.bytes), &b.0)));
    let mut sentence = format!(
        "{} {}, {} of the heap",
        taking(strings.all.objects, "string"),
        human(strings.all.bytes),
        percent(strings.all.bytes, strings.objects.bytes)
    );
    if let Some((line, count)) = lines.first() {
        sentence += &format!("; most from {line} ({})", human(count.bytes));
    }
    let mut answer = Answer::new(sentence);
    let mut listed = Vec::new();
    let mut rows = Vec::new();
    for (power, count) in strings.by_length.iter().enumerate().filter(|(_, count)| count.objects > 0) {
        let below = if power == 64 { u64::MAX } else { 1_u64 << power };
        rows.push(vec![
            commas(count.objects),
            human(count.bytes),
            format!("below {}", counted(below, "byte")),
        ]);
        listed.push(json!({ "below_bytes": below, "strings": count.objects, "bytes": count.bytes }));
    }
    answer.table(&["strings", "bytes", "length"], &rows);
    if !lines.is_empty() {
        answer.line("");
        let rows: Vec<Vec<String>> = lines
            .iter()
            .take(options.top)
            .map(|(line, count)| vec![human(count.bytes), commas(count.objects), line.clone()])
            .collect();
        answer.table(&["bytes", "strings", "line"], &rows);
    }
    let lines: Vec<Value> = lines
        .iter()
        .take(options.top)
        .map(|(line, count)| json!({ "line": line, "strings": count.objects, "bytes": count.bytes }))
        .collect();
    let mut largest = strings.largest.clone();
    largest.sort_by_key(|(bytes, address, _)| (Reverse(*bytes), *address));
    let largest: Vec<Value> = largest
        .iter()
        .take(options.top)
        .map(|(bytes, address, line)| {
            let line = Some(strings.lines.text(*line)).filter(|line| !line.is_empty());
            json!({ "address": format!("{address:#x}"), "bytesize": bytes, "line": line })
        })
        .collect();
    answer.field("strings", strings.all.objects).field("strings_bytes", strings.all.bytes);
    answer.field("lengths", listed).field("lines", lines).field("largest", largest);
    Ok(answer)
}
