//! The contents of one block of lines, as records that refer to the block's bytes.

use super::line::{Line, Type, Wrong, each_address, each_text};
use super::lines::Lines;
use super::source::Block;
use super::{Problem, Wants};
use crate::kinds::Facts;

/// A text in the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    from: u32,
    length: u32,
}

impl Span {
    /// The place of a part of the block.
    fn within(block: &[u8], part: &[u8]) -> Span {
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
    singleton: bool,
    /// Its address.
    pub address: u64,
    class: u64,
    superclass: u64,
    /// Its bytes: its slot and what it has from malloc.
    pub memsize: u64,
    /// Generation of its birth; in the first line, the generation of the dump.
    pub generation: u32,
    /// Line of its birth; in the first line, how many objects each object with a known birth stands for.
    pub line: u32,
    file: Span,
    name: Span,
    sort: Span,
    at: Span,
    label: Span,
    /// Name of a root.
    pub root: Span,
    /// In the last line, how many objects the writer counted.
    pub objects: Option<u64>,
    /// How many addresses of [`Batch::references`] are its own.
    pub references: u32,
    /// How many names of [`Batch::edges`] are its own.
    pub edges: u32,
}

impl Record {
    /// Properties that the object may share with others.
    pub fn facts<'a>(&self, block: &'a [u8]) -> Facts<'a> {
        Facts {
            kind: self.kind,
            singleton: self.singleton,
            address: self.address,
            class: self.class,
            superclass: self.superclass,
            generation: self.generation,
            line: self.line,
            file: self.file.text(block),
            name: self.name.text(block),
            sort: self.sort.text(block),
            at: self.at.text(block),
            label: self.label.text(block),
        }
    }
}

/// All lines of a block.
#[derive(Debug, Default)]
pub struct Batch {
    /// The block, which records refer to.
    pub block: Block,
    /// In the order of the lines.
    pub records: Vec<Record>,
    /// References of all records, in the order of the records.
    pub references: Vec<u64>,
    /// Names of references, likewise.
    pub edges: Vec<Span>,
    /// Problems of the reading.
    pub problems: Vec<Problem>,
    /// Lines that could not be read.
    pub bad_lines: u64,
}

impl Batch {
    /// Reads all lines of the block. A bad line is left out and noted.
    pub fn parse(&mut self, lines: &mut Lines, wants: Wants) {
        self.records.clear();
        self.references.clear();
        self.edges.clear();
        let block = std::mem::take(&mut self.block);
        lines.each(&block, wants, |line| {
            let (references, edges) = (self.references.len(), self.edges.len());
            let taken = self.line(&block.bytes, line, wants);
            if taken.is_err() {
                self.references.truncate(references);
                self.edges.truncate(edges);
            }
            taken
        });
        self.block = block;
        self.problems = std::mem::take(&mut lines.problems);
        self.bad_lines = lines.bad_lines;
    }

    fn line(&mut self, block: &[u8], line: &Line, wants: Wants) -> Result<(), Wrong> {
        let within = |part: &[u8]| part.as_ptr() as usize - line.whole.as_ptr() as usize;
        if !line.is_known()? {
            return Ok(());
        }
        let facts = line.facts();
        let mut record = Record {
            kind: facts.kind,
            singleton: facts.singleton,
            address: facts.address,
            class: facts.class,
            superclass: facts.superclass,
            memsize: line.memsize,
            generation: facts.generation,
            // The first line has no line of Ruby.
            line: if line.one_in > 0 { line.one_in.min(1 << 30) as u32 } else { facts.line },
            file: Span::within(block, facts.file),
            name: Span::within(block, facts.name),
            sort: Span::within(block, facts.sort),
            at: Span::within(block, facts.at),
            label: Span::within(block, facts.label),
            root: Span::within(block, line.root),
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
            each_text(line.edges, |name| self.edges.push(Span::within(block, name)))
                .map_err(|(at, what)| (within(line.edges) + at, what))?;
            record.edges = (self.edges.len() - before) as u32;
        }
        self.records.push(record);
        Ok(())
    }
}
