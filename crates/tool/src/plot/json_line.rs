//! A MEMORY line that is a JSON object.

use super::record::Record;
use super::stamp::Stamp;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// Reads the object that begins with the first brace of `text`, if it has figures of ours.
pub(crate) fn read(text: &[u8]) -> Option<Record> {
    memchr::memmem::find(text, b"\"rss_bytes\"")?;
    let mut record = Record::empty();
    members(text, &NAMES, &mut |name, value| {
        if TIMES.contains(&name) {
            record.stamp = Stamp::read(value).map(|(stamp, _)| stamp);
        } else {
            record.field(name.as_bytes(), value);
        }
    })?;
    Some(record)
}

/// Calls `take` with each member of the object that begins with the first brace of `text` and that has one of the
/// names. A string, a number or `true` is passed as text; null and the like are left out. Returns `None` if there is
/// no complete object.
pub(crate) fn members<'n>(
    text: &[u8],
    names: &[&'n str],
    take: &mut dyn FnMut(&'n str, &[u8]),
) -> Option<()> {
    let begin = memchr::memchr(b'{', text)?;
    let mut deserializer = serde_json::Deserializer::from_slice(&text[begin..]);
    deserializer.deserialize_map(Members { names, take }).ok()
}

const TIMES: [&str; 3] = ["time", "timestamp", "@timestamp"];
const NAMES: [&str; 14] = [
    "rss_bytes",
    "live_objects",
    "process_live_objects",
    "malloc_live_bytes",
    "process_malloc_live_bytes",
    "malloc_live_bytes_standard_error",
    "live_bytes_standard_error",
    "estimated",
    "process_gc_ms",
    "gc_ms",
    "pid",
    TIMES[0],
    TIMES[1],
    TIMES[2],
];

struct Members<'a, 'n> {
    names: &'a [&'n str],
    take: &'a mut dyn FnMut(&'n str, &[u8]),
}

impl<'de> Visitor<'de> for Members<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key_seed(Name(self.names))? {
            match name {
                Some(name) => (self.take)(name, &members.next_value_seed(Scalar)?),
                None => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the name of a member if it is one of these.
struct Name<'a, 'n>(&'a [&'n str]);

impl<'de, 'n> DeserializeSeed<'de> for Name<'_, 'n> {
    type Value = Option<&'n str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'n> Visitor<'_> for Name<'_, 'n> {
    type Value = Option<&'n str>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().copied().find(|name| *name == text))
    }
}

/// Returns a number, a string or `true` as text, and `None` for null and the like.
struct Scalar;

impl<'de> DeserializeSeed<'de> for Scalar {
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u8>, D::Error> {
        let value = <serde_json::Value as serde::de::Deserialize>::deserialize(deserializer)?;
        Ok(match value {
            serde_json::Value::String(text) => text.into_bytes(),
            serde_json::Value::Number(number) => number.to_string().into_bytes(),
            serde_json::Value::Bool(true) => b"true".to_vec(),
            _ => Vec::new(),
        })
    }
}
