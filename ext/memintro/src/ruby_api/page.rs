//! `Memintro::Native.page`: a page of HTML with tables, which loads nothing.

use std::fmt::Write;

use magnus::{Error, RArray, RModule, RString, Ruby, function, prelude::*};
use memintro_analysis::json::{self, Bytes};
use memintro_analysis::page::{AREAS, AREAS_BODY, Page, cell, named_cell, row, table};
use memintro_analysis::text::printable;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("page", function!(page, 6))
}

/// With its heading, lines below it, sentences that a reader needs first, what to beware of, and tables: title, titles of
/// columns, and rows of texts, the last of which is a name. `areas`: names and bytes for a treemap, or nil.
fn page(
    ruby: &Ruby,
    heading: RString,
    facts: RArray,
    verdict: RArray,
    notes: RArray,
    tables: RArray,
    areas: Option<RArray>,
) -> Result<RString, Error> {
    let heading = shown(heading);
    let data = areas.map(data).transpose()?;
    let mut body = Vec::new();
    body.extend(data.is_some().then(|| AREAS_BODY.to_owned()));
    for at in 0..tables.len() {
        let of: RArray = tables.entry(at.cast_signed())?;
        let heads = texts(of.entry(1)?)?;
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        body.push(table(&shown(of.entry(0)?), &heads, &rows(of.entry(2)?)?, None));
    }
    let page = Page {
        title: &heading,
        heading: Some(&heading),
        facts: &texts(facts)?,
        verdict: &texts(verdict)?,
        notes: &texts(notes)?,
        body: &body.join("\n"),
        script: data.as_deref().map(|data| (AREAS, data)),
    };
    let mut out = Vec::new();
    page.write(&mut out).map_err(|error| Error::new(ruby.exception_runtime_error(), error.to_string()))?;
    Ok(ruby.enc_str_new(out, ruby.utf8_encoding()))
}

fn shown(text: RString) -> String {
    // SAFETY: copied at once.
    printable(unsafe { text.as_slice() })
}

fn texts(texts: RArray) -> Result<Vec<String>, Error> {
    (0..texts.len()).map(|at| texts.entry(at.cast_signed()).map(shown)).collect()
}

fn rows(all: RArray) -> Result<Vec<String>, Error> {
    let mut rows = Vec::with_capacity(all.len());
    for at in 0..all.len() {
        let cells = texts(all.entry(at.cast_signed())?)?;
        let Some((name, others)) = cells.split_last() else { continue };
        let mut cells: Vec<String> = others.iter().map(|text| cell(text, 0.0)).collect();
        cells.push(named_cell(name.as_bytes(), name));
        rows.push(row(&cells));
    }
    Ok(rows)
}

/// As the script takes them.
fn data(areas: RArray) -> Result<String, Error> {
    let mut data = String::from("{\"rows\":[");
    for at in 0..areas.len() {
        let (name, bytes) = areas.entry::<(RString, u64)>(at.cast_signed())?;
        let comma = if at > 0 { "," } else { "" };
        // Writing to a String does not fail.
        let _ = write!(data, "{comma}[{},{bytes}]", json::text(shown(name).as_bytes(), Bytes::Shown));
    }
    data.push_str("]}");
    Ok(data)
}
