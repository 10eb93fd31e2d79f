//! Goes over the lines of a block.

use super::fast::{self, Recent};
use super::line::{Line, Wrong};
use super::source::Block;
use super::{Problem, Wants};
use memchr::memchr;

/// More problems of one block are only counted.
const MOST_PROBLEMS: usize = 4;

/// Reads blocks.
#[derive(Debug, Default)]
pub struct Lines {
    /// Problems of the reading.
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
        let (mut from, mut recent, mut line) = (0, Recent::default(), Line::default());
        while from < text.len() {
            let (outcome, to) = match fast::parse(text, from, wants, &mut recent, &mut line) {
                Some(to) => (take(&line), to),
                None => {
                    let to = memchr(b'\n', &text[from..]).map_or(text.len(), |length| from + length);
                    let line = &text[from..to];
                    let blank = line.trim_ascii().is_empty();
                    let mut read = || Line::parse(line, wants).and_then(|line| take(&line));
                    (if blank { Ok(()) } else { read() }, to)
                }
            };
            if let Err((at, what)) = outcome {
                let cut = to == text.len();
                self.complain(
                    block.offset + (from + at) as u64,
                    if cut { "the last line is cut short" } else { what },
                );
            }
            from = to + 1;
        }
    }

    fn complain(&mut self, offset: u64, what: &str) {
        self.bad_lines += 1;
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem { offset, message: what.to_string(), ends: false });
        }
    }
}
