//! The state of the view: figures, the choices of the user, and messages.

use super::vitals::Vitals;
use super::worker::{News, Order, Target};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of moments in the curves.
const MOMENTS: usize = 600;
/// Time after which a process counts as not answering.
const QUIET: Duration = Duration::from_secs(4);
/// Time for which a message is shown.
const REMARK: Duration = Duration::from_secs(5);

/// Figures to sort by: the title of the column, and the name in the protocol.
pub(super) const SORTS: [(&str, &str); 6] = [
    ("retained", "retained_bytes"),
    ("objects", "live_objects"),
    ("live", "live_bytes"),
    ("growth", "growth"),
    ("blocks", "live_blocks"),
    ("allocations", "allocations"),
];
/// How many of them there are only if objects are tracked; they come first.
const SORTS_OF_OBJECTS: usize = 2;

/// State of the process.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(super) enum Condition {
    /// No figures yet.
    Connecting,
    /// It answers.
    Answering,
    /// It has not answered for this many seconds.
    Quiet(u64),
    /// It has ended, or no longer listens.
    Gone,
}

/// Figures of one moment, for the curves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    /// Seconds on the process's clock.
    pub(super) time: f64,
    /// Resident bytes.
    pub(super) rss_bytes: f64,
    /// Share of the time since the previous moment that GC took, 0 to 1.
    pub(super) gc_share: f64,
}

/// The whole state.
pub(super) struct State {
    /// The address of the process, or its last one.
    pub(super) target: Target,
    /// Whether to search for a process of the same name after this one has ended.
    pub(super) returns: bool,
    /// The latest figures.
    pub(super) vitals: Option<Vitals>,
    /// The figures of earlier moments.
    pub(super) moments: VecDeque<Moment>,
    /// Index into [`SORTS`], once the user has chosen.
    sort: Option<usize>,
    /// First row of the table.
    pub(super) first: usize,
    remark: Option<(String, Instant)>,
    gone: bool,
    heard: Option<Instant>,
}

/// The effect of a key.
#[derive(Debug, PartialEq)]
pub(super) enum Reaction {
    /// Only draw again.
    None,
    /// A command to send to the worker.
    Order(Order),
    /// Quit.
    Quit,
}

impl State {
    /// The state at the beginning.
    pub(super) fn new(target: Target, returns: bool) -> State {
        State {
            target,
            returns,
            vitals: None,
            moments: VecDeque::new(),
            sort: None,
            first: 0,
            remark: None,
            gone: false,
            heard: None,
        }
    }

    /// Handles news of the worker.
    pub(super) fn take(&mut self, news: News, now: Instant) {
        match news {
            News::Vitals(vitals) => {
                self.heard = Some(now);
                self.add_moment(&vitals);
                self.first = self.first.min(vitals.sites.len().saturating_sub(1));
                self.vitals = Some(*vitals);
            }
            News::Done(command) => {
                let said = match command {
                    "start" => "tracking started",
                    "stop" => "tracking stopped; the figures stay",
                    _ => "growth is counted from now on",
                };
                self.say(said, now);
            }
            News::Refused(message) => {
                self.heard = Some(now);
                self.say(&super::vitals::printable(&message), now);
            }
            News::Silent => {}
            News::Gone => self.gone = true,
            News::Found(target) => {
                self.say(&format!("process {} has taken the place of {}", target.pid, self.target.pid), now);
                let (returns, sort, remark) = (self.returns, self.sort, self.remark.take());
                *self = State { sort, remark, ..State::new(target, returns) };
            }
        }
    }

    fn add_moment(&mut self, vitals: &Vitals) {
        let before = self.vitals.as_ref();
        // If the clock was set back, the time passed counts as zero.
        let passed_ms = before.map_or(0.0, |before| (vitals.time - before.time) * 1_000.0);
        let collected_ms = before.map_or(0.0, |before| vitals.gc_ms - before.gc_ms);
        // Impossible times give no share: infinity times infinity is NaN, which clamp would let through.
        let gc_share = if passed_ms > 0.0 && passed_ms.is_finite() && collected_ms.is_finite() {
            (collected_ms / passed_ms).clamp(0.0, 1.0)
        } else {
            0.0
        };
        if passed_ms < 0.0 {
            self.moments.clear();
        }
        if let Some(rss_bytes) = vitals.rss_bytes {
            self.moments.push_back(Moment { time: vitals.time, rss_bytes: rss_bytes as f64, gc_share });
        }
        while self.moments.len() > MOMENTS {
            self.moments.pop_front();
        }
    }

    /// Shows a message for a while.
    pub(super) fn say(&mut self, text: &str, now: Instant) {
        self.remark = Some((text.to_string(), now));
    }

    /// The message to show now.
    pub(super) fn remark(&self, now: Instant) -> Option<&str> {
        self.remark
            .as_ref()
            .filter(|(_, since)| now.duration_since(*since) < REMARK)
            .map(|(text, _)| text.as_str())
    }

    /// The state of the process.
    pub(super) fn condition(&self, now: Instant) -> Condition {
        match self.heard {
            _ if self.gone => Condition::Gone,
            None => Condition::Connecting,
            Some(heard) if now.duration_since(heard) > QUIET => {
                Condition::Quiet(now.duration_since(heard).as_secs())
            }
            Some(_) => Condition::Answering,
        }
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: Key, now: Instant) -> Reaction {
        let order = match key {
            Key::Quit => return Reaction::Quit,
            Key::Letter('s') => Order::Send("start"),
            Key::Letter('x') => Order::Send("stop"),
            Key::Letter('m') => Order::Send("mark"),
            Key::Letter('f') => Order::Fragmentation,
            Key::Letter('o') | Key::Right => self.sort_by(1),
            Key::Left => self.sort_by(-1),
            Key::Down => return self.scroll(1),
            Key::Up => return self.scroll(-1),
            Key::Letter(_) => return Reaction::None,
        };
        if self.gone {
            self.say("the process is gone: nothing can be asked of it", now);
            return Reaction::None;
        }
        Reaction::Order(order)
    }

    fn sort_by(&mut self, step: isize) -> Order {
        let first = self.first_sort();
        let there = SORTS.len() - first;
        let next = first + (self.sort() - first).saturating_add_signed(there.cast_signed() + step) % there;
        self.sort = Some(next);
        self.first = 0;
        Order::SortBy(SORTS[next].1)
    }

    /// The first of [`SORTS`] that this process has.
    pub(super) fn first_sort(&self) -> usize {
        if self.vitals.as_ref().is_some_and(Vitals::has_objects) { 0 } else { SORTS_OF_OBJECTS }
    }

    /// Index into [`SORTS`] of what the table is sorted by.
    pub(super) fn sort(&self) -> usize {
        self.sort.unwrap_or(0).max(self.first_sort())
    }

    fn scroll(&mut self, rows: isize) -> Reaction {
        let last = self.vitals.as_ref().map_or(0, |vitals| vitals.sites.len().saturating_sub(1));
        self.first = self.first.saturating_add_signed(rows).min(last);
        Reaction::None
    }
}

/// The keys that have a meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Key {
    /// q, Escape, Ctrl-C.
    Quit,
    /// Any other letter.
    Letter(char),
    /// An arrow.
    Up,
    /// An arrow.
    Down,
    /// An arrow.
    Left,
    /// An arrow.
    Right,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::vitals::tests::ANSWER;

    fn state() -> (State, Instant) {
        (State::new(Target { pid: 123, path: "/s".into() }, true), Instant::now())
    }

    fn vitals(time: f64, gc_ms: f64) -> News {
        News::Vitals(Box::new(Vitals { time, gc_ms, ..Vitals::read(ANSWER.as_bytes(), 123).unwrap() }))
    }

    #[test]
    fn gathers_moments_with_the_collectors_share() {
        let (mut state, now) = state();
        assert_eq!(state.condition(now), Condition::Connecting);
        state.take(vitals(10.0, 100.0), now);
        state.take(vitals(11.0, 350.0), now);
        assert_eq!(state.moments[1], Moment { time: 11.0, rss_bytes: 104_857_600.0, gc_share: 0.25 });
        state.take(vitals(5.0, 360.0), now);
        assert_eq!(state.moments.len(), 1);
        for second in 0..1_000 {
            state.take(vitals(6.0 + f64::from(second), 360.0), now);
        }
        assert_eq!(state.moments.len(), MOMENTS);
    }

    #[test]
    fn tells_quiet_from_gone() {
        let (mut state, now) = state();
        state.take(vitals(1.0, 0.0), now);
        assert_eq!(state.condition(now), Condition::Answering);
        assert_eq!(state.condition(now + Duration::from_secs(7)), Condition::Quiet(7));
        state.take(News::Gone, now);
        assert_eq!(state.condition(now), Condition::Gone);
        assert_eq!(state.press(Key::Letter('m'), now), Reaction::None);
        assert!(state.remark(now).unwrap().contains("gone"));
        state.take(News::Found(Target { pid: 124, path: "/t".into() }), now);
        assert_eq!(
            (state.condition(now), state.target.pid, state.moments.len()),
            (Condition::Connecting, 124, 0)
        );
        assert_eq!(state.remark(now), Some("process 124 has taken the place of 123"));
        assert_eq!(state.remark(now + Duration::from_secs(6)), None);
    }

    #[test]
    fn keys_become_orders() {
        let (mut state, now) = state();
        state.take(vitals(1.0, 0.0), now);
        assert_eq!(state.press(Key::Letter('s'), now), Reaction::Order(Order::Send("start")));
        assert_eq!(state.press(Key::Letter('x'), now), Reaction::Order(Order::Send("stop")));
        assert_eq!(state.press(Key::Letter('m'), now), Reaction::Order(Order::Send("mark")));
        assert_eq!(state.press(Key::Letter('f'), now), Reaction::Order(Order::Fragmentation));
        assert_eq!(state.press(Key::Letter('o'), now), Reaction::Order(Order::SortBy("growth")));
        assert_eq!(state.press(Key::Left, now), Reaction::Order(Order::SortBy("live_bytes")));
        assert_eq!(state.press(Key::Left, now), Reaction::Order(Order::SortBy("allocations")));
        assert_eq!(state.press(Key::Quit, now), Reaction::Quit);
        state.press(Key::Down, now);
        state.press(Key::Down, now);
        assert_eq!(state.first, 1);
        state.press(Key::Up, now);
        state.press(Key::Up, now);
        assert_eq!(state.first, 0);
    }
}
