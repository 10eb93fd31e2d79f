//! Reading a raw dump that a process left behind.

use std::collections::HashMap;

use magnus::{Error, IntoValue, RArray, RHash, RModule, RString, Ruby, function, prelude::*};
use memintro_abi::EXIT_STATUS_UNKNOWN;
use memintro_analysis::raw_dump::{self, RawDump, RawFigures, RawFrame, RawSite, SiteName, Stacks};

use super::errors;
use super::names;
use super::native::{figures_array, object_figures, push_blocks, site_columns};
use crate::callers;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("read_dump", function!(read_dump, 1))
}

fn read_dump(ruby: &Ruby, path: RString) -> Result<RHash, Error> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: copied at once.
    let bytes = unsafe { path.as_slice() }.to_vec();
    let shown = String::from_utf8_lossy(&bytes).into_owned();
    let file = std::fs::read(std::ffi::OsStr::from_bytes(&bytes))
        .map_err(|error| errors::error(ruby, "DumpError", format!("{shown} could not be read: {error}")))?;
    let dump = raw_dump::parse(&file).map_err(|error| {
        errors::error(ruby, "DumpError", format!("{shown} is not a usable raw dump: {error}"))
    })?;
    let sites = ruby.ary_new_capa(dump.sites.len());
    let native = callers::of_dump(&dump);
    for site in &dump.sites {
        let (_, name) = name_of(site);
        let made = row(ruby, sites.len(), site, names::string(ruby, &name), &site.figures)?;
        made.push(native.get(&site.figures.id()).map(|names| callers::one(ruby, names)).transpose()?)?;
        sites.push(made)?;
    }
    let hash = ruby.hash_new();
    hash.aset(ruby.to_symbol("pid"), dump.header.pid)?;
    hash.aset(ruby.to_symbol("time"), dump.header.time)?;
    hash.aset(ruby.to_symbol("signal"), dump.header.signal)?;
    let status = dump.header.exit_status;
    hash.aset(ruby.to_symbol("exit_status"), (status != EXIT_STATUS_UNKNOWN).then_some(status))?;
    hash.aset(ruby.to_symbol("totals"), figures_array(ruby, &dump.header.figures)?)?;
    hash.aset(ruby.to_symbol("sample_bytes"), dump.header.sample_bytes)?;
    hash.aset(ruby.to_symbol("sites"), sites)?;
    if let Some(stacks) = &dump.stacks {
        hash.aset(ruby.to_symbol("stacks"), stack_rows(ruby, &dump, stacks, sites)?)?;
    }
    Ok(hash)
}

/// As `lib/memintro/malloc/site_row.rb` names the columns. What was old is not in a dump.
fn row(
    ruby: &Ruby,
    id: usize,
    site: &RawSite<'_>,
    name: RString,
    figures: &RawFigures,
) -> Result<RArray, Error> {
    let row = ruby.ary_new_capa(site_columns().count());
    row.push(id)?;
    row.push(ruby.to_symbol(name_of(site).0))?;
    row.push(name)?;
    row.push(site.line)?;
    push_blocks(ruby, row, figures.blocks())?;
    row.push(())?;
    row.push(object_figures(ruby, figures.objects())?)?;
    Ok(row)
}

/// Rows whose last cell is the stack, as `Memintro::Native.stacks` makes them.
fn stack_rows(ruby: &Ruby, dump: &RawDump<'_>, stacks: &Stacks<'_>, lines: RArray) -> Result<RArray, Error> {
    let rows = ruby.ary_new_capa(stacks.all().len());
    // A Ruby array, so that the collector sees the frames; and the indices in it, by the number of the frame.
    let (list, mut places) = (ruby.ary_new(), HashMap::new());
    for one in stacks.all() {
        let Some(site) = dump.sites.get(one.site) else { continue };
        let name = lines.entry::<RArray>(one.site.cast_signed())?.entry(2)?;
        let row = row(ruby, rows.len(), site, name, &one.figures)?;
        // Whole stacks have no native callers.
        row.push(())?;
        let stack = ruby.ary_new();
        for frame in stacks.frames(one) {
            let place = match places.get(&frame.number) {
                Some(place) => *place,
                None => {
                    let place = list.len().cast_signed();
                    list.push(frame_array(ruby, &frame)?)?;
                    places.insert(frame.number, place);
                    place
                }
            };
            stack.push(list.entry::<RArray>(place)?)?;
        }
        stack.freeze();
        row.push(one.is_whole().then_some(stack))?;
        rows.push(row)?;
    }
    Ok(rows)
}

/// Path, line and label, frozen.
fn frame_array(ruby: &Ruby, frame: &RawFrame<'_>) -> Result<RArray, Error> {
    let text = |bytes: &[u8]| {
        let text = names::string(ruby, bytes);
        text.freeze();
        text.into_value_with(ruby)
    };
    let made = ruby.ary_new_capa(3);
    made.push(text(frame.path))?;
    made.push(frame.line)?;
    made.push(frame.label.map(text))?;
    made.freeze();
    Ok(made)
}

fn name_of(site: &RawSite<'_>) -> (&'static str, Vec<u8>) {
    match site.name {
        SiteName::Ruby(path) => ("ruby", path.to_vec()),
        SiteName::Native { module, offset } => {
            let file = module.rsplit(|byte| *byte == b'/').next().unwrap_or(module);
            let mut name = file.to_vec();
            name.extend_from_slice(b"(+");
            name.extend_from_slice(offset);
            name.push(b')');
            ("native", name)
        }
        SiteName::Pseudo(name) => ("pseudo", name.to_vec()),
    }
}
