//! Drawing and looking on: the parts of memintro that need libraries for charts and terminals. They are a program of
//! their own, so that no application ever loads them.
//!
//! The `memintro` command checks what its user typed and then becomes this program, with plain arguments.

pub mod plot;
#[cfg(test)]
mod replay;
pub mod requests;
mod units;
pub mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs one subcommand, prints what went wrong, and chooses the exit status: 0 done, 1 failed, 2 wrong usage.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let outcome = match arguments.first().and_then(|name| name.to_str()) {
        Some("plot") => plot::run(&arguments[1..]),
        Some("requests") => requests::run(&arguments[1..]),
        Some("watch") => watch::run(&arguments[1..]),
        _ => return usage(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("memintro: {}", requests::fold::harmless(&message));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("memintro-tool belongs to the memintro command: use memintro plot, requests or watch");
    ExitCode::from(2)
}
