//! Texts about what is in Ruby's heap: tables of its kinds, and objects with what holds them.

use magnus::{Error, RArray, RModule, RString, Value, function, prelude::*};
use memintro_analysis::text::{counts::Counts, objects};

use super::ractor_safe::ractor_safe;
use super::report::root;
use super::values;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    ractor_safe(|| {
        native.define_singleton_method("heap_table", function!(table, 6))?;
        native.define_singleton_method("large_object_text", function!(large_object, 1))?;
        native.define_singleton_method("held_value_text", function!(held_value, 1))
    })
}

/// Rows of name, count and bytes as a table. `what` they are, and what their names are: a `column`, perhaps of paths.
fn table(
    what: String,
    column: String,
    are_paths: bool,
    rows: RArray,
    top: Option<usize>,
    colour: bool,
) -> Result<String, Error> {
    let row = |at: usize| {
        let (name, count, bytes): (RString, i64, i64) = rows.entry(at.cast_signed())?;
        // SAFETY: copied at once.
        Ok((unsafe { name.as_slice() }.to_vec(), count, bytes))
    };
    let rows = (0..rows.len()).map(row).collect::<Result<_, Error>>()?;
    let root = if are_paths { root(None) } else { None };
    Ok(Counts { what, column, root, are_paths, rows }.text(top, colour))
}

/// Of a Hash of `Memintro::LargeObject`.
fn large_object(object: Value) -> Result<String, Error> {
    Ok(objects::large_object(&values::of_ruby(object)?))
}

/// Of a Hash of `Memintro::HeldValue`.
fn held_value(value: Value) -> Result<String, Error> {
    Ok(objects::held_value(&values::of_ruby(value)?))
}
