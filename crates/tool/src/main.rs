//! `memintro-tool`: the part of memintro that runs outside of applications. The `memintro` command becomes this program
//! for `plot`, `requests` and `watch`; see [`memintro_tool::run`] for the arguments, which users do not type.

use std::process::ExitCode;

fn main() -> ExitCode {
    memintro_tool::run(std::env::args_os().skip(1).collect())
}
