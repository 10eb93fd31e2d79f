//! Instruction sequences, as Ruby sees them.

use magnus::{Error, RArray, RModule, Ruby, Symbol, function, prelude::*};

use super::heap::checked;
use super::names;
use super::slices::yield_rows;
use super::without_gvl::without_gvl;
use crate::heap::iseqs::{self, By};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("iseqs", function!(totals, 0))?;
    native.define_singleton_method("iseq_list", function!(list, 0))?;
    native.define_singleton_method("iseq_groups", function!(groups, 2))
}

/// `[count, bytes]`
fn totals(ruby: &Ruby) -> Result<(u64, u64), Error> {
    checked(ruby, iseqs::totals())
}

/// `[path, line, label, bytes, path, …]`; path and label are places in the texts, of which slices are yielded first.
fn list(ruby: &Ruby) -> Result<RArray, Error> {
    let (texts, iseqs) = checked(ruby, iseqs::list())?;
    let texts = without_gvl(|| texts.into_vec());
    yield_rows(ruby, &texts, |text| {
        let string = names::string(ruby, text);
        string.freeze();
        string
    })?;
    let figures = ruby.ary_new_capa(iseqs.len() * 4);
    for iseq in &iseqs {
        figures.push(iseq.path)?;
        figures.push(iseq.line)?;
        figures.push(iseq.label)?;
        figures.push(iseq.bytes)?;
    }
    Ok(figures)
}

/// Yields slices of `[[name, count, bytes], …]`, most bytes first.
fn groups(ruby: &Ruby, by: Symbol, limit: Option<usize>) -> Result<(), Error> {
    let by = match &*by.name()? {
        "label" => By::Label,
        "location" => By::Location,
        _ => By::Path,
    };
    let found = checked(ruby, iseqs::groups(by))?;
    let (texts, groups) = without_gvl(|| found.greatest(limit));
    yield_rows(ruby, &groups, |group| {
        let text = &texts[group.text as usize];
        let name = if by == By::Location {
            names::string(ruby, &[text.as_slice(), format!(":{}", group.line).as_bytes()].concat())
        } else {
            names::string(ruby, text)
        };
        name.freeze();
        (name, group.count, group.bytes)
    })
}
