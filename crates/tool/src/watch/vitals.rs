//! The answer of a process to the command `vitals`.

use crate::units::Figure;
use memintro_analysis::answers::{self, Json};
use serde_json::Value;

/// The figures of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vitals {
    /// Process id.
    pub pid: u64,
    /// Name of the program.
    pub program: String,
    /// Seconds since 1970, on the process's clock.
    pub time: f64,
    /// Resident bytes; None where the kernel does not say.
    pub rss_bytes: Option<u64>,
    /// Resident bytes that malloc has free but keeps; None if they were not asked for, or are unknown.
    pub fragmentation_bytes: Option<u64>,
    /// Whether they were asked for.
    pub(super) asked_fragmentation: bool,
    /// Objects of Ruby that live.
    pub live_objects: u64,
    /// Collections so far: all, minor, major.
    pub collections: [u64; 3],
    /// GC time so far, in milliseconds.
    pub gc_ms: f64,
    /// Whether allocations are followed.
    pub tracking: bool,
    /// `off`, `full` or `sampled`.
    pub mode: String,
    /// Live bytes of malloc.
    pub(super) live_bytes: Figure,
    /// Live blocks.
    pub(super) live_blocks: Figure,
    /// The top call sites.
    pub sites: Vec<Site>,
}

/// One call site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// Such as `app/models/user.rb:7`.
    pub name: String,
    /// Live bytes.
    pub(super) live_bytes: Figure,
    /// Growth since the mark, in bytes.
    pub(super) growth: Figure,
    /// Live blocks.
    pub(super) live_blocks: Figure,
    /// Allocations so far.
    pub(super) allocations: Figure,
    /// Live bytes of blocks that have outlived a collection; `None` where the answer
    /// has none.
    pub(super) old_bytes: Option<Figure>,
    /// Live blocks and objects, in bytes, and live objects; `None` unless objects are tracked.
    pub(super) retained: Option<(Figure, Figure)>,
}

impl Vitals {
    /// Reads the answer of this process.
    ///
    /// # Errors
    /// It names the first field that is wrong.
    pub fn read(json: &[u8], pid: u32) -> Result<Vitals, String> {
        let command = answers::command("vitals").ok_or_else(|| "there is no such command".to_owned())?;
        let value =
            answers::read(json, &command.kind, "the answer", &Json).map_err(|wrong| wrong.to_string())?;
        let all = Fields(&value);
        let (gc, totals) = (all.object("gc"), all.object("totals"));
        answers::check_pid(all.natural("pid"), pid.into()).map_err(|wrong| wrong.to_string())?;
        Ok(Vitals {
            pid: all.natural("pid"),
            program: all.text("program"),
            time: all.number("time"),
            rss_bytes: all.optional_natural("rss_bytes"),
            fragmentation_bytes: all.optional_natural("fragmentation_bytes"),
            asked_fragmentation: false,
            live_objects: all.natural("live_objects"),
            collections: ["count", "minor", "major"].map(|name| gc.natural(name)),
            gc_ms: gc.number("time_ms"),
            tracking: all.flag("tracking"),
            mode: all.text("mode"),
            live_bytes: totals.figure("live_bytes"),
            live_blocks: totals.figure("live_blocks"),
            sites: value["sites"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|site| Site::from_fields(Fields(site)))
                .collect(),
        })
    }
}

impl Vitals {
    /// Whether objects are tracked.
    pub(super) fn has_objects(&self) -> bool {
        self.sites.iter().any(|site| site.retained.is_some())
    }
}

impl Site {
    fn from_fields(site: Fields<'_>) -> Site {
        Site {
            name: site.text("name"),
            live_bytes: site.figure("live_bytes"),
            growth: site.figure("growth"),
            live_blocks: site.figure("live_blocks"),
            allocations: site.figure("allocations"),
            old_bytes: site.has("old_bytes").then(|| site.figure("old_bytes")),
            retained: site
                .has("retained_bytes")
                .then(|| (site.figure("retained_bytes"), site.figure("live_objects"))),
        }
    }
}

/// The fields of an object. Their kinds were checked.
struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    fn object(&self, name: &str) -> Fields<'a> {
        Fields(&self.0[name])
    }

    fn has(&self, name: &str) -> bool {
        !self.0[name].is_null()
    }

    fn optional_natural(&self, name: &str) -> Option<u64> {
        self.0[name].as_u64()
    }

    fn natural(&self, name: &str) -> u64 {
        self.optional_natural(name).unwrap_or_default()
    }

    fn number(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or_default()
    }

    fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or_default()
    }

    fn text(&self, name: &str) -> String {
        self.0[name].as_str().map(printable).unwrap_or_default()
    }

    /// If it is an estimate, its standard error is in the object as well.
    fn figure(&self, name: &str) -> Figure {
        let error = self.0[format!("{name}_standard_error")].as_f64().map(f64::abs);
        Figure { value: self.0[name].as_i64().unwrap_or_default(), error }
    }
}

/// A path may contain any characters, including those that a terminal obeys or that turn the direction of writing.
pub(super) fn printable(text: &str) -> String {
    let turns = |letter: char| matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|letter| if letter.is_control() || turns(letter) { '?' } else { letter }).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::watch) const ANSWER: &str = r#"{"pid":123,"name":null,"program":"app.rb","time":1767268800.5,
        "rss_bytes":104857600,"live_objects":123456,"gc":{"count":12,"minor":9,"major":3,"time_ms":45},
        "tracking":true,"mode":"full","totals":{"allocated_bytes":7000000,"freed_bytes":2000000,"live_bytes":5000000,"allocations":421,"frees":100,"live_blocks":321,"missed_frees":0,"tracker_bytes":0,"dropped":0},
        "sites":[{"name":"app/leak.rb:12","live_bytes":4000000,"growth":1000000,"live_blocks":300,"allocations":400,"old_bytes":3000000},
                 {"name":"lib/\u001b[2Jcache.rb:3","live_bytes":1000000,"growth":-500,"live_blocks":21,"allocations":50}]}"#;

    /// The same of a process in sampled mode.
    pub(in crate::watch) fn sampled_answer() -> String {
        ANSWER
            .replace("\"full\"", "\"sampled\"")
            .replace(
                "\"live_blocks\":321",
                "\"live_blocks\":321,\"estimated\":true,\"live_bytes_standard_error\":204800,\
                 \"live_blocks_standard_error\":11.5",
            )
            .replace(
                "\"allocations\":400",
                "\"allocations\":400,\"old_bytes_standard_error\":51200,\"live_bytes_standard_error\":102400,\"growth_standard_error\":2048.0,\
                 \"live_blocks_standard_error\":7.5,\"allocations_standard_error\":9",
            )
    }

    #[test]
    fn reads_the_standard_errors_of_estimates() {
        let vitals = Vitals::read(sampled_answer().as_bytes(), 123).unwrap();
        assert_eq!(vitals.live_bytes, Figure { value: 5_000_000, error: Some(204_800.0) });
        assert_eq!(vitals.sites[0].growth, Figure { value: 1_000_000, error: Some(2_048.0) });
        assert_eq!(vitals.sites[1].growth.error, None);
        assert_eq!(vitals.sites[0].old_bytes, Some(Figure { value: 3_000_000, error: Some(51_200.0) }));
        assert_eq!(vitals.sites[1].old_bytes, None);
    }

    #[test]
    fn reads_all_there_is() {
        let vitals = Vitals::read(ANSWER.as_bytes(), 123).unwrap();
        assert_eq!(
            (vitals.pid, vitals.program.as_str(), vitals.rss_bytes),
            (123, "app.rb", Some(104_857_600))
        );
        assert_eq!((vitals.collections, vitals.gc_ms, vitals.live_blocks.value), ([12, 9, 3], 45.0, 321));
        assert_eq!((vitals.sites[0].growth.value, vitals.sites[1].growth.value), (1_000_000, -500));
        assert_eq!(vitals.sites[1].name, "lib/?[2Jcache.rb:3");
    }

    #[test]
    fn a_wrong_answer_is_refused_by_the_field() {
        let refusal =
            |from: &str, to: &str| Vitals::read(ANSWER.replace(from, to).as_bytes(), 123).unwrap_err();
        assert_eq!(refusal("\"pid\":123", "\"pid\":124"), "pid is 124; it must be 123, as its socket says");
        assert_eq!(refusal("\"minor\":9,", ""), "gc.minor is missing");
        assert_eq!(
            refusal("\"growth\":-500", "\"growth\":1e300"),
            "sites[1].growth is 1e300; it must be an Integer from -9223372036854775808 to 9223372036854775807"
        );
    }

    #[test]
    fn nothing_that_a_terminal_acts_upon_is_shown() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}31m\r\n\u{202e}b\u{2066}\u{200f}\u{61c}\u{2028}é";
        assert_eq!(printable(text), "a?[2J??31m???b????é");
    }
}
