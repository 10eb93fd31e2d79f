//! References of arrays, hashes and plain objects. The writer reads them as the collector does, by the same functions and
//! in the same order, so that one walk tells the references and their names. What Ruby must tell is left to
//! `rb_objspace_reachable_objects_from`.

use std::ffi::c_int;

use rb_sys::{ID, VALUE};

use super::edges::{self, is_address};
use super::names::Told;
use super::writer::Writer;
use crate::atlas::{Object, types};

const CONTINUE: c_int = 0;

impl Writer<'_> {
    /// Writes the references of such an object, and their names. False for others: nothing has been written.
    #[inline]
    pub(super) fn direct_references(&mut self, object: Object, slot_size: usize) -> bool {
        let Some(tellers) = self.tellers else { return false };
        let argument = std::ptr::from_mut(self).expose_provenance();
        let aside = object.has_variables_aside();
        match object.kind() {
            types::T_ARRAY if !aside && !object.has(Object::SHARED) => {
                self.elements(object);
                return true;
            }
            // SAFETY: a Hash of the heap; the collector walks over it by the same function. The writer outlives the
            // call, and no other code uses it meanwhile.
            types::T_HASH if !aside => unsafe {
                (tellers.each_pair)(object.value(), on_pair, argument);
                let default = object.default_of_hash();
                if is_address(default) {
                    self.told(default, Told::Default);
                }
            },
            types::T_OBJECT if self.variables_of(object, slot_size, tellers) => return true,
            // SAFETY: an object of the heap; Ruby reads its table or its shape, and calls the function for each.
            types::T_OBJECT => unsafe { (tellers.each_variable)(object.value(), on_variable, argument) },
            _ => return false,
        }
        if self.references > 0 {
            self.out.bytes(b"]");
            self.names.write_told(&mut self.out, self.references);
        }
        true
    }

    /// Elements have their numbers for names, and no names where all are references.
    fn elements(&mut self, object: Object) {
        let elements = edges::elements(object);
        for element in elements {
            let element = *element as usize;
            if is_address(element) && element != self.class {
                self.out_reference(element);
            }
        }
        if self.references > 0 {
            self.out.bytes(b"]");
        }
        if self.references == 0 || self.references == elements.len() {
            return;
        }
        let mut first = true;
        for (index, element) in elements.iter().enumerate() {
            if is_address(*element as usize) && *element as usize != self.class {
                self.out.bytes(if first { b", \"edges\":[" } else { b", " });
                self.out.number_after(b"\"[", index as u64);
                self.out.bytes(b"]\"");
                first = false;
            }
        }
        self.out.bytes(b"]");
    }

    #[inline]
    fn told(&mut self, to: usize, name: Told) {
        if to != self.class {
            self.names.tell(self.references, name);
            self.out_reference(to);
        }
    }
}

extern "C" fn on_variable(name: ID, value: VALUE, writer: usize) -> c_int {
    if is_address(value as usize) {
        // SAFETY: the writer that asked.
        let writer = unsafe { &mut *std::ptr::with_exposed_provenance_mut::<Writer<'_>>(writer) };
        writer.told(value as usize, Told::Variable(name as usize));
    }
    CONTINUE
}

extern "C" fn on_pair(key: usize, value: usize, writer: usize) -> c_int {
    // SAFETY: the writer that asked.
    let writer = unsafe { &mut *std::ptr::with_exposed_provenance_mut::<Writer<'_>>(writer) };
    if is_address(key) {
        writer.told(key, Told::Key);
    }
    if is_address(value) {
        writer.told(value, Told::Value(key));
    }
    CONTINUE
}

/// Most strings and all numbers hold nothing but their class.
#[inline]
pub(super) fn has_references(object: Object) -> bool {
    match object.kind() {
        types::T_STRING => object.has(Object::SHARED) || object.has_variables_aside(),
        types::T_FLOAT | types::T_BIGNUM => object.has_variables_aside(),
        _ => true,
    }
}
