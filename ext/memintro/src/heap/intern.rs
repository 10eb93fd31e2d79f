//! Interns texts: each is kept once and has a number. Ruby strings are looked up by address first, because thousands
//! of iseqs share one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use rb_sys::VALUE;

/// Hashes addresses by one multiplication. They need no protection against chosen keys.
#[derive(Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

pub(super) type ByAddress<K, V> = HashMap<K, V, BuildHasherDefault<AddressHasher>>;

/// The texts and their numbers. Number 0 is "unknown".
pub(crate) struct Texts {
    texts: Vec<Vec<u8>>,
    by_text: HashMap<Vec<u8>, u32>,
    by_address: ByAddress<VALUE, u32>,
}

impl Texts {
    pub(super) const UNKNOWN: u32 = 0;

    pub(super) fn new() -> Self {
        Self { texts: vec![b"(unknown)".to_vec()], by_text: HashMap::new(), by_address: ByAddress::default() }
    }

    /// The number of a Ruby string's text; for anything else, that of the unknown text. Addresses are valid during
    /// one walk.
    #[inline]
    pub(super) fn of_string(&mut self, string: VALUE) -> u32 {
        if let Some(number) = self.by_address.get(&string) {
            return *number;
        }
        let number = self.of_new_string(string);
        self.by_address.insert(string, number);
        number
    }

    fn of_new_string(&mut self, string: VALUE) -> u32 {
        // SAFETY: any value may be asked for its type; a string's bytes are copied at once.
        unsafe {
            if !rb_sys::RB_TYPE_P(string, rb_sys::ruby_value_type::RUBY_T_STRING) {
                return Self::UNKNOWN;
            }
            let length = usize::try_from(rb_sys::RSTRING_LEN(string)).unwrap_or(0);
            let start = rb_sys::RSTRING_PTR(string).cast::<u8>();
            let bytes = if start.is_null() { &[][..] } else { std::slice::from_raw_parts(start, length) };
            self.of_bytes(bytes)
        }
    }

    pub(super) fn of_bytes(&mut self, bytes: &[u8]) -> u32 {
        if let Some(number) = self.by_text.get(bytes) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(bytes.to_vec());
        self.by_text.insert(bytes.to_vec(), number);
        number
    }

    /// Forgets addresses, because other strings may be at them from now on.
    pub(super) fn forget_addresses(&mut self) {
        self.by_address.clear();
    }

    /// The text with this number.
    pub(super) fn get(&self, number: u32) -> &[u8] {
        self.texts.get(number as usize).map_or(b"", Vec::as_slice)
    }

    pub(crate) fn into_vec(self) -> Vec<Vec<u8>> {
        self.texts
    }
}
