//! Which objects are of the classes that somebody named: an answer for each object that is made. Objects of the VM have
//! no class; their kinds have names such as `imemo_callcache`.
//!
//! A class is meant if it, or one of its superclasses, was given or has one of the names. Superclasses never change, so
//! an answer holds as long as the class lives where it is: until a collection or a compaction. An answer is not kept
//! while a class above has no name for good, because it may get one of those that are looked for.
//!
//! Nothing here makes an object, allocates or raises: it runs in the middle of the making of an object.

use rb_sys::VALUE;

use super::functions::{self, ClassFunctions, Functions};
use super::walk::Trouble;
use crate::atlas::Object;
use crate::atlas::types::{T_ARRAY, T_CLASS, T_HASH, T_ICLASS, T_IMEMO, T_NODE, T_STRING};

/// Classes and names of classes, as they were given. Whoever holds it keeps the classes alive and in place.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) classes: Vec<VALUE>,
    pub(crate) names: Vec<Vec<u8>>,
}

const ENTRIES: usize = 256;

/// The answers of one GC generation, by the address of the class.
pub(crate) struct Watched {
    wanted: Wanted,
    kinds: Kinds,
    vm: ClassFunctions,
    generation: usize,
    answers: [(VALUE, bool); ENTRIES],
}

/// The answers for kinds of objects of the VM, a bit for each. A kind is asked for its name when there is an object of it:
/// some Rubies stop the process over a number that is no kind.
struct Kinds {
    names: &'static Functions,
    known: usize,
    meant: usize,
}

impl Kinds {
    fn mean(&mut self, kind: usize, names: &[Vec<u8>]) -> bool {
        let bit = 1 << kind;
        if self.known & bit == 0 {
            let is_meant = self
                .names
                .text_of_imemo(kind)
                .is_some_and(|kind| names.iter().any(|name| name.strip_prefix(b"imemo_") == Some(kind)));
            self.known |= bit;
            self.meant |= if is_meant { bit } else { 0 };
        }
        self.meant & bit != 0
    }
}

/// What is known of one class.
struct Answer {
    is_meant: bool,
    may_change: bool,
}

impl Watched {
    pub(crate) fn new(wanted: Wanted) -> Result<Self, Trouble> {
        let vm = functions::classes().map_err(Trouble::Missing)?;
        let kinds = Kinds { names: functions::get().map_err(Trouble::Missing)?, known: 0, meant: 0 };
        Ok(Self { wanted, kinds, vm, generation: 0, answers: [(0, false); ENTRIES] })
    }

    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Classes have moved, or one was freed.
    pub(crate) fn forget(&mut self) {
        self.answers = [(0, false); ENTRIES];
    }

    /// Whether the object in this slot is meant, which was made just now.
    ///
    /// # Safety
    /// There is an object in the slot.
    pub(crate) unsafe fn means(&mut self, slot: VALUE, generation: usize) -> bool {
        // SAFETY: the caller's promise.
        let slot = unsafe { Object::read(slot as usize) };
        match slot.kind() {
            T_IMEMO => return self.kinds.mean(slot.imemo_kind(), &self.wanted.names),
            T_ICLASS | T_NODE => return false,
            _ => {}
        }
        // SAFETY: an object that is no imemo.
        let class = match unsafe { slot.class() } {
            0 => class_to_come(slot),
            class => class,
        };
        if class == 0 {
            return false;
        }
        if self.generation != generation {
            self.forget();
            self.generation = generation;
        }
        let entry = (class >> 3) as usize % ENTRIES;
        if let Some((known, is_meant)) = self.answers.get(entry).copied()
            && known == class
        {
            return is_meant;
        }
        let answer = self.look(class);
        if let Some(entry) = self.answers.get_mut(entry).filter(|_| !answer.may_change) {
            *entry = (class, answer.is_meant);
        }
        answer.is_meant
    }

    #[cold]
    fn look(&self, mut class: VALUE) -> Answer {
        let mut may_change = false;
        while class != 0 {
            // SAFETY: a class or a module that is included in one, up to 0.
            class = unsafe { (self.vm.real)(class) };
            if class == 0 {
                break;
            }
            if self.wanted.classes.contains(&class) {
                return Answer { is_meant: true, may_change: false };
            }
            // SAFETY: a class.
            let name = unsafe { name_of(self.vm, class) };
            if self.wanted.names.iter().any(|wanted| wanted == name) {
                return Answer { is_meant: true, may_change: false };
            }
            // A name for good begins as a constant does. Of other letters than ASCII's it is not known here.
            may_change |= !name.first().is_some_and(u8::is_ascii_uppercase);
            // SAFETY: a class.
            class = unsafe { (self.vm.superclass)(class) };
        }
        Answer { is_meant: false, may_change: may_change && !self.wanted.names.is_empty() }
    }
}

/// Whether the object is a class.
///
/// # Safety
/// There is an object in the slot.
pub(crate) unsafe fn is_class(slot: VALUE) -> bool {
    // SAFETY: the caller's promise.
    unsafe { Object::read(slot as usize) }.kind() == T_CLASS
}

/// The class that an object without one will have if Ruby shows it later, as `Array#flatten` does with its result; 0: it stays
/// hidden.
fn class_to_come(slot: Object) -> VALUE {
    // SAFETY: Ruby's own constants, set since it has begun.
    unsafe {
        match slot.kind() {
            T_STRING => rb_sys::rb_cString,
            T_ARRAY => rb_sys::rb_cArray,
            T_HASH => rb_sys::rb_cHash,
            _ => 0,
        }
    }
}

/// Its bytes are valid while nothing of Ruby's runs; none for a class without a name.
///
/// # Safety
/// It is a class.
unsafe fn name_of<'a>(vm: ClassFunctions, class: VALUE) -> &'a [u8] {
    // SAFETY: the caller's promise. The name is the string it holds, or nil: nothing is allocated.
    unsafe {
        let name = (vm.name)(class);
        if !rb_sys::RB_TYPE_P(name, rb_sys::ruby_value_type::RUBY_T_STRING) {
            return &[];
        }
        let length = usize::try_from(rb_sys::RSTRING_LEN(name)).unwrap_or(0);
        std::slice::from_raw_parts(rb_sys::RSTRING_PTR(name).cast::<u8>(), length)
    }
}
