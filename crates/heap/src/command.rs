//! `memintro-tool heap`: reads the dumps that a command needs, as far as it needs them, and answers.

use crate::answer::{self, Answer, Read};
use crate::command_line::Outcome;
use crate::diff::{self, Objects, Signs};
use crate::graph::Graph;
use crate::intern::shown;
use crate::options::Options;
use crate::read::Wants;
use crate::read::source::Source;
use crate::strings::{self, Strings};
use crate::tally::Tally;
use crate::{holders, html, lists, paths, snapshot};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

/// Runs a command. An error is for people; a damaged dump is one, behind the answer of what could be read.
pub fn run(options: &Options) -> Outcome {
    let Some(file) = options.files.first() else { return Err("no dump is given".into()) };
    if let Some(output) = &options.output
        && options.files.iter().any(|file| is_same(file.as_ref(), output))
    {
        return Err(format!(
            "{} is the dump itself, which would be lost; give another file with -o",
            shown(output)
        )
        .into());
    }
    match options.command.as_str() {
        "histo" | "generations" => {
            let tally = Tally::load(Source::open(file)?, options.budget);
            let total = tally.total();
            let found = match options.command.as_str() {
                "generations" => lists::generations(&tally, options),
                _ => lists::histo(&tally, options),
            };
            let read = Read {
                about: &tally.about,
                reading: &tally.reading,
                counts: (total.objects, total.bytes, 0),
            };
            finish(options, found, &[read])
        }
        "duplicates" | "strings" => {
            let found = Strings::load(Source::open(file)?, options);
            let made = match options.command.as_str() {
                "strings" => strings::strings(&found, options),
                _ => strings::duplicates(&found, options),
            };
            let total = found.total();
            let read = Read {
                about: &found.about,
                reading: &found.reading,
                counts: (total.objects, total.bytes, 0),
            };
            finish(options, made, &[read])
        }
        "diff" => {
            let mut signs = Signs::default();
            let dumps: Result<Vec<Objects>, String> = options
                .files
                .iter()
                .map(|file| Ok(Objects::load(Source::open(file)?, options.budget, &mut signs)))
                .collect();
            let dumps = dumps?;
            let read: Vec<Read> = dumps
                .iter()
                .map(|dump| {
                    let total = dump.total();
                    Read {
                        about: &dump.about,
                        reading: &dump.reading,
                        counts: (total.objects, total.bytes, 0),
                    }
                })
                .collect();
            finish(options, diff::diff(&dumps, &signs, options), &read)
        }
        _ => of_graph(options, file),
    }
}

/// Whether both exist and are the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|identity_of_one| identity(other) == Some(identity_of_one))
}

fn of_graph(options: &Options, file: &OsStr) -> Outcome {
    let names = options.command != "dominators";
    let wants = Wants { references: true, edges: names, sites: true, values: false };
    let mut graph = Graph::load(Source::open(file)?, wants, options.budget);
    let counts = (graph.len() as u64, graph.total_bytes(), graph.edge_count());
    let found = match options.command.as_str() {
        "top" => lists::top(&mut graph, options),
        "dominators" => lists::dominators(&mut graph, options),
        "holders" => holders::holders(&mut graph, options),
        "path" => paths::path(&graph, options),
        "referrers" => paths::referrers(&graph, options),
        "retained" => paths::retained(&graph, options),
        "html" => html::write(&mut graph, options, &shown(file)),
        _ => snapshot::write(&graph, options),
    };
    let read = Read { about: &graph.about, reading: &graph.reading, counts };
    finish(options, found, &[read])
}

/// Prints the answer, and reports problems of the dumps.
fn finish(options: &Options, found: Result<Answer, String>, read: &[Read]) -> Outcome {
    let errors: Vec<String> = read
        .iter()
        .zip(&options.files)
        .filter_map(|(read, file)| {
            read.error(&if file == "-" { "standard input".to_string() } else { shown(file) })
        })
        .collect();
    match found {
        Ok(answer) => {
            // A page or an export on standard output stands alone.
            if !options.writes() || options.output.is_some() {
                let text = match options.json {
                    true => {
                        let mut whole = answer::json(&options.command, &answer, read);
                        if options.with_text {
                            whole["text"] = answer::text(&answer, read).into();
                        }
                        format!("{whole}\n")
                    }
                    false => answer::text(&answer, read),
                };
                print(text.as_bytes())?;
            }
        }
        Err(message) if errors.is_empty() => return Err(message.into()),
        Err(message) => return Err(format!("{}\n{message}", errors.join("\n")).into()),
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n").into()) }
}

/// It counts as success if the reader closes the pipe.
pub(crate) fn print(bytes: &[u8]) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(format!("standard output: {}", crate::read::source::plain(&error))),
        Ok(()) => Ok(()),
    }
}
