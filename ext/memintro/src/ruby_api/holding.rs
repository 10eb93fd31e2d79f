//! Finding objects, roots, and what stacks hold, for Ruby.

use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{Error, RArray, RModule, Ruby, Value, function, prelude::*};
use rb_sys::VALUE;

use super::errors;
use super::heap::checked;
use crate::atlas::types;
use crate::heap::find::{self, Wanted};
use crate::heap_dump::inside::{self, Held};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("heap_find", function!(heap_find, 3))?;
    native.define_singleton_method("heap_object", function!(heap_object, 2))?;
    native.define_singleton_method("heap_address", function!(heap_address, 1))?;
    native.define_singleton_method("heap_counts", function!(heap_counts, 0))?;
    native.define_singleton_method("heap_roots", function!(heap_roots, 0))?;
    native.define_singleton_method("heap_children", function!(heap_children, 1))
}

/// Objects of the class or of one below it, nil for any, with so many bytes at least; so many at most. Its memory is taken
/// before the walk, because a collection after it could free what was found.
fn heap_find(ruby: &Ruby, class: Value, least_bytes: u64, most: usize) -> Result<RArray, Error> {
    let wanted = Wanted { class: (!class.is_nil()).then(|| class.as_raw() as VALUE), least_bytes };
    let count = checked(ruby, find::find(wanted, most, |_| ()))?;
    let found = ruby.ary_new_capa(count);
    let array = found.as_raw();
    let fill = |object| {
        if object != array {
            // SAFETY: an object, into an array that has room for it, so that nothing is allocated.
            unsafe { rb_sys::rb_ary_push(array, object) };
        }
    };
    checked(ruby, find::find(wanted, count, fill))?;
    Ok(found)
}

/// The object at an address, if its class still has this name. Nil otherwise.
fn heap_object(ruby: &Ruby, address: usize, class: String) -> Result<Option<Value>, Error> {
    let Some(object) = checked(ruby, find::at(address))? else { return Ok(None) };
    let found = checked(ruby, find::described(object))? == class;
    // SAFETY: an object of the heap that a program may see.
    Ok(found.then(|| unsafe { Value::from_raw(object) }))
}

/// Where an object is; nil for what is none, such as small Integers.
fn heap_address(value: Value) -> Option<usize> {
    let address = value.as_raw() as usize;
    (address > 0xff && address & 7 == 0).then_some(address)
}

/// `[[type, count], …]`.
fn heap_counts(ruby: &Ruby) -> Result<RArray, Error> {
    let counts = checked(ruby, find::counts())?;
    let rows = ruby.ary_new();
    for (kind, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        rows.push((ruby.to_symbol(if kind == 0 { "free" } else { types::name(kind) }), *count))?;
    }
    Ok(rows)
}

/// `[[category, name or nil, class, address], …]`.
fn heap_roots(ruby: &Ruby) -> Result<RArray, Error> {
    rows(ruby, inside::roots())
}

/// The same of what an object holds; the category is empty.
fn heap_children(ruby: &Ruby, object: Value) -> Result<RArray, Error> {
    rows(ruby, inside::children(object.as_raw() as VALUE))
}

fn rows(ruby: &Ruby, held: Option<Vec<Held>>) -> Result<RArray, Error> {
    let Some(held) = held else {
        return Err(errors::error(
            ruby,
            "UnknownRubyError",
            "this Ruby does not list the references of its objects; docs/ruby_versions.md lists the versions that work",
        ));
    };
    // All names are copied before the first object is made: a collection could free what is held no more.
    let mut copied = Vec::with_capacity(held.len());
    for one in held {
        let class = checked(ruby, find::described(one.object))?;
        copied.push((one.from, one.name, class, one.object as usize));
    }
    let rows = ruby.ary_new_capa(copied.len());
    for (from, name, class, address) in copied {
        rows.push((from, name, class, address))?;
    }
    Ok(rows)
}
