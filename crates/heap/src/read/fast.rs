//! Reads lines in the form that Ruby and memintro write. [`Line::parse`] reads all others.
//!
//! It expects fields in Ruby's order, and the same line end as in earlier lines of the class. So the
//! processor can predict where the next field begins before it has found the end of this one.

use super::Wants;
use super::field::{behind, field, flags, kind, references, texts};
use super::line::{Line, Type};
use super::words::{address, is_at, number, quote};

/// How many ends of lines are remembered: a power of two.
const ENDS: usize = 64;

/// The ends of recent lines of a block. Lines of one class usually end alike.
pub(crate) struct Recent<'a> {
    /// From the file on.
    births: [End<'a>; ENDS],
    /// From the size on.
    sizes: [End<'a>; ENDS],
}

/// The last fields of a line, without the line end, as text and as values.
#[derive(Clone, Copy, Default)]
struct End<'a> {
    text: &'a [u8],
    file: &'a [u8],
    line: u64,
    generation: Option<u64>,
    memsize: u64,
}

impl Default for Recent<'_> {
    fn default() -> Self {
        Recent { births: [End::default(); ENDS], sizes: [End::default(); ENDS] }
    }
}

impl<'a> End<'a> {
    /// Copies the values into the line if it ends with this text from `at` on. Returns where the line ends.
    #[inline]
    fn take_from(&self, text: &'a [u8], at: usize, line: &mut Line<'a>) -> Option<usize> {
        if self.text.is_empty() || !behind(text, at).starts_with(self.text) {
            return None;
        }
        let end = line_end(text, at + self.text.len())?;
        line.file = self.file;
        line.line = self.line;
        line.generation = self.generation;
        line.memsize = self.memsize;
        Some(end)
    }

    fn new(text: &'a [u8], line: &Line<'a>) -> End<'a> {
        End { text, file: line.file, line: line.line, generation: line.generation, memsize: line.memsize }
    }
}

/// Reads the line that begins at `from`, and returns where it ends: at a line end, or at the end of the text.
/// None: it must be read byte by byte, and `line` is invalid.
#[inline]
pub(crate) fn parse<'a>(
    text: &'a [u8],
    from: usize,
    wants: Wants,
    recent: &mut Recent<'a>,
    line: &mut Line<'a>,
) -> Option<usize> {
    const HEAD: &[u8; 12] = b"{\"address\":\"";
    *line = Line::default();
    let (at, whole) = if is_at(text, from, HEAD) {
        let (address, quote) = address(text, from + HEAD.len())?;
        line.address = address;
        expected(text, quote + 1, line, wants, recent)?
    } else if text.get(from) == Some(&b'{') {
        (field(text, from + 1, line, wants)?, false)
    } else {
        return None;
    };
    let end = if whole { at } else { others(text, at, line, wants)? };
    line.whole = &text[from..end];
    Some(end)
}

/// Reads the fields behind the address as far as they are in the usual order. Returns the position behind
/// them, and whether it is the end of the line.
#[inline]
fn expected<'a>(
    text: &'a [u8],
    mut at: usize,
    line: &mut Line<'a>,
    wants: Wants,
    recent: &mut Recent<'a>,
) -> Option<(usize, bool)> {
    /// Skips these bytes, if they come next.
    macro_rules! comes {
        ($bytes:literal) => {{
            let comes = is_at(text, at, $bytes);
            if comes {
                at += $bytes.len();
            }
            comes
        }};
    }
    /// A number under this name.
    macro_rules! count {
        ($bytes:literal) => {
            if comes!($bytes) { Some(take(number(text, at)?, &mut at)) } else { None }
        };
    }
    /// A text under this name, up to its quote.
    macro_rules! words {
        ($bytes:literal) => {
            if comes!($bytes) {
                let end = quote(text, at)?;
                Some(&text[std::mem::replace(&mut at, end + 1)..end])
            } else {
                None
            }
        };
    }
    if !comes!(b", \"type\":\"") {
        return Some((at, false));
    }
    (line.kind, at) = kind_near(text, at)?;
    count!(b", \"shape_id\":");
    count!(b", \"slot_size\":");
    if comes!(b", \"class\":\"") {
        line.class = take(address(text, at)?, &mut at);
        at += 1;
    }
    comes!(b", \"frozen\":true");
    match line.kind {
        Type::String | Type::Symbol => {
            comes!(b", \"embedded\":true");
            comes!(b", \"fstring\":true");
            comes!(b", \"shared\":true");
            line.bytesize = count!(b", \"bytesize\":").unwrap_or(0);
            count!(b", \"capacity\":");
            if let Some(value) = words!(b", \"value\":\"")
                && wants.values
            {
                (line.value, line.has_value) = (value, true);
            }
            if let Some(hash) = words!(b", \"value_hash\":\"")
                && wants.values
            {
                line.value_hash = hash;
            }
            if !comes!(b", \"encoding\":\"UTF-8\"") {
                words!(b", \"encoding\":\"");
            }
            if !comes!(b", \"coderange\":\"7bit\"") {
                words!(b", \"coderange\":\"");
            }
        }
        Type::Object => {
            comes!(b", \"embedded\":true");
            count!(b", \"ivars\":");
        }
        Type::Array => {
            count!(b", \"length\":");
            comes!(b", \"shared\":true");
            comes!(b", \"embedded\":true");
        }
        Type::Hash => {
            count!(b", \"size\":");
        }
        Type::Imemo => line.sort = words!(b", \"imemo_type\":\"").unwrap_or_default(),
        Type::Data => line.sort = words!(b", \"struct\":\"").unwrap_or_default(),
        _ => {}
    }
    if comes!(b", \"references\":[") {
        let end = references(text, at)?;
        line.references = &text[std::mem::replace(&mut at, end + 1)..end];
    }
    if comes!(b", \"edges\":[") {
        let end = texts(text, at)?;
        let edges = &text[std::mem::replace(&mut at, end + 1)..end];
        line.edges = if wants.edges { edges } else { b"" };
    }
    // The product's upper bits depend on all bits of the class.
    let place = line.class.wrapping_add(line.kind as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let place = (place >> 32) as usize % ENDS;
    let births = at;
    if let Some(file) = words!(b", \"file\":\"") {
        if let Some(end) = recent.births[place].take_from(text, births, line) {
            return Some((end, true));
        }
        line.file = if wants.sites { file } else { b"" };
        line.line = count!(b", \"line\":").filter(|_| wants.sites).unwrap_or(0);
        words!(b", \"method\":\"");
    }
    line.generation = count!(b", \"generation\":");
    let sizes = at;
    let has_birth = births < sizes;
    if !has_birth && let Some(end) = recent.sizes[place].take_from(text, sizes, line) {
        return Some((end, true));
    }
    line.memsize = count!(b", \"memsize\":").unwrap_or(0);
    if comes!(b", \"flags\":{") {
        at = flags(text, at)?;
    }
    if text.get(at) != Some(&b'}') {
        return Some((at, false));
    }
    let end = line_end(text, at + 1)?;
    let ends = if has_birth { &mut recent.births } else { &mut recent.sizes };
    ends[place] = End::new(&text[births..end], line);
    Some((end, true))
}

/// The first of the two, while `at` becomes the second.
#[inline]
fn take<T>((taken, behind): (T, usize), at: &mut usize) -> T {
    *at = behind;
    taken
}

/// The line must end here.
#[inline]
fn line_end(text: &[u8], at: usize) -> Option<usize> {
    text.get(at).is_none_or(|byte| *byte == b'\n').then_some(at)
}

/// The fields from `at` on, in any order, up to the end of the line.
fn others<'a>(text: &'a [u8], mut at: usize, line: &mut Line<'a>, wants: Wants) -> Option<usize> {
    loop {
        match *text.get(at)? {
            b',' => at += 1,
            b'}' => return line_end(text, at + 1),
            _ => return None,
        }
        if text.get(at) == Some(&b' ') {
            at += 1;
        }
        at = field(text, at, line, wants)?;
    }
}

/// The type whose name begins at `at`, and the position behind its quote.
#[inline]
fn kind_near(text: &[u8], at: usize) -> Option<(Type, usize)> {
    // Most objects are of one of these.
    macro_rules! is {
        ($kind:ident, $name:literal) => {
            if is_at(text, at, $name) {
                return Some((Type::$kind, at + $name.len()));
            }
        };
    }
    is!(String, b"STRING\"");
    is!(Array, b"ARRAY\"");
    is!(Object, b"OBJECT\"");
    is!(Hash, b"HASH\"");
    is!(Imemo, b"IMEMO\"");
    is!(Data, b"DATA\"");
    let end = quote(text, at)?;
    Some((kind(text, at, end)?, end + 1))
}

#[cfg(test)]
#[path = "fast_tests.rs"]
mod tests;
