//! Texts and values that occur often, each kept once and known by a number.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use memintro_analysis::text::printable;

/// A fast hasher whose key is drawn at random, so that no dump can be made to fill one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Keyed {
    key: u64,
}

impl Default for Keyed {
    fn default() -> Keyed {
        Keyed { key: RandomState::new().hash_one(0x6d65_6d69_6e74_726f_u64) | 1 }
    }
}

impl BuildHasher for Keyed {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded { state: self.key, key: self.key }
    }
}

/// The state of one hash: each word is multiplied into 128 bits, whose halves are folded.
#[derive(Clone, Copy, Debug)]
pub struct Folded {
    state: u64,
    key: u64,
}

impl Folded {
    #[inline]
    fn word(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.key ^ 0x9e37_79b9_7f4a_7c15);
        self.state = (product as u64) ^ ((product >> 64) as u64) ^ self.key.rotate_left(23);
    }
}

impl Hasher for Folded {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    fn write_u8(&mut self, number: u8) {
        self.word(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.word(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.word(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.word(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state ^ (self.state >> 29)
    }
}

/// A map with the fast hasher.
pub type Map<K, V> = HashMap<K, V, Keyed>;

/// Texts; number 0 is the empty one.
#[derive(Debug)]
pub struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u64>,
    table: Vec<u32>,
    hasher: Keyed,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts { bytes: Vec::new(), ends: vec![0], table: vec![u32::MAX; 64], hasher: Keyed::default() }
    }
}

impl Texts {
    /// The number of a text, which it gets now if it has none.
    pub fn number(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let place = match self.find(text) {
            Ok(number) => return number,
            Err(place) => place,
        };
        let number = self.ends.len() as u32;
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u64);
        self.table[place] = number;
        if self.ends.len() * 2 > self.table.len() {
            self.grow();
        }
        number
    }

    /// The number of a text that has one.
    pub fn known(&self, text: &[u8]) -> Option<u32> {
        if text.is_empty() { Some(0) } else { self.find(text).ok() }
    }

    fn find(&self, text: &[u8]) -> Result<u32, usize> {
        let mask = self.table.len() - 1;
        let mut place = self.hash(text) as usize & mask;
        loop {
            match self.table[place] {
                u32::MAX => return Err(place),
                number if self.bytes_of(number) == text => return Ok(number),
                _ => place = (place + 1) & mask,
            }
        }
    }

    fn hash(&self, text: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text);
        hasher.finish()
    }

    fn grow(&mut self) {
        let mask = self.table.len() * 2 - 1;
        let mut table = vec![u32::MAX; mask + 1];
        for number in 1..self.ends.len() as u32 {
            let mut place = self.hash(self.bytes_of(number)) as usize & mask;
            while table[place] != u32::MAX {
                place = (place + 1) & mask;
            }
            table[place] = number;
        }
        self.table = table;
    }

    /// The text as it stands in the dump.
    pub fn bytes_of(&self, number: u32) -> &[u8] {
        let at = number as usize;
        if at == 0 || at >= self.ends.len() {
            return b"";
        }
        &self.bytes[self.ends[at - 1] as usize..self.ends[at] as usize]
    }

    /// The text without JSON's escapes, for people.
    pub fn text(&self, number: u32) -> String {
        printable(plain_text(self.bytes_of(number)).as_bytes())
    }

    /// How many there are, the empty one included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never: the empty text is always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Its bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 8 + self.table.capacity() * 4
    }
}

/// A name from outside, in one line: control characters are escaped, such as `\x0A`.
pub fn shown(name: impl AsRef<std::ffi::OsStr>) -> String {
    printable(name.as_ref().as_encoded_bytes())
}

/// A text of a dump without JSON's escapes.
pub fn plain_text(bytes: &[u8]) -> String {
    if memchr::memchr(b'\\', bytes).is_some() {
        let quoted = [b"\"", bytes, b"\""].concat();
        if let Ok(text) = serde_json::from_slice::<String>(&quoted) {
            return text;
        }
    }
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_numbers_as_the_table_grows() {
        let mut texts = Texts::default();
        let numbers: Vec<u32> = (0..5_000).map(|at| texts.number(format!("text {at}").as_bytes())).collect();
        assert_eq!((texts.number(b""), numbers[0], numbers[4_999]), (0, 1, 5_000));
        for (at, number) in numbers.iter().enumerate() {
            assert_eq!(texts.known(format!("text {at}").as_bytes()), Some(*number));
            assert_eq!(texts.text(*number), format!("text {at}"));
        }
        assert_eq!((texts.known(b"text 5000"), texts.len()), (None, 5_001));
    }

    #[test]
    fn escapes_of_json_are_undone() {
        assert_eq!(plain_text(br#"a\"b\u0041\n"#), "a\"bA\n");
        assert_eq!(plain_text(b"\\x broken"), "\\x broken");
    }
}
