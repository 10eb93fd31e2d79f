//! Kinds of objects: combinations of type, class and the line of the allocation. Each is kept once.

use crate::class_names::{self, without_addresses};
use crate::intern::{Map, Texts};
use crate::read::line::Type;

/// No generation is known.
pub const NO_GENERATION: u32 = u32::MAX;

/// One combination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Ruby's type.
    pub kind: Type,
    /// Address of the class.
    pub class: u64,
    /// The sort of an internal object, or of one of a C extension; the name of a class or a module; for a
    /// class of one object, the name for such classes.
    pub sort: u32,
    /// File of the allocation.
    pub file: u32,
    /// Line of the allocation.
    pub line: u32,
    /// Generation of the allocation.
    pub generation: u32,
    /// Where a closure was made.
    pub at: u32,
    /// The name of a closure; the owner of a class of one object.
    pub label: u32,
}

/// A class, from its own line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Class {
    /// Its name; 0 if it has none.
    pub name: u32,
    /// Address of its superclass.
    pub superclass: u64,
    /// Whether it is not the class of ordinary objects: the class of one object, or an included module.
    pub aside: bool,
}

/// The fields of a line that objects may share; texts as they stand in the dump.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "as in Kind and Class")]
pub struct Facts<'a> {
    pub kind: Type,
    pub singleton: bool,
    pub address: u64,
    pub class: u64,
    pub superclass: u64,
    pub generation: u32,
    pub line: u32,
    pub file: &'a [u8],
    pub name: &'a [u8],
    pub sort: &'a [u8],
    pub at: &'a [u8],
    pub label: &'a [u8],
}

/// How many recent combinations and files are compared before the tables are searched.
const RECENT: usize = 256;
type Recent<T> = Box<[T; RECENT]>;

/// All combinations of a dump, and its classes.
#[derive(Debug)]
pub struct Kinds {
    /// By their numbers.
    pub list: Vec<Kind>,
    numbers: Map<Kind, u32>,
    /// By address.
    pub classes: Map<u64, Class>,
    /// All names, files and sorts.
    pub texts: Texts,
    recent: Recent<Option<u32>>,
    recent_files: Recent<u32>,
    /// Names of classes, for each kind; computed after the reading.
    labels: Vec<u32>,
}

impl Default for Kinds {
    fn default() -> Kinds {
        Kinds {
            list: Vec::new(),
            numbers: Map::default(),
            classes: Map::default(),
            texts: Texts::default(),
            recent: Box::new([None; RECENT]),
            recent_files: Box::new([0; RECENT]),
            labels: Vec::new(),
        }
    }
}

/// Superclasses that are followed to find a class with a name.
const MOST_SUPERCLASSES: usize = 100;

impl Kinds {
    /// The number of an object's combination.
    pub fn number(&mut self, facts: &Facts) -> u32 {
        if matches!(facts.kind, Type::Class | Type::Module | Type::Iclass) {
            self.add_class(facts);
        }
        let (sort, label) = class_names::sort_and_label(facts);
        let kind = Kind {
            kind: facts.kind,
            // In an internal object the field is used for other things.
            class: if facts.kind == Type::Imemo { 0 } else { facts.class },
            sort: self.texts.number(sort),
            file: self.file(facts),
            line: facts.line,
            generation: facts.generation,
            at: self.texts.number(facts.at),
            label: self.texts.number(label),
        };
        let place = (kind.class >> 3 ^ kind.class >> 9) as u32 ^ kind.line ^ kind.generation << 2 ^ kind.sort;
        let place = place as usize % RECENT;
        if let Some(number) = self.recent[place]
            && self.list[number as usize] == kind
        {
            return number;
        }
        let next = self.list.len() as u32;
        let number = *self.numbers.entry(kind).or_insert(next);
        if number == next {
            self.list.push(kind);
        }
        self.recent[place] = Some(number);
        number
    }

    fn add_class(&mut self, facts: &Facts) {
        let name = self.texts.number(facts.name);
        let aside = facts.singleton || facts.kind == Type::Iclass;
        let class = Class { name, superclass: facts.superclass, aside };
        self.classes.entry(facts.address).or_insert(class);
    }

    fn file(&mut self, facts: &Facts) -> u32 {
        if facts.file.is_empty() {
            return 0;
        }
        let place = (facts.line as usize ^ facts.file.len()) % RECENT;
        if self.texts.bytes_of(self.recent_files[place]) != facts.file {
            self.recent_files[place] = self.texts.number(facts.file);
        }
        self.recent_files[place]
    }

    /// Merges the kinds of another dump, or of another part of this one. Returns their numbers here.
    pub fn merge(&mut self, other: &Kinds) -> Vec<u32> {
        for (address, class) in &other.classes {
            let name = self.texts.number(other.texts.bytes_of(class.name));
            self.classes.entry(*address).or_insert(Class { name, ..*class });
        }
        let mut numbers = Vec::with_capacity(other.list.len());
        for kind in &other.list {
            let mut moved = *kind;
            for text in [&mut moved.sort, &mut moved.file, &mut moved.at, &mut moved.label] {
                *text = self.texts.number(other.texts.bytes_of(*text));
            }
            let next = self.list.len() as u32;
            let number = *self.numbers.entry(moved).or_insert(next);
            if number == next {
                self.list.push(moved);
            }
            numbers.push(number);
        }
        numbers
    }

    /// Finds the names of all classes, when all lines are read.
    pub fn complete(&mut self) {
        self.numbers = Map::default();
        self.labels = Vec::with_capacity(self.list.len());
        let mut known: Map<u64, u32> = Map::default();
        for at in 0..self.list.len() {
            let kind = self.list[at];
            let label = match kind.kind {
                Type::Imemo | Type::Data | Type::Class | Type::Module | Type::Iclass => self.label(&kind),
                _ => match known.get(&kind.class) {
                    Some(label) if kind.class != 0 => *label,
                    _ => {
                        let label = self.label(&kind);
                        if kind.class != 0 {
                            known.insert(kind.class, label);
                        }
                        label
                    }
                },
            };
            self.labels.push(label);
        }
    }

    fn label(&mut self, kind: &Kind) -> u32 {
        let class = || self.class_name(kind.class);
        let text = class_names::label(kind.kind, &self.texts.text(kind.sort), kind.class != 0, class);
        self.texts.number(text.as_bytes())
    }

    /// The name of the class of objects: its own, or that of the next named class above it. An object with a
    /// class of its own counts as one of the class above that.
    pub fn class_name(&self, address: u64) -> Option<String> {
        self.classes.get(&address)?;
        let mut classes =
            std::iter::successors(Some(address), |at| self.classes.get(at).map(|at| at.superclass))
                .take(MOST_SUPERCLASSES)
                .map_while(|at| self.classes.get(&at))
                .filter(|class| !class.aside);
        let named = |class: &Class| without_addresses(&self.texts.text(class.name));
        match classes.next() {
            Some(own) if own.name != 0 => Some(named(own)),
            _ => Some(class_names::anonymous(classes.find(|class| class.name != 0).map(named).as_deref())),
        }
    }

    /// The own name of a class, module or class of one object.
    pub fn own_name(&self, kind: u32, address: u64) -> Option<String> {
        let of = self.list.get(kind as usize)?;
        match of.kind {
            Type::Class if class_names::is_singleton(&self.texts.text(of.sort)) => Some(match of.label {
                0 => format!("singleton class of {}", class_names::one(&self.class_name(address)?)),
                label => self.texts.text(label),
            }),
            Type::Class | Type::Module => self.class_name(address),
            _ => None,
        }
    }

    /// Whether this name selects the objects of a kind: it is that of their class, or another one that is
    /// printed for them.
    pub fn is_called(&self, kind: u32, asked: &str) -> bool {
        let of = &self.list[kind as usize];
        let has_class = self.classes.contains_key(&of.class);
        self.class_of(kind) == asked
            || class_names::is_other_name(of.kind, &self.texts.text(of.sort), has_class, asked)
            || (of.kind == Type::Class && of.label != 0 && self.texts.text(of.label) == asked)
    }

    /// The number of the name of a kind's class.
    pub fn label_number(&self, kind: u32) -> u32 {
        self.labels.get(kind as usize).copied().unwrap_or(0)
    }

    /// The name of a kind's class.
    pub fn class_of(&self, kind: u32) -> String {
        self.texts.text(self.label_number(kind))
    }

    /// The line of the allocation, or nothing if it is unknown.
    pub fn site(&self, kind: u32) -> Option<String> {
        let kind = self.list.get(kind as usize)?;
        (kind.file != 0).then(|| format!("{}:{}", self.texts.text(kind.file), kind.line))
    }

    /// Its approximate bytes, for a budget.
    pub fn memory_bytes(&self) -> usize {
        self.texts.memory_bytes()
            + self.list.capacity() * 48
            + self.numbers.capacity() * 56
            + self.classes.capacity() * 33
    }
}
