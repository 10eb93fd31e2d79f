//! How text comes into a buffer with few instructions: short texts are copied with what is behind them, in registers, and
//! what must be escaped is looked for while it is copied.

/// Eight hexadecimal digits, the first one in the highest byte. Reckoned in one word: a table's pairs of digits would have
/// to be put together in memory, and reading that at once is slow.
#[inline(always)]
pub(super) const fn hexadecimal(number: u32) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let mut digits = number as u64;
    digits = (digits << 16 | digits) & 0x0000_ffff_0000_ffff;
    digits = (digits << 8 | digits) & 0x00ff_00ff_00ff_00ff;
    digits = (digits << 4 | digits) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((digits + 6 * EACH) >> 4) & EACH;
    digits + b'0' as u64 * EACH + letters * (b'a' - b'0' - 10) as u64
}

const _: () = {
    let text = hexadecimal(0x0129_afbe).to_be_bytes();
    let expected = b"0129afbe";
    let mut at = 0;
    while at < 8 {
        assert!(text[at] == expected[at]);
        at += 1;
    }
};

/// The digits of each number below 1,000, and behind three places how many there are: most numbers of a line are below, and
/// the processor cannot guess which has how many.
const SHORT: [[u8; 4]; 1_000] = {
    const fn digit(number: usize) -> u8 {
        b'0' + number as u8
    }
    let mut table = [[0; 4]; 1_000];
    let mut number = 0;
    while number < 1_000 {
        let [hundreds, tens, ones] = [digit(number / 100), digit(number / 10 % 10), digit(number % 10)];
        table[number] = match number {
            0..10 => [ones, 0, 0, 1],
            10..100 => [tens, ones, 0, 2],
            _ => [hundreds, tens, ones, 3],
        };
        number += 1;
    }
    table
};

/// Writes a number, and returns how many digits it has.
#[inline(always)]
pub(super) fn decimal(room: &mut [u8; 20], number: u64) -> usize {
    if number < 1_000 {
        let digits = SHORT[number as usize];
        if let Some(place) = room.first_chunk_mut() {
            *place = digits;
        }
        return usize::from(digits[3]);
    }
    let count = number.ilog10() as usize + 1;
    let mut rest = number;
    for place in room[..count].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    count
}

/// How the addresses of 64 KiB begin. Most references lead to few such pieces of the heap.
#[derive(Clone, Copy)]
pub(super) struct Upper {
    /// The address without its lower 16 bits; 0 for none.
    pub(super) number: usize,
    pub(super) digits: [u8; 8],
    /// How many digits.
    pub(super) length: usize,
}

impl Upper {
    pub(super) const NONE: Self = Self { number: 0, digits: [0; 8], length: 0 };
    /// A power of two.
    pub(super) const COUNT: usize = 64;
    /// Addresses of 5 to 12 digits.
    pub(super) const USUAL: std::ops::Range<usize> = 1..1 << 32;

    pub(super) fn of(number: usize) -> Self {
        let number = number & 0xffff_ffff;
        let skipped = (number as u32).leading_zeros().min(28) & !3;
        let digits = hexadecimal(number as u32) << (2 * skipped);
        Self { number, digits: digits.to_be_bytes(), length: 8 - skipped as usize / 4 }
    }
}

/// Which bytes stand in JSON as they are, as `ObjectSpace.dump_all` has it.
pub(super) const PLAIN: [bool; 256] = {
    let mut table = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = false;
        byte += 1;
    }
    table[b'"' as usize] = false;
    table[b'\\' as usize] = false;
    table[0x7f] = false;
    table
};

/// A text with room behind it, which is copied along.
#[derive(Clone, Copy)]
pub(super) struct Padded<const N: usize> {
    pub(super) bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Padded<N> {
    pub(super) const EMPTY: Self = Self { bytes: [0; N], length: 0 };

    /// A short text; `None` if it is too long.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let mut padded = Self::EMPTY;
        padded.add(text).then_some(padded)
    }

    /// Adds more. False if it is too long.
    pub(super) fn add(&mut self, text: &[u8]) -> bool {
        let place = self.bytes.get_mut(self.length..self.length + text.len());
        let fits = place.map(|place| place.copy_from_slice(text)).is_some();
        self.length += if fits { text.len() } else { 0 };
        fits
    }

    #[inline(always)]
    pub(super) fn length(&self) -> usize {
        self.length.min(N)
    }

    pub(super) fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Copies the bytes from the first one on that stand in JSON as they are, and returns how many. Eight are looked at together.
/// There is as much room as text.
#[inline]
pub(super) fn copy_plain(text: &[u8], room: &mut [u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if text.len() >= 16 {
        return copy_long(text, room);
    }
    let (words, rest) = text.as_chunks::<8>();
    let mut done = 0;
    for (word, place) in words.iter().zip(room.as_chunks_mut::<8>().0) {
        *place = *word;
        let found = special(u64::from_le_bytes(*word));
        if found != 0 {
            // The lowest is right; a borrow may only have marked bytes behind it.
            return done + (found.trailing_zeros() / 8) as usize;
        }
        done += 8;
    }
    // The last eight, some of which have been looked at.
    if let (Some(word), false) = (text.last_chunk::<8>(), rest.is_empty())
        && let Some(place) = room.get_mut(text.len() - 8..).and_then(|room| room.first_chunk_mut::<8>())
    {
        *place = *word;
        let found = special(u64::from_le_bytes(*word));
        let plain = if found == 0 { 8 } else { (found.trailing_zeros() / 8) as usize };
        return text.len() - 8 + plain;
    }
    let room = room.get_mut(done..).unwrap_or_default();
    let special = rest.iter().zip(room).position(|(byte, place)| {
        *place = *byte;
        !PLAIN[usize::from(*byte)]
    });
    done + special.unwrap_or(rest.len())
}

/// The same for 16 bytes and more: these are looked at together.
#[cfg(target_arch = "x86_64")]
fn copy_long(text: &[u8], room: &mut [u8]) -> usize {
    let mut done = 0;
    loop {
        // The last 16, some of which have been looked at.
        let at = done.min(text.len() - 16);
        let (Some(bytes), Some(place)) = (
            text.get(at..).and_then(|rest| rest.first_chunk::<16>()),
            room.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<16>()),
        ) else {
            return done;
        };
        *place = *bytes;
        let found = special_of_16(bytes);
        if found != 0 {
            return at + found.trailing_zeros() as usize;
        }
        done = at + 16;
        if done == text.len() {
            return done;
        }
    }
}

/// A bit for each byte that does not stand as it is.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn special_of_16(bytes: &[u8; 16]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    };
    // SAFETY: 16 bytes are there; every processor of this kind has these instructions.
    unsafe {
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
        let equal = |byte: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed()));
        let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        let found = _mm_or_si128(_mm_or_si128(control, equal(b'"')), _mm_or_si128(equal(b'\\'), equal(0x7f)));
        _mm_movemask_epi8(found).cast_unsigned()
    }
}

/// The highest bit of the first byte that does not stand as it is; of ones behind it, perhaps.
#[inline(always)]
const fn special(bytes: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    const fn equal(bytes: u64, byte: u8) -> u64 {
        let differ = bytes ^ (ONES * byte as u64);
        differ.wrapping_sub(ONES) & !differ
    }
    let control = bytes.wrapping_sub(ONES * 0x20) & !bytes;
    (control | equal(bytes, b'"') | equal(bytes, b'\\') | equal(bytes, 0x7f)) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in (0..20_000).chain([99_999, 100_000, u64::MAX]) {
            let mut room = [0; 20];
            let count = decimal(&mut room, number);
            assert_eq!(&room[..count], number.to_string().as_bytes());
        }
    }

    #[test]
    fn addresses_begin_with_their_upper_digits() {
        for number in (0..32).flat_map(|shift| [1 << shift, 0x7fc4_2e44 >> shift, 0xffff_ffff >> shift]) {
            let upper = Upper::of(number);
            if Upper::USUAL.contains(&number) {
                assert_eq!(&upper.digits[..upper.length], format!("{number:x}").as_bytes());
            }
        }
    }

    #[test]
    fn bytes_are_copied_up_to_the_first_that_is_escaped() {
        for length in 0..40 {
            for special in 0..=length {
                for byte in [0, 0x1f, b'"', b'\\', 0x7f, b' ', b'~', 0x80, 0xff, b'!', b'#', b'[', b']'] {
                    let mut text = vec![b'x'; length];
                    if let Some(place) = text.get_mut(special) {
                        *place = byte;
                    }
                    let plain = text.iter().position(|byte| !PLAIN[usize::from(*byte)]).unwrap_or(length);
                    let mut room = vec![0; length];
                    assert_eq!(copy_plain(&text, &mut room), plain, "{length} {special} {byte}");
                    assert_eq!(room[..plain], text[..plain]);
                }
            }
        }
    }
}
