//! Reads a line by the index of its quotes. Whatever it does not expect, it leaves to [`Line::parse`].

use super::Wants;
use super::line::{Line, Type, hex};
use memchr::memchr;

/// A field's name, as its first eight bytes and its length.
const fn key(name: &[u8]) -> (u64, usize) {
    let mut word = 0;
    let mut at = 0;
    while at < 8 && at < name.len() {
        word |= (name[at] as u64) << (at * 8);
        at += 1;
    }
    (word, name.len())
}

const ADDRESS: (u64, usize) = key(b"address");
const TYPE: (u64, usize) = key(b"type");
const CLASS: (u64, usize) = key(b"class");
const MEMSIZE: (u64, usize) = key(b"memsize");
const REFERENCES: (u64, usize) = key(b"references");
const FLAGS: (u64, usize) = key(b"flags");
const FILE: (u64, usize) = key(b"file");
const LINE: (u64, usize) = key(b"line");
const GENERATION: (u64, usize) = key(b"generation");
const ONE_IN: (u64, usize) = key(b"one_in");
const BYTESIZE: (u64, usize) = key(b"bytesize");
const VALUE: (u64, usize) = key(b"value");
const IMEMO: (u64, usize) = key(b"imemo_type");
const STRUCT: (u64, usize) = key(b"struct");
/// Fields that nothing is taken from.
const IGNORED: [(u64, usize); 8] = [
    key(b"encoding"),
    key(b"method"),
    key(b"embedded"),
    key(b"ivars"),
    key(b"length"),
    key(b"size"),
    key(b"capacity"),
    key(b"fstring"),
];

#[inline]
fn key_at(text: &[u8], from: usize, to: usize) -> (u64, usize) {
    let length = to - from;
    match text.get(from..from + 8).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) if length >= 8 => (u64::from_le_bytes(bytes), length),
        Some(bytes) => (u64::from_le_bytes(bytes) & ((1 << (length * 8)) - 1), length),
        None => (0, usize::MAX),
    }
}

/// Reads the line `text[from..to]`, whose quotes are `marks`. None: read it byte by byte.
#[inline]
pub(crate) fn parse<'a>(
    text: &'a [u8],
    from: usize,
    to: usize,
    marks: &[u32],
    wants: Wants,
) -> Option<Line<'a>> {
    let mut line = Line { whole: &text[from..to], ..Line::default() };
    if text.get(from) != Some(&b'{') {
        return None;
    }
    let mut mark = 0;
    // Where the name of the next field begins.
    let mut at = from + 1;
    loop {
        if *marks.get(mark)? as usize != at {
            return None;
        }
        let end = *marks.get(mark + 1)? as usize;
        let name = key_at(text, at + 1, end);
        mark += 2;
        at = end + 1;
        if text.get(at) != Some(&b':') {
            return None;
        }
        at += 1;
        if text.get(at) == Some(&b' ') {
            at += 1;
        }
        match *text.get(at)? {
            b'"' => {
                let close = *marks.get(mark + 1)? as usize;
                if *marks.get(mark)? as usize != at || close >= to {
                    return None;
                }
                let value = &text[at + 1..close];
                mark += 2;
                at = close + 1;
                text_field(&mut line, name, &text[end - name.1.min(end)..end], value, wants)?;
            }
            b'0'..=b'9' => {
                let mut number = 0_u64;
                while let Some(digit @ b'0'..=b'9') = text.get(at) {
                    number = number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
                    at += 1;
                }
                match name {
                    MEMSIZE => line.memsize = number,
                    LINE => line.line = if wants.sites { number } else { 0 },
                    GENERATION => line.generation = Some(number),
                    BYTESIZE => line.bytesize = number,
                    ONE_IN => line.one_in = number,
                    _ if &text[end - name.1.min(end)..end] == b"objects" => line.objects = Some(number),
                    _ => {}
                }
            }
            b'[' if name == REFERENCES => {
                let begin = at + 1;
                at = begin + memchr(b']', &text[begin..to])?;
                line.references = &text[begin..at];
                at += 1;
                mark += if wants.references || line.references.len() > 256 {
                    marks[mark..].partition_point(|mark| (*mark as usize) < at)
                } else {
                    marks[mark..].iter().take_while(|mark| (**mark as usize) < at).count()
                };
            }
            b'{' if name == FLAGS => {
                at += memchr(b'}', &text[at..to])? + 1;
                mark += marks[mark..].iter().take_while(|mark| (**mark as usize) < at).count();
            }
            b't' | b'f' | b'n' if !matches!(name.1, 9) => {
                while text.get(at)?.is_ascii_alphabetic() {
                    at += 1;
                }
            }
            _ => return None,
        }
        match *text.get(at)? {
            b',' => at += 1,
            b'}' if at + 1 == to => return Some(line),
            _ => return None,
        }
        if text.get(at) == Some(&b' ') {
            at += 1;
        }
        if at >= to {
            return None;
        }
    }
}

#[inline]
fn text_field<'a>(
    line: &mut Line<'a>,
    name: (u64, usize),
    key: &[u8],
    value: &'a [u8],
    wants: Wants,
) -> Option<()> {
    match name {
        ADDRESS => line.address = hex(value)?,
        TYPE => line.kind = Type::named(value),
        CLASS => line.class = hex(value)?,
        FILE => line.file = if wants.sites { value } else { b"" },
        VALUE => {
            line.has_value = wants.values;
            line.value = if wants.values { value } else { b"" };
        }
        IMEMO | STRUCT if key == b"imemo_type" || key == b"struct" => line.sort = value,
        _ if IGNORED.contains(&name) => {}
        _ => line.rare_text(key, value, wants)?,
    }
    Some(())
}
