//! One field of a line at any position. `None`: it has an unusual form, and the line must be read byte by
//! byte.

use super::Wants;
use super::line::{Line, Type};
use super::words::{address, eight, is_at, is_reference, number, quote, sixteen, word};
use memchr::memchr2;

/// The first bytes of the text from `from` to `to`, in the form of [`word`].
#[inline]
fn word_at(text: &[u8], from: usize, to: usize) -> Option<u64> {
    let bytes = eight(text, from)?;
    Some(match to - from {
        0 => 0,
        length @ 1..8 => bytes & (u64::MAX >> (64 - length * 8)),
        _ => bytes,
    })
}

#[inline]
pub(super) fn behind(text: &[u8], at: usize) -> &[u8] {
    text.get(at..).unwrap_or_default()
}

/// Reads the field whose name's quote is at `at`, and returns the position behind it.
#[inline]
pub(super) fn field<'a>(text: &'a [u8], at: usize, line: &mut Line<'a>, wants: Wants) -> Option<usize> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let begin = at + 1;
    let end = quote(text, begin)?;
    let name = word_at(text, begin, end)?;
    let length = end - begin;
    if text.get(end + 1) != Some(&b':') {
        return None;
    }
    let mut at = end + 2;
    if text.get(at) == Some(&b' ') {
        at += 1;
    }
    match *text.get(at)? {
        b'"' => text_field(text, at + 1, (name, length), begin, line, wants),
        b'0'..=b'9' => {
            let (number, behind) = number(text, at)?;
            match (name, length) {
                (MEMSIZE, 7) => line.memsize = number,
                (LINE, 4) => line.line = if wants.sites { number } else { 0 },
                (GENERATION, 10) if ends(text, end, b"on") => line.generation = Some(number),
                (BYTESIZE, 8) => line.bytesize = number,
                (ONE_IN, 6) => line.one_in = number,
                (OBJECTS, 7) => line.objects = Some(number),
                // Another value of these counts as none.
                _ if may_be_text(name) => return None,
                _ => {}
            }
            Some(behind)
        }
        b'[' => {
            let begin = at + 1;
            if (name, length) == (REFERENCES, 10) && ends(text, end, b"es") {
                let end = references(text, begin)?;
                line.references = &text[begin..end];
                return Some(end + 1);
            }
            if (name, length) != (EDGES, 5) {
                return None;
            }
            let end = texts(text, begin)?;
            line.edges = if wants.edges { &text[begin..end] } else { b"" };
            Some(end + 1)
        }
        b'{' if (name, length) == (FLAGS, 5) => flags(text, at + 1),
        b't' if eight(text, at)? as u32 == u32::from_le_bytes(*b"true") => {
            if (name, length) == (SINGLETON, 9) && ends(text, end, b"n") {
                line.singleton = true;
            } else if may_be_text(name) || may_be_number(name) {
                return None;
            }
            Some(at + 4)
        }
        _ => None,
    }
}

const CLASS: u64 = word(b"class");
const ADDRESS: u64 = word(b"address");
const KIND: u64 = word(b"type");
const FILE: u64 = word(b"file");
const VALUE: u64 = word(b"value");
const NAME: u64 = word(b"name");
const ROOT: u64 = word(b"root");
const AT: u64 = word(b"at");
const LABEL: u64 = word(b"label");
const STRUCT: u64 = word(b"struct");
const IMEMO_TYPE: u64 = word(b"imemo_type");
const SUPERCLASS: u64 = word(b"superclass");
const VALUE_HASH: u64 = word(b"value_hash");
const MEMSIZE: u64 = word(b"memsize");
const LINE: u64 = word(b"line");
const GENERATION: u64 = word(b"generation");
const BYTESIZE: u64 = word(b"bytesize");
const ONE_IN: u64 = word(b"one_in");
const OBJECTS: u64 = word(b"objects");
const REFERENCES: u64 = word(b"references");
const EDGES: u64 = word(b"edges");
const FLAGS: u64 = word(b"flags");
const SINGLETON: u64 = word(b"singleton");

/// Fields with this beginning are texts, as far as they are known.
#[inline]
fn may_be_text(name: u64) -> bool {
    matches!(
        name,
        CLASS
            | ADDRESS
            | KIND
            | FILE
            | VALUE
            | NAME
            | ROOT
            | AT
            | LABEL
            | STRUCT
            | IMEMO_TYPE
            | SUPERCLASS
            | VALUE_HASH
            | SINGLETON
            | REFERENCES
            | EDGES
    )
}

#[inline]
fn may_be_number(name: u64) -> bool {
    matches!(name, MEMSIZE | LINE | GENERATION | BYTESIZE | ONE_IN | OBJECTS)
}

/// Whether the name that ends at `end` ends with this text; its beginning is known.
#[inline]
fn ends(text: &[u8], end: usize, with: &[u8]) -> bool {
    text[..end].ends_with(with)
}

#[inline]
pub(super) fn kind(text: &[u8], from: usize, to: usize) -> Option<Type> {
    // No type has a longer name.
    Some(if to - from > 8 { Type::Other } else { Type::of_word(word_at(text, from, to)?, to - from) })
}

/// A field whose value is a text, which begins at `at`.
#[inline]
fn text_field<'a>(
    text: &'a [u8],
    at: usize,
    (name, length): (u64, usize),
    begin: usize,
    line: &mut Line<'a>,
    wants: Wants,
) -> Option<usize> {
    if (name, length) == (CLASS, 5) {
        let (class, end) = address(text, at)?;
        line.class = class;
        return Some(end + 1);
    }
    let end = quote(text, at)?;
    let value = &text[at..end];
    match (name, length) {
        (FILE, 4) => line.file = if wants.sites { value } else { b"" },
        (VALUE, 5) => {
            line.has_value = wants.values;
            line.value = if wants.values { value } else { b"" };
        }
        (KIND, 4) => line.kind = kind(text, at, end)?,
        (ADDRESS, 7) => line.address = address(text, at)?.0,
        (NAME, 4) => line.name = value,
        (ROOT, 4) => line.root = value,
        (AT, 2) => line.at = value,
        (LABEL, 5) => line.label = value,
        (STRUCT, 6) => line.sort = value,
        (IMEMO_TYPE, 10) if &text[begin..begin + length] == b"imemo_type" => line.sort = value,
        (SUPERCLASS, 10) if &text[begin..begin + length] == b"superclass" => {
            line.superclass = address(text, at)?.0;
        }
        (VALUE_HASH, 10) if &text[begin..begin + length] == b"value_hash" => {
            line.value_hash = if wants.values { value } else { b"" };
        }
        (REFERENCES | EDGES | SINGLETON, _) => return None,
        _ if may_be_number(name) => return None,
        _ => {}
    }
    Some(end + 1)
}

/// The position of the `]` of texts that begin at `at`.
#[inline]
pub(super) fn texts(text: &[u8], mut at: usize) -> Option<usize> {
    if text.get(at) == Some(&b']') {
        return Some(at);
    }
    loop {
        if text.get(at) != Some(&b'"') {
            return None;
        }
        at = quote(text, at + 1)? + 1;
        match *text.get(at)? {
            b']' => return Some(at),
            b',' => at += 1,
            _ => return None,
        }
        if text.get(at) == Some(&b' ') {
            at += 1;
        }
    }
}

/// The position behind the flags of the collector, which begin at `at`: `"old":true, …}`.
#[inline]
pub(super) fn flags(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *text.get(at)? {
            b'"' => at = quote(text, at + 1)? + 1,
            b'}' => return Some(at + 1),
            _ => return None,
        }
        if !is_at(text, at, b":true") {
            return None;
        }
        at += 5;
        if is_at(text, at, b", ") {
            at += 2;
        }
    }
}

/// The position of the `]` of references that begin at `at`.
#[inline]
pub(super) fn references(text: &[u8], mut at: usize) -> Option<usize> {
    // Most addresses have twelve digits.
    while let Some(bytes) = sixteen(text, at)
        && is_reference(bytes)
    {
        match *text.get(at + 16)? {
            b']' => return Some(at + 16),
            b',' if text.get(at + 17) == Some(&b' ') => at += 18,
            _ => break,
        }
    }
    let length = memchr2(b']', b'\n', &text[at..])?;
    (text[at + length] == b']').then_some(at + length)
}
