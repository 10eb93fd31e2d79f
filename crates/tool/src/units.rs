//! Figures in the form people read, as memintro's reports have them.

const POWERS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Such as `512 B`, `48.8 MiB`.
pub(crate) fn bytes(count: i64) -> String {
    let mut size = count.unsigned_abs() as f64;
    let mut power = 0;
    // 1,023.95 and more would be written "1024.0".
    while power < POWERS.len() - 1 && size >= if power == 0 { 1024.0 } else { 1023.95 } {
        size /= 1024.0;
        power += 1;
    }
    let sign = if count < 0 { "-" } else { "" };
    if power == 0 { format!("{sign}{size:.0} B") } else { format!("{sign}{size:.1} {}", POWERS[power]) }
}

/// With a plus before what grew.
pub(crate) fn signed_bytes(count: i64) -> String {
    format!("{}{}", if count > 0 { "+" } else { "" }, bytes(count))
}

/// Such as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_reports_have_them() {
        let texts = [0, 512, -512, 1_023, 1_024, 1_048_524, 51_200_000].map(bytes);
        assert_eq!(texts, ["0 B", "512 B", "-512 B", "1023 B", "1.0 KiB", "1023.9 KiB", "48.8 MiB"]);
        assert_eq!([signed_bytes(2_048), signed_bytes(0), signed_bytes(-1)], ["+2.0 KiB", "0 B", "-1 B"]);
        assert_eq!([count(0), count(999), count(1_234_567)], ["0", "999", "1,234,567"]);
    }
}
