//! `memintro plot`: plots the figures of MEMORY lines.

mod axis;
pub mod history;
mod image;
pub(crate) mod input;
pub(crate) mod json_line;
pub mod memory_line;
mod options;
mod output;
mod page;
pub mod record;
pub mod stamp;
mod terminal;
mod thin;

use crate::units;
use history::History;
use input::{Sink, Source, plain};
use memintro_analysis::text::printable;
use memintro_heap::command_line::Outcome;
use options::{Format, Request};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Least time between two plots of a file that grows.
const PACE: Duration = Duration::from_millis(500);

impl Sink for History {
    const DOING: &'static str = "drawing";

    fn take(&mut self, source: usize, lines: &[u8]) {
        History::take(self, source, lines);
    }

    fn skip(&mut self) {
        self.skipped += 1;
    }

    fn any(&self) -> bool {
        self.samples() > 0
    }
}

/// Plots once or, with `--follow`, until it is stopped or its reader closes the pipe.
pub fn run(words: &[OsString]) -> Outcome {
    let request = Request::parse(words)?;
    let mut sources: Vec<Source> =
        request.files.iter().enumerate().map(|(index, path)| Source::new(index, path)).collect();
    let mut history = History::default();
    if request.follow {
        return Ok(follow(&request, &mut sources, &mut history)?);
    }
    for source in &mut sources {
        source.read_all(&mut history)?;
    }
    history.sort();
    if let Some(reason) = history.nothing_to_draw() {
        return Err(reason.into());
    }
    let said = draw(&request, &history)?;
    if let Some(output) = &request.output {
        eprintln!("memintro: {}: {said}", printable(output.as_os_str().as_encoded_bytes()));
    } else if request.format == Format::Text {
        eprintln!("{said}");
    }
    Ok(())
}

fn follow(request: &Request, sources: &mut [Source], history: &mut History) -> Result<(), String> {
    let mut told = false;
    loop {
        let mut more = false;
        for source in sources.iter_mut() {
            more |= source.read_more(history)?;
        }
        if more && history.samples() > 0 {
            history.sort();
            draw(request, history)?;
        } else if !told && history.samples() == 0 {
            eprintln!("memintro: waiting for the first MEMORY line");
            told = true;
        }
        sleep(PACE);
    }
}

/// Plots once, and returns the notes.
fn draw(request: &Request, history: &History) -> Result<String, String> {
    let files: Vec<String> = request.files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
    let names = image::names(history, &files);
    let bytes = match request.format {
        Format::Svg => image::svg(history, &names)?.into_bytes(),
        Format::Png => image::png(history, &names)?,
        Format::Html => page::page(history, &names)?.into_bytes(),
        Format::Text => text(request, history, &names).into_bytes(),
    };
    match &request.output {
        Some(path) => write_file(path, &bytes)?,
        None => write_out(&bytes)?,
    }
    Ok(summary(history))
}

fn summary(history: &History) -> String {
    let count = |number: u64, noun: &str| {
        format!("{} {noun}{}", units::count(number), if number == 1 { "" } else { "s" })
    };
    let mut parts = vec![format!(
        "{} of {}",
        count(history.samples() as u64, "line"),
        count(history.curves.len() as u64, "process").replace("processs", "processes")
    )];
    if history.left_out[0] > 0 {
        parts.push(format!(
            "{} with fewer lines left out ({}), for at most {} are drawn",
            count(history.left_out[0], "process").replace("processs", "processes"),
            count(history.left_out[1], "line"),
            units::count(history::MOST_CURVES as u64)
        ));
    }
    if history.untracked > 0 {
        parts.push(format!(
            "malloc's bytes unknown in {}, for nothing was tracked",
            count(history.untracked, "line")
        ));
    }
    if history.skipped > 0 {
        parts.push(format!("{} skipped", count(history.skipped, "other line")));
    }
    if history.timeless > 0 {
        parts.push(format!("{} without a time skipped", count(history.timeless, "MEMORY line")));
    }
    parts.join(", ")
}

fn text(request: &Request, history: &History, names: &[String]) -> String {
    let live = request.output.is_none() && io::stdout().is_terminal();
    let (columns, rows) = ratatui::crossterm::terminal::size().ok().filter(|_| live).unwrap_or((100, 24));
    let colours = live && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let screen = terminal::Screen { columns, rows: live.then_some(rows), colours };
    let text = terminal::text(history, names, screen);
    // Draws over the previous plot.
    if request.follow && live { format!("\x1b[H\x1b[2J{text}") } else { text }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), String> {
    output::replace(path, bytes).map_err(|error| format!("{}: {}", path.display(), plain(&error)))
}

/// It counts as success if the reader closes the pipe.
pub(crate) fn write_out(bytes: &[u8]) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(format!("standard output: {}", plain(&error))),
        Ok(()) => Ok(()),
    }
}
