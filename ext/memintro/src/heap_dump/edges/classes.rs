//! Classes and modules: what is above them, their constants, methods, variables and caches.

use std::ffi::c_void;

use rb_sys::VALUE;

use super::layout::{Layout, Table};
use super::memory::{each_entry, is_address, name_of_serial, word};
use super::{EdgeName, Visit, objects};
use crate::atlas::{Object, RUBY, types};

/// In a constant's entry: its value, and the file where it was set.
const VALUE_OF_CONSTANT: usize = 1;
const FILE_OF_CONSTANT: usize = 2;
/// An internal object with instance variables.
pub(super) const VARIABLES: &[u8] = b"variables";
/// The type of a data object with a class's caches of methods, since 4.0.
pub(super) const METHOD_CACHE: &[u8] = b"VM/cc_table";

pub(super) fn edges(layout: &Layout, class: Object, visit: Visit<'_>) {
    // SAFETY: a class or module of the heap; reads a word.
    let above = unsafe { (layout.functions.superclass)(class.value()) };
    visit(above, EdgeName::Text(b"superclass"));
    methods(layout, class, visit);
    constants(layout, class, visit);
    if class.kind() == types::T_ICLASS {
        visit(class.word(1) as VALUE, EdgeName::Text(b"module"));
    } else {
        if let Some(of) = object_of_singleton(layout, class) {
            visit(of.value(), EdgeName::Text(b"object of the singleton class"));
        }
        // Variables in an object of their own are that one's.
        if layout.main_ractor && RUBY.kinds.fields.is_none() {
            // Ruby refuses to read variables of classes outside of the main Ractor.
            objects::variables(layout, class, visit);
        }
    }
    each_child(layout, class, &mut |child| {
        if child.is_fields() {
            visit(child.value(), EdgeName::Text(VARIABLES));
        } else if child.kind() == types::T_IMEMO || child.type_name() == METHOD_CACHE {
            visit(child.value(), EdgeName::Text(b"cache of methods"));
        }
    });
}

/// The object whose singleton class this is, if it is one.
pub(super) fn object_of_singleton(layout: &Layout, class: Object) -> Option<Object> {
    if class.kind() != types::T_CLASS || !class.has(Object::SINGLETON) {
        return None;
    }
    // SAFETY: a singleton class of the heap: reads a word or, before 3.2, a variable.
    let of = unsafe {
        match layout.functions.singleton_of {
            Some(singleton_of) => singleton_of(class.value()),
            None if layout.main_ractor => (layout.functions.variable)(class.value(), layout.of_singleton),
            None => return None,
        }
    };
    // SAFETY: what the class refers to.
    is_address(of as usize).then(|| unsafe { Object::read(of as usize) })
}

fn methods(layout: &Layout, class: Object, visit: Visit<'_>) {
    let Some(place) = &layout.methods else { return };
    // SAFETY: the layout was found in classes of this Ruby, which all have one.
    unsafe {
        each_entry(table(class, place), |serial, entry| {
            let name = name_of_serial(serial, layout.first_serial);
            visit(entry as VALUE, EdgeName::Name { before: b"method ", name, after: b"" });
        });
    }
}

fn constants(layout: &Layout, class: Object, visit: Visit<'_>) {
    let Some(place) = &layout.constants else { return };
    // SAFETY: the layout was found in classes of this Ruby, which all have one; an entry is a record of its own.
    unsafe {
        each_entry(table(class, place), |serial, entry| {
            if !is_address(entry) {
                return;
            }
            let name = name_of_serial(serial, layout.first_serial);
            let (value, file) = (word(entry, VALUE_OF_CONSTANT), word(entry, FILE_OF_CONSTANT));
            if is_address(value) {
                visit(value as VALUE, EdgeName::Name { before: b"::", name, after: b"" });
            }
            if is_address(file) {
                visit(file as VALUE, EdgeName::Name { before: b"file of ::", name, after: b"" });
            }
        });
    }
}

/// The address of a table of a class; 0 if it has none.
unsafe fn table(class: Object, place: &Table) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        match *place {
            Table::InSlot(index) => word(class.address, index),
            Table::Behind(pointer, index) => match word(class.address, pointer) {
                0 => 0,
                behind => word(behind, index),
            },
        }
    }
}

/// All children, as Ruby reports them.
pub(super) fn each_child(layout: &Layout, object: Object, visit: &mut dyn FnMut(Object)) {
    unsafe extern "C" fn on_child(child: VALUE, visit: *mut c_void) {
        if is_address(child as usize) {
            // SAFETY: what the call below was given, which no other code uses meanwhile; a child is an object.
            unsafe { (*visit.cast::<&mut dyn FnMut(Object)>())(Object::read(child as usize)) };
        }
    }
    let mut visit = visit;
    // SAFETY: an object of the heap.
    unsafe { (layout.functions.references)(object.value(), on_child, std::ptr::from_mut(&mut visit).cast()) };
}
