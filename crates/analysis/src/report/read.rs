//! Reads a report that was written as JSON. Files and answers come from outside, so each value is checked.

use std::fmt;

use memintro_abi::Figures;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{LAYOUT, Process, Report};
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
    /// assert_eq!(error.to_string(), "not a report of memintro: call site 1 is 3");
    /// ```
    pub fn read(text: &[u8]) -> Result<Self, Error> {
        let parts = Parts::read(text, Counted::All)?;
        match &parts.version {
            Some(version) if version.as_u64() == Some(LAYOUT) => {}
            version => return Err(another_layout(version.as_ref())),
        }
        parts.sites.as_ref().ok_or_else(|| lacks("call_sites"))?;
        let totals = totals(parts.totals.as_ref().ok_or_else(|| lacks("totals"))?)?;
        parts.process.as_ref().ok_or_else(|| lacks("process"))?;
        Ok(parts.report(totals))
    }

    /// Reads an answer in which only blocks and objects count as live that outlived so many collections.
    ///
    /// # Errors
    /// [`Error`] says what is wrong with it.
    pub fn read_old(text: &[u8], collections: u32) -> Result<Self, Error> {
        let parts = Parts::read(text, Counted::Old)?;
        parts.sites.as_ref().ok_or_else(|| lacks("call_sites"))?;
        Ok(Self { older_than: Some(collections), ..parts.report(Figures::default()) })
    }
}

fn another_layout(version: Option<&Value>) -> Error {
    let has = version.map_or_else(|| "no layout".to_owned(), |version| format!("layout {}", shown(version)));
    Error::NotReport(format!(
        "the report has {has}, and memintro {} reads layout {LAYOUT}; use the version that wrote it, or a newer one",
        env!("CARGO_PKG_VERSION")
    ))
}

fn lacks(name: &str) -> Error {
    Error::NotReport(format!("not a report of memintro: it has no {name}"))
}

/// Most characters of a wrong value that a message shows.
const MOST_SHOWN: usize = 60;

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= MOST_SHOWN {
        return text;
    }
    let start: String = text.chars().take(MOST_SHOWN - 3).collect();
    format!("{start}...")
}

/// The members of a report.
#[derive(Default)]
struct Parts {
    version: Option<Value>,
    process: Option<Process>,
    totals: Option<Map<String, Value>>,
    sites: Option<Sites>,
    frames: Option<Vec<Frame>>,
    stacks: Option<Sites>,
    /// What a table needs to know of the sites that are left out.
    rendering: Option<Map<String, Value>>,
}

impl Parts {
    fn read(text: &[u8], counted: Counted) -> Result<Self, Error> {
        let mut reader = serde_json::Deserializer::from_slice(text);
        let mut wrong = None;
        let read = Members { counted, wrong: &mut wrong }
            .deserialize(&mut reader)
            .and_then(|parts| reader.end().map(|()| parts));
        match (wrong, read) {
            (Some(error), _) => Err(error),
            (None, Ok(parts)) => Ok(parts),
            (None, Err(error)) => Err(Error::NotJson(error.to_string())),
        }
    }

    fn report(self, totals: Figures) -> Report {
        let mut sites = self.sites.unwrap_or_default();
        if let Some(rendering) = &self.rendering {
            sites.left_out = rendering.get("left_out").and_then(Value::as_u64).unwrap_or(0) as usize;
            sites.live_bytes_left_out = rendering.get("live_bytes").and_then(Value::as_i64).unwrap_or(0);
            sites.variance_left_out = rendering.get("variance").and_then(Value::as_f64);
        }
        Report {
            process: self.process.unwrap_or_default(),
            totals,
            sites,
            stacks: self.stacks,
            older_than: None,
        }
    }
}

/// The members of the outermost object, one by one: there may be a million call sites.
struct Members<'a> {
    counted: Counted,
    wrong: &'a mut Option<Error>,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = Parts;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parts, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Parts;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Parts, A::Error> {
        let mut parts = Parts::default();
        let wrong = self.wrong;
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "version" => {
                    let version: Value = members.next_value()?;
                    if self.counted == Counted::All && version.as_u64() != Some(LAYOUT) {
                        return Err(refused(wrong, another_layout(Some(&version))));
                    }
                    parts.version = Some(version);
                }
                "process" => {
                    let process = process(members.next_value()?).map_err(|error| refused(wrong, error))?;
                    parts.process = Some(process);
                }
                "totals" => parts.totals = object(members.next_value()?),
                "rendering" => parts.rendering = object(members.next_value()?),
                "call_sites" => {
                    let mut sites = Sites::default();
                    let counted = self.counted;
                    let add = |value: &Value, number: usize| add_site(&mut sites, value, number, counted);
                    parts.sites = members.next_value_seed(Rows { add, wrong })?.then_some(sites);
                }
                "frames" => {
                    let mut frames = Vec::new();
                    let add = |value: &Value, _: usize| {
                        frames.push(frame(value));
                        Ok(())
                    };
                    members.next_value_seed(Rows { add, wrong })?;
                    parts.frames = frames.into_iter().collect();
                }
                "stacks" => {
                    let mut stacks = Sites::default();
                    let add = |value: &Value, number: usize| add_stack(&mut stacks, value, number);
                    parts.stacks = members.next_value_seed(Rows { add, wrong })?.then_some(stacks);
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        if let Some(stacks) = &mut parts.stacks {
            let frames = parts.frames.take().ok_or_else(|| refused(wrong, lacks("frames")))?;
            check_frames(stacks, frames.len()).map_err(|error| refused(wrong, error))?;
            stacks.frames = frames;
        }
        Ok(parts)
    }
}

fn refused<E: serde::de::Error>(wrong: &mut Option<Error>, error: Error) -> E {
    *wrong = Some(error);
    E::custom("it is no report")
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

fn process(value: Value) -> Result<Process, Error> {
    let map = object(value).ok_or_else(|| lacks("process"))?;
    let mut process = Process::default();
    for (name, value) in &map {
        if value.is_object() || value.is_array() {
            let shown = shown(value);
            return Err(Error::NotReport(format!(
                "not a report of memintro: its process has {shown} for {name:?}"
            )));
        }
        process.set(name, value);
    }
    Ok(process)
}

/// The items of a list. The value is whether it is a list.
struct Rows<'a, F> {
    add: F,
    wrong: &'a mut Option<Error>,
}

impl<'de, F: FnMut(&Value, usize) -> Result<(), Error>> DeserializeSeed<'de> for Rows<'_, F> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&Value, usize) -> Result<(), Error>> Visitor<'de> for Rows<'_, F> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<bool, A::Error> {
        let mut number = 0;
        while let Some(item) = items.next_element::<Value>()? {
            number += 1;
            (self.add)(&item, number).map_err(|error| refused(self.wrong, error))?;
        }
        Ok(true)
    }
}
