//! The answer of a process to the command `vitals`.

use crate::units::Figure;
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

/// Most call sites that are read.
const MOST_SITES: usize = 1_000;
/// Most characters of a name.
const LONGEST_NAME: usize = 4_096;
/// Greatest number that is accepted. No count of anything is larger, and its square is still a finite number.
const GREATEST: f64 = 1e30;

impl Vitals {
    /// Reads an answer. A missing field is zero, because another version may not send it. A field of a wrong type or
    /// out of bounds is an error that names it.
    pub fn read(json: &[u8]) -> Result<Vitals, String> {
        let value: Value =
            serde_json::from_slice(json).map_err(|error| format!("the answer is not JSON: {error}"))?;
        let all = object(&value, "the answer")?;
        let gc = object(&value["gc"], "gc")?;
        let totals = object(&value["totals"], "totals")?;
        let sites = match &value["sites"] {
            Value::Null => &Vec::new(),
            Value::Array(sites) if sites.len() <= MOST_SITES => sites,
            _ => return Err(format!("sites is no list of at most {MOST_SITES}")),
        };
        Ok(Vitals {
            pid: all.natural("pid")?,
            program: all.text("program")?,
            time: all.number("time")?.unwrap_or_default(),
            rss_bytes: all.optional_natural("rss_bytes")?,
            fragmentation_bytes: all.optional_natural("fragmentation_bytes")?,
            asked_fragmentation: false,
            live_objects: all.natural("live_objects")?,
            collections: [gc.natural("count")?, gc.natural("minor")?, gc.natural("major")?],
            gc_ms: gc.number("time_ms")?.unwrap_or_default(),
            tracking: all.flag("tracking")?,
            mode: all.text("mode")?,
            live_bytes: totals.figure("live_bytes")?,
            live_blocks: totals.figure("live_blocks")?,
            sites: sites.iter().map(Site::read).collect::<Result<_, _>>()?,
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
    fn read(value: &Value) -> Result<Site, String> {
        let site = object(value, "a call site")?;
        Ok(Site {
            name: site.text("name")?,
            live_bytes: site.figure("live_bytes")?,
            growth: site.figure("growth")?,
            live_blocks: site.figure("live_blocks")?,
            allocations: site.figure("allocations")?,
            old_bytes: if value["old_bytes"].is_null() { None } else { Some(site.figure("old_bytes")?) },
            retained: if value["retained_bytes"].is_null() {
                None
            } else {
                Some((site.figure("retained_bytes")?, site.figure("live_objects")?))
            },
        })
    }
}

/// The fields of an object. Their types are checked.
struct Fields<'a>(&'a Value);

/// A missing object has no fields.
fn object<'a>(value: &'a Value, name: &str) -> Result<Fields<'a>, String> {
    let is_one = value.is_object() || (value.is_null() && name != "the answer");
    if is_one { Ok(Fields(value)) } else { Err(format!("{name} is not a JSON object")) }
}

impl Fields<'_> {
    /// Returns the result of `take`, or `None` if the field is missing.
    fn field<T>(
        &self,
        name: &str,
        kind: &str,
        take: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        match &self.0[name] {
            Value::Null => Ok(None),
            value => take(value).map(Some).ok_or_else(|| format!("{name} is not {kind}")),
        }
    }

    fn optional_natural(&self, name: &str) -> Result<Option<u64>, String> {
        self.field(name, "a number from 0", Value::as_u64)
    }

    fn natural(&self, name: &str) -> Result<u64, String> {
        self.optional_natural(name).map(Option::unwrap_or_default)
    }

    fn number(&self, name: &str) -> Result<Option<f64>, String> {
        self.field(name, "a number up to 1e30", |value| {
            value.as_f64().filter(|number| number.abs() <= GREATEST)
        })
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        self.field(name, "true or false", Value::as_bool).map(Option::unwrap_or_default)
    }

    fn text(&self, name: &str) -> Result<String, String> {
        let kind = format!("a text of at most {LONGEST_NAME} characters");
        let text = self.field(name, &kind, |value| {
            value.as_str().filter(|text| text.chars().nth(LONGEST_NAME).is_none()).map(printable)
        });
        text.map(Option::unwrap_or_default)
    }

    /// If it is an estimate, its standard error is in the object as well.
    fn figure(&self, name: &str) -> Result<Figure, String> {
        let value = self.field(name, "an integer of 64 bits", Value::as_i64)?.unwrap_or_default();
        let error = self.number(&format!("{name}_standard_error"))?;
        match error {
            Some(error) if error < 0.0 => Err(format!("{name}_standard_error is below 0")),
            error => Ok(Figure { value, error }),
        }
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
    use proptest::prelude::*;

    pub(in crate::watch) const ANSWER: &str = r#"{"pid":123,"name":null,"program":"app.rb","time":1767268800.5,
        "rss_bytes":104857600,"live_objects":123456,"gc":{"count":12,"minor":9,"major":3,"time_ms":45},
        "tracking":true,"mode":"full","totals":{"live_bytes":5000000,"live_blocks":321},
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
        let vitals = Vitals::read(sampled_answer().as_bytes()).unwrap();
        assert_eq!(vitals.live_bytes, Figure { value: 5_000_000, error: Some(204_800.0) });
        assert_eq!(vitals.sites[0].growth, Figure { value: 1_000_000, error: Some(2_048.0) });
        assert_eq!(vitals.sites[1].growth.error, None);
        assert_eq!(vitals.sites[0].old_bytes, Some(Figure { value: 3_000_000, error: Some(51_200.0) }));
        assert_eq!(vitals.sites[1].old_bytes, None);
    }

    #[test]
    fn reads_all_there_is() {
        let vitals = Vitals::read(ANSWER.as_bytes()).unwrap();
        assert_eq!(
            (vitals.pid, vitals.program.as_str(), vitals.rss_bytes),
            (123, "app.rb", Some(104_857_600))
        );
        assert_eq!((vitals.collections, vitals.gc_ms, vitals.live_blocks.value), ([12, 9, 3], 45.0, 321));
        assert_eq!((vitals.sites[0].growth.value, vitals.sites[1].growth.value), (1_000_000, -500));
        assert_eq!(vitals.sites[1].name, "lib/?[2Jcache.rb:3");
    }

    #[test]
    fn an_answer_of_another_kind_is_told() {
        assert!(Vitals::read(b"[1]").unwrap_err().contains("not a JSON object"));
        assert!(Vitals::read(b"{").unwrap_err().contains("not JSON"));
        assert_eq!(Vitals::read(b"{\"sites\":null,\"gc\":null}").unwrap(), Vitals::default());
    }

    /// Sets each field in turn to a value of each wrong kind.
    #[test]
    fn a_field_of_another_kind_is_told_by_its_name() {
        let fields = [
            "pid",
            "program",
            "time",
            "rss_bytes",
            "live_objects",
            "gc",
            "tracking",
            "mode",
            "totals",
            "sites",
        ];
        let inner = [("gc", "count"), ("gc", "time_ms"), ("totals", "live_bytes"), ("totals", "live_blocks")];
        let odd = [r#"["x"]"#, r#"{"a":1}"#, r#""x""#, "-1.5", "1e300", "true", "100000000000000000000000"];
        let whole: Value = serde_json::from_str(ANSWER).unwrap();
        let mut refused = 0;
        let mut attempt = |changed: &Value, name: &str| {
            if let Err(message) = Vitals::read(changed.to_string().as_bytes()) {
                assert!(message.starts_with(name) || message.starts_with("a call site"), "{name}: {message}");
                refused += 1;
            }
        };
        for value in odd.map(|text| serde_json::from_str::<Value>(text).unwrap()) {
            for name in fields {
                let mut changed = whole.clone();
                changed[name] = value.clone();
                attempt(&changed, name);
            }
            for (outer, name) in inner {
                let mut changed = whole.clone();
                changed[outer][name] = value.clone();
                attempt(&changed, name);
            }
            for name in ["name", "live_bytes", "growth_standard_error"] {
                let mut changed = whole.clone();
                changed["sites"][0][name] = value.clone();
                attempt(&changed, name);
            }
        }
        // All combinations except those with a valid value: "x" 3 times, true once, -1.5 and {"a":1} twice each, 1e23
        // 3 times.
        assert_eq!(refused, 7 * 17 - 11);
    }

    #[test]
    fn too_much_of_anything_is_refused() {
        let long = format!(r#"{{"program":"{}"}}"#, "x".repeat(LONGEST_NAME + 1));
        assert_eq!(
            Vitals::read(long.as_bytes()).unwrap_err(),
            "program is not a text of at most 4096 characters"
        );
        let many = format!(r#"{{"sites":[{}{{}}]}}"#, "{},".repeat(MOST_SITES));
        assert_eq!(Vitals::read(many.as_bytes()).unwrap_err(), "sites is no list of at most 1000");
        let deep = format!(r#"{{"gc":{}"#, "[".repeat(100_000));
        assert!(Vitals::read(deep.as_bytes()).unwrap_err().contains("not JSON"));
    }

    #[test]
    fn nothing_that_a_terminal_acts_upon_is_shown() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}31m\r\n\u{202e}b\u{2066}\u{200f}\u{61c}\u{2028}é";
        assert_eq!(printable(text), "a?[2J??31m???b????é");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Vitals::read(&bytes);
        }
    }
}
