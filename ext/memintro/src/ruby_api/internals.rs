//! The VM's own objects by kind, as Ruby sees them.

use magnus::{Error, RArray, RModule, Ruby, function, prelude::*};

use super::heap::checked;
use super::histogram;
use crate::heap::objects;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("internals", function!(internals, 0))
}

/// `[[name, count, bytes, internal], …]`
fn internals(ruby: &Ruby) -> Result<RArray, Error> {
    histogram::rows(ruby, &checked(ruby, objects::internals())?)
}
