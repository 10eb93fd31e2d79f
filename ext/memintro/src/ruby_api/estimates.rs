//! `Memintro::Native.estimate` and its relatives: what is known of the error of a figure, for `Memintro::Estimates`.

use magnus::{Error, Integer, RArray, RModule, Symbol, TryConvert, Value, function, prelude::*};
use memintro_abi::{BlockFigures, Figures, SiteKind};
use memintro_analysis::estimates::{Estimate, Estimates, Totals};
use memintro_analysis::sites::{Aged, Site};
use memintro_analysis::{figures, report};

use super::ractor_safe::ractor_safe;
use super::site_rows::site_columns;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    // Ractors may read snapshots.
    ractor_safe(|| {
        native.define_singleton_method("estimate", function!(estimate, 4))?;
        native.define_singleton_method("site_estimate", function!(of_site, 4))?;
        native.define_singleton_method("total_estimate", function!(of_totals, 5))
    })
}

/// Variance, how much of the figure one of its own sampled blocks stands for, the same of those that it is a part of,
/// standard error, and interval.
type Known = (f64, f64, f64, f64, (f64, f64));

fn known(estimate: &Estimate, interval: (f64, f64)) -> Known {
    let Estimate { variance, own_per_sample, per_sample, .. } = *estimate;
    (variance, own_per_sample, per_sample, estimate.standard_error(), interval)
}

/// Of a figure with this variance, of which one sampled block stands for so much. `is_even`: it errs to both sides alike.
fn estimate(value: f64, variance: f64, per_sample: f64, is_even: bool) -> Known {
    let estimate = Estimate { even: is_even, ..Estimate::new(value, variance, 0.0, per_sample) };
    known(&estimate, estimate.interval())
}

/// Of a figure of a call site's row; nil if it has no standard error. With blocks and objects of some age only these are
/// live.
fn of_site(
    row: RArray,
    aged: Option<Vec<f64>>,
    aged_objects: Option<Vec<f64>>,
    name: Symbol,
) -> Result<Option<Known>, Error> {
    let Some(figure) = figures::all().find(|reader| name.name().is_ok_and(|name| name == reader.figure.name))
    else {
        return Ok(None);
    };
    let mut site = site(row)?;
    site.aged = aged.map(|blocks| {
        let (bytes, blocks) = report::old_of(&blocks);
        let (object_bytes, objects) = report::old_of(&aged_objects.unwrap_or_default());
        Aged { bytes, blocks, objects, object_bytes }
    });
    Ok(Estimates::of_figure(&site, &figure).map(|(estimate, interval)| known(&estimate, interval)))
}

/// The figures of a row.
fn site(row: RArray) -> Result<Site, Error> {
    let cell = |name: &str| -> Result<Value, Error> {
        row.entry(site_columns().position(|one| one == name).unwrap_or(usize::MAX >> 1).cast_signed())
    };
    let list = |name: &str| Option::<Vec<f64>>::try_convert(cell(name)?);
    let mut values = Vec::with_capacity(BlockFigures::VALUES.len());
    for name in BlockFigures::VALUES {
        values.push(whole(cell(name)?)?);
    }
    let mut record = report::record(0, SiteKind::RUBY, 0);
    record.blocks = report::blocks_of(&values, list("variances")?.as_deref());
    if let Some(old) = list("old")? {
        (record.old_bytes, record.old_blocks) = report::old_of(&old);
    }
    if let Some(objects) = list("objects")? {
        record.objects = report::objects_of(&objects);
    }
    Ok(Site { record, text: 0, aged: None, callers: None, stack: None, knows_old: true })
}

/// A figure as records have it. What is negative is above the middle. A file may have any number.
fn whole(value: Value) -> Result<u64, Error> {
    let number = Integer::try_convert(value)?;
    match number.to_i64().map(i64::cast_unsigned).or_else(|_| number.to_u64()) {
        Ok(number) => Ok(number),
        Err(_) => Ok((f64::try_convert(value)? as i64).cast_unsigned()),
    }
}

/// Of a figure of totals: their figures, their variances and skews, how many bytes and blocks one sample stands for at
/// least, and whether they are differences.
fn of_totals(
    values: RArray,
    doubts: Vec<f64>,
    per_sample: Option<(f64, f64)>,
    is_flow: bool,
    name: Symbol,
) -> Result<Option<Known>, Error> {
    let values = values.into_iter().map(whole).collect::<Result<Vec<u64>, Error>>()?;
    let all = Totals::with(&Figures::of(&values, &doubts), per_sample.unwrap_or_default(), is_flow);
    Ok(all.named(&name.name()?).map(|estimate| known(estimate, estimate.interval())))
}
