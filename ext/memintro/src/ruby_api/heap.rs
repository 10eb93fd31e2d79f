//! Shared by the methods that read the heap.

use magnus::{Error, Ruby};

use super::errors;
use crate::heap::Trouble;

/// The result, or an error for people.
pub(super) fn checked<T>(ruby: &Ruby, result: Result<T, Trouble>) -> Result<T, Error> {
    result.map_err(|trouble| match trouble {
        Trouble::Missing(names) => errors::error(
            ruby,
            "UnknownRubyError",
            format!(
                "this Ruby has no function {}, which memintro needs to read its heap; docs/ruby_versions.md lists the versions that work",
                names.join(", ")
            ),
        ),
        Trouble::UnknownObjects => errors::error(
            ruby,
            "UnknownRubyError",
            format!(
                "memintro does not know how objects of Ruby {} lie in memory; docs/ruby_versions.md lists the versions that work",
                env!("MEMINTRO_RUBY")
            ),
        ),
        Trouble::NoIseqs => errors::error(
            ruby,
            "UnknownRubyError",
            "memintro does not know how this Ruby marks its instruction sequences; docs/ruby_versions.md lists the versions that work",
        ),
        Trouble::Collecting => errors::error(
            ruby,
            "BusyError",
            "the heap cannot be read while the garbage collector runs; try again later",
        ),
        Trouble::Raised(error) => error,
        Trouble::NoRoom => errors::no_room(ruby),
    })
}
