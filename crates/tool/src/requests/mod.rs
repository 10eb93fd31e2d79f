//! `memintro requests`: ranks requests by memory, from their MEMORY lines.
//!
//! Arguments: `FORMAT BY TOP FILE…`, where FORMAT is text or json, BY a figure of [`tally::By`] or empty, TOP a number of
//! rows.

mod answer;
pub mod fold;
mod output;
pub mod request_line;
pub mod spread;
pub mod tally;

use crate::plot::input::{Sink, Source};
use crate::plot::write_out;
use std::ffi::OsString;
use tally::{By, Tally};

/// Reads all files, and prints the answer and the table.
pub fn run(arguments: &[OsString]) -> Result<(), String> {
    let wrong = "memintro-tool requests FORMAT BY TOP FILE…: wrong arguments";
    let [format, by, top, files @ ..] = arguments else { return Err(wrong.to_string()) };
    let (format, wanted, top) = (format.to_str(), by.to_str().unwrap_or("?"), top.to_str());
    let top: usize = top.and_then(|text| text.parse().ok()).ok_or(wrong)?;
    let mut tally = Tally::default();
    for (index, path) in files.iter().enumerate() {
        Source::new(index, path).read_all(&mut tally)?;
    }
    if !tally.any() {
        return Err(nothing(&tally));
    }
    // If nothing was tracked, only the growth of RSS is known.
    let untracked = wanted.is_empty() && tally.sums.known == 0;
    let name = if untracked {
        "rss"
    } else if wanted.is_empty() {
        "bytes"
    } else {
        wanted
    };
    let note = if untracked {
        "No line has malloc_bytes, for nothing was tracked: call Memintro.start in the application. By growth of RSS:"
    } else {
        ""
    };
    let by = By::named(name).ok_or(wrong)?;
    tally.sort(by);
    let text = match format {
        Some("json") => output::json(&mut tally, by, name, top, note),
        Some("text") => output::text(&mut tally, by, top, note),
        _ => return Err(wrong.to_string()),
    };
    write_out(text.as_bytes())
}

fn nothing(tally: &Tally) -> String {
    let lines = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    format!(
        "no request in {} and {}: their lines have a path, an action or a job, as Memintro::Middleware writes them",
        lines(tally.memory, "MEMORY line"),
        lines(tally.skipped, "other line")
    )
}
