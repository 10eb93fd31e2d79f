//! All figures of all lines: a curve for each process.

use super::memory_line;
use super::record::{Figures, Metric};
use super::stamp::Microseconds;
use std::collections::HashMap;

/// Most processes that are plotted: those with the most lines. While reading, up to twice as many are kept.
pub const MOST_CURVES: usize = 1_000;

/// One line's figures.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The time.
    pub at: Microseconds,
    /// By metric; NaN if the line does not have it.
    pub figures: Figures,
}

/// One process.
#[derive(Debug)]
pub struct Curve {
    /// Index of the file it was read from.
    pub source: usize,
    /// 0 if the lines do not have it.
    pub pid: u32,
    /// In the order of time, after [`History::sort`].
    pub samples: Vec<Sample>,
    sorted: bool,
}

impl Curve {
    /// Time and value of each line that has the metric.
    pub fn points(&self, metric: Metric) -> impl Iterator<Item = (Microseconds, f64)> + '_ {
        self.samples
            .iter()
            .map(move |sample| (sample.at, sample.figures[metric as usize]))
            .filter(|(_, figure)| figure.is_finite())
    }
}

/// What has been read so far.
#[derive(Debug, Default)]
pub struct History {
    /// In the order of their first lines.
    pub curves: Vec<Curve>,
    /// Lines that are not MEMORY lines.
    pub skipped: u64,
    /// MEMORY lines without any time.
    pub timeless: u64,
    /// Lines with malloc's live bytes, and those of them that estimate these from a sample.
    pub malloc_lines: [u64; 2],
    /// Lines that say that nothing was tracked.
    pub untracked: u64,
    /// Processes that are left out, and their lines: the [`MOST_CURVES`] others have more lines.
    pub left_out: [u64; 2],
    /// Minutes east of UTC, of the last stamp with an offset. Stamps without one count as of the same zone.
    pub zone: Option<i32>,
    places: HashMap<(usize, u32), usize>,
}

impl History {
    /// Takes whole lines of one file.
    pub fn take(&mut self, source: usize, lines: &[u8]) {
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', lines) {
            self.take_line(source, &lines[begin..end]);
            begin = end + 1;
        }
        if begin < lines.len() {
            self.take_line(source, &lines[begin..]);
        }
    }

    fn take_line(&mut self, source: usize, line: &[u8]) {
        let Some(record) = memory_line::read(line.strip_suffix(b"\r").unwrap_or(line)) else {
            self.skipped += 1;
            return;
        };
        let Some(stamp) = record.stamp else {
            self.timeless += 1;
            return;
        };
        self.zone = stamp.offset.or(self.zone);
        if record.figures[Metric::MallocLive as usize].is_finite() {
            self.malloc_lines[0] += 1;
            self.malloc_lines[1] += u64::from(record.estimated);
        }
        self.untracked += u64::from(record.untracked);
        let sample = Sample { at: stamp.instant(self.zone.unwrap_or(0)), figures: record.figures };
        let place = self.place(source, record.pid);
        let curve = &mut self.curves[place];
        curve.sorted &= curve.samples.last().is_none_or(|last| last.at <= sample.at);
        curve.samples.push(sample);
    }

    fn place(&mut self, source: usize, pid: u32) -> usize {
        if let Some(&place) = self.places.get(&(source, pid)) {
            return place;
        }
        // Not at each new process, because choosing takes time.
        if self.curves.len() >= 2 * MOST_CURVES {
            self.leave_out();
        }
        self.curves.push(Curve { source, pid, samples: Vec::new(), sorted: true });
        self.places.insert((source, pid), self.curves.len() - 1);
        self.curves.len() - 1
    }

    /// Removes the processes with the fewest lines, older ones first. If one of them writes again, it starts
    /// a new curve.
    fn leave_out(&mut self) {
        let mut sizes: Vec<(usize, usize)> =
            self.curves.iter().enumerate().map(|(at, curve)| (curve.samples.len(), at)).collect();
        sizes.sort_unstable();
        let mut kept = vec![true; sizes.len()];
        for (lines, at) in &sizes[..sizes.len().saturating_sub(MOST_CURVES)] {
            kept[*at] = false;
            self.left_out[0] += 1;
            self.left_out[1] += *lines as u64;
        }
        let mut at = 0;
        self.curves.retain(|_| {
            at += 1;
            kept[at - 1]
        });
        let places = self.curves.iter().enumerate();
        self.places = places.map(|(at, curve)| ((curve.source, curve.pid), at)).collect();
    }

    /// Sorts the lines by time: lines of concurrent requests may be out of order, and a clock may be set back. Removes
    /// processes beyond the limit.
    pub fn sort(&mut self) {
        if self.curves.len() > MOST_CURVES {
            self.leave_out();
        }
        for curve in self.curves.iter_mut().filter(|curve| !curve.sorted) {
            curve.samples.sort_by_key(|sample| sample.at);
            curve.sorted = true;
        }
    }

    /// Number of lines with figures that are plotted.
    pub fn samples(&self) -> usize {
        self.curves.iter().map(|curve| curve.samples.len()).sum()
    }

    /// First and last moment.
    pub fn period(&self) -> Option<(Microseconds, Microseconds)> {
        let first =
            self.curves.iter().filter_map(|curve| curve.samples.first()).map(|sample| sample.at).min()?;
        let last =
            self.curves.iter().filter_map(|curve| curve.samples.last()).map(|sample| sample.at).max()?;
        Some((first, last))
    }

    /// The metrics that at least one line has.
    pub fn metrics(&self) -> Vec<Metric> {
        let has = |metric: &Metric| self.curves.iter().any(|curve| curve.points(*metric).next().is_some());
        Metric::ALL.into_iter().filter(has).collect()
    }

    /// A note about the metric's figures; empty if there is none.
    pub fn caution(&self, metric: Metric) -> &'static str {
        match self.malloc_lines {
            _ if metric != Metric::MallocLive => "",
            [_, 0] => "",
            [all, estimated] if all == estimated => " (~ estimates from a sample)",
            _ => " (~ partly estimates from a sample)",
        }
    }

    /// The reason if there is nothing to plot.
    pub fn nothing_to_draw(&self) -> Option<String> {
        if self.samples() > 0 {
            return None;
        }
        if self.timeless > 0 {
            return Some(format!(
                "no curve: {} MEMORY lines, but none tells its time; add time to the middleware's fields, or \
                 log through Ruby's Logger",
                self.timeless
            ));
        }
        Some(format!(
            "no curve: {} lines, and none is a MEMORY line (of Memintro.log_every or Memintro::Middleware)",
            self.skipped
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(text: &str) -> History {
        let mut history = History::default();
        history.take(0, text.as_bytes());
        history.sort();
        history
    }

    #[test]
    fn processes_without_end_take_no_memory_without_end() {
        let mut history = History::default();
        for pid in 1..=(10 * MOST_CURVES) {
            history.take(0, format!("MEMORY[{pid}]: time: 2026-01-01 12:00:00 rss: 1 MB\n").as_bytes());
            // One of the processes writes another line.
            history
                .take(0, format!("MEMORY[7]: time: 2026-01-01 12:00:{:02} rss: 1 MB\n", pid % 60).as_bytes());
            assert!(history.curves.len() <= 2 * MOST_CURVES && history.places.len() == history.curves.len());
        }
        history.sort();
        assert_eq!(history.curves.len(), MOST_CURVES);
        let lines = 20 * MOST_CURVES as u64;
        assert_eq!(history.left_out, [9 * MOST_CURVES as u64, 9 * MOST_CURVES as u64]);
        assert_eq!(history.samples() as u64 + history.left_out[1], lines);
        assert_eq!(
            history.curves.iter().find(|curve| curve.pid == 7).unwrap().samples.len(),
            10 * MOST_CURVES + 1
        );
    }

    #[test]
    fn a_curve_for_each_process_in_the_order_of_time() {
        let history = history(
            "MEMORY[2]: time: 2026-01-01 12:00:02 +0100 rss: 2.0 MB, live_objects: 1\n\
             noise\n\
             MEMORY[1]: time: 2026-01-01 12:00:01 +0100 rss: 5.0 MB, live_objects: 1\r\n\
             MEMORY[2]: time: 2026-01-01 12:00:00 +0100 rss: 1.0 MB, live_objects: 1\n\
             MEMORY rss_bytes=1",
        );
        let curves: Vec<_> = history
            .curves
            .iter()
            .map(|curve| {
                (curve.pid, curve.points(Metric::Rss).map(|(_, rss)| rss / 1_048_576.0).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(curves, [(2, vec![1.0, 2.0]), (1, vec![5.0])]);
        assert_eq!((history.skipped, history.timeless, history.samples(), history.zone), (1, 1, 3, Some(60)));
        assert_eq!(history.metrics(), [Metric::Rss, Metric::LiveObjects]);
    }

    #[test]
    fn tells_estimates_of_malloc_in_every_form_of_line() {
        let periodic = |estimate: &str| {
            format!(
                "MEMORY[1]: time: 2026-01-01 12:00:00 rss: 2.0 MB, malloc_live: 1.5 MB{estimate}, gc_count: 3\n"
            )
        };
        let request = |more: &str| {
            format!("MEMORY rss_bytes=9 malloc_live_bytes=5{more} time=2026-01-01T12:00:00Z pid=1\n")
        };
        let json = |more: &str| {
            format!(
                "{{\"event\":\"MEMORY\",\"rss_bytes\":9,\"malloc_live_bytes\":5{more},\
                 \"time\":\"2026-01-01T12:00:00Z\"}}\n"
            )
        };
        let all = " (~ estimates from a sample)";
        for (lines, caution) in [
            (periodic(""), ""),
            (periodic(" (estimate)"), all),
            (periodic(" (estimate, ±0.3 MB)"), all),
            (request(""), ""),
            (request(" estimated=true"), all),
            (request(" estimated=false"), ""),
            (request(" malloc_live_bytes_standard_error=2.5"), all),
            (json(""), ""),
            (json(",\"estimated\":true"), all),
            (json(",\"estimated\":false"), ""),
            (json(",\"malloc_live_bytes_standard_error\":2.5"), all),
            (periodic("") + &periodic(" (estimate)"), " (~ partly estimates from a sample)"),
        ] {
            let history = history(&lines);
            assert_eq!(history.caution(Metric::MallocLive), caution, "{lines}");
            assert_eq!((history.caution(Metric::Rss), history.timeless, history.skipped), ("", 0, 0));
        }
    }

    #[test]
    fn says_why_there_is_nothing() {
        assert!(history("a\nb\n").nothing_to_draw().unwrap().contains("2 lines, and none is a MEMORY line"));
        assert!(
            history("MEMORY rss_bytes=1\n")
                .nothing_to_draw()
                .unwrap()
                .contains("1 MEMORY lines, but none tells")
        );
    }
}
