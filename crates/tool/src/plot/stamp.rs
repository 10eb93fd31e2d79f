//! Reads and writes time stamps of logs. Uses no time zone data, only the offset of a stamp.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Microseconds since 1970 in UTC.
pub type Microseconds = i64;

const SECOND: Microseconds = 1_000_000;

/// A stamp such as `2026-01-01 12:00:00 +0100`, `2026-01-01T12:00:00.123Z` or, without an offset, `2026-01-01T12:00:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The local time that the stamp shows, as if it were UTC.
    pub wall: Microseconds,
    /// Minutes east of UTC, if the stamp has an offset.
    pub offset: Option<i32>,
}

impl Stamp {
    /// Reads the stamp that `text` begins with, and returns how many bytes it took.
    pub fn read(text: &[u8]) -> Option<(Stamp, usize)> {
        let has = |at: usize, marks: &[u8]| text.get(at).is_some_and(|byte| marks.contains(byte));
        if !(has(4, b"-") && has(7, b"-") && has(10, b"T ") && has(13, b":") && has(16, b":")) {
            return None;
        }
        let digits = match text.get(19) {
            Some(b'.' | b',') => text[20..].iter().take_while(|byte| byte.is_ascii_digit()).count(),
            _ => 0,
        };
        let fraction = if digits == 0 { 0 } else { 1 + digits };
        // More digits than nanoseconds have are left out.
        let date = std::str::from_utf8(text.get(..19 + fraction.min(10))?).ok()?;
        let date: DateTime = date.parse().ok()?;
        let wall = Offset::UTC.to_timestamp(date).ok()?.as_microsecond();
        let used = 19 + fraction;
        let (offset, more) = offset(&text[used..]);
        Some((Stamp { wall, offset }, used + more))
    }

    /// Finds the first stamp within `text`.
    pub fn find(text: &[u8]) -> Option<Stamp> {
        memchr::memchr_iter(b'-', text)
            .filter(|&at| at >= 4)
            .find_map(|at| Stamp::read(&text[at - 4..]).map(|(stamp, _)| stamp))
    }

    /// Whether it has no fraction of a second.
    pub fn is_whole(self) -> bool {
        self.wall % SECOND == 0
    }

    /// Returns this stamp, which has whole seconds, with the fraction of a finer stamp, if both can be of the same
    /// moment: the finer one was written less than two seconds after this one began, in any zone (all zones differ by
    /// quarters of an hour).
    pub fn refined(self, finer: Stamp) -> Option<Stamp> {
        let later = (finer.wall - self.wall).rem_euclid(900 * SECOND);
        (!finer.is_whole() && later < 2 * SECOND).then_some(Stamp { wall: self.wall + later, ..self })
    }

    /// The instant, where `zone` is the offset of stamps that have none.
    pub fn instant(self, zone: i32) -> Microseconds {
        self.wall - i64::from(self.offset.unwrap_or(zone)) * 60 * SECOND
    }
}

fn number(digits: &[u8]) -> Option<i32> {
    std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?
        .parse()
        .ok()
}

/// Reads `Z`, ` UTC`, `+01:00` or ` +0100`. Returns minutes and the number of bytes read.
fn offset(text: &[u8]) -> (Option<i32>, usize) {
    let blank = usize::from(text.first() == Some(&b' '));
    let rest = &text[blank..];
    match rest.first() {
        Some(b'Z') => (Some(0), blank + 1),
        Some(b'U') if rest.starts_with(b"UTC") => (Some(0), blank + 3),
        Some(sign @ (b'+' | b'-')) => {
            let colon = usize::from(rest.get(3) == Some(&b':'));
            let hours = rest.get(1..3).and_then(number);
            let minutes = rest.get(3 + colon..5 + colon).and_then(number);
            match (hours, minutes) {
                (Some(hours), Some(minutes)) if hours < 24 && minutes < 60 => {
                    let east = hours * 60 + minutes;
                    (Some(if *sign == b'-' { -east } else { east }), blank + 5 + colon)
                }
                _ => (None, 0),
            }
        }
        _ => (None, 0),
    }
}

/// The local time at this moment, `zone` minutes east of UTC. Stamps have years of four digits, so there always is one.
pub fn local_time(instant: Microseconds, zone: i32) -> DateTime {
    let offset = Offset::from_seconds(zone * 60).unwrap_or(Offset::UTC);
    Timestamp::from_microsecond(instant).map_or(DateTime::MIN, |moment| offset.to_datetime(moment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<(Stamp, usize)> {
        Stamp::read(text.as_bytes())
    }

    #[test]
    fn the_forms_that_logs_have() {
        let noon = 1_767_268_800 * SECOND;
        for (text, micro, offset) in [
            ("2026-01-01 12:00:00 +0000", 0, Some(0)),
            ("2026-01-01 12:00:00 +0100", 0, Some(60)),
            ("2026-01-01 12:00:00 -03:30", 0, Some(-210)),
            ("2026-01-01 12:00:00 UTC", 0, Some(0)),
            ("2026-01-01T12:00:00Z", 0, Some(0)),
            ("2026-01-01T12:00:00.123Z", 123_000, Some(0)),
            ("2026-01-01T12:00:00.123456+02:00", 123_456, Some(120)),
            ("2026-01-01T12:00:00.123456789", 123_456, None),
            ("2026-01-01T12:00:00", 0, None),
        ] {
            assert_eq!(read(text), Some((Stamp { wall: noon + micro, offset }, text.len())), "{text}");
        }
        assert_eq!(
            read("2026-01-01 12:00:00 +0100").map(|(stamp, _)| stamp.instant(0)),
            Some(noon - 3_600 * SECOND)
        );
    }

    #[test]
    fn whole_seconds_take_the_parts_of_a_finer_stamp_of_the_same_moment() {
        let stamp = |text: &str| read(text).unwrap().0;
        let own = stamp("2026-01-01 12:00:00 +0100");
        let refined = |text: &str| own.refined(stamp(text)).map(|stamp| stamp.instant(0) - own.instant(0));
        assert_eq!(refined("2026-01-01T12:00:00.999123"), Some(999_123));
        // The stamp was written in the next second, by a logger that uses UTC.
        assert_eq!(refined("2026-01-01T12:00:01.000456"), Some(1_000_456));
        assert_eq!(refined("2026-01-01T11:00:00.250000Z"), Some(250_000));
        for text in
            ["2026-01-01T12:00:00", "2026-01-01T12:00:02.5", "2026-01-01T11:59:59.9", "2026-01-01T12:07:00.5"]
        {
            assert_eq!(refined(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_stamp() {
        for text in [
            "",
            "2026",
            "2026-13-01 12:00:00",
            "2026-01-32 12:00:00",
            "2026-01-01 24:00:00",
            "2026-01-01x12:00:00",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn finds_the_loggers_own() {
        let found = Stamp::find(b"I, [2026-11-21T12:00:00.123456 #123]  INFO -- : ").map(|stamp| stamp.wall);
        assert_eq!(found, read("2026-11-21T12:00:00.123456").map(|(stamp, _)| stamp.wall));
        assert_eq!(Stamp::find(b"a-b-c-d [web-1] "), None);
    }

    proptest! {
        #[test]
        fn a_stamp_written_is_the_stamp_read(seconds in 0_i64..4_102_444_800, zone in -840_i32..=840) {
            let text = format!(
                "{} {}{:02}{:02}",
                local_time(seconds * SECOND, zone).strftime("%Y-%m-%d %H:%M:%S"),
                if zone < 0 { '-' } else { '+' }, zone.abs() / 60, zone.abs() % 60
            );
            let (stamp, used) = read(&text).unwrap();
            prop_assert_eq!(used, text.len());
            prop_assert_eq!(stamp.instant(0), seconds * SECOND);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Stamp::read(&bytes);
            let _ = Stamp::find(&bytes);
        }
    }
}
