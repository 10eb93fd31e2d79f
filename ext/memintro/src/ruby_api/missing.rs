//! Lists what this Ruby lacks, for the doctor.

use magnus::{Error, RHash, RModule, Ruby, function, prelude::*};

use super::{control_socket, without_gvl};
use crate::{atlas, heap, heap_dump, markings, measure, object_events, vm};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("known_rubies", function!(known_rubies, 0))?;
    native.define_singleton_method("missing_functions", function!(missing_functions, 0))
}

/// The versions of Ruby of whose objects memintro knows the memory, such as "3.1".
fn known_rubies() -> Vec<String> {
    atlas::ALL.iter().map(|atlas| format!("{}.{}", atlas.version.0, atlas.version.1)).collect()
}

/// `{lines: [name, …], …}`: names of missing functions, by the feature that needs them.
fn missing_functions(ruby: &Ruby) -> Result<RHash, Error> {
    let [walk, classes, iseqs] = heap::missing();
    let iseq_kind =
        if heap::iseqs::are_known() == Some(false) { vec!["imemo_iseq where it was"] } else { Vec::new() };
    let found = ruby.hash_new();
    let groups = [
        ("lines", vm::missing()),
        ("heap", walk),
        ("classes", classes),
        ("iseqs", iseqs),
        ("iseq_kind", iseq_kind),
        ("measurements", measure::missing()),
        ("turns", without_gvl::missing()),
        ("forks", control_socket::missing()),
        ("objects", object_events::missing()),
        ("samples", markings::missing()),
        ("dumps", heap_dump::missing()),
    ];
    for (what, names) in groups {
        if !names.is_empty() {
            found.aset(ruby.to_symbol(what), ruby.ary_from_vec(names))?;
        }
    }
    Ok(found)
}
