//! `Memintro::Native.report_text`: the report of this process for people, without an object for each figure or stack and
//! without a file of Ruby code.

use std::os::unix::ffi::OsStringExt;

use magnus::{Error, RModule, RString, Ruby, Symbol, function, prelude::*};
use memintro_abi::{Figures, Mode, Origin};
use memintro_analysis::text::{self, Head};

use super::{heaviest_stacks, native, sites, top_sites, trial};
use crate::{hook_link, process};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("report_text", function!(report_text, 5))
}

/// The version of memintro, the process, the version of Ruby, the time, and the program's name.
type Facts = (String, u32, String, String, RString);

/// Sorted by a figure, with at most so many sites, paths relative to a folder (nil: the current one), and perhaps
/// colours.
fn report_text(
    ruby: &Ruby,
    facts: Facts,
    by: Symbol,
    most: Option<usize>,
    root: Option<RString>,
    colour: bool,
) -> Result<RString, Error> {
    let by = by.name()?.into_owned();
    let figure = top_sites::figure(ruby, &by)?;
    let (memintro, pid, version, time, program) = facts;
    let (mode, preloaded, sample_bytes) = hook_link::found().map_or((Mode::OFF, false, 0), |api| {
        ((api.mode)(), (api.origin)() == Origin::PRELOADED, (api.sample_bytes)())
    });
    let mut figures = Figures::default();
    if let Some(api) = hook_link::found() {
        // SAFETY: a valid record.
        unsafe { (api.totals)(&raw mut figures) };
    }
    let problem = trial::unseen();
    let rows = sites::greatest(ruby, figure, most.unwrap_or(usize::MAX))?;
    let stacks = heaviest_stacks::of_first(ruby, &rows, figure)?;
    // SAFETY: copied at once.
    let bytes = |text: RString| unsafe { text.as_slice() }.to_vec();
    let current = || std::env::current_dir().ok().map(|folder| folder.into_os_string().into_vec());
    let head = Head {
        memintro,
        pid,
        ruby: version,
        time,
        program: bytes(program),
        mode: match mode {
            Mode::OFF => None,
            Mode::SAMPLED => Some("sampled"),
            _ => Some("full"),
        },
        preloaded,
        sample_bytes: if figures.estimated != 0 { sample_bytes } else { 0 },
        problem,
        root: root.map(bytes).or_else(current),
        colour,
        rss: process::own_statm().ok().map(|sizes| sizes.rss),
    };
    // The code that has taken the figures is needed no more, and that of the text comes now.
    let text = native::with_pages_apart(|| text::report(&head, &figures, &rows, &by, &stacks));
    Ok(ruby.str_new(&text))
}
