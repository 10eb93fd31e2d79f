//! Numbers as `printf("%#g")` writes them. Allocates nothing.

use std::fmt::Write;

use super::output::Output;

/// Digits.
const PRECISION: usize = 6;

/// A text of at most some digits.
struct Text {
    bytes: [u8; 32],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

impl Text {
    fn of(number: std::fmt::Arguments<'_>) -> Self {
        let mut text = Self { bytes: [0; 32], length: 0 };
        let _ = text.write_fmt(number);
        text
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

pub(super) fn write(out: &mut Output<'_>, number: f64) {
    if number.is_nan() {
        return out.bytes(b"NaN");
    }
    if number.is_sign_negative() {
        out.bytes(b"-");
    }
    let number = number.abs();
    if number.is_infinite() {
        return out.bytes(b"Inf");
    }
    // d.ddddde[-]x, rounded as printf does.
    let text = Text::of(format_args!("{number:.5e}"));
    let mut parts = text.bytes().split(|byte| *byte == b'e');
    let mantissa = parts.next().unwrap_or_default();
    let exponent = parts.next().and_then(|text| std::str::from_utf8(text).ok());
    let exponent = exponent.and_then(|text| text.parse::<i32>().ok()).unwrap_or(0);
    let fits = usize::try_from(exponent).map_or(exponent >= -4, |exponent| exponent < PRECISION);
    if fits {
        let after = (PRECISION as i32 - 1 - exponent).max(0) as usize;
        let plain = Text::of(format_args!("{number:.after$}"));
        out.bytes(plain.bytes());
        if after == 0 {
            out.bytes(b".");
        }
        return;
    }
    out.bytes(mantissa);
    out.bytes(if exponent < 0 { b"e-" } else { b"e+" });
    if exponent.abs() < 10 {
        out.bytes(b"0");
    }
    out.number(u64::from(exponent.unsigned_abs()));
}
