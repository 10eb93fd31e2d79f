//! Figures in the form people read, as memintro's reports have them.

use memintro_analysis::text::units;
pub(crate) use memintro_analysis::text::units::{bytes, count as signed_count, signed_bytes};

/// A figure, and its standard error if it was estimated from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figure {
    /// What was counted or estimated.
    pub(crate) value: i64,
    /// `None` if it is exact.
    pub(crate) error: Option<f64>,
}

impl Figure {
    /// Such as `~48.8 MiB` and `±2.1 MiB`; for an exact figure, the figure and no error.
    pub(crate) fn parts(self, value: fn(i64) -> String, error: fn(i64) -> String) -> (String, String) {
        match self.error {
            Some(uncertain) => {
                (format!("~{}", value(self.value)), format!("±{}", error(uncertain.ceil() as i64)))
            }
            None => (value(self.value), String::new()),
        }
    }

    /// Both in one line.
    pub(crate) fn text(self, form: fn(i64) -> String) -> String {
        let (value, error) = self.parts(form, form);
        if error.is_empty() { value } else { format!("{value} {error}") }
    }
}

/// Such as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    units::count(number.cast_signed())
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
        assert_eq!([signed_count(-1_234), signed_count(12)], ["-1,234", "12"]);
    }

    #[test]
    fn estimates_never_go_without_a_mark() {
        let estimate = Figure { value: 51_200_000, error: Some(2_048.5) };
        assert_eq!(estimate.text(bytes), "~48.8 MiB ±2.0 KiB");
        assert_eq!(estimate.parts(signed_bytes, bytes), ("~+48.8 MiB".to_string(), "±2.0 KiB".to_string()));
        assert_eq!(Figure { value: 7, error: Some(0.2) }.text(signed_count), "~7 ±1");
        assert_eq!(Figure { value: 512, error: None }.text(bytes), "512 B");
    }
}
