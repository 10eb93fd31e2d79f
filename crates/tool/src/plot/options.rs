//! The command line of `memintro plot`.

use super::input::refuse_folders;
use clap::value_parser;
use memintro_analysis::text::printable;
use memintro_heap::command_line::{self, Ended, choice, files, flag, switch};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const ABOUT: &str = "\
Plots the MEMORY lines of a log over time, with a curve for each process: RSS, live objects, live
bytes of malloc, GC time. Memintro.log_every and Memintro::Middleware write these lines, as logfmt
or JSON. A logger may put text in front of them. Other lines are skipped and counted. FILE may be
compressed by gzip; - is standard input. Without -o, the plot is drawn in the terminal.";

/// Formats, and the endings of names that stand for them.
const FORMATS: [(&str, Format, &[&str]); 4] = [
    ("svg", Format::Svg, &["svg"]),
    ("png", Format::Png, &["png"]),
    ("html", Format::Html, &["html", "htm"]),
    ("text", Format::Text, &["txt"]),
];

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Format {
    Svg,
    Png,
    Html,
    Text,
}

/// What to plot, and where.
pub(super) struct Request {
    pub(super) format: Format,
    /// Standard output, if there is none.
    pub(super) output: Option<PathBuf>,
    pub(super) follow: bool,
    pub(super) files: Vec<OsString>,
}

impl Request {
    /// Reads the words behind `plot`.
    pub(super) fn parse(words: &[OsString]) -> Result<Request, Ended> {
        let command = command_line::command("memintro plot", "[options] FILE...", ABOUT).args([
            flag(
                "output",
                "FILE",
                "write the plot to FILE, whose name ends in .svg, .png, .html or .txt;
FILE - is standard output",
            )
            .short('o')
            .value_parser(value_parser!(PathBuf)),
            choice("format", FORMATS.map(|format| format.0), "default: by the name of FILE"),
            switch("follow", "keep reading as the log grows, is rotated or is truncated, and redraw")
                .short('f'),
            files(),
        ]);
        let matches = command_line::parse(command, words)?;
        let output = matches.get_one::<PathBuf>("output").filter(|path| path.as_os_str() != "-");
        let request = Request {
            format: format(matches.get_one::<String>("format"), output)?,
            output: output.cloned(),
            follow: matches.get_flag("follow"),
            files: matches.get_many("files").into_iter().flatten().cloned().collect(),
        };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), Ended> {
        if self.files.is_empty() {
            let message = "give a log to draw, or - for standard input (memintro plot --help)";
            return Err(Ended::Usage(message.to_string()));
        }
        if self.follow && self.files.iter().any(|file| file == "-") {
            let message = "--follow cannot go on reading standard input; give files";
            return Err(Ended::Usage(message.to_string()));
        }
        if !self.follow {
            refuse_folders(&self.files)?;
        }
        let Some(output) = &self.output else { return Ok(()) };
        // Compares files, not names, because the plot would replace the log for good.
        let Some(log) = self.files.iter().find(|file| is_same(file.as_ref(), output)) else { return Ok(()) };
        Err(Ended::Failed(format!(
            "--output {} is {}, the log itself, and the plot would replace it; give another name",
            printable(output.as_os_str().as_encoded_bytes()),
            if log == "-" {
                "standard input".to_string()
            } else {
                printable(log.as_os_str().as_encoded_bytes())
            }
        )))
    }
}

fn format(name: Option<&String>, output: Option<&PathBuf>) -> Result<Format, Ended> {
    let named = |wanted: &dyn Fn(&str, &[&str]) -> bool| {
        FORMATS.iter().find(|(name, _, endings)| wanted(name, endings)).map(|(_, format, _)| *format)
    };
    let found = match (name, output) {
        (Some(name), _) => named(&|one, _| one == name),
        (None, None) => Some(Format::Text),
        (None, Some(path)) => {
            let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            named(&|_, endings| endings.contains(&ending.as_str()))
        }
    };
    found.ok_or_else(|| {
        Ended::Usage(format!(
            "--output is {:?}; its name must end in .svg, .png, .html or .txt, or --format must say what to write",
            output.map(|path| path.to_string_lossy()).unwrap_or_default()
        ))
    })
}

/// Whether a log, or standard input, is the file of this name.
fn is_same(log: &Path, output: &Path) -> bool {
    let found = match log.as_os_str() == "-" {
        true => std::io::stdin().as_fd().try_clone_to_owned().and_then(|file| File::from(file).metadata()),
        false => log.metadata(),
    };
    let identity = |found: &std::fs::Metadata| (found.dev(), found.ino());
    matches!((found, output.metadata()), (Ok(one), Ok(other)) if identity(&one) == identity(&other))
}
