//! A MEMORY line that is a JSON object.

use super::line::Record;
use super::stamp::Stamp;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// Reads the object that begins with the first brace of `text`, if it has figures of ours.
pub(crate) fn read(text: &[u8]) -> Option<Record> {
    let begin = memchr::memchr(b'{', text)?;
    memchr::memmem::find(&text[begin..], b"\"rss_bytes\"")?;
    let mut objects = serde_json::Deserializer::from_slice(&text[begin..]).into_iter::<Object>();
    objects.next()?.ok().map(|object| object.0)
}

struct Object(Record);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        deserializer.deserialize_map(Members).map(Object)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Record;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Record, A::Error> {
        let mut record = Record::empty();
        while let Some(name) = members.next_key::<Name>()? {
            match name {
                Name::Other => {
                    members.next_value::<IgnoredAny>()?;
                }
                Name::Time => {
                    let Scalar(value) = members.next_value()?;
                    record.stamp = Stamp::read(&value).map(|(stamp, _)| stamp);
                }
                Name::Figure(name) => {
                    let Scalar(value) = members.next_value()?;
                    record.field(name, &value);
                }
            }
        }
        Ok(record)
    }
}

enum Name {
    Figure(&'static [u8]),
    Time,
    Other,
}

const FIGURES: [&str; 11] = [
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
];
const TIMES: [&str; 3] = ["time", "timestamp", "@timestamp"];

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        struct Known;
        impl Visitor<'_> for Known {
            type Value = Name;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a name")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Name, E> {
                if let Some(name) = FIGURES.iter().find(|name| **name == text) {
                    return Ok(Name::Figure(name.as_bytes()));
                }
                Ok(if TIMES.contains(&text) { Name::Time } else { Name::Other })
            }
        }
        deserializer.deserialize_identifier(Known)
    }
}

/// A number, a string or `true` as text; nothing for null and the like.
struct Scalar(Vec<u8>);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        serde_json::Value::deserialize(deserializer).map(|value| {
            Scalar(match value {
                serde_json::Value::String(text) => text.into_bytes(),
                serde_json::Value::Number(number) => number.to_string().into_bytes(),
                serde_json::Value::Bool(true) => b"true".to_vec(),
                _ => Vec::new(),
            })
        })
    }
}
