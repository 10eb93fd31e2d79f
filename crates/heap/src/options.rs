//! The arguments of `memintro-tool heap`.

use std::ffi::OsString;
use std::path::PathBuf;

/// What a command is to do.
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
    /// Whether `top` lists what is always there, too.
    pub all: bool,
    /// Where a page or an export goes; standard output otherwise.
    pub output: Option<PathBuf>,
    /// What the dump's objects may take.
    pub budget: Option<usize>,
    /// One to three.
    pub files: Vec<OsString>,
}

/// Rows of a list unless told otherwise.
pub const TOP: usize = 20;
/// Paths unless told otherwise.
const PATHS: usize = 3;
/// What generations may be, for errors.
const NUMBERS: &str = "whole numbers up to 4294967295";
const NUMBER: &str = "it must be a whole number up to 4294967295";

impl Options {
    /// Reads the arguments behind `heap`.
    pub fn parse(arguments: &[OsString]) -> Result<Options, String> {
        let mut options = Options { top: TOP, paths: PATHS, budget: default_budget(), ..Options::default() };
        let mut flags = true;
        for (at, argument) in arguments.iter().enumerate() {
            match argument.to_str() {
                Some(name) if at == 0 => options.command = name.to_string(),
                Some("--") if flags => flags = false,
                Some(text) if flags && text.starts_with("--") => options.flag(text)?,
                _ => options.files.push(argument.clone()),
            }
        }
        Ok(options)
    }

    fn flag(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let wrong = || format!("{name} is {value:?}");
        let count = || value.parse::<usize>().map_err(|_| format!("{}; it must be a number", wrong()));
        match name {
            "--json" => self.json = true,
            "--with-text" => self.with_text = true,
            "--class" => self.class = Some(value.to_string()),
            "--address" => {
                let digits = value.strip_prefix("0x").unwrap_or(value);
                let address = u64::from_str_radix(digits, 16)
                    .map_err(|_| format!("{}; it must be an address such as 0x7f0012345678", wrong()))?;
                self.addresses.push(address);
            }
            "--site" | "--line" => self.line = Some(value.to_string()),
            "--older-than-gcs" => {
                let number = value.parse::<u32>();
                self.older = Some(number.map_err(|_| format!("{}; {NUMBER}", wrong()))?);
            }
            "--generation" => {
                let (from, to) = value.split_once("..").unwrap_or((value, value));
                let number = |text: &str, open: u32| if text.is_empty() { Ok(open) } else { text.parse() };
                self.generations = match (number(from, 0), number(to, u32::MAX - 1)) {
                    (Ok(from), Ok(to)) if !value.is_empty() => Some((from, to)),
                    _ => return Err(format!("{}; it must be 7, 7..9, 7.. or ..9, of {NUMBERS}", wrong())),
                };
            }
            "--top" => self.top = count()?,
            "--paths" => self.paths = count()?.clamp(1, 1000),
            "--by" => self.by = Some(value.to_string()),
            "--all" => self.all = true,
            "--output" => self.output = Some(PathBuf::from(value)),
            "--max-memory-bytes" => self.budget = Some(count()?),
            _ => return Err(format!("memintro-tool heap knows no {name:?}")),
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
}

/// Three quarters of what the machine has free.
fn default_budget() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kilobytes: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 768)
}
