//! What the line of a singleton class says besides: whose it is.

use rb_sys::VALUE;

use super::edges;
use super::writer::Writer;
use crate::atlas::{self, Object, types};

impl Writer<'_> {
    /// Whose singleton class it is, and whether Ruby hides it.
    pub(super) fn singleton(&mut self, class: Object) {
        let Some(of) = edges::object_of_singleton(class.value()) else { return };
        // SAFETY: a class of the heap; reads words and, before 3.2, variables.
        let hidden = unsafe { (self.vm.functions.is_internal)(class.value()) } != 0;
        self.out.bytes(b", \"label\":\"");
        self.out.bytes(if hidden { b"hidden " } else { b"" });
        self.out.bytes(b"singleton class of ");
        let is_class = matches!(of.kind(), types::T_CLASS | types::T_MODULE);
        // SAFETY: classes of the heap; a name is the string that the class holds, or nil.
        let name = unsafe {
            let functions = &self.vm.functions;
            let class = if is_class { of.value() } else { (functions.real_class)(of.word(1) as VALUE) };
            if class == 0 { 0 } else { (functions.class_name)(class) }
        };
        // SAFETY: a string of the heap.
        let name = if atlas::is_string(name) { unsafe { Object::read(name as usize) }.string() } else { b"" };
        match (is_class, name.first()) {
            (true, None) => self.out.bytes(b"a class without a name"),
            (true, Some(_)) => {}
            (false, None) => self.out.bytes(b"an object of a class without a name"),
            (false, Some(first)) if b"AEIOUaeiou".contains(first) => self.out.bytes(b"an "),
            (false, Some(_)) => self.out.bytes(b"a "),
        }
        self.out.inner_text(name);
        self.out.bytes(b"\"");
    }
}
