//! `Memintro::Native.estimate` and its relatives: what is known of the error of a figure, for `Memintro::Estimates`.

use magnus::{Error, RArray, RModule, Symbol, function, prelude::*};
use memintro_abi::Figures;
use memintro_analysis::estimates::{Estimate, Estimates, Totals};
use memintro_analysis::figures;
use memintro_analysis::sites::Aged;

use super::ractor_safe::ractor_safe;
use super::site_rows::{self, whole};

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
    let mut site = site_rows::site(row)?;
    site.aged = aged.map(|blocks| {
        let [bytes, blocks] = site_rows::old_of(&blocks);
        let [object_bytes, objects] = site_rows::old_of(&aged_objects.unwrap_or_default());
        Aged { bytes, blocks, objects, object_bytes }
    });
    Ok(Estimates::of_figure(&site, &figure).map(|(estimate, interval)| known(&estimate, interval)))
}

/// Of a figure of totals: their figures, variance and skew of each, how many bytes and blocks one sample stands for at
/// least, and whether they are differences.
fn of_totals(
    values: RArray,
    doubts: Vec<f64>,
    per_sample: Option<(f64, f64)>,
    is_flow: bool,
    name: Symbol,
) -> Result<Option<Known>, Error> {
    let values = values.into_iter().map(whole).collect::<Result<Vec<u64>, Error>>()?;
    let figures = Figures::from_cells(site_rows::cells(&values, &doubts), true);
    let all = Totals::with(&figures, per_sample.unwrap_or_default(), is_flow);
    Ok(all.named(&name.name()?).map(|estimate| known(estimate, estimate.interval())))
}
