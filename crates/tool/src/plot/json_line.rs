//! A MEMORY line that is a JSON object.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// Passes the members of the object that begins with the first brace of `text` to `take`. None: it is no whole object, or
/// not one of ours, which names its event or has resident bytes.
pub(crate) fn read(text: &[u8], take: &mut dyn FnMut(&[u8], &[u8])) -> Option<()> {
    memchr::memmem::find(text, b"\"event\"").or_else(|| memchr::memmem::find(text, b"\"rss_bytes\""))?;
    let mut ours = false;
    members(text, &mut |name, value| {
        ours |= name == b"rss_bytes" || (name == b"event" && value == b"MEMORY");
        take(name, value);
    })?;
    ours.then_some(())
}

/// Passes those of the members whose name is one of [`NAMES`]. A string, a number or `true` is passed as text; null and the
/// like are empty. Returns `None` if there is no complete object.
pub(crate) fn members(text: &[u8], take: &mut dyn FnMut(&[u8], &[u8])) -> Option<()> {
    let begin = memchr::memchr(b'{', text)?;
    let mut deserializer = serde_json::Deserializer::from_slice(&text[begin..]);
    deserializer.deserialize_map(Members { take }).ok()
}

/// The fields of a MEMORY line that are read.
const NAMES: [&str; 25] = [
    "event",
    "path",
    "action",
    "job",
    "method",
    "malloc_bytes",
    "malloc_calls",
    "rss_bytes",
    "rss_delta_bytes",
    "duration_ms",
    "dropped_lines",
    "live_objects",
    "process_live_objects",
    "live_bytes",
    "malloc_live_bytes",
    "process_malloc_live_bytes",
    "malloc_live_bytes_standard_error",
    "live_bytes_standard_error",
    "estimated",
    "process_gc_ms",
    "gc_ms",
    "pid",
    "time",
    "timestamp",
    "@timestamp",
];

struct Members<'a> {
    take: &'a mut dyn FnMut(&[u8], &[u8]),
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key_seed(Name)? {
            match name {
                Some(name) => (self.take)(name.as_bytes(), &members.next_value_seed(Scalar)?),
                None => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the name of a member if it is one of [`NAMES`].
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static str>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(NAMES.into_iter().find(|name| *name == text))
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
