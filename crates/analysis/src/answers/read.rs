//! Reads JSON and checks it by a [`Kind`] at the same time.

use std::cell::RefCell;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, Deserialize, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::de::StrRead;
use serde_json::{Deserializer, Map, Value};

use super::kinds::ESTIMATE;
use super::{Field, Kind};

/// Why a text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is no JSON.
    NotJson(String),
    /// This value is another one.
    Value(String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(why) => write!(f, "it is not JSON ({why})"),
            Self::Value(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Wrong {}

/// Makes values of what was read and checked: those of serde, or Ruby's.
pub trait Maker {
    /// A value.
    type Value;
    /// A list that grows.
    type List;
    /// An object that grows.
    type Object;

    /// Null.
    fn null(&self) -> Self::Value;
    /// True or false.
    fn flag(&self, value: bool) -> Self::Value;
    /// A whole number from 0.
    fn natural(&self, value: u64) -> Self::Value;
    /// A whole number below 0.
    fn whole(&self, value: i64) -> Self::Value;
    /// A number.
    fn float(&self, value: f64) -> Self::Value;
    /// A text.
    fn text(&self, value: &str) -> Self::Value;
    /// A text that is not UTF-8.
    fn bytes(&self, value: &[u8]) -> Self::Value;
    /// An empty list.
    fn list(&self) -> Self::List;
    /// Adds an item.
    ///
    /// # Errors
    /// It cannot be added.
    fn push(&self, list: &mut Self::List, value: Self::Value) -> Result<(), String>;
    /// The list is complete.
    fn of_list(&self, list: Self::List) -> Self::Value;
    /// An empty object.
    fn object(&self) -> Self::Object;
    /// Adds a member.
    ///
    /// # Errors
    /// It cannot be added.
    fn put(&self, object: &mut Self::Object, name: &str, value: Self::Value) -> Result<(), String>;
    /// The object is complete.
    fn of_object(&self, object: Self::Object) -> Self::Value;
}

/// Makes values of serde.
#[derive(Clone, Copy, Debug)]
pub struct Json;

impl Maker for Json {
    type Value = Value;
    type List = Vec<Value>;
    type Object = Map<String, Value>;

    fn null(&self) -> Value {
        Value::Null
    }

    fn flag(&self, value: bool) -> Value {
        value.into()
    }

    fn natural(&self, value: u64) -> Value {
        value.into()
    }

    fn whole(&self, value: i64) -> Value {
        value.into()
    }

    fn float(&self, value: f64) -> Value {
        value.into()
    }

    fn text(&self, value: &str) -> Value {
        value.into()
    }

    fn bytes(&self, value: &[u8]) -> Value {
        Value::Object(Map::from_iter([("base64".to_owned(), STANDARD.encode(value).into())]))
    }

    fn list(&self) -> Vec<Value> {
        Vec::new()
    }

    fn push(&self, list: &mut Vec<Value>, value: Value) -> Result<(), String> {
        list.push(value);
        Ok(())
    }

    fn of_list(&self, list: Vec<Value>) -> Value {
        list.into()
    }

    fn object(&self) -> Map<String, Value> {
        Map::new()
    }

    fn put(&self, object: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), String> {
        object.insert(name.to_owned(), value);
        Ok(())
    }

    fn of_object(&self, object: Map<String, Value>) -> Value {
        object.into()
    }
}

/// Reads a text of this kind. `what` is its name in errors.
///
/// # Errors
/// [`Wrong`] names the first value that is something else.
///
/// ```
/// use memintro_analysis::answers::{Json, command, read};
/// let kind = &command("start").unwrap().kind;
/// let error = read(br#"{"state":"lost","mode":"full"}"#, kind, "the answer", &Json).unwrap_err();
/// assert!(error.to_string().starts_with("state is \"lost\"; it must be one of \"started\""));
/// ```
pub fn read<M: Maker>(text: &[u8], kind: &Kind, what: &str, maker: &M) -> Result<M::Value, Wrong> {
    read_value(text, kind, what, maker)?
        .ok_or_else(|| Wrong::Value(format!("{what} is null; it must be {kind}")))
}

/// The same where all of it may be null.
///
/// # Errors
/// As of [`read`].
pub fn read_or_null<M: Maker>(text: &[u8], kind: &Kind, maker: &M) -> Result<M::Value, Wrong> {
    Ok(read_value(text, kind, "it", maker)?.unwrap_or_else(|| maker.null()))
}

fn read_value<M: Maker>(text: &[u8], kind: &Kind, what: &str, maker: &M) -> Result<Option<M::Value>, Wrong> {
    read_by(text, |reader, wrong| {
        Reading { kind, place: Place::Whole(what), maker, wrong }.deserialize(reader)
    })
}

/// Reads all of a text with a reader that says what is wrong.
pub(crate) fn read_by<'a, T>(
    text: &'a [u8],
    read: impl FnOnce(&mut Deserializer<StrRead<'a>>, &RefCell<Option<String>>) -> Result<T, serde_json::Error>,
) -> Result<T, Wrong> {
    let text = std::str::from_utf8(text).map_err(|_| Wrong::NotJson("it is not UTF-8".to_owned()))?;
    let wrong = RefCell::default();
    let mut reader = Deserializer::from_str(text);
    let found = read(&mut reader, &wrong).and_then(|found| reader.end().map(|()| found));
    match wrong.take() {
        Some(message) => Err(Wrong::Value(message)),
        // The number is valid JSON, but too large for a float.
        None => found.map_err(|error| {
            Wrong::NotJson(error.to_string().replace("number out of range", "a number is too great"))
        }),
    }
}

/// Where a value is.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Whole(&'a str),
    Member(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(Self::Whole(_), name) => f.write_str(name),
            Self::Whole(name) => f.write_str(name),
            Self::Member(of, name) => write!(f, "{of}.{name}"),
            Self::Item(of, index) => write!(f, "{of}[{index}]"),
        }
    }
}

/// Reads one value. The result is `None` if it is null.
pub(crate) struct Reading<'a, M> {
    pub(crate) kind: &'a Kind,
    pub(crate) place: Place<'a>,
    pub(crate) maker: &'a M,
    /// What is wrong, once something is.
    pub(crate) wrong: &'a RefCell<Option<String>>,
}

impl<M> Clone for Reading<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Reading<'_, M> {}

/// Most characters of a wrong value that a message shows.
const MOST_SHOWN: usize = 100;

fn shown(text: &str) -> String {
    // The beginning, because it may be as long as an answer.
    let text = format!("{:?}", text.chars().take(MOST_SHOWN).collect::<String>());
    if text.chars().count() <= MOST_SHOWN {
        return text;
    }
    text.chars().take(MOST_SHOWN - 3).chain("...".chars()).collect()
}

impl<M: Maker> Reading<'_, M> {
    pub(crate) fn refuse<E: de::Error>(&self, message: String) -> E {
        self.wrong.borrow_mut().get_or_insert(message);
        E::custom("a value is wrong")
    }

    fn other<E: de::Error>(&self, shown: &str) -> E {
        self.refuse(format!("{} is {shown}; it must be {}", self.place, self.kind))
    }

    /// A value; an error if it is null and may not be.
    fn given<E: de::Error>(
        &self,
        value: Option<M::Value>,
        place: Place<'_>,
        is_optional: bool,
    ) -> Result<M::Value, E> {
        match value {
            Some(value) => Ok(value),
            None if is_optional => Ok(self.maker.null()),
            None => Err(self.refuse(format!("{place} is missing"))),
        }
    }

    /// The kind of what is within anything.
    fn within<E: de::Error>(&self, left: usize) -> Result<Kind, E> {
        left.checked_sub(1).map(Kind::Any).ok_or_else(|| self.refuse("it is nested too deeply".to_owned()))
    }

    /// Reads the items of a list, one by one.
    pub(crate) fn each<'de, A: SeqAccess<'de>>(
        &self,
        mut items: A,
        mut take: impl FnMut(M::Value, Place<'_>) -> Result<(), String>,
    ) -> Result<(), A::Error> {
        let inner;
        let (kind, most) = match self.kind {
            Kind::List(kind, most) => (&**kind, *most),
            Kind::Plain => (self.kind, usize::MAX),
            Kind::Any(left) => {
                inner = self.within(*left)?;
                (&inner, usize::MAX)
            }
            _ => return Err(self.other("a list")),
        };
        let may_be_null = matches!(kind, Kind::Plain | Kind::Any(_));
        for index in 0.. {
            let place = Place::Item(&self.place, index);
            let Some(item) = items.next_element_seed(Reading { kind, place, ..*self })? else { break };
            if index >= most {
                return Err(self.other("a longer list"));
            }
            let item = self.given(item, place, may_be_null)?;
            take(item, place).map_err(|wrong| self.refuse(wrong))?;
        }
        Ok(())
    }

    fn row<'de, A: SeqAccess<'de>>(&self, fields: &[Field], mut items: A) -> Result<M::Value, A::Error> {
        let mut made = self.maker.list();
        for (index, field) in fields.iter().enumerate() {
            let place = Place::Item(&self.place, index);
            let item = items.next_element_seed(Reading { kind: &field.kind, place, ..*self })?;
            let item = item.ok_or_else(|| self.other(&format!("a list of {index}")))?;
            let item = self.given(item, place, field.is_optional)?;
            self.maker.push(&mut made, item).map_err(|wrong| self.refuse(wrong))?;
        }
        if items.next_element::<IgnoredAny>()?.is_some() {
            return Err(self.other("a longer list"));
        }
        Ok(self.maker.of_list(made))
    }

    fn object<'de, A: MapAccess<'de>>(
        &self,
        fields: &[Field],
        others: Option<(&Kind, bool)>,
        mut members: A,
    ) -> Result<M::Value, A::Error> {
        let mut made = self.maker.object();
        let mut seen = vec![false; fields.len()];
        let mut expected = 0;
        while let Some(key) = members.next_key_seed(Key { fields, expected })? {
            let (name, kind) = match (&key, others) {
                (Named::Field(at, field), _) => {
                    expected = at + 1;
                    (&*field.name, &field.kind)
                }
                (Named::Other(name), Some((kind, _))) => (name.as_str(), kind),
                (Named::Other(_), None) => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let place = Place::Member(&self.place, name);
            let value = members.next_value_seed(Reading { kind, place, ..*self })?;
            let is_optional = match &key {
                Named::Field(at, field) => {
                    seen.get_mut(*at).into_iter().for_each(|seen| *seen = true);
                    field.is_optional
                }
                Named::Other(_) => others.is_some_and(|(_, is_optional)| is_optional),
            };
            let value = self.given(value, place, is_optional)?;
            self.maker.put(&mut made, name, value).map_err(|wrong| self.refuse(wrong))?;
        }
        self.check_all_there(&seen)?;
        Ok(self.maker.of_object(made))
    }

    /// Checks that what may not be missing was seen.
    pub(crate) fn check_all_there<E: de::Error>(&self, seen: &[bool]) -> Result<(), E> {
        let missing = self.kind.fields().iter().zip(seen).find(|(field, seen)| !field.is_optional && !**seen);
        missing.map_or(Ok(()), |(field, _)| {
            self.given(None, Place::Member(&self.place, &field.name), false).map(|_| ())
        })
    }

    /// What is not UTF-8: an object with its base64.
    fn bytes<'de, A: MapAccess<'de>>(&self, mut members: A) -> Result<M::Value, A::Error> {
        let bytes = match members.next_entry::<String, String>() {
            Ok(Some((key, text))) if key == "base64" && self.kind.has_text(&text) => {
                STANDARD.decode(text).ok()
            }
            _ => None,
        };
        match (bytes, members.next_key::<IgnoredAny>()) {
            (Some(bytes), Ok(None)) => Ok(self.maker.bytes(&bytes)),
            _ => Err(self.other("an object")),
        }
    }
}

impl<'de, M: Maker> DeserializeSeed<'de> for Reading<'_, M> {
    type Value = Option<M::Value>;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self.kind {
            Kind::Ignored => IgnoredAny::deserialize(deserializer).map(|_| Some(self.maker.flag(true))),
            _ => deserializer.deserialize_any(self),
        }
    }
}

// Values under construction are on the machine stack, which Ruby's collector scans.
impl<'de, M: Maker> Visitor<'de> for Reading<'_, M> {
    type Value = Option<M::Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.kind)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        match self.kind {
            Kind::Flag | Kind::Counter | Kind::Plain | Kind::Any(_) => Ok(Some(self.maker.flag(value))),
            _ => Err(self.other(if value { "true" } else { "false" })),
        }
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        if self.kind.has_whole(value.into()) {
            return Ok(Some(self.maker.natural(value)));
        }
        Err(self.other(&value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        if self.kind.has_whole(value.into()) {
            return Ok(Some(self.maker.whole(value)));
        }
        Err(self.other(&value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        if self.kind.has_number(value) {
            return Ok(Some(self.maker.float(value)));
        }
        Err(self.other(&format!("{value:?}")))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        if self.kind.has_text(value) {
            return Ok(Some(self.maker.text(value)));
        }
        Err(self.other(&shown(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        match self.kind {
            Kind::Row(fields) => return self.row(fields, items).map(Some),
            Kind::Estimate => return self.row(&ESTIMATE, items).map(Some),
            _ => {}
        }
        let mut made = self.maker.list();
        self.each(items, |item, _| self.maker.push(&mut made, item))?;
        Ok(Some(self.maker.of_list(made)))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        match self.kind {
            Kind::Object(fields, others) => {
                let others = others.as_ref().map(|other| (&other.kind, other.is_optional));
                self.object(fields, others, members).map(Some)
            }
            Kind::Plain => self.object(&[], Some((self.kind, true)), members).map(Some),
            Kind::Any(left) => self.object(&[], Some((&self.within(*left)?, true)), members).map(Some),
            Kind::Name(_) => self.bytes(members).map(Some),
            _ => Err(self.other("an object")),
        }
    }
}

/// The name of a member. Most members come in the order of the fields.
struct Key<'a> {
    fields: &'a [Field],
    expected: usize,
}

enum Named<'a> {
    Field(usize, &'a Field),
    Other(String),
}

impl<'de, 'a> DeserializeSeed<'de> for Key<'a> {
    type Value = Named<'a>;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Named<'a>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Key<'a> {
    type Value = Named<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E>(self, value: &str) -> Result<Named<'a>, E> {
        let (before, behind) = self.fields.split_at_checked(self.expected).unwrap_or_default();
        let find = |fields: &'a [Field], first: usize| {
            let at = fields.iter().position(|field| field.name == value)?;
            Some(Named::Field(first + at, fields.get(at)?))
        };
        let found = find(behind, self.expected).or_else(|| find(before, 0));
        Ok(found.unwrap_or_else(|| Named::Other(value.to_owned())))
    }
}
