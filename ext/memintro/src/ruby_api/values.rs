//! Writes plain Ruby values as JSON, for the beginning of a file or report. It makes no Ruby object, and calls no
//! method that a program may have replaced.

use magnus::r_hash::ForEach;
use magnus::{Error, Float, Integer, RArray, RHash, RString, Symbol, Value, prelude::*};
use memintro_analysis::json::{self, Bytes};

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

fn append(out: &mut String, value: Value, bytes: Bytes) -> Result<(), Error> {
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
