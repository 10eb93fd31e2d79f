//! Values without a fixed shape: details of a row, answers for Ruby, and JSON. Members keep their
//! order.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// One value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// None.
    #[default]
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// A text that Ruby has as a Symbol.
    Name(String),
    /// A list.
    List(Vec<Value>),
    /// Values by name.
    Members(Vec<(String, Value)>),
}

/// The value of a missing member.
static NULL: Value = Value::Null;

/// Values by name.
pub(crate) fn members<const COUNT: usize>(members: [(&str, Value); COUNT]) -> Value {
    Value::Members(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

impl Value {
    /// As a Symbol.
    pub(crate) fn name(text: &str) -> Self {
        Self::Name(text.to_owned())
    }

    /// The member of this name; `Null` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &Self {
        let Self::Members(members) = self else { return &NULL };
        members.iter().find(|(key, _)| key == name).map_or(&NULL, |(_, value)| value)
    }

    /// Adds a member.
    pub(crate) fn put(&mut self, name: &str, value: impl Into<Self>) {
        if let Self::Members(members) = self {
            members.push((name.to_owned(), value.into()));
        }
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// A whole number.
    #[must_use]
    pub const fn whole(&self) -> Option<i64> {
        match self {
            Self::Whole(number) => Some(*number),
            Self::Float(number) => Some(*number as i64),
            _ => None,
        }
    }

    /// A whole number; 0 if it is none.
    #[must_use]
    pub fn or_zero(&self) -> i64 {
        self.whole().unwrap_or(0)
    }

    /// Any number.
    #[must_use]
    pub const fn float(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// A text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Name(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list; none if it is no list.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// The texts of a list.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.items().iter().filter_map(Self::text).map(str::to_owned).collect()
    }
}

macro_rules! from {
    ($($type:ty: $value:ident => $made:expr;)+) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $made
            }
        })+
    };
}

from! {
    bool: value => Self::Bool(value);
    i64: value => Self::Whole(value);
    u64: value => Self::Whole(i64::try_from(value).unwrap_or(i64::MAX));
    usize: value => Self::from(value as u64);
    u32: value => Self::Whole(value.into());
    f64: value => Self::Float(value);
    &str: value => Self::Text(value.to_owned());
    String: value => Self::Text(value);
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Whole(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Text(text) | Self::Name(text) => serializer.serialize_str(text),
            Self::List(items) => items.serialize(serializer),
            Self::Members(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}
