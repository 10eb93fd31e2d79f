//! `Memintro::Native::FirstCall#method_missing`: the first call of a method of `Memintro` where `memintro run` has not loaded
//! it yet. It makes no object, as a method in Ruby would make an Array of its arguments.

use std::ffi::c_int;

use magnus::rb_sys::{AsRawValue, FromRawValue, protect};
use magnus::value::ReprValue;
use magnus::{Error, Module, RModule, Symbol, TryConvert, Value, method};
use rb_sys::{rb_call_super, rb_funcall_passing_block_kw, rb_keyword_given_p, rb_sym2id};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_module("FirstCall")?.define_private_method("method_missing", method!(method_missing, -1))
}

/// Loads all, and calls the method again, with the same arguments and block. If all has been loaded already, it calls what is
/// there now: another thread may have loaded it since this call looked for the method.
fn method_missing(memintro: Value, arguments: &[Value]) -> Result<Value, Error> {
    // SAFETY: asks about the frame of this method, of which we have the GVL.
    let has_keywords = unsafe { rb_keyword_given_p() };
    let rest: RModule = RModule::try_convert(memintro)?.const_get("Rest")?;
    let is_loaded: bool = rest.funcall("load", ())?;
    let is_there = |name: Symbol| is_loaded || memintro.respond_to(name, false).unwrap_or(false);
    // A `Value` is a `VALUE`.
    let given = arguments.as_ptr().cast();
    let count = |arguments: &[Value]| arguments.len() as c_int;
    let result = match arguments.split_first() {
        Some((name, others)) if Symbol::from_value(*name).is_some_and(is_there) => protect(|| {
            // SAFETY: the name is a Symbol, the arguments are as many, and errors are caught.
            unsafe {
                let name = rb_sym2id(name.as_raw());
                let others = (count(others), others.as_ptr().cast());
                rb_funcall_passing_block_kw(memintro.as_raw(), name, others.0, others.1, has_keywords)
            }
        }),
        // SAFETY: a method of Ruby runs, with its own arguments, and errors are caught.
        _ => protect(|| unsafe { rb_call_super(count(arguments), given) }),
    };
    // SAFETY: Ruby returned it just now.
    result.map(|value| unsafe { Value::from_raw(value) })
}
