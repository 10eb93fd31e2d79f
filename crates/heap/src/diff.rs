//! Compares two dumps of a process, and finds leaks in three.
//!
//! Objects are the same if their address, class, line and generation of allocation are equal. In a dump
//! without lines and generations, an object at the address of a freed one of its class counts as the same.

use crate::answer::{Answer, commas, counted, human};
use crate::graph::About;
use crate::intern::Map;
use crate::kinds::{Kinds, NO_GENERATION};
use crate::options::Options;
use crate::read::Wants;
use crate::read::line::{Line, Type};
use crate::read::load::{self, Fold, ReadOutcome};
use crate::read::source::Source;
use crate::tally::Count;
use serde_json::{Value, json};
use std::cmp::{Ordering, Reverse};

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    /// The properties that identify an object, apart from its address.
    sign: u32,
    size: u32,
}

#[derive(Default)]
struct Part {
    kinds: Kinds,
    entries: Vec<Entry>,
    about: About,
    header: bool,
}

impl Fold for Part {
    fn line(&mut self, line: &Line) {
        if line.kind == Type::Root {
            self.header |= line.root == b"memintro";
            if line.root == b"end" {
                self.about.objects = line.objects;
            }
            return;
        }
        let sign = self.kinds.number(&line.facts());
        let size = u32::try_from(line.memsize).unwrap_or(u32::MAX);
        crate::grow::push(&mut self.entries, Entry { address: line.address, sign, size });
    }

    fn memory_bytes(&self) -> usize {
        self.kinds.memory_bytes() + 16 * self.entries.capacity()
    }
}

/// The common properties of all objects with the same sign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Sign {
    class: String,
    name: String,
    line: String,
    generation: u32,
}

/// Signs of all dumps.
#[derive(Debug, Default)]
pub struct Signs {
    list: Vec<Sign>,
    numbers: Map<Sign, u32>,
}

/// The objects of a dump, by address.
#[derive(Debug)]
pub struct Objects {
    entries: Vec<Entry>,
    /// The dump's own header and end.
    pub about: About,
    /// Problems of the reading.
    pub reading: ReadOutcome,
}

impl Objects {
    /// Reads a dump.
    pub fn load(source: Source, budget: Option<usize>, signs: &mut Signs) -> Objects {
        let wants = Wants { sites: true, ..Wants::default() };
        let (parts, reading) = load::fold(source, wants, budget, Part::default);
        let mut kinds = Kinds::default();
        let (mut entries, mut about, mut header) = (Vec::new(), About::default(), false);
        for part in parts {
            let numbers = kinds.merge(&part.kinds);
            header |= part.header;
            about.objects = about.objects.or(part.about.objects);
            entries.reserve_exact(part.entries.len());
            entries.extend(
                part.entries.iter().map(|entry| Entry { sign: numbers[entry.sign as usize], ..*entry }),
            );
        }
        kinds.complete();
        about.truncated = header && about.objects.is_none();
        about.generations = kinds.list.iter().any(|kind| kind.generation != NO_GENERATION);
        about.sites = kinds.list.iter().any(|kind| kind.file != 0);
        let numbers: Vec<u32> = (0..kinds.list.len() as u32).map(|kind| signs.number(&kinds, kind)).collect();
        entries.iter_mut().for_each(|entry| entry.sign = numbers[entry.sign as usize]);
        entries.sort_unstable_by_key(|entry| entry.address);
        let before = entries.len();
        entries.dedup_by_key(|entry| entry.address);
        about.same_address = (before - entries.len()) as u64;
        Objects { entries, about, reading }
    }

    /// Objects and bytes.
    pub fn total(&self) -> Count {
        let mut total = Count::default();
        self.entries.iter().for_each(|entry| total.add(u64::from(entry.size)));
        total
    }
}

impl Signs {
    fn number(&mut self, kinds: &Kinds, number: u32) -> u32 {
        let kind = &kinds.list[number as usize];
        let named = matches!(kind.kind, Type::Class | Type::Module);
        let sign = Sign {
            class: kinds.class_of(number),
            name: if named { kinds.texts.text(kind.sort) } else { String::new() },
            line: kinds.site(number).unwrap_or_default(),
            generation: kind.generation,
        };
        let next = self.list.len() as u32;
        let found = *self.numbers.entry(sign.clone()).or_insert(next);
        if found == next {
            self.list.push(sign);
        }
        found
    }
}

/// Objects by class and by line.
#[derive(Default)]
struct Change {
    all: Count,
    classes: Map<String, Count>,
    lines: Map<(String, String), Count>,
}

impl Change {
    fn new(signs: &Signs, counts: &Map<u32, Count>) -> Change {
        let mut change = Change::default();
        for (sign, count) in counts {
            let sign = &signs.list[*sign as usize];
            change.all.merge(*count);
            change.classes.entry(sign.class.clone()).or_default().merge(*count);
            if !sign.line.is_empty() {
                change.lines.entry((sign.class.clone(), sign.line.clone())).or_default().merge(*count);
            }
        }
        change
    }

    fn classes(&self, top: usize) -> Vec<(&String, &Count)> {
        let mut list: Vec<_> = self.classes.iter().collect();
        list.sort_by_key(|(class, count)| (Reverse(count.bytes), *class));
        list.truncate(top);
        list
    }

    fn lines(&self, top: usize) -> Vec<(&(String, String), &Count)> {
        let mut list: Vec<_> = self.lines.iter().collect();
        list.sort_by_key(|(line, count)| (Reverse(count.bytes), *line));
        list.truncate(top);
        list
    }

    /// `most of them 50,000 Message (2.1 MiB), allocated at a.rb:3`
    fn most(&self) -> String {
        let Some((class, count)) = self.classes(1).into_iter().next() else { return String::new() };
        let mut text = format!("; most of it {} {class} ({})", commas(count.objects), human(count.bytes));
        let mine = self.lines.iter().filter(|((of, _), _)| of == class);
        if let Some(((_, line), _)) = mine.max_by_key(|(line, count)| (count.objects, Reverse(*line))) {
            text += &format!(", allocated at {line}");
        }
        text
    }

    fn json(&self, top: usize) -> Value {
        let classes: Vec<Value> = self
            .classes(top)
            .into_iter()
            .map(|(class, count)| json!({ "class": class, "objects": count.objects, "bytes": count.bytes }))
            .collect();
        let lines: Vec<Value> = self
            .lines(top)
            .into_iter()
            .map(|((class, line), count)| {
                json!({ "class": class, "line": line, "objects": count.objects, "bytes": count.bytes })
            })
            .collect();
        json!({ "objects": self.all.objects, "bytes": self.all.bytes, "classes": classes, "lines": lines })
    }

    fn table(&self, answer: &mut Answer, title: &str, top: usize) {
        if self.all.objects == 0 {
            return;
        }
        answer.line(format!("{title}: {}, {}", counted(self.all.objects, "object"), human(self.all.bytes)));
        let rows: Vec<Vec<String>> = self
            .classes(top)
            .into_iter()
            .map(|(class, count)| vec![human(count.bytes), commas(count.objects), class.clone()])
            .collect();
        answer.table(&["bytes", "objects", "class"], &rows);
        let rows: Vec<Vec<String>> = self
            .lines(top)
            .into_iter()
            .map(|((class, line), count)| {
                vec![human(count.bytes), commas(count.objects), format!("{class} at {line}")]
            })
            .collect();
        if !rows.is_empty() {
            answer.table(&["bytes", "objects", "class and line"], &rows);
        }
        answer.line("");
    }
}

/// Visits both in the order of addresses; an object that is in both is passed together with its counterpart.
fn together(a: &[Entry], b: &[Entry], mut take: impl FnMut(Option<&Entry>, Option<&Entry>)) {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(x), Some(y)) => x.address.cmp(&y.address),
        };
        match order {
            Ordering::Less => take(a.next(), None),
            Ordering::Greater => take(None, b.next()),
            Ordering::Equal => {
                let (x, y) = (a.next(), b.next());
                if x.map(|entry| entry.sign) == y.map(|entry| entry.sign) {
                    take(x, y);
                } else {
                    take(x, None);
                    take(None, y);
                }
            }
        }
    }
}

/// Answers `diff` of two or three dumps, the oldest first.
pub fn diff(dumps: &[Objects], signs: &Signs, options: &Options) -> Result<Answer, String> {
    let mut answer = match dumps {
        [a, b] => two(a, b, signs, options),
        [a, b, c] => three(a, b, c, signs, options),
        _ => {
            return Err(
                "diff takes two dumps, or three for what is new in the second and still in the third".into(),
            );
        }
    };
    if dumps.iter().any(|dump| !dump.about.generations) {
        answer.note(
            "not all dumps have generations of allocation: an object at the address of a freed one of its class \
             and line counts as the same",
        );
    }
    for pair in dumps.windows(2) {
        moved(&pair[0], &pair[1], signs, &mut answer);
    }
    Ok(answer)
}

/// Classes rarely die: if most have other addresses, the dumps are not of one process.
fn moved(a: &Objects, b: &Objects, signs: &Signs, answer: &mut Answer) {
    let is_class = |entry: &Entry| !signs.list[entry.sign as usize].name.is_empty();
    let (mut classes, mut same) = (0_u64, 0_u64);
    together(&a.entries, &b.entries, |x, y| {
        if x.is_some_and(is_class) {
            classes += 1;
            same += u64::from(y.is_some());
        }
    });
    if classes > 0 && same * 2 < classes {
        answer.note(format!(
            "only {} of {} are where they were: the heap was compacted, or the dumps are of different processes. \
             New and gone say little then; the classes' totals do",
            commas(same),
            counted(classes, "named class").replace("classs", "classes")
        ));
    }
}

fn two(a: &Objects, b: &Objects, signs: &Signs, options: &Options) -> Answer {
    let (mut new, mut gone): (Map<u32, Count>, Map<u32, Count>) = Default::default();
    let mut grown: Map<u32, Count> = Map::default();
    together(&a.entries, &b.entries, |x, y| match (x, y) {
        (None, Some(y)) => new.entry(y.sign).or_default().add(u64::from(y.size)),
        (Some(x), None) => gone.entry(x.sign).or_default().add(u64::from(x.size)),
        (Some(x), Some(y)) if y.size > x.size => {
            grown.entry(y.sign).or_default().add(u64::from(y.size - x.size))
        }
        _ => {}
    });
    let [new, gone, grown] = [&new, &gone, &grown].map(|counts| Change::new(signs, counts));
    let (before, after) = (a.total(), b.total());
    let signed = |before: u64, after: u64| {
        if after >= before {
            format!("{} more", human(after - before))
        } else {
            format!("{} less", human(before - after))
        }
    };
    let mut answer = Answer::new(format!(
        "{} than before: {} new ({}), {} gone ({}){}",
        signed(before.bytes, after.bytes),
        counted(new.all.objects, "object"),
        human(new.all.bytes),
        commas(gone.all.objects),
        human(gone.all.bytes),
        new.most()
    ));
    new.table(&mut answer, "New", options.top);
    gone.table(&mut answer, "Gone", options.top.min(10));
    grown.table(&mut answer, "Grown, by how much", options.top.min(10));
    let total = |count: Count| json!({ "objects": count.objects, "bytes": count.bytes });
    answer.field("before", total(before)).field("after", total(after));
    answer.field("new", new.json(options.top)).field("gone", gone.json(options.top));
    answer.field("grown", grown.json(options.top));
    answer
}

fn three(a: &Objects, b: &Objects, c: &Objects, signs: &Signs, options: &Options) -> Answer {
    let mut born: Vec<Entry> = Vec::new();
    together(&a.entries, &b.entries, |x, y| {
        if let (None, Some(y)) = (x, y) {
            born.push(*y);
        }
    });
    let (mut kept, mut gone): (Map<u32, Count>, Map<u32, Count>) = Default::default();
    together(&born, &c.entries, |x, y| match (x, y) {
        (Some(_), Some(y)) => kept.entry(y.sign).or_default().add(u64::from(y.size)),
        (Some(x), None) => gone.entry(x.sign).or_default().add(u64::from(x.size)),
        _ => {}
    });
    let [kept, gone] = [&kept, &gone].map(|counts| Change::new(signs, counts));
    let mut answer = Answer::new(format!(
        "{} of {} objects that are new in the second dump {} still in the third ({}){}",
        commas(kept.all.objects),
        commas(born.len() as u64),
        if kept.all.objects == 1 { "is" } else { "are" },
        human(kept.all.bytes),
        kept.most()
    ));
    kept.table(&mut answer, "New in the second, still in the third", options.top);
    gone.table(&mut answer, "New in the second, gone in the third", options.top.min(10));
    answer.field("born", born.len() as u64);
    answer.field("kept", kept.json(options.top)).field("gone", gone.json(options.top));
    answer
}
