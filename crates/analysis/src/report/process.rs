//! What a report says of the process whose figures it has.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::answers::{Field as Member, Kind, count, flag, name, pid, signed, word};

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
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $kind:expr;)+) => {
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

            /// Its members in JSON. Only `pid` is always there.
            pub(crate) fn fields() -> Vec<Member> {
                let fields: Vec<(&'static str, Kind)> = vec![$((stringify!($name), $kind)),+];
                let field = |(name, kind)| Member {
                    name: std::borrow::Cow::Borrowed(name),
                    kind,
                    is_optional: name != "pid",
                };
                fields.into_iter().map(field).collect()
            }

            /// From members of JSON, which were checked.
            pub(super) fn from_members(map: &Map<String, Value>) -> Self {
                Self { $($name: map.get(stringify!($name)).and_then(Field::of)),+ }
            }
        }
    };
}

define_process! {
    /// Its number.
    pid: i64 = pid();
    /// Its program. Bytes that are not UTF-8 are shown as `\xNN`.
    program: String = name();
    /// The version of Ruby.
    ruby: String = word();
    /// What Ruby was built for.
    platform: String = word();
    /// The version of memintro.
    memintro: String = word();
    /// `full`, `sampled`, `off`; of several processes `mixed`. A raw dump does not have it.
    mode: String = word();
    /// Whether it was tracked then. A raw dump does not have it.
    tracking: bool = flag();
    /// Whether it was tracked from its beginning.
    preloaded: bool = flag();
    /// The GC generation.
    generation: i64 = count();
    /// The time, in UTC.
    time: String = word();
    /// Resident bytes, where the kernel says.
    rss_bytes: i64 = count();
    /// Mean distance of the samples, if blocks were sampled.
    sample_bytes: i64 = count();
    /// Why allocations do not reach the hook.
    problem: String = name();
    /// The signal that ended it; 0 if none did. Only a raw dump has it.
    signal: i64 = count();
    /// What it was left with by `exit!`. Only a raw dump has it.
    exit_status: i64 = signed();
    /// How many processes are added up.
    processes: i64 = count();
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
