//! `Memintro::Native.parse_json`: reads JSON from a peer, a log or a file into Ruby values. It does not use the json
//! gem, because the program chooses the gem's version, and may do so after memintro was loaded.
//!
//! The text is not trusted: [`answers`] refuses what is not JSON, and what is nested too deeply, before the machine stack
//! could overflow.

use super::ractor_safe::ractor_safe;
use magnus::{Error, RArray, RHash, RModule, RString, Ruby, Value, function, prelude::*};
use memintro_analysis::answers::{self, Kind, Maker, Wrong};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    ractor_safe(|| native.define_singleton_method("parse_json", function!(parse, 2)))
}

/// The value of `text`, with Strings as keys.
///
/// # Errors
/// ArgumentError: it is not UTF-8, not JSON, or has more than `deepest` values within each other.
fn parse(ruby: &Ruby, text: RString, deepest: usize) -> Result<Value, Error> {
    // SAFETY: copied at once; the copy lives as long as it is read, whatever becomes of the string meanwhile.
    let text = unsafe { text.as_slice() }.to_vec();
    // Null is a value, too.
    match answers::read_or_null(&text, &Kind::Any(deepest), &OfRuby(ruby)) {
        Ok(value) => Ok(value),
        Err(Wrong::NotJson(why) | Wrong::Value(why)) => Err(Error::new(ruby.exception_arg_error(), why)),
    }
}

/// Makes Ruby's values. Those under construction are on the machine stack, which Ruby's collector scans.
pub(super) struct OfRuby<'a>(pub(super) &'a Ruby);

/// 2^64. From here on a whole number is given as a float. Below 2^1023 such a float is whole.
const BEYOND_INTEGERS: f64 = 18_446_744_073_709_551_616.0;

impl Maker for OfRuby<'_> {
    type Value = Value;
    type List = RArray;
    type Object = RHash;

    fn null(&self) -> Value {
        self.0.qnil().as_value()
    }

    fn flag(&self, value: bool) -> Value {
        self.0.into_value(value)
    }

    fn natural(&self, value: u64) -> Value {
        self.0.into_value(value)
    }

    fn whole(&self, value: i64) -> Value {
        self.0.into_value(value)
    }

    fn float(&self, value: f64) -> Value {
        let float = self.0.float_from_f64(value).as_value();
        if value.abs() < BEYOND_INTEGERS {
            return float;
        }
        // Messages show it as it was written.
        float.funcall("to_i", ()).unwrap_or(float)
    }

    fn text(&self, value: &str) -> Value {
        self.0.str_new(value).as_value()
    }

    fn bytes(&self, value: &[u8]) -> Value {
        self.0.str_from_slice(value).as_value()
    }

    fn list(&self) -> RArray {
        self.0.ary_new()
    }

    fn push(&self, list: &mut RArray, value: Value) -> Result<(), String> {
        list.push(value).map_err(|error| error.to_string())
    }

    fn of_list(&self, list: RArray) -> Value {
        list.as_value()
    }

    fn object(&self) -> RHash {
        self.0.hash_new()
    }

    fn put(&self, object: &mut RHash, name: &str, value: Value) -> Result<(), String> {
        object.aset(self.0.str_new(name), value).map_err(|error| error.to_string())
    }

    fn of_object(&self, object: RHash) -> Value {
        object.as_value()
    }
}
