//! Instruction sequences, as Ruby sees them.

use magnus::{Error, RArray, RModule, Ruby, Symbol, function, prelude::*};

use super::heap::checked;
use super::names;
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

/// `[texts, [path, line, label, bytes, path, …]]`; path and label are places in texts.
fn list(ruby: &Ruby) -> Result<(RArray, RArray), Error> {
    let (texts, iseqs) = checked(ruby, iseqs::list())?;
    let figures = ruby.ary_new_capa(iseqs.len() * 4);
    for iseq in &iseqs {
        for figure in [u64::from(iseq.path), u64::from(iseq.line), u64::from(iseq.label), iseq.bytes] {
            figures.push(figure)?;
        }
    }
    Ok((strings(ruby, &texts)?, figures))
}

/// `[[name, count, bytes], …]`, most bytes first.
fn groups(ruby: &Ruby, by: Symbol, limit: Option<usize>) -> Result<RArray, Error> {
    let by = match &*by.name()? {
        "label" => By::Label,
        "location" => By::Location,
        _ => By::Path,
    };
    let (texts, mut groups) = checked(ruby, iseqs::groups(by))?;
    without_gvl(|| iseqs::greatest(&texts, &mut groups, limit));
    let rows = ruby.ary_new_capa(groups.len());
    for group in &groups {
        let text = &texts[group.text as usize];
        let name = if by == By::Location {
            names::string(ruby, &[text.as_slice(), format!(":{}", group.line).as_bytes()].concat())
        } else {
            names::string(ruby, text)
        };
        name.freeze();
        rows.push((name, group.count, group.bytes))?;
    }
    Ok(rows)
}

fn strings(ruby: &Ruby, texts: &[Vec<u8>]) -> Result<RArray, Error> {
    let strings = ruby.ary_new_capa(texts.len());
    for text in texts {
        let string = names::string(ruby, text);
        string.freeze();
        strings.push(string)?;
    }
    Ok(strings)
}
