//! Figures in the form people read, as `Memintro::Units` has them.

const BYTES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Such as `512 B`, `48.8 MiB`.
#[must_use]
pub fn bytes(count: i64) -> String {
    let size = count.unsigned_abs();
    let sign = if count < 0 { "-" } else { "" };
    if size < 1024 {
        return format!("{sign}{size} B");
    }
    let mut power = 1;
    let mut unit = 1024_f64;
    // 1,023.95 and more would be written as "1024.0".
    while power < BYTES.len() - 1 && size as f64 >= unit * 1023.95 {
        unit *= 1024.0;
        power += 1;
    }
    let name = BYTES.get(power).copied().unwrap_or_default();
    format!("{sign}{:.1} {name}", size as f64 / unit)
}

/// The same with a plus before what grew.
#[must_use]
pub fn signed_bytes(count: i64) -> String {
    format!("{}{}", if count > 0 { "+" } else { "" }, bytes(count))
}

/// Such as `1,234,567`.
#[must_use]
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The noun with an `s` unless there is one.
#[must_use]
pub fn noun(number: i64, noun: &str) -> String {
    format!("{noun}{}", if number == 1 { "" } else { "s" })
}

/// Such as `1 page`, `1,204 pages`.
#[must_use]
pub fn counted(number: i64, name: &str) -> String {
    format!("{} {}", count(number), noun(number, name))
}

/// Such as `12.3%`; a dash where there is no whole to have a share of.
#[must_use]
pub fn share(part: i64, whole: i64) -> String {
    if whole > 0 { format!("{:.1}%", 100.0 * part as f64 / whole as f64) } else { "-".to_owned() }
}

/// An error that was squared and extracted again must not become the next greater number.
#[must_use]
pub fn whole(error: f64) -> i64 {
    (error - 0.000_000_5).ceil() as i64
}

/// Such as `~48.8 MiB ±2.1 MiB`, and `~512.0 KiB (87.9 KiB to 3.3 MiB)` where the interval reaches more than twice as
/// far up as down.
#[must_use]
pub fn uncertain(value: i64, error: f64, interval: Option<(i64, i64)>, format: fn(i64) -> String) -> String {
    match interval {
        Some((low, high))
            if high.saturating_sub(value) > value.saturating_sub(low).saturating_mul(2).saturating_add(1) =>
        {
            format!("~{} ({} to {})", format(value), format(low), format(high))
        }
        _ => format!("~{} ±{}", format(value), format(whole(error))),
    }
}

/// The number with two decimals.
#[must_use]
pub fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_bytes_as_ruby_does() {
        let shown = [0, 1023, -5, 1024, 1_048_524, 1_048_525, 51_170_000, -2_048, 1 << 60];
        assert_eq!(
            shown.map(bytes),
            [
                "0 B",
                "1023 B",
                "-5 B",
                "1.0 KiB",
                "1023.9 KiB",
                "1.0 MiB",
                "48.8 MiB",
                "-2.0 KiB",
                "1024.0 PiB"
            ]
        );
    }

    #[test]
    fn groups_digits() {
        assert_eq!([0, 12, 999, 1_000, -1_234_567].map(count), ["0", "12", "999", "1,000", "-1,234,567"]);
        assert_eq!([counted(1, "page"), counted(1_204, "page")], ["1 page", "1,204 pages"]);
    }

    #[test]
    fn shows_an_interval_that_reaches_further_up_than_down() {
        assert_eq!(uncertain(100, 10.0, Some((80, 120)), count), "~100 ±10");
        assert_eq!(uncertain(100, 10.000_000_1, Some((90, 150)), count), "~100 (90 to 150)");
        assert_eq!(uncertain(100, 10.000_000_1, None, count), "~100 ±10");
    }
}
