//! Kinds of values.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

/// Most characters of a name that a program gives itself, and of a message; servers cut theirs.
pub const LONGEST_TEXT: usize = 4_096;
/// Most characters of a path, which the tracker cuts at 16 KiB, and which is then escaped.
const LONGEST_PATH: usize = 131_072;
/// Most characters of a word.
const LONGEST_WORD: usize = 64;
/// The greatest process id of the kernel.
const MOST_PID: i128 = 1 << 22;
/// Numbers up to this can be squared and multiplied without becoming infinite.
const GREATEST: f64 = 1e30;
/// Numbers from this on can be divided by, too.
const LEAST: f64 = 1e-30;

/// What a value may be: its type, and its bounds.
#[derive(Clone, Debug)]
pub enum Kind {
    /// True or false.
    Flag,
    /// A whole number.
    Whole {
        /// The least.
        least: i128,
        /// The greatest.
        most: i128,
    },
    /// A number; its absolute value is 0 or within these bounds.
    Number {
        /// The least but 0.
        least: f64,
        /// The greatest.
        most: f64,
    },
    /// A whole number, or a list of its value, variance and skew.
    Estimate,
    /// A number that can be divided by another one, or true or false.
    Counter,
    /// A text of at most so many characters.
    Text(usize),
    /// The same, or the base64 of what is not UTF-8, as snapshots have it.
    Name(usize),
    /// A short text: a mode, a version, a time.
    Word,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// An object. Members that are none of the fields are left out, or are as this one.
    Object(Vec<Field>, Option<Box<Field>>),
    /// A list of so many items at most.
    List(Box<Kind>, usize),
    /// A list whose items have a meaning by their place.
    Row(Vec<Field>),
    /// Anything whose numbers can be divided by each other.
    Plain,
    /// Anything with so many lists and objects within each other.
    Any(usize),
    /// Anything. It is not read.
    Ignored,
}

/// A member of an object, or an item of a row.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its kind.
    pub kind: Kind,
    /// Whether it may be missing or null, as with another version of memintro.
    pub is_optional: bool,
}

impl Field {
    pub(super) fn new(name: impl Into<Cow<'static, str>>, kind: Kind) -> Self {
        Self { name: name.into(), kind, is_optional: false }
    }

    pub(super) fn optional(name: impl Into<Cow<'static, str>>, kind: Kind) -> Self {
        Self { name: name.into(), kind, is_optional: true }
    }
}

/// How messages name what is allowed.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("true or false"),
            Self::Whole { least, most } => write!(f, "an Integer from {least} to {most}"),
            Self::Number { least, most } if *least > 0.0 => {
                write!(f, "0 or a number from {least:e} to {most:e}")
            }
            Self::Number { most, .. } => write!(f, "a number up to {most:e}"),
            Self::Estimate => f.write_str("an Integer, or a list of value, variance and skew"),
            Self::Counter => f.write_str("a number, true or false"),
            Self::Text(most) | Self::Name(most) => write!(f, "a text of at most {most} characters"),
            Self::Word => write!(f, "a word of 1 to {LONGEST_WORD} printable ASCII characters"),
            Self::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                write!(f, "one of {}", words.join(", "))
            }
            Self::Object(..) => f.write_str("an object"),
            Self::List(_, most) => write!(f, "a list of at most {most}"),
            Self::Row(fields) => write!(f, "a list of {}", fields.len()),
            Self::Plain => write!(f, "a value with numbers up to {GREATEST:e}"),
            Self::Any(_) | Self::Ignored => f.write_str("a value"),
        }
    }
}

impl Kind {
    /// Its fields, if it is an object.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        if let Self::Object(fields, _) = self { fields } else { &[] }
    }

    pub(super) fn has_whole(&self, value: i128) -> bool {
        match self {
            Self::Whole { least, most } => (*least..=*most).contains(&value),
            Self::Estimate => i64::try_from(value).is_ok(),
            _ => self.has_number(value as f64),
        }
    }

    pub(super) fn has_number(&self, value: f64) -> bool {
        let (least, most) = match self {
            Self::Number { least, most } => (*least, *most),
            Self::Counter | Self::Plain => (LEAST, GREATEST),
            Self::Any(_) => return true,
            _ => return false,
        };
        value == 0.0 || (least..=most).contains(&value.abs())
    }

    pub(super) fn has_text(&self, text: &str) -> bool {
        match self {
            Self::Text(most) | Self::Name(most) => text.len() <= *most || text.chars().nth(*most).is_none(),
            Self::Word => {
                (1..=LONGEST_WORD).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
            }
            Self::OneOf(words) => words.contains(&text),
            Self::Plain | Self::Any(_) => true,
            _ => false,
        }
    }
}

pub(crate) fn flag() -> Kind {
    Kind::Flag
}

pub(crate) fn pid() -> Kind {
    Kind::Whole { least: 1, most: MOST_PID }
}

/// A parent may be outside of the namespace.
pub(super) fn parent() -> Kind {
    Kind::Whole { least: 0, most: MOST_PID }
}

pub(crate) fn count() -> Kind {
    Kind::Whole { least: 0, most: u64::MAX as i128 }
}

/// The number of a line.
pub(super) fn line() -> Kind {
    Kind::Whole { least: 0, most: u32::MAX as i128 }
}

pub(crate) fn signed() -> Kind {
    Kind::Whole { least: i64::MIN as i128, most: i64::MAX as i128 }
}

pub(crate) fn number() -> Kind {
    Kind::Number { least: 0.0, most: GREATEST }
}

/// A number that others are divided by.
pub(super) fn divisor() -> Kind {
    Kind::Number { least: LEAST, most: GREATEST }
}

/// A variance or the like.
pub(super) fn variance() -> Kind {
    Kind::Number { least: 0.0, most: 1e300 }
}

pub(crate) fn word() -> Kind {
    Kind::Word
}

pub(super) fn text() -> Kind {
    Kind::Text(LONGEST_TEXT)
}

pub(super) fn path() -> Kind {
    Kind::Text(LONGEST_PATH)
}

/// A path that may be any bytes.
pub(crate) fn name() -> Kind {
    Kind::Name(LONGEST_PATH)
}

pub(super) fn list(kind: Kind, most: usize) -> Kind {
    Kind::List(Box::new(kind), most)
}

/// Sentences.
pub(super) fn remarks() -> Kind {
    list(path(), 1_000)
}

/// Any members of one kind.
pub(super) fn others(kind: Kind) -> Option<Box<Field>> {
    Some(Box::new(Field::new("", kind)))
}

/// Any members of one kind, or null.
pub(super) fn others_or_null(kind: Kind) -> Option<Box<Field>> {
    Some(Box::new(Field::optional("", kind)))
}

/// Values of one kind by any names.
pub(super) fn map(kind: Kind) -> Kind {
    Kind::Object(Vec::new(), others(kind))
}

/// Fields of one kind.
pub(super) fn all<'a>(
    names: impl IntoIterator<Item = &'a &'static str>,
    kind: &Kind,
) -> impl Iterator<Item = Field> {
    let names: Vec<&'static str> = names.into_iter().copied().collect();
    let kind = kind.clone();
    names.into_iter().map(move |name| Field::new(name, kind.clone()))
}

/// Lists the fields of an object: `name: kind;`, `name?: kind;` if it may be missing, and `..fields;` for several.
macro_rules! fields {
    (@ $fields:ident) => {};
    (@ $fields:ident ..$more:expr; $($rest:tt)*) => {
        $fields.extend($more);
        $crate::answers::kinds::fields!(@ $fields $($rest)*);
    };
    (@ $fields:ident $name:ident?: $kind:expr; $($rest:tt)*) => {
        $fields.extend([$crate::answers::kinds::Field::optional(stringify!($name), $kind)]);
        $crate::answers::kinds::fields!(@ $fields $($rest)*);
    };
    (@ $fields:ident $name:ident: $kind:expr; $($rest:tt)*) => {
        $fields.extend([$crate::answers::kinds::Field::new(stringify!($name), $kind)]);
        $crate::answers::kinds::fields!(@ $fields $($rest)*);
    };
    ($($all:tt)*) => {{
        let mut fields: Vec<$crate::answers::kinds::Field> = Vec::new();
        $crate::answers::kinds::fields!(@ fields $($all)*);
        fields
    }};
}
pub(super) use fields;

/// An object with these [`fields`].
macro_rules! object {
    ($($all:tt)*) => { $crate::answers::kinds::Kind::Object($crate::answers::kinds::fields!($($all)*), None) };
}
pub(super) use object;

/// The numbers of an estimate.
pub(super) static ESTIMATE: LazyLock<Vec<Field>> = LazyLock::new(|| {
    fields! {
        value: signed();
        variance: variance();
        skew: variance();
    }
});
