//! Reads command lines with clap. Its errors become one sentence with the wrong value and advice.

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;

/// Why a command does not answer.
#[derive(Debug)]
pub enum Ended {
    /// Its help was wanted: this text, on standard output.
    Help(String),
    /// The command line is wrong: exit status 2.
    Usage(String),
    /// The work failed: exit status 1.
    Failed(String),
}

/// How a command ended.
pub type Outcome = Result<(), Ended>;

impl From<String> for Ended {
    fn from(message: String) -> Ended {
        Ended::Failed(message)
    }
}

impl From<&str> for Ended {
    fn from(message: &str) -> Ended {
        Ended::Failed(message.to_string())
    }
}

/// A command of `memintro` with its help: `name` as users type it.
pub fn command(name: &'static str, usage: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .bin_name(name)
        .about(about)
        .override_usage(format!("{name} {usage}"))
        .help_template("{usage-heading} {usage}\n\n{about}\n\n{all-args}{after-help}")
        .no_binary_name(true)
        .args_override_self(true)
        .infer_long_args(true)
        .disable_help_subcommand(true)
        .disable_help_flag(true)
        .arg(
            Arg::new("help")
                .short('h')
                .long("help")
                .action(ArgAction::Help)
                .display_order(usize::MAX)
                .help("show this help"),
        )
}

/// A flag without a value.
pub fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// A flag with a value.
pub fn flag(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).action(ArgAction::Set).help(help)
}

/// A flag whose value is one of these, which its help begins with.
pub fn choice<const N: usize>(name: &'static str, values: [&'static str; N], help: &str) -> Arg {
    choice_of(name, &values, help)
}

/// As [`choice`].
pub fn choice_of(name: &'static str, values: &[&'static str], help: &str) -> Arg {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    Arg::new(name)
        .long(name)
        .value_name("WHAT")
        .value_parser(PossibleValuesParser::new(values.iter().copied()))
        .hide_possible_values(true)
        .help(format!("{}; {help}", listed(&texts)))
}

/// A flag whose value is a text.
pub fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    flag(name, value, help).value_parser(NonEmptyStringValueParser::new())
}

/// The files behind all flags.
pub fn files() -> Arg {
    Arg::new("files").value_name("FILE").num_args(0..).hide(true).value_parser(clap::value_parser!(OsString))
}

/// `--top N`, where N may be `all`.
pub fn top(help: &'static str) -> Arg {
    flag("top", "N", help).short('n').value_parser(|text: &str| match text {
        "all" => Ok(usize::MAX),
        _ => match text.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err("it must be a whole number of at least 1, or all"),
        },
    })
}

/// The values of a command line.
pub fn parse(command: Command, words: &[OsString]) -> Result<ArgMatches, Ended> {
    let name = command.get_bin_name().unwrap_or_default().to_string();
    command.try_get_matches_from(words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp => Ended::Help(error.render().to_string()),
        _ => Ended::Usage(sentence(&name, &error)),
    })
}

/// The error, worded as in the other commands.
fn sentence(name: &str, error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => listed(texts),
        _ => String::new(),
    };
    let argument = context(ContextKind::InvalidArg);
    let flag = argument.split([' ', '=']).next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue);
    match error.kind() {
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("{flag} has no value; write {argument}").replace(['<', '>'], "")
        }
        ErrorKind::InvalidValue => {
            format!("{flag} is {value:?}; it must be {}", context(ContextKind::ValidValue))
        }
        ErrorKind::ValueValidation => {
            let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            format!("{flag} is {value:?}; {reason}")
        }
        ErrorKind::UnknownArgument => format!("{name} has no {flag}; {name} --help lists its options"),
        ErrorKind::TooManyValues => format!("{flag} takes no value, and {value:?} is given"),
        ErrorKind::InvalidUtf8 => "the value of a flag is no UTF-8; give it in UTF-8".to_string(),
        _ => {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string()
        }
    }
}

/// `a`, `a or b`, `a, b or c`.
pub fn listed(words: &[String]) -> String {
    match words {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}
