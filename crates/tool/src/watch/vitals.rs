//! What a process answers to the command `vitals`.

use crate::units::Figure;
use serde_json::Value;

/// The figures of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vitals {
    /// Process id.
    pub pid: u64,
    /// As the process calls itself.
    pub program: String,
    /// Seconds since 1970, on the process's clock.
    pub time: f64,
    /// Resident bytes; None where the kernel does not say.
    pub rss_bytes: Option<u64>,
    /// Occupied slots of Ruby's heap.
    pub live_objects: u64,
    /// Collections so far: all, minor, major.
    pub collections: [u64; 3],
    /// Milliseconds that the collector has taken so far.
    pub gc_ms: f64,
    /// Whether allocations are followed.
    pub tracking: bool,
    /// `off`, `full` or `sampled`.
    pub mode: String,
    /// Bytes that malloc has handed out at call sites that are followed.
    pub(super) live_bytes: Figure,
    /// And in how many blocks.
    pub(super) live_blocks: Figure,
    /// The greatest call sites.
    pub sites: Vec<Site>,
}

/// One call site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// Such as `app/models/user.rb:7`.
    pub name: String,
    /// Live bytes.
    pub(super) live_bytes: Figure,
    /// Live bytes more than at the mark.
    pub(super) growth: Figure,
    /// Live blocks.
    pub(super) live_blocks: Figure,
    /// Allocations so far.
    pub(super) allocations: Figure,
}

impl Vitals {
    /// Reads an answer. What is not there is zero: another version may leave something out.
    pub fn read(json: &[u8]) -> Result<Vitals, String> {
        let value: Value =
            serde_json::from_slice(json).map_err(|error| format!("the answer is not JSON: {error}"))?;
        if !value.is_object() {
            return Err("the answer is not a JSON object".to_string());
        }
        let gc = &value["gc"];
        let site = |value: &Value| Site {
            name: printable(value["name"].as_str().unwrap_or_default()),
            live_bytes: figure(value, "live_bytes"),
            growth: figure(value, "growth"),
            live_blocks: figure(value, "live_blocks"),
            allocations: figure(value, "allocations"),
        };
        Ok(Vitals {
            pid: natural(&value["pid"]),
            program: printable(value["program"].as_str().unwrap_or_default()),
            time: value["time"].as_f64().unwrap_or_default(),
            rss_bytes: value["rss_bytes"].as_u64(),
            live_objects: natural(&value["live_objects"]),
            collections: ["count", "minor", "major"].map(|name| natural(&gc[name])),
            gc_ms: gc["time_ms"].as_f64().unwrap_or_default(),
            tracking: value["tracking"].as_bool().unwrap_or_default(),
            mode: printable(value["mode"].as_str().unwrap_or_default()),
            live_bytes: figure(&value["totals"], "live_bytes"),
            live_blocks: figure(&value["totals"], "live_blocks"),
            sites: value["sites"]
                .as_array()
                .map(|sites| sites.iter().map(site).collect())
                .unwrap_or_default(),
        })
    }
}

/// Its standard error stands beside it, if it is an estimate.
fn figure(of: &Value, name: &str) -> Figure {
    let error = of[format!("{name}_standard_error").as_str()].as_f64();
    Figure { value: integer(&of[name]), error }
}

fn natural(value: &Value) -> u64 {
    u64::try_from(integer(value)).unwrap_or_default()
}

fn integer(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_f64().map(|float| float as i64)).unwrap_or_default()
}

/// A path may hold anything, also what a terminal takes for a command.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::watch) const ANSWER: &str = r#"{"pid":123,"name":null,"program":"app.rb","time":1767268800.5,
        "rss_bytes":104857600,"live_objects":123456,"gc":{"count":12,"minor":9,"major":3,"time_ms":45},
        "tracking":true,"mode":"full","totals":{"live_bytes":5000000,"live_blocks":321},
        "sites":[{"name":"app/leak.rb:12","live_bytes":4000000,"growth":1000000,"live_blocks":300,"allocations":400},
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
                "\"allocations\":400,\"live_bytes_standard_error\":102400,\"growth_standard_error\":2048.0,\
                 \"live_blocks_standard_error\":7.5,\"allocations_standard_error\":9",
            )
    }

    #[test]
    fn reads_the_standard_errors_of_estimates() {
        let vitals = Vitals::read(sampled_answer().as_bytes()).unwrap();
        assert_eq!(vitals.live_bytes, Figure { value: 5_000_000, error: Some(204_800.0) });
        assert_eq!(vitals.sites[0].growth, Figure { value: 1_000_000, error: Some(2_048.0) });
        assert_eq!(vitals.sites[1].growth.error, None);
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
        assert_eq!(Vitals::read(b"{\"sites\":5,\"gc\":null}").unwrap(), Vitals::default());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Vitals::read(&bytes);
        }
    }
}
