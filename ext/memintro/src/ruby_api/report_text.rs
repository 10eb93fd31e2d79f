//! `Memintro::Native.report_text`: the report of this process for people, without an object for each figure or stack and
//! without a file of Ruby code.

use magnus::{Error, RModule, RString, Ruby, Symbol, function, prelude::*};
use memintro_analysis::report::Report;
use memintro_analysis::text::Options;

use super::report::{Facts, own, root};
use super::{heaviest_stacks, sites, top_sites};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("report_text", function!(report_text, 5))
}

/// Sorted by a figure, with at most so many sites, paths relative to a folder (nil: the current one), and perhaps
/// colours.
fn report_text(
    ruby: &Ruby,
    facts: Facts,
    by: Symbol,
    most: Option<usize>,
    folder: Option<RString>,
    colour: bool,
) -> Result<RString, Error> {
    let figure = top_sites::figure(ruby, &by.name()?)?;
    let (process, totals) = own(ruby, facts)?;
    let sites = sites::greatest(ruby, figure, most.unwrap_or(usize::MAX))?;
    let stacks = heaviest_stacks::of_first(ruby, &sites, figure)?;
    let options = Options { by: figure.figure.name, root: root(folder), colour, is_command: false };
    let report = Report { process, totals, sites, ..Report::default() };
    Ok(ruby.str_new(&report.text(&options, &stacks)))
}
