//! `Memintro::Native.parse_json`: reads JSON from a peer, a log or a file into Ruby values. It does not use the json
//! gem, because the program chooses the gem's version, and may do so after memintro was loaded.
//!
//! The text is not trusted. serde_json refuses what is not JSON. Text that is nested too deeply is refused here,
//! before the machine stack could overflow.

use std::fmt;

use super::ractor_safe::ractor_safe;
use magnus::{Error, RModule, RString, Ruby, Value, function, prelude::*};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    ractor_safe(|| native.define_singleton_method("parse_json", function!(parse, 2)))
}

/// The value of `text`, with Strings as keys.
///
/// # Errors
/// ArgumentError: it is not UTF-8, not JSON, or has more than `deepest` values within each other.
fn parse(ruby: &Ruby, text: RString, deepest: usize) -> Result<Value, Error> {
    // SAFETY: copied at once; the copy lives as long as it is read, whatever becomes of the string meanwhile.
    let text = unsafe { text.as_slice() }.to_vec();
    let refused = |message: String| Error::new(ruby.exception_arg_error(), message);
    let text = std::str::from_utf8(&text).map_err(|_| refused("it is not UTF-8".to_owned()))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Ours { ruby, left: deepest }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    // The number is valid JSON, but too large for a float.
    value.map_err(|error| refused(error.to_string().replace("number out of range", "a number is too great")))
}

/// A value that may contain `left` more levels.
#[derive(Clone, Copy)]
struct Ours<'a> {
    ruby: &'a Ruby,
    left: usize,
}

impl Ours<'_> {
    /// For the values of a list or an object.
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        let left = self.left.checked_sub(1).ok_or_else(|| E::custom("it is nested too deeply"))?;
        Ok(Self { left, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Ours<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// 2^64. From here on a whole number is given as a float. Below 2^1023 such a float is whole.
const BEYOND_INTEGERS: f64 = 18_446_744_073_709_551_616.0;

// The values under construction are on the machine stack, which Ruby's collector scans.
impl<'de> Visitor<'de> for Ours<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(self.ruby.qnil().as_value())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(self.ruby.into_value(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(self.ruby.into_value(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.ruby.into_value(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let float = self.ruby.float_from_f64(value);
        if value.abs() < BEYOND_INTEGERS {
            return Ok(float.as_value());
        }
        // Messages show it as it was written.
        float.funcall("to_i", ()).map_err(|error| E::custom(error.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(self.ruby.str_new(value).as_value())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let array = self.ruby.ary_new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item).map_err(A::Error::custom)?;
        }
        Ok(array.as_value())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let hash = self.ruby.hash_new();
        while let Some(key) = entries.next_key_seed(Key(self.ruby))? {
            let value = entries.next_value_seed(inner)?;
            hash.aset(key, value).map_err(A::Error::custom)?;
        }
        Ok(hash.as_value())
    }
}

/// The name of a member.
struct Key<'a>(&'a Ruby);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = RString;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<RString, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = RString;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E>(self, value: &str) -> Result<RString, E> {
        Ok(self.0.str_new(value))
    }
}
