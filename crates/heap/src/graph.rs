//! The objects of a dump and their references, in lists of numbers.
//!
//! An object has four numbers of 32 bits: its slot, its kind, its size, and where its references begin. A reference
//! has one, and with names two. `tests/memory.rs` counts what loading and the answers take.

mod fields;

use crate::grow::{push, room};
use crate::intern::{Map, Texts};
use crate::kinds::{Kinds, NO_GENERATION};
use crate::pages::{NONE, Pages};
use crate::read::batch::{Batch, Record, Span};
use crate::read::line::{Line, Type};
use crate::read::load::{self, ReadOutcome, Sink};
use crate::read::source::Source;
use crate::read::{Problem, Wants};
use std::ops::Range;

/// Objects have lower numbers; the ones above are the roots'.
pub const MOST_OBJECTS: u32 = u32::MAX - (1 << 20);
const MOST_EDGES: usize = u32::MAX as usize - 1;
const MOST_ROOTS: usize = 1 << 16;
/// More names of elements and keys are all called `[…]`.
const MOST_NAMES: usize = 1 << 20;
const ELLIPSIS: &[u8] = "[…]".as_bytes();

/// The dump's own header and end.
#[derive(Clone, Debug)]
pub struct About {
    /// Version of memintro's format; 0 for a dump of `ObjectSpace.dump_all`.
    pub format: u64,
    /// Objects that the writer counted, if it finished.
    pub objects: Option<u64>,
    /// Whether the dump has its last line, if the format has one.
    pub truncated: bool,
    /// Objects whose address another one had before; they are left out.
    pub same_address: u64,
    /// References to addresses without an object.
    pub to_nowhere: u64,
    /// Whether any object has the line of its allocation.
    pub sites: bool,
    /// Whether any object has the generation of its allocation.
    pub generations: bool,
    /// Whether references have names.
    pub names: bool,
    /// The generation when the dump was made; `NO_GENERATION` if it is unknown.
    pub generation: u32,
    /// How many objects each object with a known birth stands for, if these are a sample; otherwise 0.
    pub one_in: u32,
}

impl Default for About {
    fn default() -> About {
        About {
            format: 0,
            objects: None,
            truncated: false,
            same_address: 0,
            to_nowhere: 0,
            sites: false,
            generations: false,
            names: false,
            generation: NO_GENERATION,
            one_in: 0,
        }
    }
}

impl About {
    /// The statement of the first line about births.
    pub fn note_births(&mut self, line: &Line) {
        self.generation = line.facts().generation;
        self.one_in = line.one_in.min(1 << 30) as u32;
    }

    /// Advice on recording births, for a dump without any.
    pub fn how_to_note(&self) -> &'static str {
        if self.format > 0 {
            "Memintro.start(objects: true) begins to note them"
        } else {
            "ObjectSpace.trace_object_allocations_start begins to note them"
        }
    }
}

/// One category of roots.
#[derive(Clone, Copy, Debug, Default)]
pub struct Root {
    /// `vm`, `global_tbl` and so on.
    pub name: u32,
    from: u32,
    to: u32,
}

/// A dump in memory.
#[derive(Debug, Default)]
pub struct Graph {
    /// Where objects are.
    pub slots: Vec<u32>,
    /// Each object's number in `kinds`.
    pub kind_of: Vec<u32>,
    sizes: Vec<u32>,
    large: Map<u32, u64>,
    starts: Vec<u32>,
    targets: Vec<u32>,
    names: Vec<u32>,
    /// Types, classes and lines of allocation.
    pub kinds: Kinds,
    /// Names of references.
    pub edge_names: Texts,
    /// Categories of roots.
    pub roots: Vec<Root>,
    root_targets: Vec<u32>,
    root_names: Vec<u32>,
    /// Addresses.
    pub pages: Pages,
    /// The dump's own header and end.
    pub about: About,
    /// Problems of the reading.
    pub reading: ReadOutcome,
    budget: Option<usize>,
    wants: Wants,
}

/// One reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The object that is referred to.
    pub to: u32,
    /// Its place among the references of its holder.
    pub index: u32,
    /// Number in `edge_names`; 0 if it has no name.
    pub name: u32,
}

impl Graph {
    /// Reads a dump. Its problems are in `reading` and `about`; the readable part is kept.
    pub fn load(source: Source, wants: Wants, budget: Option<usize>) -> Graph {
        let mut graph = Graph { budget, wants, ..Graph::default() };
        graph.reading = load::read(source, wants, &mut Loading { graph: &mut graph });
        graph.complete();
        graph
    }

    /// How many objects there are. Their numbers are below.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of an object: its slot and what it has from malloc.
    #[inline]
    pub fn size(&self, object: u32) -> u64 {
        match self.sizes[object as usize] {
            u32::MAX => self.large.get(&object).copied().unwrap_or(u64::from(u32::MAX)),
            size => u64::from(size),
        }
    }

    /// The range of an object's references in the list of all.
    #[inline]
    pub fn range(&self, object: u32) -> Range<usize> {
        let at = object as usize;
        if at >= self.starts.len() {
            return 0..0;
        }
        let to = self.starts.get(at + 1).map_or(self.targets.len(), |to| *to as usize);
        self.starts[at] as usize..to
    }

    /// The objects that an object refers to; [`NONE`] for an address without an object.
    #[inline]
    pub fn targets(&self, object: u32) -> &[u32] {
        &self.targets[self.range(object)]
    }

    /// All references, object by object.
    pub fn all_targets(&self) -> &[u32] {
        &self.targets
    }

    /// The references of an object, with their names.
    pub fn edges(&self, object: u32) -> impl Iterator<Item = Edge> + '_ {
        let range = self.range(object);
        let from = range.start;
        range.filter(|at| self.targets[*at] != NONE).map(move |at| Edge {
            to: self.targets[at],
            index: (at - from) as u32,
            name: self.names.get(at).copied().unwrap_or(0),
        })
    }

    /// Whether the name of this number describes a reference. References without a name, such as elements of
    /// arrays, have number 0.
    #[inline]
    pub fn tells(&self, name: u32) -> bool {
        !matches!(self.edge_names.bytes_of(name), b"" | b"(internal)")
    }

    /// The first of several references to the same object with a meaningful name, or else the first one: a
    /// fiber may hold an object as a local variable, and before that as a word of its stacks.
    pub fn most_telling(&self, mut edges: impl Iterator<Item = Edge>) -> Option<Edge> {
        let first = edges.next()?;
        if self.tells(first.name) {
            Some(first)
        } else {
            edges.find(|edge| self.tells(edge.name)).or(Some(first))
        }
    }

    /// The references of a category of roots.
    pub fn root_edges(&self, root: usize) -> impl Iterator<Item = Edge> + '_ {
        let Root { from, to, .. } = self.roots[root];
        (from..to).filter(|at| self.root_targets[*at as usize] != NONE).map(move |at| Edge {
            to: self.root_targets[at as usize],
            index: at - from,
            name: self.root_names[at as usize],
        })
    }

    /// Whether a category of roots has words on machine stacks and in registers, some of which are stale.
    pub fn is_machine_stack(&self, root: usize) -> bool {
        self.edge_names.bytes_of(self.roots[root].name) == b"machine_context"
    }

    /// Forgets references of a category of roots.
    pub fn drop_root_edges(&mut self, root: usize, unwanted: impl Fn(u32) -> bool) {
        let Root { from, to, .. } = self.roots[root];
        for target in &mut self.root_targets[from as usize..to as usize] {
            if *target != NONE && unwanted(*target) {
                *target = NONE;
            }
        }
    }

    /// The address of an object.
    pub fn address(&self, object: u32) -> u64 {
        self.pages.address(self.slots[object as usize])
    }

    /// Ruby's type of an object.
    pub fn type_of(&self, object: u32) -> Type {
        self.kinds.list[self.kind_of[object as usize] as usize].kind
    }

    /// The object at an address, found without an index.
    pub fn find(&self, address: u64) -> Option<u32> {
        match self.pages.object_at(address) {
            NONE => None,
            object => Some(object),
        }
    }

    /// The object that is an object's class, or [`NONE`].
    pub fn class_object(&self, object: u32) -> u32 {
        match self.kinds.list[self.kind_of[object as usize] as usize].class {
            0 => NONE,
            class => self.pages.object_at(class),
        }
    }

    /// References that lead to an object.
    pub fn edge_count(&self) -> u64 {
        (self.targets.len() + self.root_targets.len()) as u64 - self.about.to_nowhere
    }

    /// Bytes of all objects.
    pub fn total_bytes(&self) -> u64 {
        (0..self.len() as u32).map(|object| self.size(object)).fold(0, u64::saturating_add)
    }

    /// Forgets all references of objects.
    pub fn drop_edges(&mut self) {
        self.targets = Vec::new();
        self.names = Vec::new();
        self.starts = vec![0];
    }

    /// Forgets the names of references.
    pub fn drop_names(&mut self) {
        self.names = Vec::new();
    }

    fn add(
        &mut self,
        batch: &Batch,
        record: &Record,
        references: &[u64],
        edges: &[Span],
    ) -> Result<(), &'static str> {
        let object = self.slots.len() as u32;
        if object >= MOST_OBJECTS || self.targets.len() + references.len() > MOST_EDGES {
            return Err("the dump has more than 4 billion objects or references");
        }
        let Some(slot) = self.pages.slot(record.address) else {
            return Err("the dump's objects are in more than 32 GiB of pages");
        };
        if !self.pages.occupy(slot, object) {
            self.about.same_address += 1;
            return Ok(());
        }
        let facts = record.facts(&batch.block.bytes);
        let kind = self.kinds.number(&facts);
        push(&mut self.slots, slot);
        push(&mut self.kind_of, kind);
        if record.memsize >= u64::from(u32::MAX) {
            self.large.insert(object, record.memsize);
        }
        push(&mut self.sizes, u32::try_from(record.memsize).unwrap_or(u32::MAX));
        push(&mut self.starts, self.targets.len() as u32);
        self.about.sites |= !facts.file.is_empty();
        self.about.generations |= facts.generation != NO_GENERATION;
        room(&mut self.targets, references.len());
        for address in references {
            let slot = self.pages.slot(*address).unwrap_or(NONE);
            self.targets.push(slot);
        }
        if !edges.is_empty() && self.wants.edges {
            let before = self.targets.len() - references.len();
            let missing = self.targets.len() - self.names.len();
            room(&mut self.names, missing);
            self.names.resize(before, 0);
            for at in 0..references.len() {
                let name = edges.get(at).map_or(0, |span| self.edge_name(span.text(&batch.block.bytes)));
                self.names.push(name);
            }
        }
        Ok(())
    }

    fn edge_name(&mut self, name: &[u8]) -> u32 {
        if self.edge_names.len() > MOST_NAMES && self.edge_names.known(name).is_none() {
            return self.edge_names.number(ELLIPSIS);
        }
        self.edge_names.number(name)
    }

    fn add_root(
        &mut self,
        batch: &Batch,
        record: &Record,
        references: &[u64],
        edges: &[Span],
    ) -> Result<(), &'static str> {
        let block = &batch.block.bytes;
        let name = record.root.text(block);
        match name {
            b"memintro" => {
                self.about.format = 1;
                self.about.truncated = true;
                self.about.generation = record.generation;
                self.about.one_in = record.line;
                return Ok(());
            }
            b"end" => {
                self.about.objects = record.objects;
                self.about.truncated = false;
                return Ok(());
            }
            _ => {}
        }
        if self.roots.len() >= MOST_ROOTS || self.root_targets.len() + references.len() > MOST_EDGES {
            return Err("the dump has more roots than any Ruby");
        }
        let from = self.root_targets.len() as u32;
        for (at, address) in references.iter().enumerate() {
            let slot = self.pages.slot(*address).unwrap_or(NONE);
            push(&mut self.root_targets, slot);
            let name = edges.get(at).map_or(0, |span| self.edge_name(span.text(block)));
            push(&mut self.root_names, name);
        }
        let name = self.edge_names.number(name);
        self.roots.push(Root { name, from, to: self.root_targets.len() as u32 });
        Ok(())
    }

    /// Whether the dump lacks objects that finalizers hold. Ruby 3.4 leaves finalizers out of its list of
    /// roots, so dumps of Ruby have none; a dump of memintro says if it has not found them either.
    pub fn finalizers_are_unknown(&self) -> bool {
        let has = |name: &str| self.roots.iter().any(|root| self.edge_names.text(root.name) == name);
        if self.about.format == 0 { !has("finalizers") } else { has("finalizers unknown") }
    }

    /// Its approximate bytes.
    pub fn memory_bytes(&self) -> usize {
        16 * self.slots.capacity()
            + 4 * (self.targets.capacity() + self.names.capacity() + 2 * self.root_targets.capacity())
            + self.pages.memory_bytes()
            + self.kinds.memory_bytes()
            + self.edge_names.memory_bytes()
    }

    /// Turns the slots that references lead to into numbers of objects.
    fn complete(&mut self) {
        for list in [&mut self.slots, &mut self.kind_of, &mut self.sizes, &mut self.starts, &mut self.targets]
        {
            list.shrink_to_fit();
        }
        self.pages.complete(&self.slots);
        let mut to_nowhere = 0;
        for target in self.targets.iter_mut().chain(&mut self.root_targets) {
            *target = self.pages.object(*target);
            to_nowhere += u64::from(*target == NONE);
        }
        self.about.to_nowhere = to_nowhere;
        if !self.names.is_empty() {
            let missing = self.targets.len() - self.names.len();
            room(&mut self.names, missing);
            self.names.resize(self.targets.len(), 0);
            self.names.shrink_to_fit();
        }
        self.hand_over_fields();
        self.about.names = !self.names.is_empty() || self.root_names.iter().any(|name| *name != 0);
        self.kinds.complete();
    }
}

struct Loading<'a> {
    graph: &'a mut Graph,
}

impl Sink for Loading<'_> {
    fn take(&mut self, batch: &Batch) -> Result<(), Problem> {
        let (mut references, mut edges) = (0, 0);
        for record in &batch.records {
            let mine = &batch.references[references..references + record.references as usize];
            let names = &batch.edges[edges..edges + record.edges as usize];
            references += mine.len();
            edges += names.len();
            let added = match record.kind {
                Type::Root => self.graph.add_root(batch, record, mine, names),
                _ => self.graph.add(batch, record, mine, names),
            };
            added.map_err(|message| Problem {
                offset: batch.block.offset,
                message: message.into(),
                ends: true,
            })?;
        }
        match self.graph.budget {
            Some(budget) if self.graph.memory_bytes() > budget => Err(Problem {
                offset: batch.block.offset,
                message: format!(
                    "the dump takes more than {budget} bytes of memory; --max-memory-bytes allows more"
                ),
                ends: true,
            }),
            _ => Ok(()),
        }
    }
}
