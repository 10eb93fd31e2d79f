//! Plots, request tables, the live view and answers from heap dumps: the parts of memintro that need libraries for plots
//! and terminals, or memory for a heap. They are a separate program, so that no application loads them.
//!
//! The `memintro` command becomes this program. `heap`, `plot` and `requests` get the words that a person typed; the
//! other subcommands get arguments that the command has checked.

#[cfg(target_os = "linux")]
pub mod heap_write;
pub mod plot;
#[cfg(test)]
mod replay;
pub mod requests;
mod units;
pub mod valgrind;
pub mod watch;

use memintro_heap::command;
use memintro_heap::command_line::{Ended, Outcome};
use memintro_heap::options::Options;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs one subcommand, prints errors, and returns the exit status: 0 for success, 1 for failure, 2 for wrong usage.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    // SAFETY: no handler is installed; a file that is too large is an error of the write.
    #[cfg(unix)]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let of_dumps = arguments.first().is_some_and(|name| name == "heap");
    let outcome: Outcome = match arguments.first().and_then(|name| name.to_str()) {
        #[cfg(target_os = "linux")]
        Some("heap-write") => heap_write::run(&arguments[1..]).map_err(Ended::from),
        Some("plot") => plot::run(&arguments[1..]),
        Some("requests") => requests::run(&arguments[1..]),
        Some("watch") => watch::run(&arguments[1..]).map_err(Ended::from),
        Some("valgrind-xml") => valgrind::run(&arguments[1..]).map_err(Ended::from),
        Some("heap") => Options::parse(&arguments[1..]).and_then(|options| command::run(&options)),
        Some("leaks-core") => leaks_of_core(&arguments[1..]).map_err(Ended::from),
        #[cfg(target_os = "linux")]
        Some(memintro_core_file::followed::COMMAND) => return lines_of_core(&arguments[1..]),
        _ => return usage(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended::Help(text)) => match plot::write_out(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => complain(&[&message], 1),
        },
        Err(Ended::Usage(message)) => complain(&[&message], 2),
        // Each dump has a line of its own, and names in it have no line ends.
        Err(Ended::Failed(message)) if of_dumps => complain(&message.lines().collect::<Vec<_>>(), 1),
        Err(Ended::Failed(message)) => complain(&[&message], 1),
    }
}

/// Prints an error.
fn complain(lines: &[&str], status: u8) -> ExitCode {
    let lines: Vec<String> =
        lines.iter().map(|line| memintro_analysis::text::printable(line.as_bytes())).collect();
    eprintln!("memintro: {}", lines.join("\n"));
    ExitCode::from(status)
}

/// `memintro leaks --core`: the crate `memintro-core-file` searches, and the command shows its JSON.
fn leaks_of_core(arguments: &[OsString]) -> Result<(), String> {
    use std::io::Write as _;
    let [path, rest @ ..] = arguments else { return Err("leaks-core takes a file".to_owned()) };
    #[cfg(target_os = "linux")]
    // SAFETY: a system call with valid arguments. A command that is interrupted right after the start does not know this
    // process yet, and could not end it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    let tool = std::env::current_exe().map_err(|error| format!("the tool's own file: {error}"))?;
    // Both are built and installed together.
    let hook = tool.with_file_name("libmemintro_hook.so");
    let wanted = memintro_core_file::Wanted {
        first_words: rest.iter().any(|word| word == "first-words"),
        lines: Some(memintro_core_file::followed::Programs { tool: &tool, hook: &hook }),
    };
    let answer = memintro_core_file::search_file(path.as_ref(), wanted)?;
    std::io::stdout().write_all(answer.as_bytes()).map_err(|error| format!("standard output: {error}"))
}

/// The process that reads the hook's figures for the one above.
#[cfg(target_os = "linux")]
fn lines_of_core(arguments: &[OsString]) -> ExitCode {
    let [core, hook] = arguments else { return usage() };
    let status = memintro_core_file::reader::run(core.as_ref(), hook.as_ref());
    u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn usage() -> ExitCode {
    eprintln!("memintro-tool belongs to the memintro command: use memintro plot, requests, watch or heap");
    ExitCode::from(2)
}
