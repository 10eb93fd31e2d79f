//! The heap's pages as a list, for a copy of this process that reads them later. The copy allocates nothing.

use std::ffi::CStr;
use std::ops::ControlFlow;

use super::functions::{self, Functions};
use super::slot::{Slot, T_IMEMO, T_MOVED, T_NONE};
use super::walk::{self, Trouble};

const T_DATA: usize = 0x0c;
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

/// What is known of an object.
pub(crate) struct Object {
    pub(crate) kind: usize,
    /// The kind of an object of the VM.
    pub(crate) imemo: Option<usize>,
    /// Bytes outside of its slot.
    pub(crate) owned: u64,
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
        unsafe { Slot::read(slot) }.kind() != T_NONE
    }

    /// What an object, or one that awaits its finalizer, is: its type, its kind if it is one of the VM, and its class.
    pub(crate) fn identity(self, slot: usize) -> Option<(usize, Option<usize>, usize)> {
        // SAFETY: a slot of this page.
        let read = unsafe { Slot::read(slot) };
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
        let read = unsafe { Slot::read(slot) };
        read.is_object().then(|| read.is_old())
    }

    /// What an object of an extension, or of Ruby's own in C, points to.
    pub(crate) fn data(self, slot: usize) -> Option<DataObject> {
        // SAFETY: a slot of this page.
        let is_data = unsafe { Slot::read(slot) }.kind() == T_DATA;
        // SAFETY: see above.
        is_data.then(|| unsafe { DataObject::read(slot) })
    }

    /// Whether an object is in the slot.
    pub(crate) fn is_object(self, slot: usize) -> bool {
        // SAFETY: a slot of this page.
        unsafe { Slot::read(slot) }.is_object()
    }
}

/// Ruby's functions, found before the copy is made.
#[derive(Clone, Copy)]
pub(crate) struct Vm(&'static Functions);

impl Vm {
    pub(crate) fn get() -> Option<Self> {
        functions::get().ok().map(Self)
    }

    /// What the object in this slot owns.
    pub(crate) fn object(self, address: usize, slot_bytes: u64) -> Object {
        // SAFETY: a slot that holds an object.
        let slot = unsafe { Slot::read(address) };
        let owned = slot.memsize(self.0).saturating_sub(slot_bytes);
        let imemo = (slot.kind() == T_IMEMO).then(|| slot.imemo_kind());
        let has_stack = slot.kind() == T_DATA && owned > WITHOUT_STACK && is_of_thread(address);
        Object { kind: slot.kind(), imemo, owned: if has_stack { WITHOUT_STACK } else { owned } }
    }

    /// Whether it is compiled code.
    pub(crate) fn is_iseq(self, object: &Object) -> bool {
        object.imemo.is_some_and(|kind| matches!(self.imemo_name(kind), b"imemo_iseq" | b"iseq"))
    }

    /// The name of the class of an object that is no imemo, if it has one of its own.
    pub(crate) fn class_name(self, slot: usize) -> Option<&'static [u8]> {
        let classes = self.0.classes?;
        // SAFETY: an object, and its class with its ancestors. The name is the string that the class holds, or nil: nothing
        // is allocated, and nothing is freed in a copy.
        unsafe {
            let class = (classes.real)(Slot::read(slot).class());
            if class == 0 { None } else { text_of((classes.name)(class)) }
        }
    }

    /// The path of compiled code, which is complete.
    pub(crate) fn path_of_code(self, slot: usize) -> Option<&'static [u8]> {
        // SAFETY: an object of this kind. The path is a string that it holds: nothing is allocated, and nothing is freed in
        // a copy.
        unsafe {
            let code = Slot::read(slot);
            let path = if code.is_unfinished_iseq() { return None } else { (self.0.iseq_path?)(code.value) };
            text_of(path)
        }
    }

    /// Ruby's name for a kind of imemo.
    pub(crate) fn imemo_name(self, kind: usize) -> &'static [u8] {
        // SAFETY: a kind that was found in the heap; the answer is null or a constant.
        unsafe {
            let name = (self.0.imemo_name)(kind as i32);
            if name.is_null() { b"imemo" } else { CStr::from_ptr(name).to_bytes() }
        }
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

/// Whether the data object is a thread or fiber.
fn is_of_thread(address: usize) -> bool {
    // SAFETY: its caller has found a data object.
    matches!(unsafe { DataObject::read(address) }.type_name, b"VM/thread" | b"fiber")
}

impl DataObject {
    /// A type (third word) begins with its name. Typed objects have 1 to 3 in their fourth word, of which 2 says that the
    /// data is in the slot; others have a function there.
    ///
    /// # Safety
    /// There is a data object in the slot.
    unsafe fn read(address: usize) -> Self {
        const EMBEDDED: usize = 2;
        let words = std::ptr::with_exposed_provenance::<usize>(address);
        // SAFETY: a slot has five words; a type is a constant that begins with its name, which is terminated.
        unsafe {
            let (data_type, typed, data) = (words.add(2).read(), words.add(3).read(), words.add(4).read());
            if !(1..=3).contains(&typed) || data_type == 0 {
                return Self { type_name: b"", data };
            }
            let name = std::ptr::with_exposed_provenance::<*const std::ffi::c_char>(data_type).read();
            let type_name = if name.is_null() { b"" } else { CStr::from_ptr(name).to_bytes() };
            Self { type_name, data: if typed & EMBEDDED == 0 { data } else { 0 } }
        }
    }
}

impl Object {
    /// Whether its blocks have pointers to further ones that Ruby counts as its own. Strings, arrays, structs and
    /// instance variables have one block, and what is in it are values or bytes.
    pub(crate) fn has_nested_blocks(&self) -> bool {
        const T_OBJECT: usize = 0x01;
        const T_STRING: usize = 0x05;
        const T_ARRAY: usize = 0x07;
        const T_STRUCT: usize = 0x09;
        const T_BIGNUM: usize = 0x0a;
        !matches!(self.kind, T_OBJECT | T_STRING | T_ARRAY | T_STRUCT | T_BIGNUM)
    }
}
