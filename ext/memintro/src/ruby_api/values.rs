//! Plain Ruby values: writes them as JSON, for the beginning of a file or report, and gives them to and takes them from the
//! report engine. It calls no method that a program may have replaced.

use magnus::r_hash::ForEach;
use magnus::{Error, Float, Integer, RArray, RHash, RString, Ruby, Symbol, Value, prelude::*};
use memintro_analysis::json::{self, Bytes};
use memintro_analysis::value::Value as Plain;

/// `"key":value,"key":value` of a hash.
pub(super) fn members(hash: RHash, bytes: Bytes) -> Result<String, Error> {
    let mut out = String::new();
    hash.foreach(|key: Value, value: Value| {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(&json::text(&key_of(key)?, Bytes::Shown));
        out.push(':');
        append(&mut out, value, bytes)?;
        Ok(ForEach::Continue)
    })?;
    Ok(out)
}

/// The keys of hashes are names or numbers.
fn key_of(key: Value) -> Result<Vec<u8>, Error> {
    if let Some(symbol) = Symbol::from_value(key) {
        return Ok(symbol.name()?.as_bytes().to_vec());
    }
    match Integer::from_value(key) {
        Some(number) => Ok(number.to_string().into_bytes()),
        None => Ok(copied(RString::try_convert(key)?)),
    }
}

pub(super) fn append(out: &mut String, value: Value, bytes: Bytes) -> Result<(), Error> {
    if let Some(string) = RString::from_value(value) {
        out.push_str(&json::text(&copied(string), bytes));
    } else if let Some(symbol) = Symbol::from_value(value) {
        out.push_str(&json::text(symbol.name()?.as_bytes(), bytes));
    } else if let Some(number) = Integer::from_value(value) {
        out.push_str(&number.to_string());
    } else if let Some(number) = Float::from_value(value) {
        out.push_str(&json::number(number.to_f64()));
    } else if let Some(hash) = RHash::from_value(value) {
        out.push('{');
        out.push_str(&members(hash, bytes)?);
        out.push('}');
    } else if let Some(array) = RArray::from_value(value) {
        out.push('[');
        for index in 0..array.len() {
            if index > 0 {
                out.push(',');
            }
            append(out, array.entry(index.cast_signed())?, bytes)?;
        }
        out.push(']');
    } else if value.is_nil() {
        out.push_str("null");
    } else {
        out.push_str(if value.to_bool() { "true" } else { "false" });
    }
    Ok(())
}

fn copied(string: RString) -> Vec<u8> {
    // SAFETY: copied at once.
    unsafe { string.as_slice() }.to_vec()
}

/// Values within each other that are read of Ruby.
const DEEPEST: usize = 64;

/// A value of Ruby with what is in it; what is nested too deeply is nil.
pub(super) fn of_ruby(value: Value) -> Result<Plain, Error> {
    nested(value, DEEPEST)
}

fn nested(value: Value, left: usize) -> Result<Plain, Error> {
    let Some(left) = left.checked_sub(1) else { return Ok(Plain::Null) };
    Ok(if let Some(string) = RString::from_value(value) {
        Plain::Text(json::shown(&copied(string)))
    } else if let Some(symbol) = Symbol::from_value(value) {
        Plain::Name(symbol.name()?.into_owned())
    } else if let Some(number) = Integer::from_value(value) {
        Plain::Whole(number.to_i64().unwrap_or(i64::MAX))
    } else if let Some(number) = Float::from_value(value) {
        Plain::Float(number.to_f64())
    } else if let Some(hash) = RHash::from_value(value) {
        let mut members = Vec::with_capacity(hash.len());
        hash.foreach(|key: Value, value: Value| {
            members.push((json::shown(&key_of(key)?), nested(value, left)?));
            Ok(ForEach::Continue)
        })?;
        Plain::Members(members)
    } else if let Some(array) = RArray::from_value(value) {
        let items = (0..array.len()).map(|index| nested(array.entry(index.cast_signed())?, left));
        Plain::List(items.collect::<Result<_, _>>()?)
    } else if value.is_nil() {
        Plain::Null
    } else {
        Plain::Bool(value.to_bool())
    })
}

/// As Ruby has it, with Symbols for the names of members.
pub(super) fn to_ruby(ruby: &Ruby, value: &Plain) -> Result<Value, Error> {
    Ok(match value {
        Plain::Null => ruby.qnil().as_value(),
        Plain::Bool(value) => ruby.into_value(*value),
        Plain::Whole(number) => ruby.into_value(*number),
        Plain::Float(number) => ruby.float_from_f64(*number).as_value(),
        Plain::Text(text) => ruby.str_new(text).as_value(),
        Plain::Name(text) => ruby.to_symbol(text).as_value(),
        Plain::List(items) => {
            let array = ruby.ary_new_capa(items.len());
            for item in items {
                array.push(to_ruby(ruby, item)?)?;
            }
            array.as_value()
        }
        Plain::Members(members) => {
            let hash = ruby.hash_new();
            for (name, value) in members {
                hash.aset(ruby.to_symbol(name), to_ruby(ruby, value)?)?;
            }
            hash.as_value()
        }
    })
}
