//! One line of a dump: a JSON object, of which only known fields are taken. Nothing is copied.

use super::Wants;
use super::words::{address, word};
use crate::kinds::{Facts, NO_GENERATION};
use memchr::{memchr, memchr2};

/// Deeper values are refused. Ruby writes two levels.
const DEEPEST: usize = 64;

/// Ruby's own types, and the two kinds of lines that are no objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Type {
    #[default]
    Other,
    Object,
    Class,
    Module,
    Float,
    String,
    Regexp,
    Array,
    Hash,
    Struct,
    Bignum,
    File,
    Data,
    Match,
    Complex,
    Rational,
    Symbol,
    Imemo,
    Iclass,
    Node,
    Zombie,
    Moved,
    /// No object: what the VM itself refers to.
    Root,
    /// No object: how instance variables are laid out.
    Shape,
}

/// Names of the types in dumps, in the order of [`Type`].
pub const TYPES: [&str; 24] = [
    "OTHER", "OBJECT", "CLASS", "MODULE", "FLOAT", "STRING", "REGEXP", "ARRAY", "HASH", "STRUCT", "BIGNUM",
    "FILE", "DATA", "MATCH", "COMPLEX", "RATIONAL", "SYMBOL", "IMEMO", "ICLASS", "NODE", "ZOMBIE", "MOVED",
    "ROOT", "SHAPE",
];

/// Their names as numbers: none is longer than eight bytes.
const NAMES: [u64; 24] = {
    let mut names = [0; 24];
    let mut at = 0;
    while at < names.len() {
        names[at] = word(TYPES[at].as_bytes());
        at += 1;
    }
    names
};
const ALL: [Type; 24] = {
    use Type::*;
    [
        Other, Object, Class, Module, Float, String, Regexp, Array, Hash, Struct, Bignum, File, Data, Match,
        Complex, Rational, Symbol, Imemo, Iclass, Node, Zombie, Moved, Root, Shape,
    ]
};

impl Type {
    /// The name as dumps have it.
    pub fn name(self) -> &'static str {
        TYPES[self as usize]
    }

    pub(crate) fn named(name: &[u8]) -> Type {
        Type::of_word(word(name), name.len())
    }

    /// The same of a name of eight bytes at most, as a number: its first byte is the lowest.
    #[inline]
    pub(crate) fn of_word(word: u64, length: usize) -> Type {
        match NAMES.iter().position(|name| *name == word) {
            Some(at) if TYPES[at].len() == length => ALL[at],
            _ => Type::Other,
        }
    }
}

/// The known fields of one line. Texts are as they stand in the file, with JSON's escapes; absent ones are empty.
#[derive(Debug, Default)]
pub struct Line<'a> {
    pub(crate) kind: Type,
    pub(crate) address: u64,
    pub(crate) class: u64,
    pub(crate) superclass: u64,
    pub(crate) memsize: u64,
    pub(crate) bytesize: u64,
    pub(crate) generation: Option<u64>,
    pub(crate) line: u64,
    pub(crate) objects: Option<u64>,
    /// In the first line, how many objects each object with a known birth stands for.
    pub(crate) one_in: u64,
    pub(crate) singleton: bool,
    pub(crate) has_value: bool,
    pub(crate) name: &'a [u8],
    /// The sort of an internal object, or of one of a C extension.
    pub(crate) sort: &'a [u8],
    pub(crate) file: &'a [u8],
    pub(crate) root: &'a [u8],
    pub(crate) at: &'a [u8],
    pub(crate) label: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) value_hash: &'a [u8],
    /// The text between the brackets.
    pub(crate) references: &'a [u8],
    pub(crate) edges: &'a [u8],
    pub(crate) whole: &'a [u8],
}

/// A problem of the line, with its position.
pub(crate) type Wrong = (usize, &'static str);

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8, wrong: &'static str) -> Result<(), Wrong> {
        if self.text.get(self.at) != Some(&byte) {
            return Err((self.at, wrong));
        }
        self.at += 1;
        Ok(())
    }

    /// The text between the quotes; the opening one is behind the cursor.
    #[inline]
    fn string(&mut self) -> Result<&'a [u8], Wrong> {
        let from = self.at;
        // Most are too short for a search by vectors.
        for (ahead, byte) in self.text[from..].iter().take(24).enumerate() {
            match byte {
                b'"' => {
                    self.at = from + ahead + 1;
                    return Ok(&self.text[from..from + ahead]);
                }
                b'\\' => break,
                _ => {}
            }
        }
        self.long_string(from)
    }

    #[inline(never)]
    fn long_string(&mut self, from: usize) -> Result<&'a [u8], Wrong> {
        let mut at = from;
        while let Some(found) = memchr2(b'"', b'\\', &self.text[at.min(self.text.len())..]) {
            at += found;
            if self.text[at] == b'"' {
                self.at = at + 1;
                return Ok(&self.text[from..at]);
            }
            at += 2;
        }
        Err((from, "a text has no end"))
    }

    fn number(&mut self) -> Option<u64> {
        let from = self.at;
        let mut number = 0_u64;
        while let Some(digit @ b'0'..=b'9') = self.text.get(self.at) {
            number = number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let plain = self.at > from && !matches!(self.text.get(self.at), Some(b'.' | b'e' | b'E'));
        if !plain {
            self.at = from;
        }
        plain.then_some(number)
    }

    /// Skips a value of any sort, and returns it as it stands.
    fn value(&mut self) -> Result<&'a [u8], Wrong> {
        let from = self.at;
        let mut depth = 0;
        loop {
            match self.text.get(self.at) {
                None => return Err((from, "a value has no end")),
                Some(b'"') => {
                    self.at += 1;
                    self.string()?;
                }
                Some(b'{' | b'[') => {
                    depth += 1;
                    if depth > DEEPEST {
                        return Err((self.at, "a value is nested too deeply"));
                    }
                    self.at += 1;
                }
                Some(b'}' | b']') => {
                    if depth == 0 {
                        break;
                    }
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',') if depth == 0 => break,
                Some(_) => self.at += 1,
            }
            if depth == 0 && matches!(self.text.get(self.at), Some(b',' | b'}')) {
                break;
            }
        }
        if self.at == from {
            return Err((from, "a value is missing"));
        }
        Ok(&self.text[from..self.at])
    }

    /// The text between the brackets of an array of addresses, or nothing for any other value.
    #[inline]
    fn addresses(&mut self) -> Result<&'a [u8], Wrong> {
        if self.text.get(self.at) != Some(&b'[') {
            self.value()?;
            return Ok(b"");
        }
        let from = self.at + 1;
        let Some(end) = memchr(b']', &self.text[from..]) else {
            return Err((from, "references have no end"));
        };
        self.at = from + end + 1;
        Ok(&self.text[from..from + end])
    }

    fn strings(&mut self) -> Result<&'a [u8], Wrong> {
        let value = self.value()?;
        Ok(match value {
            [b'[', inside @ .., b']'] => inside,
            _ => b"",
        })
    }

    /// A string, or nothing if the value is of another sort.
    #[inline]
    fn text_or_none(&mut self) -> Result<Option<&'a [u8]>, Wrong> {
        if self.text.get(self.at) == Some(&b'"') {
            self.at += 1;
            return self.string().map(Some);
        }
        self.value()?;
        Ok(None)
    }

    #[inline]
    fn text(&mut self) -> Result<&'a [u8], Wrong> {
        Ok(self.text_or_none()?.unwrap_or_default())
    }

    #[inline]
    fn address(&mut self) -> Result<u64, Wrong> {
        let from = self.at;
        let Some(text) = self.text_or_none()? else { return Ok(0) };
        hex(text).ok_or((from, "an address is no hexadecimal number of 64 bits"))
    }

    fn count(&mut self) -> Result<Option<u64>, Wrong> {
        let number = self.number();
        if number.is_none() {
            self.value()?;
        }
        Ok(number)
    }
}

/// The number of `0x7f00`.
#[inline]
pub(crate) fn hex(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    let mut number = 0_u64;
    // Old Rubies write "0x007f…".
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    for &digit in digits {
        let value = HEX[usize::from(digit)];
        if value > 15 || number >> 60 != 0 {
            return None;
        }
        number = number << 4 | u64::from(value);
    }
    Some(number)
}

const HEX: [u8; 256] = {
    let mut table = [255; 256];
    let mut at = 0;
    while at < 10 {
        table[b'0' as usize + at] = at as u8;
        at += 1;
    }
    while at < 16 {
        table[b'a' as usize + at - 10] = at as u8;
        table[b'A' as usize + at - 10] = at as u8;
        at += 1;
    }
    table
};

impl<'a> Line<'a> {
    /// Reads a line without its line end.
    pub(crate) fn parse(text: &'a [u8], wants: Wants) -> Result<Line<'a>, Wrong> {
        let mut cursor = Cursor { text, at: 0 };
        let mut line = Line { whole: text, ..Line::default() };
        cursor.space();
        cursor.expect(b'{', "a line does not begin with {")?;
        cursor.space();
        if text.get(cursor.at) == Some(&b'}') {
            cursor.at += 1;
        } else {
            loop {
                cursor.space();
                cursor.expect(b'"', "the name of a field is missing")?;
                let key = cursor.string()?;
                cursor.space();
                cursor.expect(b':', "a field has no value")?;
                cursor.space();
                line.field(key, &mut cursor, wants)?;
                cursor.space();
                match text.get(cursor.at) {
                    Some(b',') => cursor.at += 1,
                    Some(b'}') => break,
                    Some(_) => return Err((cursor.at, "a field does not end with , or }")),
                    None => return Err((cursor.at, "the line is cut short")),
                }
            }
            cursor.at += 1;
        }
        cursor.space();
        if cursor.at < text.len() {
            return Err((cursor.at, "something stands behind the line's }"));
        }
        Ok(line)
    }

    /// Properties that the object may share with others.
    pub(crate) fn facts(&self) -> Facts<'a> {
        Facts {
            kind: self.kind,
            singleton: self.singleton,
            address: self.address,
            // That of an internal object is the object whose variables it has.
            class: if self.kind == Type::Imemo { 0 } else { self.class },
            superclass: self.superclass,
            // A larger number is not one of Ruby's, and is ignored.
            generation: self
                .generation
                .and_then(|number| u32::try_from(number).ok())
                .unwrap_or(NO_GENERATION),
            line: u32::try_from(self.line).unwrap_or(0),
            file: self.file,
            name: self.name,
            sort: self.sort,
            at: self.at,
            label: self.label,
        }
    }

    /// Whether it is an object or a root. Other lines are errors.
    pub(crate) fn is_known(&self) -> Result<bool, Wrong> {
        match self.kind {
            Type::Shape => Ok(false),
            Type::Root => Ok(true),
            _ if self.address == 0 => Err((0, "an object has no address")),
            _ => Ok(true),
        }
    }

    #[inline]
    fn field(&mut self, key: &[u8], cursor: &mut Cursor<'a>, wants: Wants) -> Result<(), Wrong> {
        match key {
            b"address" => self.address = cursor.address()?,
            b"type" => self.kind = Type::named(cursor.text()?),
            b"class" => self.class = cursor.address()?,
            b"memsize" => self.memsize = cursor.count()?.unwrap_or(0),
            b"references" => self.references = cursor.addresses()?,
            b"edges" if wants.edges => self.edges = cursor.strings()?,
            b"file" if wants.sites => self.file = cursor.text()?,
            b"line" if wants.sites => self.line = cursor.count()?.unwrap_or(0),
            b"generation" => self.generation = cursor.count()?,
            b"bytesize" => self.bytesize = cursor.count()?.unwrap_or(0),
            b"value" if wants.values => {
                let value = cursor.text_or_none()?;
                self.has_value = value.is_some();
                self.value = value.unwrap_or_default();
            }
            b"value_hash" if wants.values => self.value_hash = cursor.text()?,
            b"name" => self.name = cursor.text()?,
            b"struct" | b"imemo_type" => self.sort = cursor.text()?,
            b"superclass" => self.superclass = cursor.address()?,
            b"singleton" => self.singleton = cursor.value()? == b"true",
            b"root" => self.root = cursor.text()?,
            b"at" => self.at = cursor.text()?,
            b"label" => self.label = cursor.text()?,
            b"objects" => self.objects = cursor.count()?,
            b"one_in" => self.one_in = cursor.count()?.unwrap_or(0),
            _ => {
                // Most unknown fields are short numbers and texts.
                if cursor.text.get(cursor.at) == Some(&b'"') {
                    cursor.at += 1;
                    cursor.string()?;
                } else {
                    cursor.value()?;
                }
            }
        }
        Ok(())
    }
}

/// Goes over the addresses between the brackets of `references`.
pub(crate) fn each_address(text: &[u8], mut take: impl FnMut(u64)) -> Result<(), Wrong> {
    let mut at = 0;
    // As Ruby writes them.
    while text.get(at) == Some(&b'"')
        && let Some((number, quote)) = address(text, at + 1)
        && text.get(quote + 1..quote + 3) == Some(b", ")
    {
        take(number);
        at = quote + 3;
    }
    loop {
        while let Some(b' ' | b'\t') = text.get(at) {
            at += 1;
        }
        if at == text.len() {
            return Ok(());
        }
        if text[at] != b'"' {
            return Err((at, "a reference is no text"));
        }
        let from = at + 1;
        let Some(length) = text[from..].iter().take(22).position(|byte| *byte == b'"') else {
            return Err((at, "a reference has no end"));
        };
        let Some(address) = hex(&text[from..from + length]) else {
            return Err((at, "a reference is no hexadecimal number of 64 bits"));
        };
        take(address);
        at = from + length + 1;
        while let Some(b' ' | b'\t') = text.get(at) {
            at += 1;
        }
        match text.get(at) {
            None => return Ok(()),
            Some(b',') => at += 1,
            Some(_) => return Err((at, "references are not separated by commas")),
        }
    }
}

/// Goes over the texts between the brackets of `edges`; any other value (null) counts as an empty text.
pub(crate) fn each_text<'a>(text: &'a [u8], mut take: impl FnMut(&'a [u8])) -> Result<(), Wrong> {
    let mut cursor = Cursor { text, at: 0 };
    loop {
        cursor.space();
        match text.get(cursor.at) {
            None => return Ok(()),
            Some(b'"') => {
                cursor.at += 1;
                take(cursor.string()?);
            }
            Some(b',') => {
                cursor.at += 1;
                continue;
            }
            Some(_) => {
                let from = cursor.at;
                while cursor.at < text.len() && text[cursor.at] != b',' {
                    cursor.at += 1;
                }
                take(&text[from..from]);
            }
        }
    }
}
