//! Writes snapshots and reports as JSON, by serde_json, row by row. Nothing here uses Ruby, so it needs no GVL and
//! makes no Ruby object.
//!
//! Names may be any bytes. A name that is not UTF-8 becomes `{"base64":"…"}` in a snapshot, which its reader decodes;
//! in a report each such byte becomes `\xNN`, which people can read.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memintro_abi::{Adds, ObjectFigures, SiteKind, Unit};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::ser::Formatter;

use crate::estimates::{Estimate, Estimates};
use crate::figures::{self, Reader, Value};
use crate::heap::{Heap, Holder, Iseqs, Occupancy, Place, Pool, Row};
use crate::sites::{Caller, Callers, Site, Sites};
use crate::text::is_unprintable;

/// What is written for bytes that are not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// They are kept, as base64.
    Exact,
    /// They are shown.
    Shown,
}

/// Rows up to which a list is written on one line. Longer lists have a line for each row, for tools such as grep.
const SHORT: usize = 8;

/// A text.
#[must_use]
pub fn text(text: &[u8], bytes: Bytes) -> String {
    json(&Text(text, bytes))
}

/// A number; null if it is not one.
#[must_use]
pub fn number(number: f64) -> String {
    json(&number)
}

fn json(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    // Writing values without maps to memory never fails, and JSON is UTF-8.
    match write(&mut text, value) {
        Ok(()) => String::from_utf8(text).unwrap_or_default(),
        Err(_) => "null".to_owned(),
    }
}

/// Writes a value. Characters that a terminal obeys are escaped, so that JSON can be looked at.
pub(crate) fn write(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(out, Harmless))?;
    Ok(())
}

/// Compact JSON without characters that a terminal obeys.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        if fragment.is_ascii() && !fragment.contains('\x7f') {
            return out.write_all(fragment.as_bytes());
        }
        let mut begin = 0;
        for (at, character) in fragment.char_indices().filter(|(_, character)| is_unprintable(*character)) {
            out.write_all(fragment.get(begin..at).unwrap_or_default().as_bytes())?;
            write!(out, "\\u{:04x}", u32::from(character))?;
            begin = at + character.len_utf8();
        }
        out.write_all(fragment.get(begin..).unwrap_or_default().as_bytes())
    }
}

/// The sites as a list.
///
/// # Errors
/// Those of `out`.
pub fn sites(out: &mut impl Write, sites: &Sites, bytes: Bytes) -> io::Result<()> {
    list(out, sites.list.iter().map(|site| SiteJson { sites, site, bytes }))
}

/// The heap in a snapshot: `,"types":…` to `,"occupancy":…`, with null for parts that were not requested.
/// `free_pages` is the number of pages that Ruby keeps besides those of the walk.
///
/// # Errors
/// Those of `out`.
pub fn heap(out: &mut impl Write, heap: &Heap, free_pages: u64) -> io::Result<()> {
    for (key, rows) in [("types", &heap.types), ("classes", &heap.classes), ("internals", &heap.internals)] {
        write!(out, ",\n\"{key}\":")?;
        match rows {
            Some(rows) => list(out, rows.iter().map(RowJson::of))?,
            None => out.write_all(b"null")?,
        }
    }
    out.write_all(b",\n\"iseqs\":")?;
    match &heap.iseqs {
        Some(found) => iseqs(out, found)?,
        None => out.write_all(b"null")?,
    }
    out.write_all(b",\n\"occupancy\":")?;
    match &heap.occupancy {
        Some(found) => occupancy(out, found, free_pages),
        None => out.write_all(b"null"),
    }
}

fn iseqs(out: &mut impl Write, iseqs: &Iseqs) -> io::Result<()> {
    let (count, bytes) = iseqs.totals();
    write!(out, "{{\"count\":{count},\"bytes\":{bytes}")?;
    for (key, places) in [("paths", &iseqs.paths), ("locations", &iseqs.locations)] {
        write!(out, ",\"{key}\":")?;
        list(out, places.iter().map(|place| PlaceJson { iseqs, place }))?;
    }
    out.write_all(b"}")
}

fn occupancy(out: &mut impl Write, occupancy: &Occupancy, free_pages: u64) -> io::Result<()> {
    let sum = |figure: fn(&Pool) -> u64| occupancy.pools.iter().map(figure).sum::<u64>();
    let (slots, live) = (sum(|pool| pool.slots), sum(|pool| pool.live));
    write!(
        out,
        "{{\"pages\":{},\"slots\":{slots},\"live_slots\":{live},\"free_slots\":{},\"sparse_pages\":{},\
         \"sparse_live_slots\":{},\"empty_pages\":{},\"pools\":",
        sum(|pool| pool.pages),
        slots - live,
        sum(|pool| pool.sparse_pages),
        sum(|pool| pool.sparse_live),
        sum(|pool| pool.empty_pages) + free_pages,
    )?;
    list(out, occupancy.pools.iter().map(PoolJson))?;
    out.write_all(b",\"holders\":")?;
    list(out, occupancy.holders.iter().map(HolderJson))?;
    out.write_all(b"}")
}

pub(crate) fn list<T: Serialize>(
    out: &mut impl Write,
    items: impl ExactSizeIterator<Item = T>,
) -> io::Result<()> {
    let between: &[u8] = if items.len() > SHORT { b",\n" } else { b"," };
    out.write_all(b"[")?;
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.write_all(between)?;
        }
        write(out, &item)?;
    }
    out.write_all(b"]")
}

pub(crate) struct Text<'a>(pub(crate) &'a [u8], pub(crate) Bytes);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (std::str::from_utf8(self.0), self.1) {
            (Ok(text), _) => serializer.serialize_str(text),
            (Err(_), Bytes::Shown) => serializer.serialize_str(&shown(self.0)),
            (Err(_), Bytes::Exact) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &STANDARD.encode(self.0))?;
                map.end()
            }
        }
    }
}

struct RowJson<'a> {
    name: &'a [u8],
    count: u64,
    bytes: Option<u64>,
}

impl<'a> RowJson<'a> {
    fn of(row: &'a Row) -> Self {
        Self { name: &row.name, count: row.count, bytes: row.bytes }
    }
}

impl Serialize for RowJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("name", &Text(self.name, Bytes::Exact))?;
        map.serialize_entry("count", &self.count)?;
        map.serialize_entry("bytes", &self.bytes)?;
        map.end()
    }
}

struct PlaceJson<'a> {
    iseqs: &'a Iseqs,
    place: &'a Place,
}

impl Serialize for PlaceJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = self.iseqs.name(self.place);
        RowJson { name: &name, count: self.place.count, bytes: Some(self.place.bytes) }.serialize(serializer)
    }
}

struct PoolJson<'a>(&'a Pool);

impl Serialize for PoolJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pool = self.0;
        let mut map = serializer.serialize_map(Some(7))?;
        map.serialize_entry("slot_size", &pool.slot_size)?;
        map.serialize_entry("pages", &pool.pages)?;
        map.serialize_entry("slots", &pool.slots)?;
        map.serialize_entry("live_slots", &pool.live)?;
        map.serialize_entry("free_slots", &(pool.slots - pool.live))?;
        map.serialize_entry("sparse_pages", &pool.sparse_pages)?;
        map.serialize_entry("sparse_live_slots", &pool.sparse_live)?;
        map.end()
    }
}

struct HolderJson<'a>(&'a Holder);

impl Serialize for HolderJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("name", &Text(&self.0.name, Bytes::Exact))?;
        map.serialize_entry("count", &self.0.count)?;
        map.serialize_entry("pages", &self.0.pages)?;
        map.end()
    }
}

struct SiteJson<'a> {
    sites: &'a Sites,
    site: &'a Site,
    bytes: Bytes,
}

impl Serialize for SiteJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (site, record) = (self.site, &self.site.record);
        let name = self.sites.name(site);
        let ruby = record.kind == SiteKind::RUBY;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &Text(&name, self.bytes))?;
        map.serialize_entry("path", &ruby.then(|| Text(self.sites.text(site), self.bytes)))?;
        map.serialize_entry("lineno", &ruby.then_some(record.line))?;
        map.serialize_entry("kind", kind(record.kind))?;
        for reader in figures::all().filter(Reader::is_of_blocks) {
            map.serialize_entry(reader.figure.name, &reader.of(site))?;
        }
        let estimates = site.is_estimated().then(|| Estimates::of(site));
        // If only old blocks count, these are the live blocks; a snapshot does not need that.
        if site.aged.is_none() && site.knows_old && self.bytes == Bytes::Shown {
            for reader in with(Adds::Old) {
                map.serialize_entry(reader.figure.name, &reader.of(site))?;
            }
            for (name, _, estimate) in estimates.iter().flat_map(|of| estimated(with(Adds::Old), of)) {
                standard_error(&mut map, name, estimate)?;
                map.serialize_entry(&format!("{name}_per_sample"), &estimate.own_per_sample)?;
            }
        }
        if record.objects != ObjectFigures::default() {
            for reader in with(Adds::Object).filter(|reader| reader.figure.name != "object_allocations") {
                map.serialize_entry(reader.figure.name, &reader.of(site))?;
            }
            map.serialize_entry("objects", &ObjectsJson(&record.objects))?;
        }
        // Snapshots do not have them.
        if self.bytes == Bytes::Shown
            && let Some(callers) = self.sites.callers_of(site)
        {
            map.serialize_entry("native_callers", &CallersJson(callers))?;
        }
        if let Some(of) = &estimates {
            doubts(&mut map, of)?;
            if site.has_sampled_objects() {
                object_doubts(&mut map, of)?;
            }
        }
        map.end()
    }
}

/// What JSON calls a kind of call site.
#[must_use]
pub fn kind(kind: SiteKind) -> &'static str {
    match kind {
        SiteKind::RUBY => "ruby",
        SiteKind::NATIVE => "native",
        _ => "pseudo",
    }
}

struct CallersJson<'a>(&'a Callers);

impl Serialize for CallersJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let callers: Vec<_> = self.0.list.iter().map(CallerJson).collect();
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("samples", &self.0.samples)?;
        map.serialize_entry("live_samples", &self.0.live_samples)?;
        map.serialize_entry("callers", &callers)?;
        map.end()
    }
}

struct CallerJson<'a>(&'a Caller);

impl Serialize for CallerJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let caller = self.0;
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("frames", &caller.frames)?;
        map.serialize_entry("location", &caller.location)?;
        map.serialize_entry("samples", &caller.samples)?;
        map.serialize_entry("live_samples", &caller.live_samples)?;
        map.serialize_entry("share", &caller.share)?;
        map.serialize_entry("live_share", &caller.live_share)?;
        map.end()
    }
}

struct ObjectsJson<'a>(&'a ObjectFigures);

impl Serialize for ObjectsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let cells = || ObjectFigures::VALUES.iter().zip(self.0.cells());
        for (name, cell) in cells() {
            map.serialize_entry(name, &cell.value)?;
        }
        if self.0.estimated != 0 {
            for (name, cell) in cells().filter(|(name, _)| ObjectFigures::ESTIMATES.contains(name)) {
                map.serialize_entry(&format!("{name}_variance"), &cell.variance)?;
                map.serialize_entry(&format!("{name}_skew"), &cell.skew)?;
            }
        }
        map.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Sum(value) => serializer.serialize_u64(value),
            Self::Difference(value) => serializer.serialize_i64(value),
            Self::Mean(value) => serializer.serialize_f64(value),
        }
    }
}

fn with(adds: Adds) -> impl Iterator<Item = Reader> {
    figures::all().filter(move |reader| reader.figure.adds == adds)
}

/// Those with an estimate.
fn estimated(
    readers: impl Iterator<Item = Reader>,
    of: &Estimates,
) -> impl Iterator<Item = (&'static str, Unit, &Estimate)> {
    readers.filter_map(|reader| Some((reader.figure.name, reader.figure.unit, reader.estimate(of)?)))
}

pub(crate) fn standard_error<M: SerializeMap>(
    map: &mut M,
    name: &str,
    of: &Estimate,
) -> Result<(), M::Error> {
    map.serialize_entry(&format!("{name}_standard_error"), &of.standard_error())
}

pub(crate) fn interval<M: SerializeMap>(
    map: &mut M,
    name: &str,
    (low, high): (f64, f64),
) -> Result<(), M::Error> {
    map.serialize_entry(&format!("{name}_interval"), &[low.floor() as i64, high.ceil() as i64])
}

/// The standard errors and intervals of a site's objects.
fn object_doubts<M: SerializeMap>(map: &mut M, of: &Estimates) -> Result<(), M::Error> {
    for (name, _, estimate) in estimated(with(Adds::Object), of) {
        standard_error(map, name, estimate)?;
        interval(map, name, estimate.interval())?;
    }
    Ok(())
}

/// The standard errors, the intervals, and what one sample stands for in figures that are summed over processes: with
/// the standard error, it lets a reader compute the variance.
fn doubts<M: SerializeMap>(map: &mut M, of: &Estimates) -> Result<(), M::Error> {
    let all = || estimated(figures::all().filter(Reader::is_of_blocks), of);
    map.serialize_entry("estimated", &true)?;
    for (name, _, estimate) in all() {
        standard_error(map, name, estimate)?;
    }
    for (name, unit, estimate) in all() {
        match unit {
            Unit::Count | Unit::Bytes => interval(map, name, estimate.interval())?,
            Unit::Change => interval(map, name, of.growth_interval)?,
            Unit::Age | Unit::MeanAge | Unit::Ages => {}
        }
    }
    for (name, unit, estimate) in estimated(with(Adds::Sum), of) {
        if matches!(unit, Unit::Count | Unit::Bytes) {
            map.serialize_entry(&format!("{name}_per_sample"), &estimate.own_per_sample)?;
        }
    }
    Ok(())
}

/// Each byte that is not UTF-8 as `\xNN`.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests;
