//! All objects by class, as Ruby sees them.

use magnus::{Error, RArray, RModule, Ruby, function, prelude::*};

use super::heap::checked;
use super::names;
use super::without_gvl::without_gvl;
use crate::heap::{self, objects};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("histogram", function!(histogram, 2))?;
    native.define_singleton_method("heap_slots", function!(heap_slots, 0))
}

/// `[[name, count, bytes, internal], …]`, greatest first.
fn histogram(ruby: &Ruby, by_count: bool, limit: Option<usize>) -> Result<RArray, Error> {
    let mut found = checked(ruby, objects::histogram())?;
    without_gvl(|| objects::greatest(&mut found, by_count, limit));
    rows(ruby, &found)
}

/// `[taken, all]`, by the walk that does nothing else.
fn heap_slots(ruby: &Ruby) -> Result<(u64, u64), Error> {
    checked(ruby, heap::count_slots())
}

pub(super) fn rows(ruby: &Ruby, rows: &[objects::Row]) -> Result<RArray, Error> {
    let array = ruby.ary_new_capa(rows.len());
    for row in rows {
        let name = names::string(ruby, &row.name);
        name.freeze();
        array.push((name, row.count, row.bytes, row.internal))?;
    }
    Ok(array)
}
