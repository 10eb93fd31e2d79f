//! Goes over the lines of a block.

use super::line::{Line, Wrong};
use super::source::Block;
use super::{Problem, Wants, fast, index::Index};

/// More problems of one block are only counted.
const MOST_PROBLEMS: usize = 4;
const KEPT_MARKS: usize = 1 << 19;

/// Reads blocks; keeps the memory of its index from one to the next.
#[derive(Debug, Default)]
pub struct Lines {
    index: Index,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// Lines that could not be read.
    pub bad_lines: u64,
}

impl Lines {
    /// Calls `take` with each line. A line that cannot be read, or that `take` refuses, is left out and noted.
    pub fn each<'a>(
        &mut self,
        block: &'a Block,
        wants: Wants,
        mut take: impl FnMut(&Line<'a>) -> Result<(), Wrong>,
    ) {
        self.problems.clear();
        self.bad_lines = 0;
        let text = &block.bytes[..];
        let mut index = std::mem::take(&mut self.index);
        index.fill(text);
        let (mut mark, mut escape, mut from) = (0, 0, 0);
        while from < text.len() {
            // The line's marks, up to its end.
            let first = mark;
            while index.marks.get(mark).is_some_and(|at| text[*at as usize] != b'\n') {
                mark += 1;
            }
            let to = index.marks.get(mark).map_or(text.len(), |at| *at as usize);
            let plain = index.backslashes.get(escape).is_none_or(|at| *at as usize >= to);
            let quick =
                if plain { fast::parse(text, from, to, &index.marks[first..mark], wants) } else { None };
            let outcome = match &quick {
                Some(line) => take(line),
                None if text[from..to].trim_ascii().is_empty() => Ok(()),
                None => Line::parse(&text[from..to], wants).and_then(|line| take(&line)),
            };
            if let Err((at, what)) = outcome {
                let cut = to == text.len();
                self.complain(
                    block.offset + (from + at) as u64,
                    if cut { "the last line is cut short" } else { what },
                );
            }
            while index.backslashes.get(escape).is_some_and(|at| (*at as usize) < to) {
                escape += 1;
            }
            mark += 1;
            from = to + 1;
        }
        // A long line of references has many quotes.
        for list in [&mut index.marks, &mut index.backslashes] {
            if list.capacity() > KEPT_MARKS {
                *list = Vec::new();
            }
        }
        self.index = index;
    }

    fn complain(&mut self, offset: u64, what: &str) {
        self.bad_lines += 1;
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem { offset, message: what.to_string(), ends: false });
        }
    }
}
