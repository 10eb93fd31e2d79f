//! What the heap's readers share on their way to Ruby.

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
                "this Ruby lacks {}, which its heap is read with: use one of the versions that memintro's README names",
                names.join(", ")
            ),
        ),
        Trouble::NoIseqs => errors::error(
            ruby,
            "UnknownRubyError",
            "this Ruby marks its instruction sequences in another way than all that memintro knows: use one of the versions that memintro's README names",
        ),
        Trouble::Collecting => errors::error(
            ruby,
            "BusyError",
            "the garbage collector is at work, and nothing may be asked about the heap meanwhile: ask again later",
        ),
        Trouble::Raised(error) => error,
    })
}
