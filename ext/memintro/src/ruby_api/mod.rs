//! Lists what Ruby sees of the extension.

mod account;
mod answers;
mod at_fork;
mod blocks;
mod changes;
mod control_socket;
mod errors;
mod estimates;
mod heap;
mod heap_dump;
mod heap_text;
mod heaviest_stacks;
mod histogram;
mod holding;
mod internals;
mod iseqs;
mod json;
mod json_document;
mod leaks;
mod measure;
mod mem_check;
mod missing;
mod names;
mod native;
mod objects;
mod occupancy;
mod patches;
mod process;
mod ractor_safe;
mod report;
mod report_text;
mod request;
mod rounds;
mod site_rows;
mod sites;
mod slices;
mod sockets;
mod stacks;
mod survey;
mod top_sites;
mod tracking;
mod tracking_hold;
mod trial;
mod values;
mod without_gvl;

use magnus::{Error, Ruby, prelude::*};

/// Defines everything under `Memintro::Native`, the private interface that `lib/memintro` is built upon.
pub(crate) fn init(ruby: &Ruby) -> Result<(), Error> {
    let memintro = ruby.define_module("Memintro")?;
    let native = memintro.define_module("Native")?;
    errors::init(ruby)?;
    native::init(native)?;
    estimates::init(native)?;
    site_rows::init(ruby, native)?;
    patches::init(native)?;
    control_socket::init(native)?;
    process::init(native)?;
    report_text::init(native)?;
    request::init(native)?;
    rounds::init(ruby, native)?;
    account::init(native)?;
    answers::init(native)?;
    heap_dump::init(ruby, native)?;
    holding::init(native)?;
    blocks::init(native)?;
    changes::init(native)?;
    iseqs::init(native)?;
    json::init(native)?;
    leaks::init(native)?;
    measure::init(ruby, native)?;
    mem_check::init(native)?;
    missing::init(native)?;
    objects::init(native)?;
    internals::init(native)?;
    histogram::init(native)?;
    occupancy::init(native)?;
    heap_text::init(native)?;
    sockets::init(native)?;
    stacks::init(native)?;
    top_sites::init(native)?;
    survey::init(ruby, native)?;
    report::init(ruby, native)?;
    json_document::init(ruby, native)?;
    tracking::init(native)?;
    trial::init(native)
}

/// magnus asks Ruby for a wrapped type's class once, when its first object is made. Meanwhile Ruby may let another
/// thread run, and that one, if it makes such an object too, would wait for the first one with the GVL, for which the
/// first one waits. So the class is asked for when it is defined: no other thread knows it yet.
fn know_class<T: magnus::TypedData>(ruby: &magnus::Ruby) {
    T::class(ruby);
}
