//! `Memintro::Native.page`: a page of HTML that loads nothing.

use magnus::{Error, RArray, RModule, RString, Ruby, function, prelude::*};
use memintro_analysis::page::{AREAS, Page};
use memintro_analysis::text::printable;

use super::ractor_safe::ractor_safe;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    // Ractors may read snapshots.
    ractor_safe(|| native.define_singleton_method("page", function!(page, 6)))
}

/// With its title and heading, lines below it, sentences that a reader needs first, what to beware of, HTML, and JSON with
/// the rows of a treemap (nil: it has none).
fn page(
    ruby: &Ruby,
    (title, heading): (RString, RString),
    facts: RArray,
    verdict: RArray,
    notes: RArray,
    body: RString,
    rows: Option<RString>,
) -> Result<RString, Error> {
    // SAFETY: copied at once.
    let shown = |text: RString| printable(unsafe { text.as_slice() });
    let all = |texts: RArray| {
        (0..texts.len()).map(|at| texts.entry(at.cast_signed()).map(shown)).collect::<Result<Vec<_>, _>>()
    };
    let (title, heading) = (shown(title), shown(heading));
    let (facts, verdict, notes) = (all(facts)?, all(verdict)?, all(notes)?);
    let (body, rows) = (body.to_string()?, rows.map(RString::to_string).transpose()?);
    let page = Page {
        title: &title,
        heading: Some(&heading),
        facts: &facts,
        verdict: &verdict,
        notes: &notes,
        body: &body,
        script: rows.as_deref().map(|rows| (AREAS, rows)),
    };
    let mut out = Vec::new();
    page.write(&mut out).map_err(|error| Error::new(ruby.exception_runtime_error(), error.to_string()))?;
    Ok(ruby.enc_str_new(out, ruby.utf8_encoding()))
}
