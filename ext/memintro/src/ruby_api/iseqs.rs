//! Instruction sequences, for Ruby.

use magnus::{Error, RModule, Ruby, Symbol, function, prelude::*};

use super::heap::checked;
use super::names;
use super::slices::{yield_figures, yield_rows};
use super::without_gvl::without_gvl;
use crate::heap::iseqs::{self, By, Iseq};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("iseqs", function!(totals, 0))?;
    native.define_singleton_method("iseq_list", function!(list, 0))?;
    native.define_singleton_method("iseq_groups", function!(groups, 2))
}

/// `[count, bytes]`
fn totals(ruby: &Ruby) -> Result<(u64, u64), Error> {
    checked(ruby, iseqs::totals())
}

/// Yields slices of the texts, then slices of `[path, line, label, bytes, path, …]`. Path and label are indexes into
/// the texts.
fn list(ruby: &Ruby) -> Result<(), Error> {
    let (texts, iseqs) = checked(ruby, iseqs::list())?;
    let (texts, figures) = without_gvl(|| {
        let figures = |iseq: &Iseq| {
            [i64::from(iseq.path), i64::from(iseq.line), i64::from(iseq.label), iseq.bytes.cast_signed()]
        };
        (texts.into_vec(), iseqs.iter().map(figures).collect::<Vec<_>>())
    })?;
    yield_rows(ruby, &texts, |text| {
        let string = names::string(ruby, text);
        string.freeze();
        string
    })?;
    yield_figures(ruby, &figures)
}

/// Yields slices of `[[name, count, bytes], …]`, most bytes first.
fn groups(ruby: &Ruby, by: Symbol, limit: Option<usize>) -> Result<(), Error> {
    let by = match &*by.name()? {
        "label" => By::Label,
        "location" => By::Location,
        _ => By::Path,
    };
    let found = checked(ruby, iseqs::groups(by))?;
    let (texts, groups) = without_gvl(|| found.greatest(limit))?;
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
