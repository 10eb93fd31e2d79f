//! `memintro requests`: ranks requests by memory, from their MEMORY lines.

mod answer;
pub mod fold;
mod output;
pub mod request_line;
pub mod spread;
pub mod tally;

use crate::plot::input::{Sink, Source, refuse_folders};
use crate::plot::write_out;
use memintro_heap::command_line::{self, Ended, Outcome, choice, files, switch, top};
use std::ffi::OsString;
use tally::{FIGURES, Tally};

const ABOUT: &str = "\
Ranks requests by the memory they allocate, from the lines that Memintro::Middleware and the Sidekiq
middleware write. Requests of one kind are counted together: one Rails action, one job class, or one
method and path. /posts/4711 and /posts/4712 are both /posts/:id. LOG may be compressed by gzip; -
is standard input. docs/requests.md explains the figures.";

/// Default number of rows of the table; JSON has all.
const TOP: usize = 20;

/// What to read, and how to print it.
struct Request {
    json: bool,
    by: Option<String>,
    top: usize,
    files: Vec<OsString>,
}

impl Request {
    fn parse(words: &[OsString]) -> Result<Request, Ended> {
        let by = "bytes (the default) are allocated\nbytes, calls those of malloc, count requests; p95 and max: bytes of one request;\n\
                  rss: its growth (the default if no line has malloc_bytes)";
        let command = command_line::command("memintro requests", "[options] LOG...", ABOUT).args([
            choice("by", FIGURES.map(|figure| figure.0), by),
            top("number of kinds, or all; default 20, all in JSON"),
            switch("json", "JSON, for programs"),
            files(),
        ]);
        let matches = command_line::parse(command, words)?;
        let files: Vec<OsString> = matches.get_many("files").into_iter().flatten().cloned().collect();
        if files.is_empty() {
            let message = "give a log to read, or - for standard input (memintro requests --help)";
            return Err(Ended::Usage(message.to_string()));
        }
        refuse_folders(&files)?;
        let json = matches.get_flag("json");
        let most = if json { usize::MAX } else { TOP };
        Ok(Request {
            json,
            by: matches.get_one("by").cloned(),
            top: matches.get_one("top").copied().unwrap_or(most),
            files,
        })
    }
}

/// Reads all files, and prints the answer and the table.
pub fn run(words: &[OsString]) -> Outcome {
    let request = Request::parse(words)?;
    let mut tally = Tally::default();
    for (index, path) in request.files.iter().enumerate() {
        Source::new(index, path).read_all(&mut tally)?;
    }
    if !tally.any() {
        return Err(nothing(&tally).into());
    }
    // If nothing was tracked, only the growth of RSS is known.
    let untracked = request.by.is_none() && tally.sums.known == 0;
    let name = request.by.as_deref().unwrap_or(if untracked { "rss" } else { "bytes" });
    let note = if untracked {
        "No line has malloc_bytes, for nothing was tracked: call Memintro.start in the application. By growth of RSS:"
    } else {
        ""
    };
    let by = FIGURES.iter().find(|figure| figure.0 == name).map(|figure| figure.1);
    let by = by.ok_or_else(|| format!("there is no figure {name:?}"))?;
    tally.sort(by);
    let text = match request.json {
        true => output::json(&mut tally, by, name, request.top, note),
        false => output::text(&mut tally, by, request.top, note),
    };
    Ok(write_out(text.as_bytes())?)
}

fn nothing(tally: &Tally) -> String {
    let lines = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    format!(
        "no request in {} and {}: their lines have a path, an action or a job, as Memintro::Middleware writes them",
        lines(tally.memory, "MEMORY line"),
        lines(tally.skipped, "other line")
    )
}
