//! The command line of `memintro heap`: its commands, their flags and their help. The Ruby command passes its
//! arguments on, and the Ruby class `HeapDump` turns its keywords into flags.

use crate::command_line::{self, Ended, choice_of, files, flag, listed, switch, text, top};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

/// The task of a command.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Its name.
    pub command: String,
    /// JSON rather than text.
    pub json: bool,
    /// The text as a field of the JSON.
    pub with_text: bool,
    /// Objects of this class.
    pub class: Option<String>,
    /// Objects at these addresses.
    pub addresses: Vec<u64>,
    /// Objects that were allocated at this line; or in this file.
    pub line: Option<String>,
    /// Objects that outlived so many collections.
    pub older: Option<u32>,
    /// Objects of these generations.
    pub generations: Option<(u32, u32)>,
    /// Rows of each list.
    pub top: usize,
    /// How many paths.
    pub paths: usize,
    /// What lists are grouped or sorted by.
    pub by: Option<String>,
    /// Whether `top` also lists lasting objects.
    pub all: bool,
    /// Where a page or an export goes; standard output otherwise.
    pub output: Option<PathBuf>,
    /// Most bytes for the dump's objects.
    pub budget: Option<usize>,
    /// One to three.
    pub files: Vec<OsString>,
}

/// One command: its name, the most dumps that it takes, its purpose, what `--by` may be, and its other flags.
struct Entry(&'static str, usize, &'static str, &'static [&'static str], &'static [Flags]);

/// Flags that several commands share.
#[derive(Clone, Copy, PartialEq)]
enum Flags {
    Choosing,
    Top,
    Paths,
    All,
    Output,
}

use Flags::{All, Choosing, Output, Paths, Top};

/// The commands, in the order of the help.
#[rustfmt::skip]
const COMMANDS: [Entry; 13] = [
    Entry("histo", 1, "objects and bytes by class, type or line", &["class", "type", "line"], &[Top]),
    Entry("top", 1, "the objects that retain most, or that are largest themselves (--by bytes)",
        &["retained_bytes", "bytes"], &[Top, All]),
    Entry("dominators", 1, "what retains most: classes, and the tree from the top", &[], &[Top]),
    Entry("holders", 1, "what keeps the chosen objects alive, in groups of ways", &["bytes", "objects"],
        &[Choosing, Top]),
    Entry("path", 1, "ways from roots to an object, without common objects", &[], &[Choosing, Paths]),
    Entry("referrers", 1, "what refers to the chosen objects", &[], &[Choosing, Top]),
    Entry("retained", 1, "what would be free without the chosen objects", &[], &[Choosing, Top]),
    Entry("duplicates", 1, "strings that are there more than once", &[], &[Top]),
    Entry("strings", 1, "strings by length and by line", &[], &[Top]),
    Entry("generations", 1, "objects and bytes by generation", &[], &[Top]),
    Entry("diff", 3, "what is new, gone and grown in the second of two dumps; of three: new in\n\
        the second and still there in the third", &[], &[Top]),
    Entry("html", 1, "a page with a treemap, into -o PAGE", &[], &[Output]),
    Entry("heapsnapshot", 1, "a file for Chrome's developer tools, into -o FILE.heapsnapshot", &[], &[Output]),
];

const NAME: &str = "memintro heap";
const ABOUT: &str = "\
Reads a heap dump: one of memintro heap-dump, or of ObjectSpace.dump_all of Ruby 2.1 and later.
FILE may be compressed by gzip or zstd; - is standard input. It may also come first: memintro heap
FILE top. docs/heap_files.md explains the answers.";

/// Default number of rows of a list.
pub const TOP: usize = 20;
/// Default number of paths.
const PATHS: usize = 3;
const NUMBER: &str = "it must be a whole number up to 4294967295";

impl Options {
    /// Reads the words behind `heap`.
    pub fn parse(words: &[OsString]) -> Result<Options, Ended> {
        let Some((entry, words)) = in_order(words) else { return Err(without_command(words)) };
        let matches = command_line::parse(command_of(entry), &words)?;
        let options = Options::from(entry, &matches);
        options.check(entry)?;
        Ok(options)
    }

    fn from(entry: &Entry, matches: &ArgMatches) -> Options {
        let Entry(name, _, _, by, flags) = entry;
        let has = |wanted| flags.contains(&wanted);
        Options {
            command: (*name).to_string(),
            json: matches.get_flag("json"),
            with_text: matches.get_flag("with-text"),
            class: one(matches, has(Choosing), "class"),
            addresses: many(matches, has(Choosing), "address"),
            line: one(matches, has(Choosing), "site"),
            older: one(matches, has(Choosing), "older-than-gcs"),
            generations: one(matches, has(Choosing), "generation"),
            top: one(matches, has(Top), "top").unwrap_or(TOP),
            paths: one(matches, has(Paths), "paths").unwrap_or(PATHS),
            by: one(matches, !by.is_empty(), "by"),
            all: has(All) && matches.get_flag("all"),
            output: one(matches, has(Output), "output").filter(|path: &PathBuf| path.as_os_str() != "-"),
            budget: one(matches, true, "max-memory-bytes").or_else(default_budget),
            files: many(matches, true, "files"),
        }
    }

    fn check(&self, entry: &Entry) -> Result<(), Ended> {
        let Entry(name, most, _, _, flags) = entry;
        let least = most.min(&2);
        if !(least..=most).contains(&&self.files.len()) {
            return Err(Ended::Usage(format!(
                "{NAME} {name} takes {}, {} given",
                if *most == 1 { "one dump" } else { "two or three dumps" },
                match self.files.len() {
                    0 => "none is".to_string(),
                    1 => "one is".to_string(),
                    count => format!("{count} are"),
                }
            )));
        }
        if self.files.iter().filter(|file| *file == "-").count() > 1 {
            return Err(Ended::Usage("standard input (-) can be only one of the dumps".to_string()));
        }
        if flags.contains(&Choosing) && !self.chosen() {
            let flags: Vec<String> = choosing().iter().map(|arg| format!("--{}", arg.get_id())).collect();
            return Err(Ended::Usage(format!("{NAME} {name} needs {}", listed(&flags))));
        }
        if flags.contains(&Output) && self.output.is_none() && std::io::stdout().is_terminal() {
            return Err(Ended::Usage(format!("{NAME} {name} writes a file: give its name with -o")));
        }
        Ok(())
    }

    /// Whether any objects are chosen.
    pub fn chosen(&self) -> bool {
        self.class.is_some()
            || !self.addresses.is_empty()
            || self.line.is_some()
            || self.generations.is_some()
            || self.older.is_some()
    }

    /// Whether the command writes a file of its own.
    pub(crate) fn writes(&self) -> bool {
        COMMANDS.iter().any(|entry| entry.0 == self.command && entry.4.contains(&Output))
    }
}

fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, has: bool, name: &str) -> Option<T> {
    if has { matches.get_one(name).cloned() } else { None }
}

fn many<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, has: bool, name: &str) -> Vec<T> {
    if has { matches.get_many(name).into_iter().flatten().cloned().collect() } else { Vec::new() }
}

/// One command with its flags.
fn command_of(Entry(name, most, about, by, flags): &Entry) -> Command {
    let usage = if *most == 1 { "[options] FILE" } else { "[options] FILE FILE [FILE]" };
    let mut command = command_line::command(name, usage, about)
        .bin_name(format!("{NAME} {name}"))
        .override_usage(format!("{NAME} {name} {usage}"));
    if !by.is_empty() {
        command = command.arg(choice_of("by", by, &format!("default {}", by[0])));
    }
    for flag in *flags {
        command = command.args(match flag {
            Choosing => choosing(),
            Top => vec![top("rows of each list, or all; default 20")],
            Paths => vec![paths()],
            All => vec![switch("all", "also list classes, live threads and the VM's own objects")],
            Output => vec![output()],
        });
    }
    command.args([
        flag(
            "max-memory-bytes",
            "N",
            "end reading when the dump takes more; default: three quarters of what is free",
        )
        .value_parser(|text: &str| text.parse::<usize>().map_err(|_| "it must be a whole number")),
        switch("json", "JSON, for programs"),
        switch("with-text", "").hide(true),
        files(),
    ])
}

/// Flags that choose objects.
fn choosing() -> Vec<Arg> {
    vec![
        text("class", "NAME", "objects of this class, or of this type (HASH)"),
        flag("address", "ADDRESS", "the object there (0x7f0012345678); may be given again")
            .action(ArgAction::Append)
            .value_parser(address),
        text("site", "PATH:LINE", "objects that were allocated there: mailer.rb:12, or all of mailer.rb")
            .visible_alias("line"),
        flag("generation", "N", "objects of this generation: 7, 7..9, 7..").value_parser(generations),
        flag("older-than-gcs", "N", "objects that outlived N collections")
            .value_parser(|text: &str| text.parse::<u32>().map_err(|_| NUMBER)),
    ]
}

fn paths() -> Arg {
    flag("paths", "N", "how many ways; default 3").value_parser(|text: &str| match text.parse::<usize>() {
        Ok(number @ 1..=1000) => Ok(number),
        _ => Err("it must be a whole number from 1 to 1000"),
    })
}

fn output() -> Arg {
    flag("output", "FILE", "the file to write; - is standard output")
        .short('o')
        .value_parser(value_parser!(PathBuf))
}

fn address(text: &str) -> Result<u64, &'static str> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "it must be an address such as 0x7f0012345678")
}

fn generations(text: &str) -> Result<(u32, u32), &'static str> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str, open: u32| if text.is_empty() { Ok(open) } else { text.parse() };
    match (number(from, 0), number(to, u32::MAX - 1)) {
        (Ok(from), Ok(to)) if !text.is_empty() => Ok((from, to)),
        _ => Err("it must be 7, 7..9, 7.. or ..9, of whole numbers up to 4294967295"),
    }
}

/// The command and the other words: it may stand behind the dumps and the flags, too.
fn in_order(words: &[OsString]) -> Option<(&'static Entry, Vec<OsString>)> {
    let mut is_value = false;
    for (at, word) in words.iter().enumerate() {
        let Some(word) = word.to_str() else { continue };
        if word == "--" {
            return None;
        }
        if !is_value && let Some(entry) = COMMANDS.iter().find(|entry| entry.0 == word) {
            let (before, behind) = (words.get(..at)?, words.get(at + 1..)?);
            return Some((entry, [before, behind].concat()));
        }
        is_value = takes_value(word);
    }
    None
}

/// Whether the word behind this one is the value of a flag.
fn takes_value(word: &str) -> bool {
    if !word.starts_with('-') || word.contains('=') {
        return false;
    }
    COMMANDS.iter().flat_map(|entry| command_of(entry).get_arguments().cloned().collect::<Vec<_>>()).any(
        |arg| {
            let long = arg.get_long_and_visible_aliases().unwrap_or_default();
            let names = |name: &str| long.iter().any(|long| long.starts_with(name));
            arg.get_action().takes_values()
                && match word.strip_prefix("--") {
                    Some(name) => !name.is_empty() && names(name),
                    None => arg.get_short().is_some_and(|short| word == format!("-{short}")),
                }
        },
    )
}

/// The error for a missing command.
fn without_command(words: &[OsString]) -> Ended {
    if words.iter().any(|word| word == "-h" || word == "--help") {
        return Ended::Help(help());
    }
    match words.iter().find(|word| !word.as_encoded_bytes().starts_with(b"-")) {
        Some(word) => Ended::Usage(format!(
            "there is no {NAME} {:?}; there are {}",
            word.to_string_lossy(),
            COMMANDS.map(|entry| entry.0).join(", ")
        )),
        None => Ended::Usage(format!("give a command and a heap dump ({NAME} --help)")),
    }
}

/// The help of all commands.
fn help() -> String {
    let commands = COMMANDS.map(|Entry(name, _, about, _, _)| Command::new(name).about(about));
    command_line::command(NAME, "COMMAND [options] FILE...", ABOUT)
        .after_help(format!("{NAME} COMMAND --help lists the options of a command."))
        .help_template("{usage-heading} {usage}\n\n{about}\n\nCommands:\n{subcommands}\n\nOptions:\n{options}{after-help}")
        .subcommands(commands)
        .render_help()
        .to_string()
}

/// Three quarters of what the machine has free.
fn default_budget() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kilobytes: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 768)
}
