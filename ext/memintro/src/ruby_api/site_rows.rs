//! Call sites as Ruby has them: a row for each, a plain Array, because there may be a million.

use magnus::{
    Error, Integer, RArray, RModule, RString, Ruby, Symbol, TryConvert, Value, function, prelude::*,
};
use memintro_abi::{BlockFigures, Estimated, ObjectFigures, SiteKind, SiteRecord};
use memintro_analysis::sites::{Site, Sites};
use memintro_analysis::{json, report};

use super::names;
use super::ractor_safe::ractor_safe;
use crate::callers;

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    native.const_set("SITE_COLUMNS", ruby.ary_from_iter(site_columns().map(|name| ruby.to_symbol(name))))?;
    // Ractors may read snapshots.
    ractor_safe(|| native.define_singleton_method("sum_of_rows", function!(sum, 4)))
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
    let cells = record.blocks.cells();
    for cell in cells {
        // Bytes that were live at a mark are negative if the mark came after `Mwrap.reset`.
        row.push(cell.value.cast_signed())?;
    }
    let doubts = || cells.into_iter().flat_map(|cell| cell.doubts()).chain([record.blocks.age_covariance]);
    row.push((record.blocks.estimated != 0).then(|| ruby.ary_from_iter(doubts())))?;
    row.push(if site.knows_old { Some(old_blocks(ruby, record)?) } else { None })?;
    row.push(object_figures(ruby, &record.objects)?)?;
    row.push(sites.callers_of(site).map(|callers| callers::cell(ruby, callers)).transpose()?)?;
    Ok(row)
}

/// The place of the first figure in a row.
const FIRST_FIGURE: usize = 4;

/// The figures of a row.
pub(super) fn site(row: RArray) -> Result<Site, Error> {
    let cell = |at: usize| row.entry::<Value>(at.cast_signed());
    let behind = FIRST_FIGURE + BlockFigures::VALUES.len();
    let list = |at: usize| Option::<Vec<f64>>::try_convert(cell(behind + at)?);
    let values = (FIRST_FIGURE..behind).map(|at| whole(cell(at)?)).collect::<Result<Vec<u64>, Error>>()?;
    let mut record = report::record(u32::try_convert(cell(0)?)? as usize, SiteKind::RUBY, 0);
    let doubts = list(0)?;
    let covariance = doubts.as_ref().and_then(|doubts| doubts.get(2 * values.len())).copied();
    let cells = cells(&values, doubts.as_deref().unwrap_or_default());
    record.blocks = BlockFigures::from_cells(cells, covariance.unwrap_or(0.0), doubts.is_some());
    let old = list(1)?;
    if let Some(old) = &old {
        [record.old_bytes, record.old_blocks] = old_of(old);
    }
    if let Some(objects) = list(2)? {
        let (values, doubts) = objects.split_at(objects.len().min(ObjectFigures::VALUES.len()));
        record.objects =
            ObjectFigures::from_cells(self::cells(&whole_numbers(values), doubts), !doubts.is_empty());
    }
    Ok(Site { record, text: 0, aged: None, callers: None, stack: None, knows_old: old.is_some() })
}

/// Figures with variance and skew of each, which follow each other; all that is missing is 0.
pub(super) fn cells(values: &[u64], doubts: &[f64]) -> Vec<Estimated> {
    let doubt = |at: usize| doubts.get(at).copied().unwrap_or(0.0);
    let cell = |(at, value): (usize, &u64)| Estimated {
        value: *value,
        variance: doubt(2 * at),
        skew: doubt(2 * at + 1),
    };
    values.iter().enumerate().map(cell).collect()
}

/// Bytes and blocks, or bytes and objects, of some age: both values, and if they are estimates variance and skew of each.
pub(super) fn old_of(numbers: &[f64]) -> [Estimated; 2] {
    let (values, doubts) = numbers.split_at(numbers.len().min(2));
    let cells = cells(&whole_numbers(values), doubts);
    [0, 1].map(|at| cells.get(at).copied().unwrap_or_default())
}

fn whole_numbers(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|number| (*number as i64).cast_unsigned()).collect()
}

/// A figure as records have it. What is negative is above the middle. A file may have any number.
pub(super) fn whole(value: Value) -> Result<u64, Error> {
    let number = Integer::try_convert(value)?;
    match number.to_i64().map(i64::cast_unsigned).or_else(|_| number.to_u64()) {
        Ok(number) => Ok(number),
        Err(_) => Ok((f64::try_convert(value)? as i64).cast_unsigned()),
    }
}

/// The sum of several rows, none of which has what another has, with the id of the first one.
fn sum(ruby: &Ruby, rows: RArray, kind: Symbol, name: RString, line: u32) -> Result<RArray, Error> {
    let mut sum = site(rows.entry(0)?)?;
    for at in 1..rows.len() {
        let part = site(rows.entry(at.cast_signed())?)?;
        sum.record.add(&part.record);
        sum.knows_old |= part.knows_old;
    }
    sum.record.line = line;
    let row = row(ruby, &Sites::default(), &sum, name)?;
    row.store(1, kind)?;
    Ok(row)
}

/// As `SiteRow` names them; nil if the site has made no object that was tracked.
fn object_figures(ruby: &Ruby, objects: &ObjectFigures) -> Result<Option<RArray>, Error> {
    if *objects == ObjectFigures::default() {
        return Ok(None);
    }
    cells_row(ruby, &objects.cells(), objects.estimated != 0).map(Some)
}

/// As a row of `live_by_site(1)`, but at the same instant as all other figures.
fn old_blocks(ruby: &Ruby, record: &SiteRecord) -> Result<RArray, Error> {
    let cells = [record.old_bytes, record.old_blocks].map(|cell| Estimated {
        variance: cell.variance.max(0.0),
        skew: cell.skew.max(0.0),
        ..cell
    });
    cells_row(ruby, &cells, record.blocks.estimated != 0)
}

/// Values, and if they are estimates variance and skew of each.
pub(super) fn cells_row(ruby: &Ruby, cells: &[Estimated], are_estimated: bool) -> Result<RArray, Error> {
    let row = ruby.ary_from_iter(cells.iter().map(|cell| cell.value));
    if are_estimated {
        for doubt in cells.iter().flat_map(|cell| cell.doubts()) {
            row.push(doubt)?;
        }
    }
    Ok(row)
}
