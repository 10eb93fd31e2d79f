//! The text that a frozen copy of the process has written: a word and numbers in each line. It is read as that of a
//! stranger, so lines of another shape are passed over.

use std::collections::HashMap;

/// What follows a word.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    numbers: usize,
    is_named: bool,
    is_addressed: bool,
}

/// So many numbers.
pub(crate) const fn numbers(numbers: usize) -> Shape {
    Shape { numbers, is_named: false, is_addressed: false }
}

/// So many numbers, and a name.
pub(crate) const fn named(numbers: usize) -> Shape {
    Shape { numbers, is_named: true, is_addressed: false }
}

/// An address of a block, which stays text, and so many numbers: a number in memory would point to the block.
pub(crate) const fn addressed(numbers: usize) -> Shape {
    Shape { numbers, is_named: false, is_addressed: true }
}

/// What every copy may write: how far it came, and what it found of the memory of glibc's malloc.
const COMMON: &[(&str, Shape)] = &[
    ("stage", numbers(1)),
    ("lost", numbers(1)),
    ("glibc", numbers(1)),
    ("busy", numbers(1)),
    ("broken", named(1)),
    ("arena", numbers(8)),
    ("tcache", numbers(4)),
    ("fast", numbers(3)),
    ("mmapped", numbers(3)),
];

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    numbers: Vec<u64>,
    /// The name after the numbers, or the address before them.
    pub text: Vec<u8>,
}

impl Row {
    /// The number in this place, as it was written.
    #[must_use]
    pub fn label(&self, place: usize) -> u64 {
        self.numbers.get(place).copied().unwrap_or(0)
    }

    /// The number in this place.
    #[must_use]
    pub fn number(&self, place: usize) -> i64 {
        i64::try_from(self.label(place)).unwrap_or(i64::MAX)
    }

    /// All numbers from this place on.
    #[must_use]
    pub fn from(&self, place: usize) -> &[u64] {
        self.numbers.get(place..).unwrap_or_default()
    }
}

/// All lines, by their words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyLines {
    rows: HashMap<&'static str, Vec<Row>>,
}

impl CopyLines {
    /// Reads a text. `shapes`: what follows each word that not every copy writes.
    #[must_use]
    pub fn read(text: &[u8], shapes: &'static [(&'static str, Shape)]) -> Self {
        let mut rows: HashMap<&'static str, Vec<Row>> = HashMap::new();
        for line in text.split(|&byte| byte == b'\n') {
            if let Some((word, row)) = row(line, shapes) {
                rows.entry(word).or_default().push(row);
            }
        }
        Self { rows }
    }

    /// The lines that begin with this word.
    #[must_use]
    pub fn all(&self, word: &str) -> &[Row] {
        self.rows.get(word).map_or(&[], Vec::as_slice)
    }

    /// The sum of their first numbers.
    #[must_use]
    pub fn sum(&self, word: &str) -> i64 {
        self.sum_at(word, 0)
    }

    /// The sum of their numbers in this place.
    #[must_use]
    pub fn sum_at(&self, word: &str, place: usize) -> i64 {
        self.all(word).iter().fold(0, |sum: i64, row| sum.saturating_add(row.number(place)))
    }

    /// Resident bytes of freed blocks that malloc keeps aside, in caches of threads and in fast bins.
    pub(crate) fn cached_bytes(&self) -> i64 {
        self.sum_at("tcache", 2) + self.sum_at("fast", 1)
    }

    /// Resident bytes that malloc has free: in bins, at the ends of arenas, and kept aside.
    pub(crate) fn free_bytes(&self) -> i64 {
        self.sum_at("arena", 3) + self.sum_at("arena", 4) + self.cached_bytes()
    }
}

fn row(line: &[u8], shapes: &'static [(&'static str, Shape)]) -> Option<(&'static str, Row)> {
    let mut parts = line.splitn(2, |&byte| byte == b' ');
    let (key, mut rest) = (parts.next()?, parts.next()?);
    let (word, shape) = shapes.iter().chain(COMMON).find(|(word, _)| word.as_bytes() == key)?;
    let mut next = || {
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (digits, more) = rest.split_at_checked(end)?;
        rest = more.get(1..).unwrap_or_default();
        let is_number = (1..=20).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
        is_number.then_some(digits)
    };
    let address = if shape.is_addressed { next()? } else { &[] };
    let mut numbers = Vec::with_capacity(shape.numbers);
    for _ in 0..shape.numbers {
        numbers.push(std::str::from_utf8(next()?).ok()?.parse().ok()?);
    }
    let text = if shape.is_named { rest } else { address };
    Some((word, Row { numbers, text: text.to_vec() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: &[(&str, Shape)] = &[("file", named(2)), ("words", addressed(1)), ("rss", numbers(1))];

    #[test]
    fn reads_lines_of_these_shapes_alone() {
        let text = b"rss 3\nrss x\nrss\nmore 3\nfile 1 2 a b\nfile 1\nfile 5 6\nwords 99999999999999999999 7\nrss 4 5\n\
                     rss 99999999999999999999\nrss  9\nlast";
        let lines = CopyLines::read(text, SHAPES);
        assert_eq!(lines.sum("rss"), 7);
        let files: Vec<_> =
            lines.all("file").iter().map(|row| (row.number(1), row.text.as_slice())).collect();
        assert_eq!(files, [(2, &b"a b"[..]), (6, b"")]);
        assert_eq!(
            (lines.sum("words"), lines.all("words")[0].text.as_slice()),
            (7, &b"99999999999999999999"[..])
        );
        assert_eq!((lines.sum("more"), lines.sum_at("file", 1)), (0, 8));
    }
}
