//! `memintro-tool`: what memintro does outside of every application. The `memintro` command becomes this program for
//! `plot`, `requests` and `watch`; see [`memintro_tool::run`] for the arguments, which nobody types by hand.

use std::process::ExitCode;

fn main() -> ExitCode {
    memintro_tool::run(std::env::args_os().skip(1).collect())
}
