//! What a report says of the process whose figures it has.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// A fact of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fact<'a> {
    /// A text.
    Text(&'a str),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

trait Field {
    fn fact(&self) -> Fact<'_>;
    fn of(value: &Value) -> Option<Self>
    where
        Self: Sized;
}

impl Field for String {
    fn fact(&self) -> Fact<'_> {
        Fact::Text(self)
    }

    fn of(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl Field for i64 {
    fn fact(&self) -> Fact<'_> {
        Fact::Number(*self)
    }

    fn of(value: &Value) -> Option<Self> {
        value.as_i64()
    }
}

impl Field for bool {
    fn fact(&self) -> Fact<'_> {
        Fact::Flag(*self)
    }

    fn of(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

macro_rules! define_process {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty;)+) => {
        /// What is known of a process, in the order of JSON.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Process {
            $($(#[doc = $doc])+ pub $name: Option<$type>,)+
        }

        impl Process {
            /// The facts that are known, with their names.
            #[must_use]
            pub fn facts(&self) -> Vec<(&'static str, Fact<'_>)> {
                let mut facts = Vec::new();
                $(facts.extend(self.$name.as_ref().map(|of| (stringify!($name), of.fact())));)+
                facts
            }

            /// Takes a member of JSON. Names that are not known are passed over, and so is what has another type.
            pub(super) fn set(&mut self, name: &str, value: &Value) {
                match name {
                    $(stringify!($name) => self.$name = Field::of(value),)+
                    _ => {}
                }
            }
        }
    };
}

define_process! {
    /// Its number.
    pid: i64;
    /// Its program. Bytes that are not UTF-8 are shown as `\xNN`.
    program: String;
    /// The version of Ruby.
    ruby: String;
    /// What Ruby was built for.
    platform: String;
    /// The version of memintro.
    memintro: String;
    /// `full`, `sampled`, `off`; of several processes `mixed`. A raw dump does not have it.
    mode: String;
    /// Whether it was tracked then. A raw dump does not have it.
    tracking: bool;
    /// Whether it was tracked from its beginning.
    preloaded: bool;
    /// The GC generation.
    generation: i64;
    /// The time, in UTC.
    time: String;
    /// Resident bytes, where the kernel says.
    rss_bytes: i64;
    /// Mean distance of the samples, if blocks were sampled.
    sample_bytes: i64;
    /// Why allocations do not reach the hook.
    problem: String;
    /// The signal that ended it; 0 if none did. Only a raw dump has it.
    signal: i64;
    /// What it was left with by `exit!`. Only a raw dump has it.
    exit_status: i64;
    /// How many processes are added up.
    processes: i64;
}

impl Serialize for Process {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let facts = self.facts();
        let mut map = serializer.serialize_map(Some(facts.len()))?;
        for (name, fact) in facts {
            match fact {
                Fact::Text(text) => map.serialize_entry(name, text)?,
                Fact::Number(number) => map.serialize_entry(name, &number)?,
                Fact::Flag(flag) => map.serialize_entry(name, &flag)?,
            }
        }
        map.end()
    }
}
