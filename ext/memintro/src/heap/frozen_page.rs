//! The heap's pages as a list, for a copy of this process that reads them later. The copy allocates nothing.

use std::ops::ControlFlow;

use super::functions::{self, Functions};
use super::walk::{self, Trouble};
use crate::atlas::Object;
use crate::atlas::types::{T_DATA, T_IMEMO, T_MOVED, T_NONE};

/// Structures of threads and fibers. Their stacks, which Ruby counts as theirs, are not malloc's.
const WITHOUT_STACK: u64 = 4096;

/// One page: its slots are `stride` bytes apart.
#[derive(Clone, Copy)]
pub(crate) struct FrozenPage {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) stride: usize,
}

/// An object that points to a structure of C.
pub(crate) struct DataObject {
    /// Its name of the type; empty without a type.
    pub(crate) type_name: &'static [u8],
    /// Address of the structure; 0 if there is none, or if it is in the slot.
    pub(crate) data: usize,
}

/// Lists all pages.
pub(crate) fn list_pages(mut visit: impl FnMut(FrozenPage) -> ControlFlow<()>) -> Result<(), Trouble> {
    walk::some_pages(|_, page| {
        visit(FrozenPage { start: page.start, end: page.end, stride: page.stride.max(8) })
    })
}

/// The same, but finishes a marking that is under way.
pub(crate) fn list_pages_alone(mut visit: impl FnMut(FrozenPage)) -> Result<(), Trouble> {
    walk::each_page(|_, page| {
        visit(FrozenPage { start: page.start, end: page.end, stride: page.stride.max(8) })
    })
}

impl FrozenPage {
    /// Addresses of all slots.
    pub(crate) fn slots(self) -> impl Iterator<Item = usize> {
        (self.start..self.end).step_by(self.stride)
    }

    /// Whether the slot is not free.
    pub(crate) fn is_taken(self, slot: usize) -> bool {
        // SAFETY: a slot of this page.
        unsafe { Object::read(slot) }.kind() != T_NONE
    }

    /// What an object, or one that awaits its finalizer, is: its type, its kind if it is one of the VM, and its class.
    pub(crate) fn identity(self, slot: usize) -> Option<(usize, Option<usize>, usize)> {
        // SAFETY: a slot of this page.
        let read = unsafe { Object::read(slot) };
        match read.kind() {
            T_NONE | T_MOVED => None,
            T_IMEMO => Some((T_IMEMO, Some(read.imemo_kind()), 0)),
            // SAFETY: no imemo.
            kind => Some((kind, None, unsafe { read.class() } as usize)),
        }
    }

    /// Whether the object in the slot is old; `None` if there is none.
    pub(crate) fn is_old(self, slot: usize) -> Option<bool> {
        // SAFETY: a slot of this page.
        let read = unsafe { Object::read(slot) };
        read.is_object().then(|| read.is_old())
    }

    /// What an object of an extension, or of Ruby's own in C, points to.
    pub(crate) fn data(self, slot: usize) -> Option<DataObject> {
        // SAFETY: a slot of this page.
        let object = unsafe { Object::read(slot) };
        (object.kind() == T_DATA).then(|| DataObject {
            type_name: object.type_name(),
            data: if object.embeds_structure() { 0 } else { object.structure() },
        })
    }

    /// Whether an object is in the slot.
    pub(crate) fn is_object(self, slot: usize) -> bool {
        // SAFETY: a slot of this page.
        unsafe { Object::read(slot) }.is_object()
    }
}

/// Ruby's functions, found before the copy is made.
#[derive(Clone, Copy)]
pub(crate) struct Vm(&'static Functions);

impl Vm {
    pub(crate) fn get() -> Option<Self> {
        functions::get().ok().map(Self)
    }

    /// The object in this slot, and the bytes that it owns outside.
    pub(crate) fn object(self, address: usize, slot_bytes: u64) -> (Object, u64) {
        // SAFETY: a slot that holds an object.
        let object = unsafe { Object::read(address) };
        let owned = self.0.bytes_of(object).saturating_sub(slot_bytes);
        let has_stack = owned > WITHOUT_STACK && matches!(object.type_name(), b"VM/thread" | b"fiber");
        (object, if has_stack { WITHOUT_STACK } else { owned })
    }

    /// Whether it is compiled code.
    pub(crate) fn is_iseq(self, object: Object) -> bool {
        let is_internal = object.kind() == T_IMEMO;
        is_internal && matches!(self.imemo_name(object.imemo_kind()), b"imemo_iseq" | b"iseq")
    }

    /// The name of the class of an object that is no imemo, if it has one of its own.
    pub(crate) fn class_name(self, slot: usize) -> Option<&'static [u8]> {
        let classes = self.0.classes?;
        // SAFETY: an object, and its class with its ancestors. The name is the string that the class holds, or nil: nothing
        // is allocated, and nothing is freed in a copy.
        unsafe {
            let class = (classes.real)(Object::read(slot).class());
            if class == 0 { None } else { text_of((classes.name)(class)) }
        }
    }

    /// The path of compiled code, which is complete.
    pub(crate) fn path_of_code(self, slot: usize) -> Option<&'static [u8]> {
        // SAFETY: an object of this kind. The path is a string that it holds: nothing is allocated, and nothing is freed in
        // a copy.
        unsafe {
            let code = Object::read(slot);
            let path =
                if code.is_unfinished_iseq() { return None } else { (self.0.iseq_path?)(code.value()) };
            text_of(path)
        }
    }

    /// Ruby's name for a kind of imemo.
    pub(crate) fn imemo_name(self, kind: usize) -> &'static [u8] {
        self.0.text_of_imemo(kind).unwrap_or(b"imemo")
    }
}

/// The bytes of a string; `None` of another object.
///
/// # Safety
/// A value of Ruby, in a copy of the process, where nothing is freed.
unsafe fn text_of(value: rb_sys::VALUE) -> Option<&'static [u8]> {
    // SAFETY: the caller's promise.
    unsafe {
        if !rb_sys::RB_TYPE_P(value, rb_sys::ruby_value_type::RUBY_T_STRING) {
            return None;
        }
        let length = usize::try_from(rb_sys::RSTRING_LEN(value)).unwrap_or(0);
        Some(std::slice::from_raw_parts(rb_sys::RSTRING_PTR(value).cast::<u8>(), length))
    }
}
