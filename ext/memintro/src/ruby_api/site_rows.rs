//! Call sites as Ruby has them: a row for each, a plain Array, because there may be a million.

use magnus::{Error, RArray, RModule, RString, Ruby, prelude::*};
use memintro_abi::{BlockFigures, ObjectFigures, SiteRecord};
use memintro_analysis::sites::{Site, Sites};
use memintro_analysis::{json, report};

use super::names;
use crate::callers;

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    native.const_set("SITE_COLUMNS", ruby.ary_from_iter(site_columns().map(|name| ruby.to_symbol(name))))
}

/// The columns of a row, as `lib/memintro/malloc/site_row.rb` names them.
pub(super) fn site_columns() -> impl Iterator<Item = &'static str> {
    let cells = ["variances", "old", "objects", "native_callers"];
    ["id", "kind", "name", "lineno"].into_iter().chain(BlockFigures::VALUES).chain(cells)
}

/// Rows of sites. Those of whole stacks have their lines behind: frozen arrays of path, line and label, the innermost
/// first; nil where there is none.
pub(super) fn rows(ruby: &Ruby, sites: &Sites, whole: bool) -> Result<RArray, Error> {
    let texts = frozen(ruby, sites.texts.iter().map(Vec::as_slice))?;
    let frames = ruby.ary_new_capa(sites.frames.len());
    for frame in &sites.frames {
        let made = frozen(ruby, [frame.path.as_slice()].into_iter())?;
        made.push(frame.line)?;
        made.push(frame.label.as_ref().map(|label| frozen_string(ruby, label)))?;
        made.freeze();
        frames.push(made)?;
    }
    let rows = ruby.ary_new_capa(sites.list.len());
    for site in &sites.list {
        let row = row(ruby, sites, site, texts.entry(site.text as isize)?)?;
        if whole {
            let stack = site.stack.and_then(|index| sites.stacks.get(index as usize));
            row.push(stack.map(|stack| stack_row(ruby, frames, stack)).transpose()?)?;
        }
        rows.push(row)?;
    }
    Ok(rows)
}

fn stack_row(ruby: &Ruby, frames: RArray, stack: &[u32]) -> Result<RArray, Error> {
    let made = ruby.ary_new_capa(stack.len());
    for number in stack {
        made.push(frames.entry::<RArray>(*number as isize)?)?;
    }
    made.freeze();
    Ok(made)
}

fn frozen<'a>(ruby: &Ruby, texts: impl Iterator<Item = &'a [u8]>) -> Result<RArray, Error> {
    let array = ruby.ary_new();
    for text in texts {
        array.push(frozen_string(ruby, text))?;
    }
    Ok(array)
}

pub(super) fn frozen_string(ruby: &Ruby, text: &[u8]) -> RString {
    let text = names::string(ruby, text);
    text.freeze();
    text
}

/// The row of a site, as [`site_columns`] names its columns.
fn row(ruby: &Ruby, sites: &Sites, site: &Site, name: RString) -> Result<RArray, Error> {
    let record = &site.record;
    let row = ruby.ary_new_capa(site_columns().count() + 1);
    row.push(record.id)?;
    row.push(ruby.to_symbol(json::kind(record.kind)))?;
    row.push(name)?;
    row.push(record.line)?;
    for figure in record.blocks.values() {
        // Bytes that were live at a mark are negative if the mark came after `Mwrap.reset`.
        row.push(figure.cast_signed())?;
    }
    row.push((record.blocks.estimated != 0).then(|| ruby.ary_from_iter(report::doubts(&record.blocks))))?;
    row.push(if site.knows_old { Some(old_blocks(ruby, record)?) } else { None })?;
    row.push(object_figures(ruby, &record.objects)?)?;
    row.push(sites.callers_of(site).map(|callers| callers::cell(ruby, callers)).transpose()?)?;
    Ok(row)
}

/// As `SiteRow` names them; nil if the site has made no object that was tracked.
fn object_figures(ruby: &Ruby, objects: &ObjectFigures) -> Result<Option<RArray>, Error> {
    if *objects == ObjectFigures::default() {
        return Ok(None);
    }
    let row = ruby.ary_from_iter(objects.values());
    if objects.estimated != 0 {
        for doubt in objects.doubts() {
            row.push(doubt)?;
        }
    }
    Ok(Some(row))
}

/// As a row of `live_by_site(1)`, but at the same instant as all other figures.
fn old_blocks(ruby: &Ruby, record: &SiteRecord) -> Result<RArray, Error> {
    let row = ruby.ary_new_capa(6);
    row.push(record.old_bytes.value)?;
    row.push(record.old_blocks.value)?;
    if record.blocks.estimated != 0 {
        let (bytes, blocks) = (record.old_bytes, record.old_blocks);
        for doubt in [bytes.variance, blocks.variance, bytes.skew, blocks.skew] {
            row.push(doubt.max(0.0))?;
        }
    }
    Ok(row)
}
