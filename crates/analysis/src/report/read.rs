//! Reads a report that was written as JSON. Files and answers come from outside, so each value is checked.

use std::fmt;

use memintro_abi::Figures;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{LAYOUT, Process, Report};
use crate::answers::{self, Json, Kind, Maker, OLD_SITES, Place, REPORT, Reading, SNAPSHOT, Wrong};
use crate::sites::{Frame, Sites};
use rows::{add_site, add_stack, check_frames, frame, totals};

pub(super) mod rows;

/// Why a text is not a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is no JSON.
    NotJson(String),
    /// It is JSON of something else, or lacks something.
    NotReport(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(text) | Self::NotReport(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<Wrong> for Error {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::NotJson(why) => Self::NotJson(why),
            Wrong::Value(wrong) => Self::NotReport(format!("not a report of memintro: {wrong}")),
        }
    }
}

/// What only blocks and objects of some age count in, where a process answers so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    All,
    Old,
}

impl Report {
    /// Reads a JSON report, or a snapshot, which has the same members.
    ///
    /// # Errors
    /// [`Error`] says what is wrong with it.
    ///
    /// ```
    /// use memintro_analysis::report::Report;
    /// let error = Report::read(br#"{"version":1,"call_sites":[3]}"#).unwrap_err();
    /// assert_eq!(error.to_string(), "not a report of memintro: call_sites[0] is 3; it must be an object");
    /// ```
    pub fn read(text: &[u8]) -> Result<Self, Error> {
        match read(text, &REPORT, Counted::All, &Json) {
            Ok((parts, others)) if others.get("version").and_then(Value::as_u64) == Some(LAYOUT) => {
                Ok(parts.report(&others))
            }
            Err(Wrong::NotJson(why)) => Err(Error::NotJson(why)),
            found => match (answers::layout(text, "version")?, found) {
                (Some(layout), Err(wrong)) if layout == LAYOUT.to_string() => Err(wrong.into()),
                (layout, _) => Err(another_layout(layout)),
            },
        }
    }

    /// Reads an answer in which only blocks and objects count as live that outlived so many collections.
    ///
    /// # Errors
    /// [`Error`] says what is wrong with it.
    pub fn read_old(text: &[u8], collections: u32) -> Result<Self, Error> {
        let (parts, others) = read(text, &OLD_SITES, Counted::Old, &Json)?;
        Ok(Self { older_than: Some(collections), totals: Figures::default(), ..parts.report(&others) })
    }

    /// Reads a snapshot: the totals and call sites as a report, and an object with all other members.
    ///
    /// # Errors
    /// [`Wrong`] names the first value that is something else.
    pub fn read_snapshot<M: Maker>(text: &[u8], maker: &M) -> Result<(Self, M::Value), Wrong> {
        let (parts, others) = read(text, &SNAPSHOT, Counted::All, maker)?;
        Ok((parts.report(&Map::new()), maker.of_object(others)))
    }
}

fn another_layout(layout: Option<String>) -> Error {
    let has = layout.map_or_else(|| "no layout".to_owned(), |layout| format!("layout {layout}"));
    Error::NotReport(format!(
        "the report has {has}, and memintro {} reads layout {LAYOUT}; use the version that wrote it, or a newer one",
        env!("CARGO_PKG_VERSION")
    ))
}

/// The members of a report that are read as they come.
#[derive(Default)]
struct Parts {
    totals: Figures,
    sites: Sites,
    frames: Vec<Frame>,
    stacks: Option<Sites>,
}

impl Parts {
    /// With what the other members say of the process, and of the sites that are left out.
    fn report(self, others: &Map<String, Value>) -> Report {
        let mut sites = self.sites;
        let mut root = None;
        if let Some(rendering) = others.get("rendering") {
            let number = |name: &str| rendering.get(name);
            root = rendering.get("app_root").and_then(Value::as_str).map(str::to_owned);
            sites.left_out = number("left_out").and_then(Value::as_u64).unwrap_or(0) as usize;
            sites.live_bytes_left_out = number("live_bytes").and_then(Value::as_i64).unwrap_or(0);
            sites.variance_left_out = number("variance").and_then(Value::as_f64);
        }
        let process =
            others.get("process").and_then(Value::as_object).map(Process::from_members).unwrap_or_default();
        Report { process, totals: self.totals, sites, stacks: self.stacks, older_than: None, root }
    }
}

fn read<M: Maker>(
    text: &[u8],
    kind: &Kind,
    counted: Counted,
    maker: &M,
) -> Result<(Parts, M::Object), Wrong> {
    answers::read_by(text, |reader, wrong| {
        let of = Reading { kind, place: Place::Whole("it"), maker, wrong };
        Members { of, counted }.deserialize(reader)
    })
}

/// The members of the outermost object, one by one: there may be a million call sites.
struct Members<'a, M> {
    of: Reading<'a, M>,
    counted: Counted,
}

impl<'de, M: Maker> DeserializeSeed<'de> for Members<'_, M> {
    type Value = (Parts, M::Object);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, M: Maker> Visitor<'de> for Members<'_, M> {
    type Value = (Parts, M::Object);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let of = self.of;
        let fields = of.kind.fields();
        let mut parts = Parts::default();
        let mut others = of.maker.object();
        let mut seen = vec![false; fields.len()];
        while let Some(name) = members.next_key::<String>()? {
            let Some((at, field)) = fields.iter().enumerate().find(|(_, field)| field.name == name) else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            let place = Place::Member(&of.place, &name);
            let reading = Reading { kind: &field.kind, place, maker: &Json, wrong: of.wrong };
            let is_there = match name.as_str() {
                "totals" => match members.next_value_seed(reading)? {
                    Some(value) => {
                        parts.totals = totals(&value, place).map_err(|wrong| of.refuse(wrong))?;
                        true
                    }
                    None => false,
                },
                "call_sites" => {
                    let add = |value: &Value, place: Place<'_>| {
                        add_site(&mut parts.sites, value, place, self.counted)
                    };
                    members.next_value_seed(Rows { of: reading, add })?
                }
                "frames" => {
                    let add = |value: &Value, _: Place<'_>| {
                        parts.frames.extend(frame(value));
                        Ok(())
                    };
                    members.next_value_seed(Rows { of: reading, add })?
                }
                "stacks" => {
                    let mut stacks = Sites::default();
                    let add = |value: &Value, _: Place<'_>| {
                        add_stack(&mut stacks, value);
                        Ok(())
                    };
                    let is_there = members.next_value_seed(Rows { of: reading, add })?;
                    parts.stacks = is_there.then_some(stacks);
                    is_there
                }
                _ => {
                    let reading = Reading { kind: &field.kind, place, ..of };
                    let value = members.next_value_seed(reading)?;
                    let is_there = value.is_some();
                    let value = value.unwrap_or_else(|| of.maker.null());
                    of.maker.put(&mut others, &name, value).map_err(|wrong| of.refuse(wrong))?;
                    is_there
                }
            };
            seen.get_mut(at).into_iter().for_each(|seen| *seen = is_there);
        }
        of.check_all_there(&seen)?;
        if let Some(stacks) = &mut parts.stacks {
            check_frames(stacks, parts.frames.len()).map_err(|wrong| of.refuse(wrong))?;
            stacks.frames = parts.frames;
            parts.frames = Vec::new();
        }
        Ok((parts, others))
    }
}

/// The items of a list. The value is whether there is one.
struct Rows<'a, F> {
    of: Reading<'a, Json>,
    add: F,
}

impl<'de, F: FnMut(&Value, Place<'_>) -> Result<(), String>> DeserializeSeed<'de> for Rows<'_, F> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&Value, Place<'_>) -> Result<(), String>> Visitor<'de> for Rows<'_, F> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, items: A) -> Result<bool, A::Error> {
        self.of.each(items, |item, place| (self.add)(&item, place))?;
        Ok(true)
    }

    // All others are refused.
    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<bool, E> {
        self.of.visit_bool(value).map(|_| false)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<bool, E> {
        self.of.visit_u64(value).map(|_| false)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<bool, E> {
        self.of.visit_i64(value).map(|_| false)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<bool, E> {
        self.of.visit_f64(value).map(|_| false)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<bool, E> {
        self.of.visit_str(value).map(|_| false)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<bool, A::Error> {
        self.of.visit_map(members).map(|_| false)
    }
}
