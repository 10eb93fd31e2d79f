//! Positions and labels of the marks of an axis.

use super::history::History;
use super::record::Metric;
use super::stamp::{Microseconds, local_time};
use crate::units::signed_count;
use jiff::civil::Time;

/// The axis of one metric: values are divided by `scale`, and the title names the unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ValueAxis {
    /// Such as `RSS, MiB`.
    pub(super) title: String,
    /// One unit.
    pub(super) scale: f64,
    /// In units.
    pub(super) from: f64,
    /// In units.
    pub(super) to: f64,
    /// In units.
    pub(super) step: f64,
}

impl ValueAxis {
    /// An axis for all values of the metric. It begins at 0, unless most of the plot would be empty then.
    pub(super) fn new(history: &History, metric: Metric) -> ValueAxis {
        let values = history.curves.iter().flat_map(|curve| curve.points(metric)).map(|(_, value)| value);
        let (least, greatest) = values.fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| {
            (least.min(value), greatest.max(value))
        });
        let (name, units): (_, &[(f64, &str)]) = match metric {
            Metric::Rss => ("RSS", BYTES),
            Metric::MallocLive => ("malloc live", BYTES),
            Metric::LiveObjects => ("live objects", &[(1.0, ""), (1e3, "thousand"), (1e6, "million")]),
            Metric::Gc => ("GC time", &[(1.0, "ms"), (1e3, "s")]),
        };
        let (scale, unit) = units.iter().rev().find(|(scale, _)| greatest >= *scale).unwrap_or(&units[0]);
        let title = if unit.is_empty() { name.to_string() } else { format!("{name}, {unit}") };
        let title = title + history.caution(metric);
        let (least, greatest) = (least.min(greatest) / scale, greatest / scale);
        let floor = if least > 0.7 * greatest { least - (greatest - least) * 0.15 } else { 0.0 };
        let span = if greatest > floor { greatest - floor } else { greatest.max(1.0) };
        let step = round_step(span / 4.0);
        let from = (floor / step).floor() * step;
        let to = ((greatest / step).floor() + 1.0) * step;
        ValueAxis { title, scale: *scale, from, to, step }
    }

    /// Values that get a mark.
    pub(super) fn marks(&self) -> Vec<f64> {
        let count = ((self.to - self.from) / self.step).round() as usize;
        (0..=count).map(|at| self.from + self.step * at as f64).collect()
    }

    /// The label of a mark.
    pub(super) fn label(&self, value: f64) -> String {
        let digits = (-self.step.log10().floor()).clamp(0.0, 6.0) as usize;
        if digits > 0 || value.abs() < 10_000.0 {
            format!("{value:.digits$}")
        } else {
            signed_count(value.round() as i64)
        }
    }
}

const BYTES: &[(f64, &str)] =
    &[(1.0, "B"), (1024.0, "KiB"), (1024.0 * 1024.0, "MiB"), (10.0 * 1024.0 * 1024.0 * 1024.0, "GiB")];

/// 1, 2 or 5 times a power of ten, and no less than `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|times| times * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(power)
}

/// The axis of time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimeAxis {
    /// Microseconds since 1970.
    pub(super) from: Microseconds,
    /// Microseconds since 1970.
    pub(super) to: Microseconds,
    /// Minutes east of UTC that the labels are in.
    pub(super) zone: i32,
    step: Microseconds,
    known_zone: bool,
}

const SECOND: Microseconds = 1_000_000;
const DAY: Microseconds = 86_400 * SECOND;
const STEPS: [i64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800, 1_209_600, 2_592_000,
];

impl TimeAxis {
    /// An axis with at most `most` marks.
    pub(super) fn new(history: &History, most: usize) -> Option<TimeAxis> {
        let (from, mut to) = history.period()?;
        if to - from < SECOND {
            to = from + SECOND;
        }
        let whole = to - from;
        let step = STEPS
            .iter()
            .map(|seconds| seconds * SECOND)
            .find(|step| whole / step < most as i64)
            .unwrap_or_else(|| (whole / most as i64 / (30 * DAY) + 1) * 30 * DAY);
        Some(TimeAxis { from, to, zone: history.zone.unwrap_or(0), step, known_zone: history.zone.is_some() })
    }

    /// Moments that get a mark: round times in the local zone.
    pub(super) fn marks(&self) -> Vec<Microseconds> {
        let shift = i64::from(self.zone) * 60 * SECOND;
        let first = (self.from + shift + self.step - 1).div_euclid(self.step) * self.step - shift;
        (0..).map(|at| first + at * self.step).take_while(|mark| *mark <= self.to).collect()
    }

    /// The label of a mark: the time, or the date at the beginning of a day and with steps of days.
    pub(super) fn label(&self, mark: Microseconds) -> String {
        let time = local_time(mark, self.zone);
        let form = if self.step >= DAY || time.time() == Time::midnight() {
            "%-d %b"
        } else if self.step < 60 * SECOND {
            "%H:%M:%S"
        } else {
            "%H:%M"
        };
        time.strftime(form).to_string()
    }

    /// The whole period with its dates, such as `1 Jan 2026 12:00:00 – 13:30:00 UTC+01:00`.
    pub(super) fn title(&self) -> String {
        let (from, to) = (local_time(self.from, self.zone), local_time(self.to, self.zone));
        let end = if from.date() == to.date() { "%H:%M:%S" } else { "%-d %b %Y %H:%M:%S" };
        format!("{} – {}{}", from.strftime("%-d %b %Y %H:%M:%S"), to.strftime(end), self.zone_name())
    }

    fn zone_name(&self) -> String {
        match (self.known_zone, self.zone) {
            (false, _) => String::new(),
            (true, 0) => " UTC".to_string(),
            (true, zone) => {
                let sign = if zone < 0 { '-' } else { '+' };
                format!(" UTC{sign}{:02}:{:02}", zone.abs() / 60, zone.abs() % 60)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: &[(&str, &str)]) -> History {
        let mut history = History::default();
        for (time, rss) in lines {
            history.take(0, format!("MEMORY[1]: time: {time} rss: {rss} MB, live_objects: 5").as_bytes());
        }
        history
    }

    #[test]
    fn bytes_are_marked_at_round_numbers_of_their_unit() {
        let history =
            history(&[("2026-01-01 12:00:00 +0000", "0.0"), ("2026-01-01 12:00:00 +0000", "190.0")]);
        let axis = ValueAxis::new(&history, Metric::Rss);
        assert_eq!(axis.title, "RSS, MiB");
        assert_eq!(
            axis.marks().iter().map(|mark| axis.label(*mark)).collect::<Vec<_>>(),
            ["0", "50", "100", "150", "200"]
        );
        assert_eq!(ValueAxis::new(&history, Metric::LiveObjects).title, "live objects");
    }

    #[test]
    fn an_axis_of_nearly_equal_values_does_not_begin_at_0() {
        let axis = ValueAxis::new(
            &history(&[("2026-01-01 12:00:00", "1000"), ("2026-01-01 12:00:00", "1010")]),
            Metric::Rss,
        );
        assert_eq!((axis.from, axis.label(axis.from).as_str(), axis.to), (995.0, "995", 1015.0));
        let constant = ValueAxis::new(&history(&[("2026-01-01 12:00:00", "0")]), Metric::Rss);
        assert!(constant.to > constant.from);
    }

    #[test]
    fn time_is_marked_at_round_moments_on_the_wall() {
        let history = history(&[("2026-01-01 22:10:00 +0530", "1"), ("2026-01-02 02:40:00 +0530", "1")]);
        let axis = TimeAxis::new(&history, 8).unwrap();
        let labels: Vec<_> = axis.marks().into_iter().map(|mark| axis.label(mark)).collect();
        assert_eq!(labels, ["23:00", "2 Jan", "01:00", "02:00"]);
        assert_eq!(axis.title(), "1 Jan 2026 22:10:00 – 2 Jan 2026 02:40:00 UTC+05:30");
    }

    #[test]
    fn one_line_has_an_axis_too() {
        let axis = TimeAxis::new(&history(&[("2026-01-01 12:00:00", "1")]), 8).unwrap();
        assert_eq!(axis.marks().len(), 2);
        assert_eq!(axis.title(), "1 Jan 2026 12:00:00 – 12:00:01");
    }
}
