//! Reads a log line as the measurement of a request or a job, in both forms that `plot` reads.

use super::fold;
use crate::plot::memory_line::{self, Line};
use crate::plot::record::decimal;

/// Larger figures are impossible (1 PiB, 30 years). A line with one would hide all others.
const MOST: f64 = (1_u64 << 50) as f64;

/// The kind of a line.
#[derive(Debug, PartialEq)]
pub enum LogLine {
    /// What a line is about: a request or a job.
    Request(Request),
    /// A MEMORY line of the whole process, or of a limit.
    Memory,
    /// Not a MEMORY line.
    Other,
}

/// The figures of one request; None if the line does not have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// `posts#show` in Rails, `GET /posts/:id` elsewhere, `job Import` for a job.
    pub name: String,
    /// Bytes that its thread allocated.
    pub bytes: Option<u64>,
    /// Number of those allocations.
    pub calls: Option<u64>,
    /// Growth of the process's RSS during the request.
    pub rss: Option<i64>,
    /// Microseconds.
    pub duration: Option<u64>,
    /// Process id; 0 if the line does not say it.
    pub pid: u32,
    /// Number of lines lost before this one, as the line says.
    pub dropped: u64,
    /// Whether an impossible figure was left out.
    pub absurd: bool,
}

/// Reads one line without its line end.
pub fn read(text: &[u8]) -> LogLine {
    let mut parts = Parts::default();
    match memory_line::parse(text, &mut |name, value| parts.field(name, value)) {
        None => LogLine::Other,
        Some((Line::Periodic(_), _)) => LogLine::Memory,
        Some((Line::Fields, prefix)) => {
            if parts.request.pid == 0 {
                parts.request.pid = memory_line::logged_pid(prefix);
            }
            parts.line()
        }
    }
}

#[derive(Default)]
struct Parts {
    request: Request,
    path: Option<String>,
    action: Option<String>,
    job: Option<String>,
    method: Option<String>,
    /// Any figure, or the word, that makes the object a line of ours.
    known: bool,
}

impl Parts {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let text = || Some(String::from_utf8_lossy(value).into_owned()).filter(|text| !text.is_empty());
        match name {
            b"path" => self.path = text(),
            b"action" => self.action = text(),
            b"job" => self.job = text(),
            b"method" => self.method = text(),
            b"malloc_bytes" => self.request.bytes = self.figure(value),
            b"malloc_calls" => self.request.calls = self.figure(value),
            b"rss_delta_bytes" => {
                let negative = value.first() == Some(&b'-');
                let size = self.figure(&value[usize::from(negative)..]);
                self.request.rss = size.map(|size| if negative { -(size as i64) } else { size as i64 });
            }
            b"duration_ms" => self.request.duration = self.figure(value).and(scaled(value)),
            b"dropped_lines" => self.request.dropped = self.figure(value).unwrap_or(0),
            b"pid" => self.request.pid = decimal(value).map_or(0, |(pid, _)| pid as u32),
            b"rss_bytes" => self.known = true,
            b"event" => self.known |= value == b"MEMORY",
            _ => {}
        }
    }

    fn figure(&mut self, value: &[u8]) -> Option<u64> {
        let (figure, _) = decimal(value)?;
        self.known = true;
        self.request.absurd |= figure > MOST;
        (figure <= MOST).then_some(figure as u64)
    }

    fn line(mut self) -> LogLine {
        if !self.known {
            return LogLine::Other;
        }
        self.request.name = match (self.action, self.job, self.path) {
            (Some(action), _, _) => fold::printable(&action),
            (None, Some(job), _) => format!("job {}", fold::printable(&job)),
            (None, None, Some(path)) => match self.method {
                Some(method) => format!("{} {}", fold::method(&method), fold::path(&path)),
                None => fold::path(&path),
            },
            (None, None, None) => return LogLine::Memory,
        };
        LogLine::Request(self.request)
    }
}

/// Milliseconds with a fraction, converted to microseconds.
fn scaled(value: &[u8]) -> Option<u64> {
    decimal(value).map(|(figure, _)| (figure * 1_000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(text: &str) -> Request {
        match read(text.as_bytes()) {
            LogLine::Request(request) => request,
            other => panic!("{text}: {other:?}"),
        }
    }

    const FIELDS: &str = "method=GET path=/posts/7 status=200 duration_ms=12.3 rss_bytes=91230208 rss_delta_bytes=-4096 \
                          malloc_bytes=183022 malloc_calls=913 pid=4711";

    fn expected() -> Request {
        Request {
            name: "GET /posts/:id".to_string(),
            bytes: Some(183_022),
            calls: Some(913),
            rss: Some(-4_096),
            duration: Some(12_300),
            pid: 4_711,
            ..Request::default()
        }
    }

    #[test]
    fn both_forms_with_whatever_a_logger_puts_around() {
        let object = r#"{"event":"MEMORY","method":"GET","path":"/posts/7","duration_ms":12.3,"rss_delta_bytes":-4096,"malloc_bytes":183022,"malloc_calls":913,"pid":4711}"#;
        for line in [
            format!("MEMORY {FIELDS}"),
            format!("I, [2026-01-01T12:00:00.1 #42]  INFO -- : [abc] MEMORY {FIELDS}"),
            format!(r#"{{"time":"x","message":"MEMORY {FIELDS}"}}"#),
            object.to_string(),
            format!("I, [2026-01-01T12:00:00 #5]  INFO -- : MEMORY {object}"),
            format!("MEMORY: {object}"),
        ] {
            assert_eq!(request(&line), expected(), "{line}");
        }
        assert_eq!(request("I, [x #42] INFO -- : MEMORY path=/ malloc_bytes=1").pid, 42);
    }

    #[test]
    fn the_name_is_rails_action_a_job_or_the_path() {
        let name = |fields: &str| request(&format!("MEMORY {fields} rss_bytes=1")).name;
        assert_eq!(name("method=GET path=/posts/7 action=posts#show"), "posts#show");
        assert_eq!(name("job=Import queue=default"), "job Import");
        assert_eq!(name("path=/posts/7"), "/posts/:id");
        assert_eq!(name(r#"method=DELETE path="/a \"b\"/7" pid=9"#), r#"DELETE /a "b"/:id"#);
        assert_eq!(name(r#"path="/x\u{1b}" pid=9"#), r"/x\u{1b}");
        let wrapped = r#"{"message":"MEMORY method=GET path=\"/a b\" malloc_bytes=5"}"#;
        assert_eq!((request(wrapped).name.as_str(), request(wrapped).bytes), ("GET /a b", Some(5)));
    }

    #[test]
    fn other_lines_of_ours_and_of_others() {
        for line in [
            "MEMORY[7]: time: 2026-01-01 12:00:00 +0000 rss: 1.5 GB",
            "MEMORY process=worker index=0 pid=4711 rss_bytes=91230208",
            r#"{"event":"MEMORY","rss_bytes":5}"#,
        ] {
            assert_eq!(read(line.as_bytes()), LogLine::Memory, "{line}");
        }
        for line in [
            "",
            "GET /posts 200",
            "no MEMORY left",
            r#"params {"q":"MEMORY method=GET path=/evil malloc_bytes=9"}"#,
            r#"{"path":"/x","bytes":5}"#,
            r#"{"event":"MEMORY","path":"/x","malloc_bytes":5"#,
        ] {
            assert_eq!(read(line.as_bytes()), LogLine::Other, "{line}");
        }
    }

    #[test]
    fn figures_beyond_belief_are_left_out_and_marked() {
        let found = request("MEMORY path=/ malloc_bytes=99999999999999999999999999 malloc_calls=5");
        assert_eq!((found.bytes, found.calls, found.absurd), (None, Some(5), true));
        let found =
            request("MEMORY path=/ rss_delta_bytes=-99999999999999999999 malloc_bytes=x duration_ms=1e9");
        assert_eq!((found.rss, found.bytes, found.duration, found.absurd), (None, None, Some(1_000), true));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..200) {
            let mut line = bytes.clone();
            let at = at.min(line.len());
            line.splice(at..at, *b"MEMORY method=GET path=\"");
            for text in [bytes, line] {
                if let LogLine::Request(request) = read(&text) {
                    prop_assert!(!request.name.is_empty() && request.name.chars().all(|c| !c.is_control()));
                }
            }
        }
    }
}
