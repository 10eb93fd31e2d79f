//! Reading a raw dump that a process left behind.

use magnus::{Error, RHash, RModule, RString, Ruby, function, prelude::*};
use memintro_abi::EXIT_STATUS_UNKNOWN;
use memintro_analysis::raw_dump::{self, RawSite, SiteName};

use super::errors;
use super::names;
use super::native::{figures_array, variances_array};
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
    let stacks = callers::of_dump(&dump);
    for (id, site) in dump.sites.iter().enumerate() {
        let row = ruby.ary_new_capa(12);
        let (kind, name) = name_of(site);
        row.push(id)?;
        row.push(ruby.to_symbol(kind))?;
        row.push(names::string(ruby, &name))?;
        row.push(site.line)?;
        for figure in site.figures() {
            // Bytes that were live at a mark can be negative if the mark came after `Mwrap.reset`.
            row.push(figure.cast_signed())?;
        }
        row.push(variances_array(ruby, site.variances()))?;
        // What is old, and objects, are not in it.
        row.push(ruby.qnil())?;
        row.push(ruby.qnil())?;
        row.push(stacks.get(&site.id).map(|names| callers::one(ruby, names)).transpose()?)?;
        sites.push(row)?;
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
    Ok(hash)
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
