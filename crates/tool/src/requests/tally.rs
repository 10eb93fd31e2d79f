//! Requests by name: sums, quantiles and maxima, in memory that does not grow with the log.

use super::request_line::{self, LogLine, Request};
use super::spread::Spread;
use crate::plot::input::Sink;
use std::collections::{HashMap, HashSet};

/// Most names that are counted separately. Requests of further names are counted together.
pub const MOST_NAMES: usize = 2_000;
/// The name for all further names.
pub const OTHER: &str = "(other)";
/// Most processes that are remembered, to count them.
const MOST_PROCESSES: usize = 65_536;

/// Sums of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Lines.
    pub requests: u64,
    /// Lines with malloc figures.
    pub known: u64,
    /// Bytes allocated by those.
    pub bytes: u128,
    /// Number of those allocations.
    pub calls: u128,
    /// Growth of RSS during the requests; negative if it shrank.
    pub rss: i128,
    /// Microseconds.
    pub duration: u128,
}

impl Sums {
    fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.known += u64::from(request.bytes.is_some());
        self.bytes += u128::from(request.bytes.unwrap_or(0));
        self.calls += u128::from(request.calls.unwrap_or(0));
        self.rss += i128::from(request.rss.unwrap_or(0));
        self.duration += u128::from(request.duration.unwrap_or(0));
    }
}

/// All requests of one name.
#[derive(Debug, Default)]
pub struct Group {
    /// Their name.
    pub name: String,
    /// The sums of all of them.
    pub sums: Sums,
    /// The quantiles of their bytes.
    pub spread: Spread,
}

/// The figure that rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Sum of bytes.
    Bytes,
    /// Sum of calls.
    Calls,
    /// Number of requests.
    Count,
    /// 95th percentile of bytes.
    P95,
    /// The greatest single request.
    Max,
    /// Growth of RSS meanwhile.
    Rss,
}

/// The figures by their names on the command line.
pub const FIGURES: [(&str, By); 6] = [
    ("bytes", By::Bytes),
    ("calls", By::Calls),
    ("count", By::Count),
    ("p95", By::P95),
    ("max", By::Max),
    ("rss", By::Rss),
];

impl Group {
    /// The figure that rows are sorted by.
    pub fn figure(&mut self, by: By) -> i128 {
        let figure = match by {
            By::Bytes => self.sums.bytes,
            By::Calls => self.sums.calls,
            By::Count => u128::from(self.sums.requests),
            By::P95 => u128::from(self.spread.percentile(95)),
            By::Max => u128::from(self.spread.greatest()),
            By::Rss => return self.sums.rss,
        };
        figure as i128
    }
}

/// All that has been read.
#[derive(Debug, Default)]
pub struct Tally {
    /// In the order of their first requests; the last may be [`OTHER`].
    pub groups: Vec<Group>,
    /// Sums over all requests.
    pub sums: Sums,
    /// Whether there were more than [`MOST_NAMES`] names; the further ones are in [`OTHER`].
    pub is_full: bool,
    /// Lines that are not MEMORY lines.
    pub skipped: u64,
    /// MEMORY lines of no request.
    pub memory: u64,
    /// Lines lost before they reached the log, as the lines say.
    pub dropped: u64,
    /// Lines with an impossible figure, which was left out.
    pub absurd: u64,
    places: HashMap<String, usize>,
    pids: HashSet<u32>,
}

impl Tally {
    fn take_line(&mut self, text: &[u8]) {
        match request_line::read(text.strip_suffix(b"\r").unwrap_or(text)) {
            LogLine::Request(request) => self.add(&request),
            LogLine::Memory => self.memory += 1,
            LogLine::Other => self.skipped += 1,
        }
    }

    fn add(&mut self, request: &Request) {
        self.dropped = self.dropped.saturating_add(request.dropped);
        self.absurd += u64::from(request.absurd);
        if request.pid != 0 && self.pids.len() < MOST_PROCESSES {
            self.pids.insert(request.pid);
        }
        self.sums.add(request);
        let place = self.place(&request.name);
        let group = &mut self.groups[place];
        group.sums.add(request);
        if let Some(bytes) = request.bytes {
            group.spread.add(bytes);
        }
    }

    fn place(&mut self, name: &str) -> usize {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let name = if self.places.len() < MOST_NAMES { name } else { OTHER };
        if name == OTHER && self.is_full {
            return self.groups.len() - 1;
        }
        self.is_full = self.places.len() >= MOST_NAMES;
        self.groups.push(Group { name: name.to_string(), ..Group::default() });
        let place = self.groups.len() - 1;
        if !self.is_full {
            self.places.insert(name.to_string(), place);
        }
        place
    }

    /// How many processes wrote the lines, and whether there may be more.
    pub fn processes(&self) -> (usize, bool) {
        (self.pids.len(), self.pids.len() == MOST_PROCESSES)
    }

    /// Sorts by the figure, largest first, and keeps the order of equal ones. [`OTHER`] is not a name, and comes last.
    pub fn sort(&mut self, by: By) {
        let other = self.is_full.then(|| self.groups.pop()).flatten();
        let mut keyed: Vec<(i128, Group)> =
            self.groups.drain(..).map(|mut group| (group.figure(by), group)).collect();
        keyed.sort_by_key(|(figure, _)| std::cmp::Reverse(*figure));
        self.groups.extend(keyed.into_iter().map(|(_, group)| group));
        self.groups.extend(other);
        // No line is added after that.
        self.places.clear();
    }
}

impl Sink for Tally {
    const DOING: &'static str = "counting";

    fn take(&mut self, _source: usize, lines: &[u8]) {
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', lines) {
            self.take_line(&lines[begin..end]);
            begin = end + 1;
        }
        if begin < lines.len() {
            self.take_line(&lines[begin..]);
        }
    }

    fn skip(&mut self) {
        self.skipped += 1;
    }

    fn any(&self) -> bool {
        self.sums.requests > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tally(lines: &str) -> Tally {
        let mut tally = Tally::default();
        tally.take(0, lines.as_bytes());
        tally
    }

    #[test]
    fn sums_of_each_name() {
        let mut all = tally(
            "MEMORY method=GET path=/a/1 malloc_bytes=100 malloc_calls=2 rss_delta_bytes=50 duration_ms=1.5 pid=1\n\
             MEMORY method=GET path=/a/2 malloc_bytes=300 malloc_calls=4 rss_delta_bytes=-60 duration_ms=2 pid=2\r\n\
             noise\nMEMORY[1]: time: 2026-01-01 12:00:00 +0000 rss: 1 MB\n\
             MEMORY method=POST path=/b rss_bytes=7 dropped_lines=3 pid=2",
        );
        all.sort(By::Bytes);
        let sums = Sums { requests: 2, known: 2, bytes: 400, calls: 6, rss: -10, duration: 3_500 };
        assert_eq!((all.groups[0].name.as_str(), all.groups[0].sums), ("GET /a/:id", sums));
        assert_eq!(all.groups[1].sums, Sums { requests: 1, ..Sums::default() });
        assert_eq!((all.groups[0].spread.percentile(50), all.groups[0].spread.percentile(95)), (100, 300));
        assert_eq!((all.skipped, all.memory, all.dropped, all.processes()), (1, 1, 3, (2, false)));
        all.sort(By::Rss);
        assert_eq!(all.groups[0].name, "POST /b");
    }

    #[test]
    fn names_without_end_take_no_memory_without_end() {
        let mut all = Tally::default();
        for at in 0..MOST_NAMES + 500 {
            let word: String = at.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect();
            all.take(0, format!("MEMORY path=/{word} malloc_bytes=10\n").as_bytes());
        }
        all.take(0, b"MEMORY path=/a malloc_bytes=1\n");
        assert_eq!((all.groups.len(), all.places.len(), all.is_full), (MOST_NAMES + 1, MOST_NAMES, true));
        assert_eq!(all.groups[0].sums.bytes, 11);
        all.sort(By::Bytes);
        let last = all.groups.last().unwrap();
        assert_eq!((last.name.as_str(), last.sums.requests, last.sums.bytes), (OTHER, 500, 5_000));
        assert_eq!(all.groups.iter().map(|group| group.sums.bytes).sum::<u128>(), all.sums.bytes);
    }

    proptest! {
        #[test]
        fn every_line_is_counted_once(text in "((MEMORY (path=/[a-c]|job=[xy]) malloc_bytes=[0-9]{1,3}|MEMORY\\[1\\]: rss: 1 MB|x)?\n){0,20}") {
            let all = tally(&text);
            let lines = memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64;
            prop_assert_eq!(all.sums.requests + all.memory + all.skipped, lines);
            prop_assert_eq!(all.groups.iter().map(|group| group.sums.requests).sum::<u64>(), all.sums.requests);
        }
    }
}
