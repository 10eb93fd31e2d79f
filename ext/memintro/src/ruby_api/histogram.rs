//! All objects by class, for Ruby.

use magnus::{Error, RModule, RString, Ruby, function, prelude::*};

use super::heap::checked;
use super::names;
use super::slices::yield_rows;
use super::without_gvl::without_gvl;
use crate::heap::{
    self,
    objects::{self, Row},
};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("histogram", function!(histogram, 2))?;
    native.define_singleton_method("heap_slots", function!(heap_slots, 0))
}

/// Yields slices of `[[name, count, bytes, internal], …]`, greatest first.
fn histogram(ruby: &Ruby, by_count: bool, limit: Option<usize>) -> Result<(), Error> {
    let found = checked(ruby, objects::histogram())?;
    let rows = without_gvl(|| found.rows(by_count, limit))?;
    yield_rows(ruby, &rows, |row| shown(ruby, row))
}

/// `[taken, all]`, by the walk that does nothing else.
fn heap_slots(ruby: &Ruby) -> Result<(u64, u64), Error> {
    checked(ruby, heap::count_slots())
}

pub(super) fn shown(ruby: &Ruby, row: &Row) -> (RString, u64, u64, bool) {
    let name = names::string(ruby, &row.name);
    name.freeze();
    (name, row.count, row.bytes, row.internal)
}
