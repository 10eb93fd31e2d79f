//! What one block of lines says, as records that refer to the block's bytes.

use super::line::{Line, Type, each_address, each_text};
use super::source::Block;
use super::{Problem, Wants};
use std::ops::Range;

/// More problems of one block are only counted.
const MOST_PROBLEMS: usize = 4;

/// A text in the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    from: u32,
    length: u32,
}

impl Span {
    /// Of a part of the block.
    fn of(block: &[u8], part: &[u8]) -> Span {
        if part.is_empty() {
            return Span::default();
        }
        let from = part.as_ptr() as usize - block.as_ptr() as usize;
        Span { from: from as u32, length: part.len() as u32 }
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The text as it stands in the dump, with JSON's escapes.
    pub fn text(self, block: &[u8]) -> &[u8] {
        let from = self.from as usize;
        block.get(from..from + self.length as usize).unwrap_or_default()
    }
}

/// One object, or one of the lines that are none.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Ruby's type.
    pub kind: Type,
    /// Whether it is a singleton class.
    pub singleton: bool,
    /// Whether the dump has the value of a string.
    pub has_value: bool,
    /// Where it is.
    pub address: u64,
    /// Address of its class.
    pub class: u64,
    /// Of a class.
    pub superclass: u64,
    /// Its bytes: its slot and what it has from malloc.
    pub memsize: u64,
    /// Of a string.
    pub bytesize: u64,
    /// Of its allocation, and whether it is known.
    pub generation: Option<u32>,
    /// Line of its allocation.
    pub line: u32,
    /// File of its allocation.
    pub file: Span,
    /// Of a class or module.
    pub name: Span,
    /// The sort of an internal object, or of one of a C extension.
    pub sort: Span,
    /// Of a root.
    pub root: Span,
    /// Where a closure was made.
    pub at: Span,
    /// What a closure is called.
    pub label: Span,
    /// Of a string.
    pub value: Span,
    /// What stands for the value.
    pub value_hash: Span,
    /// Of the last line: how many objects the writer counted.
    pub objects: Option<u64>,
    /// How many addresses of [`Batch::references`] are its own.
    pub references: u32,
    /// How many names of [`Batch::edges`] are its own.
    pub edges: u32,
}

/// All lines of a block.
#[derive(Debug, Default)]
pub struct Batch {
    /// The block, which records refer to.
    pub block: Block,
    /// In the order of the lines.
    pub records: Vec<Record>,
    /// References of all records, one record's behind the other's.
    pub references: Vec<u64>,
    /// Names of references, likewise.
    pub edges: Vec<Span>,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// Lines that could not be read.
    pub bad_lines: u64,
}

impl Batch {
    /// Reads all lines of the block. A bad line is left out and noted.
    pub fn parse(&mut self, wants: Wants) {
        self.records.clear();
        self.references.clear();
        self.edges.clear();
        self.problems.clear();
        self.bad_lines = 0;
        let bytes = std::mem::take(&mut self.block.bytes);
        let mut from = 0;
        while from < bytes.len() {
            let end = memchr::memchr(b'\n', &bytes[from..]).map_or(bytes.len(), |end| from + end);
            let line = from..end;
            from = end + 1;
            if bytes[line.clone()].trim_ascii().is_empty() {
                continue;
            }
            let (references, edges) = (self.references.len(), self.edges.len());
            if let Err((at, what)) = self.line(&bytes, line.clone(), wants) {
                self.references.truncate(references);
                self.edges.truncate(edges);
                let cut = end == bytes.len();
                self.complain(line.start + at, if cut { "the last line is cut short" } else { what });
            }
        }
        self.block.bytes = bytes;
    }

    fn complain(&mut self, at: usize, what: &str) {
        self.bad_lines += 1;
        if self.problems.len() < MOST_PROBLEMS {
            let offset = self.block.offset + at as u64;
            self.problems.push(Problem { offset, message: what.to_string(), ends: false });
        }
    }

    fn line(&mut self, block: &[u8], range: Range<usize>, wants: Wants) -> Result<(), (usize, &'static str)> {
        let line = Line::parse(&block[range], wants)?;
        let within = |part: &[u8]| part.as_ptr() as usize - line.whole.as_ptr() as usize;
        match line.kind {
            Type::Shape => return Ok(()),
            Type::Root => {}
            _ if line.address == 0 => return Err((0, "an object has no address")),
            _ => {}
        }
        let mut record = Record {
            kind: line.kind,
            singleton: line.singleton,
            has_value: line.has_value,
            address: line.address,
            class: line.class,
            superclass: line.superclass,
            memsize: line.memsize,
            bytesize: line.bytesize,
            generation: line.generation.map(|number| u32::try_from(number).unwrap_or(u32::MAX)),
            line: u32::try_from(line.line).unwrap_or(u32::MAX),
            file: Span::of(block, line.file),
            name: Span::of(block, line.name),
            sort: Span::of(block, line.sort),
            root: Span::of(block, line.root),
            at: Span::of(block, line.at),
            label: Span::of(block, line.label),
            value: Span::of(block, line.value),
            value_hash: Span::of(block, line.value_hash),
            objects: line.objects,
            references: 0,
            edges: 0,
        };
        if wants.references && !line.references.is_empty() {
            let before = self.references.len();
            each_address(line.references, |address| self.references.push(address))
                .map_err(|(at, what)| (within(line.references) + at, what))?;
            record.references = (self.references.len() - before) as u32;
        }
        if wants.edges && !line.edges.is_empty() {
            let before = self.edges.len();
            each_text(line.edges, |name| self.edges.push(Span::of(block, name)))
                .map_err(|(at, what)| (within(line.edges) + at, what))?;
            record.edges = (self.edges.len() - before) as u32;
        }
        self.records.push(record);
        Ok(())
    }
}
