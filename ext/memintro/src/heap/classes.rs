//! The label of an object in a histogram: its class, or its type if it has no class that may be shown.

use rb_sys::VALUE;

use super::functions::{self, ClassFunctions, Functions};
use super::intern::{ByAddress, Texts};
use super::walk::Trouble;
use crate::atlas::Object;
use crate::atlas::types::{self, T_CLASS, T_ICLASS, T_IMEMO, T_MODULE, T_MOVED, T_ZOMBIE};

/// A name's number, and whether Ruby hides objects with that name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Label {
    pub(super) text: u32,
    pub(super) internal: bool,
}

/// No class is at address 1.
const NO_CLASS: VALUE = 1;

/// Names of classes, each made once during a walk.
pub(super) struct Labels {
    classes: ClassFunctions,
    texts: Texts,
    by_class: ByAddress<VALUE, Label>,
    by_kind: ByAddress<usize, Label>,
    plain: [Plain; 16],
    recent: (VALUE, Label),
}

/// Whether objects of the VM of a kind own no memory besides their slot, so that neither their label nor their size need be
/// asked for each of them. Caches of calls are by far the most of such objects.
#[derive(Clone, Copy)]
enum Plain {
    Unknown,
    No,
    Yes(Label),
}

impl Labels {
    pub(super) fn new() -> Result<Self, Trouble> {
        let none = Label { text: Texts::UNKNOWN, internal: true };
        Ok(Self {
            classes: functions::classes().map_err(Trouble::Missing)?,
            texts: Texts::new(),
            by_class: ByAddress::default(),
            by_kind: ByAddress::default(),
            plain: [Plain::Unknown; 16],
            recent: (NO_CLASS, none),
        })
    }

    /// The label of the object in the slot.
    #[inline]
    pub(super) fn of(&mut self, vm: &Functions, slot: Object) -> Label {
        match slot.kind() {
            T_IMEMO | T_ICLASS | T_ZOMBIE | T_MOVED => return self.of_kind(vm, slot, false),
            _ => {}
        }
        // SAFETY: an object that is no imemo.
        let class = unsafe { slot.class() };
        if class == 0 {
            return self.of_kind(vm, slot, false);
        }
        // SAFETY: a class; follows its ancestors.
        if slot.kind() == T_CLASS && unsafe { (self.classes.real)(slot.value()) } != slot.value() {
            return self.of_kind(vm, slot, true);
        }
        if class == self.recent.0 {
            return self.recent.1;
        }
        let label = match self.by_class.get(&class) {
            Some(label) => *label,
            None => self.of_new_class(class),
        };
        self.recent = (class, label);
        label
    }

    /// The label of an object of the VM that owns no memory besides its slot.
    #[inline]
    pub(super) fn of_plain(&mut self, vm: &Functions, slot: Object) -> Option<Label> {
        let kind = slot.imemo_kind();
        match self.plain[kind] {
            Plain::Yes(label) => Some(label),
            Plain::No => None,
            Plain::Unknown => {
                let is_plain =
                    matches!(vm.text_of_imemo(kind), Some(b"callinfo" | b"callcache" | b"constcache"));
                self.plain[kind] =
                    if is_plain { Plain::Yes(self.of_kind(vm, slot, false)) } else { Plain::No };
                self.of_plain(vm, slot)
            }
        }
    }

    /// Forgets addresses, because other classes may be at them from now on.
    pub(super) fn forget_addresses(&mut self) {
        self.by_class.clear();
        self.recent.0 = NO_CLASS;
    }

    /// The label's text.
    pub(super) fn text(&self, label: Label) -> &[u8] {
        self.texts.get(label.text)
    }

    /// The own name of a class or module; none for other objects, and for those without a name.
    pub(super) fn name_of_class(&self, slot: Object) -> Option<Vec<u8>> {
        matches!(slot.kind(), T_CLASS | T_MODULE).then(|| own_name(self.classes, slot.value())).flatten()
    }

    fn of_new_class(&mut self, class: VALUE) -> Label {
        // SAFETY: a class; follows its ancestors.
        let real = unsafe { (self.classes.real)(class) };
        let label = Label { text: self.texts.of_bytes(&class_name(self.classes, real)), internal: false };
        self.by_class.insert(class, label);
        label
    }

    /// Labels by type: objects of the VM, objects without a class, and singleton classes.
    #[cold]
    #[inline(never)]
    fn of_kind(&mut self, vm: &Functions, slot: Object, singleton: bool) -> Label {
        // SAFETY: an object of the heap. Tells hidden singleton classes from others.
        let internal = !singleton || unsafe { (self.classes.internal)(slot.value()) } != 0;
        let detail = if slot.kind() == T_IMEMO { slot.imemo_kind() } else { usize::from(singleton) };
        let key = (slot.kind() << 8) | (detail << 1) | usize::from(internal);
        if let Some(label) = self.by_kind.get(&key) {
            return *label;
        }
        let name = match slot.kind() {
            T_IMEMO => vm.name_of_imemo(slot.imemo_kind()),
            T_CLASS if singleton && internal => "(hidden singleton class)".to_owned(),
            T_CLASS if singleton => "(singleton class)".to_owned(),
            T_ICLASS => "(included module)".to_owned(),
            T_ZOMBIE => "(awaiting its finalizer)".to_owned(),
            T_MOVED => "(moved away)".to_owned(),
            kind => format!("(hidden {})", types::name(kind)),
        };
        let label = Label { text: self.texts.of_bytes(name.as_bytes()), internal };
        self.by_kind.insert(key, label);
        label
    }

    pub(super) fn into_texts(self) -> Vec<Vec<u8>> {
        self.texts.into_vec()
    }
}

/// The class's own name, or the name of the next ancestor that has one. Calls no method that a program may have
/// replaced.
fn class_name(vm: ClassFunctions, class: VALUE) -> Vec<u8> {
    if class == 0 {
        return b"(unknown)".to_vec();
    }
    if let Some(name) = own_name(vm, class) {
        return without_addresses(&name);
    }
    let mut ancestor = class;
    loop {
        // SAFETY: a class; its ancestors are classes and included modules, up to 0.
        ancestor = unsafe {
            match (vm.superclass)(ancestor) {
                0 => return b"(anonymous class)".to_vec(),
                above => (vm.real)(above),
            }
        };
        if ancestor == 0 {
            return b"(anonymous class)".to_vec();
        }
        if let Some(name) = own_name(vm, ancestor) {
            return [b"(anonymous class < ", without_addresses(&name).as_slice(), b")"].concat();
        }
    }
}

fn own_name(vm: ClassFunctions, class: VALUE) -> Option<Vec<u8>> {
    // SAFETY: a class. Its name is the string it holds, or nil: nothing is allocated.
    unsafe {
        let name = (vm.name)(class);
        if !rb_sys::RB_TYPE_P(name, rb_sys::ruby_value_type::RUBY_T_STRING) {
            return None;
        }
        let length = usize::try_from(rb_sys::RSTRING_LEN(name)).unwrap_or(0);
        Some(std::slice::from_raw_parts(rb_sys::RSTRING_PTR(name).cast::<u8>(), length).to_vec())
    }
}

/// A class below an anonymous one is called `#<Class:0x…>::Name`. The address is left out, so that all such classes
/// are one row, which is the same in each process.
fn without_addresses(name: &[u8]) -> Vec<u8> {
    const START: &[u8] = b":0x";
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while !rest.is_empty() {
        if name.starts_with(b"#<") && rest.starts_with(START) {
            rest = &rest[START.len()..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            rest = &rest[digits..];
        } else {
            out.push(rest[0]);
            rest = &rest[1..];
        }
    }
    out
}
