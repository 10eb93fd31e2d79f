//! Reads numbers and ends of texts, eight or sixteen bytes at a time. `None`: the value is longer or has an
//! unusual form, and the line must be read byte by byte.

const EACH: u64 = 0x0101_0101_0101_0101;
/// From this length on, a search by wider vectors is faster.
const NEAR: usize = 48;

/// Up to eight bytes of a name as a number, the first one lowest.
pub(crate) const fn word(name: &[u8]) -> u64 {
    let mut word = 0;
    let mut at = 0;
    while at < 8 && at < name.len() {
        word |= (name[at] as u64) << (at * 8);
        at += 1;
    }
    word
}

/// Whether these bytes are at `at`.
#[inline(always)]
pub(crate) fn is_at<const COUNT: usize>(text: &[u8], at: usize, bytes: &[u8; COUNT]) -> bool {
    // Arrays of a known length are compared as words, without a call.
    text.get(at..).and_then(|rest| rest.first_chunk::<COUNT>()).is_some_and(|found| found == bytes)
}

/// Sixteen bytes from `at` on.
#[inline]
pub(crate) fn sixteen(text: &[u8], at: usize) -> Option<&[u8; 16]> {
    text.get(at..)?.first_chunk()
}

/// Eight bytes from `at` on, the first one lowest.
#[inline]
pub(crate) fn eight(text: &[u8], at: usize) -> Option<u64> {
    text.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// One bit for each byte that is a quote, a backslash or a line end.
#[inline]
fn stops(bytes: &[u8; 16]) -> u32 {
    equal(bytes, [b'"', b'\\', b'\n'])
}

/// One bit for each byte that is one of these.
#[cfg(target_arch = "x86_64")]
#[inline]
fn equal<const COUNT: usize>(bytes: &[u8; 16], to: [u8; COUNT]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8, _mm_setzero_si128,
    };
    // SAFETY: SSE2 is part of x86-64, and sixteen bytes are there.
    unsafe {
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
        let is = |byte: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8));
        let found = to.into_iter().fold(_mm_setzero_si128(), |found, byte| _mm_or_si128(found, is(byte)));
        _mm_movemask_epi8(found) as u32
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn equal<const COUNT: usize>(bytes: &[u8; 16], to: [u8; COUNT]) -> u32 {
    plain_equal(bytes, &to)
}

/// The same, byte by byte.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn plain_equal(bytes: &[u8; 16], to: &[u8]) -> u32 {
    (0..).zip(bytes).fold(0, |found, (at, byte)| found | u32::from(to.contains(byte)) << at)
}

/// Whether it is a text of fourteen bytes between its quotes, such as most addresses, without a bracket in it.
#[inline]
pub(crate) fn is_reference(bytes: &[u8; 16]) -> bool {
    bytes[0] == b'"' && bytes[15] == b'"' && equal(bytes, [b'"', b'\\', b'\n', b']']) == 1 << 15 | 1
}

/// The position of the next quote from `at` on, if no line end comes before it. A quote behind a backslash
/// does not count.
#[inline]
pub(crate) fn quote(text: &[u8], mut at: usize) -> Option<usize> {
    let near = at + NEAR;
    while at < near {
        let found = stops(sixteen(text, at)?);
        if found == 0 {
            at += 16;
            continue;
        }
        at += found.trailing_zeros() as usize;
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' if *text.get(at + 1)? != b'\n' => at += 2,
            _ => return None,
        }
    }
    far_quote(text, at)
}

#[inline(never)]
fn far_quote(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr3(b'"', b'\\', b'\n', text.get(at..)?)?;
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' if *text.get(at + 1)? != b'\n' => at += 2,
            _ => return None,
        }
    }
}

/// The values of hexadecimal digits; none if a byte is no digit and no lower-case letter.
#[inline]
fn nibbles(digits: u64) -> Option<u64> {
    let values = (digits & (0x0f * EACH)) + (digits >> 6 & EACH) * 9;
    let letters = (values + 6 * EACH) >> 4 & EACH;
    let again = values.wrapping_add(u64::from(b'0') * EACH).wrapping_add(letters * 0x27);
    (values & (0xf0 * EACH) == 0 && again == digits).then_some(values)
}

/// Puts eight digits together, the first one lowest.
#[inline]
fn together(nibbles: u64) -> u64 {
    let pairs = (nibbles << 4 | nibbles >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs << 8 | pairs >> 16) & 0x0000_ffff_0000_ffff;
    (fours << 16 | fours >> 32) & 0xffff_ffff
}

/// The number of `0x7f00"`, and the position of its quote.
#[inline]
pub(crate) fn address(text: &[u8], at: usize) -> Option<(u64, usize)> {
    const ZEROS: u128 = 0x3030_3030_3030_3030_3030_3030_3030_3030;
    if !is_at(text, at, b"0x") {
        return None;
    }
    let at = at + 2;
    let bytes = sixteen(text, at)?;
    let count = stops(bytes).trailing_zeros();
    if count == 0 || count > 15 || text[at + count as usize] != b'"' {
        return None;
    }
    // The digits at the end of sixteen, and zeros before them.
    let missing = (16 - count) * 8;
    let digits = u128::from_le_bytes(*bytes) << missing | ZEROS & ((1 << missing) - 1);
    let number = together(nibbles(digits as u64)?) << 32 | together(nibbles((digits >> 64) as u64)?);
    Some((number, at + count as usize))
}

/// The number that begins here, of at most seven digits, and the position behind it.
#[inline]
pub(crate) fn number(text: &[u8], at: usize) -> Option<(u64, usize)> {
    let digits = eight(text, at)? ^ (0x30 * EACH);
    let others = (digits.wrapping_add(0x76 * EACH) | digits) & (0x80 * EACH);
    let count = others.trailing_zeros() / 8;
    if count == 0 || count > 7 {
        return None;
    }
    let mut number = digits << ((8 - count) * 8);
    number = number.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    number = number.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    number = number.wrapping_mul(10_000 << 32 | 1) >> 32;
    Some((number, at + count as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::line::hex;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ends_of_texts_are_what_a_look_at_each_byte_finds(text in "[a\"\n\\\\]{16,20}|a{0,90}[a\\\\]{0,3}[\"\n]a{16}") {
            let text = text.as_bytes();
            let mut truth = None;
            let mut at = 0;
            while let Some(byte) = text.get(at) {
                match byte {
                    b'"' => {
                        truth = Some(at);
                        break;
                    }
                    b'\n' => break,
                    b'\\' if text.get(at + 1) == Some(&b'\n') => break,
                    b'\\' => at += 2,
                    _ => at += 1,
                }
            }
            // Near the end of a text, the slow reader takes over.
            if let Some(found) = quote(text, 0) {
                prop_assert_eq!(Some(found), truth);
            } else if let Some(truth) = truth {
                prop_assert!(truth + 16 > text.len());
            }
            if let Some(bytes) = sixteen(text, 0) {
                prop_assert_eq!(stops(bytes), plain_equal(bytes, b"\"\\\n"));
            }
        }

        #[test]
        fn addresses_are_read_as_digit_by_digit(number: u64, cut in 0_u32..64, digits in "[0-9a-gA-G:/@`oO\u{7f}]{1,15}") {
            let number = number >> cut;
            let text = format!("0x{number:x}\"                ");
            let known = address(text.as_bytes(), 0);
            prop_assert_eq!(known, (number < 1 << 60).then(|| (number, text.find('"').unwrap())));
            let text = format!("0x{digits}\"                ");
            if let Some((number, _)) = address(text.as_bytes(), 0) {
                prop_assert_eq!(Some(number), hex(format!("0x{digits}").as_bytes()));
            } else {
                let plain = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
                prop_assert!(!plain);
            }
        }

        #[test]
        fn numbers_are_read_as_digit_by_digit(number in 0_u64..200_000_000, zeros in 0_usize..3, behind in "[^0-9]") {
            let digits = format!("{}{number}", "0".repeat(zeros));
            let text = format!("{digits}{behind}          ");
            let truth = (digits.len() < 8).then_some((number, digits.len()));
            prop_assert_eq!(super::number(text.as_bytes(), 0), truth);
        }
    }
}
