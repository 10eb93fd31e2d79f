//! The VM's own objects by kind, as Ruby sees them.

use magnus::{Error, RArray, RModule, Ruby, function, prelude::*};

use super::heap::checked;
use super::histogram;
use crate::heap::objects;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("internals", function!(internals, 0))
}

/// `[[name, count, bytes, internal], …]`, most bytes first.
fn internals(ruby: &Ruby) -> Result<RArray, Error> {
    let mut rows = checked(ruby, objects::internals())?;
    objects::greatest(&mut rows, false, None);
    histogram::rows(ruby, &rows)
}
