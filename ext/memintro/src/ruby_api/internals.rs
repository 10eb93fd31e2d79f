//! The VM's own objects by kind, for Ruby.

use magnus::{Error, RModule, Ruby, function, prelude::*};

use super::heap::checked;
use super::histogram;
use super::slices::yield_rows;
use crate::heap::objects;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("internals", function!(internals, 0))
}

/// Yields `[[name, count, bytes, internal], …]`, most bytes first.
fn internals(ruby: &Ruby) -> Result<(), Error> {
    let rows = checked(ruby, objects::internals())?;
    yield_rows(ruby, &rows, |row| histogram::shown(ruby, row))
}
