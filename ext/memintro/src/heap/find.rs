//! Finding objects of the heap: by class and size, by address; and how many there are of each type.

use rb_sys::VALUE;

use super::functions::{self, ClassFunctions, Functions};
use crate::atlas::Object;
use crate::atlas::types::{self, T_CLASS, T_ICLASS, T_IMEMO, T_MODULE, T_NODE};

use super::walk::{self, Trouble};
use std::ops::ControlFlow;

/// More classes above one are not believed.
const MOST_CLASSES: usize = 10_000;

/// What is looked for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// This class or one below it.
    pub(crate) class: Option<VALUE>,
    pub(crate) least_bytes: u64,
}

/// Visits objects that a program may see: none of the VM's own, and no singleton class. At most so many.
pub(crate) fn find(wanted: Wanted, most: usize, mut visit: impl FnMut(VALUE)) -> Result<usize, Trouble> {
    let classes = functions::classes().map_err(Trouble::Missing)?;
    let mut found = 0;
    walk::some_pages(|vm, page| {
        for slot in page.slots() {
            if found >= most {
                return ControlFlow::Break(());
            }
            if is_wanted(vm, classes, slot, wanted) {
                visit(slot.value());
                found += 1;
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn is_wanted(vm: &Functions, classes: ClassFunctions, slot: Object, wanted: Wanted) -> bool {
    is_shown(classes, slot)
        && wanted.class.is_none_or(|class| is_a(classes, slot, class))
        && (wanted.least_bytes == 0 || vm.bytes_of(slot) >= wanted.least_bytes)
}

fn is_shown(classes: ClassFunctions, slot: Object) -> bool {
    if !slot.is_object() || matches!(slot.kind(), T_IMEMO | T_ICLASS | T_NODE) {
        return false;
    }
    // SAFETY: an object of the heap that is no imemo; both functions only read.
    unsafe {
        slot.class() != 0
            && (classes.internal)(slot.value()) == 0
            && (slot.kind() != T_CLASS || (classes.real)(slot.value()) == slot.value())
    }
}

fn is_a(classes: ClassFunctions, slot: Object, wanted: VALUE) -> bool {
    // SAFETY: an object of the heap that has a class; follows its ancestors.
    unsafe {
        let mut class = (classes.real)(slot.class());
        for _ in 0..MOST_CLASSES {
            if class == wanted {
                return true;
            }
            // Nil is above BasicObject.
            if class as usize <= rb_sys::Qnil as usize {
                return false;
            }
            class = (classes.superclass)(class);
        }
    }
    false
}

/// The object at an address, if one that a program may see is there. Visits only the page of the address.
pub(crate) fn at(address: usize) -> Result<Option<VALUE>, Trouble> {
    let classes = functions::classes().map_err(Trouble::Missing)?;
    let mut found = None;
    walk::some_pages(|_, page| {
        if !(page.start..page.end).contains(&address) {
            return ControlFlow::Continue(());
        }
        if (address - page.start).is_multiple_of(page.stride.max(1)) {
            // SAFETY: a slot of this page.
            let slot = unsafe { Object::read(address) };
            found = is_shown(classes, slot).then_some(slot.value());
        }
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// The name of the class or module at an address, if one is there that has a name. Visits only the page of the address.
pub(crate) fn class_name(address: usize) -> Result<Option<String>, Trouble> {
    let classes = functions::classes().map_err(Trouble::Missing)?;
    let mut name = None;
    walk::some_pages(|_, page| {
        if !(page.start..page.end).contains(&address) {
            return ControlFlow::Continue(());
        }
        if (address - page.start).is_multiple_of(page.stride.max(1)) {
            // SAFETY: a slot of this page.
            let slot = unsafe { Object::read(address) };
            if matches!(slot.kind(), T_CLASS | T_MODULE | T_ICLASS) {
                // SAFETY: a class; its name is a string that it holds, or nil.
                name = text_of(unsafe { (classes.name)((classes.real)(slot.value())) });
            }
        }
        ControlFlow::Break(())
    })?;
    Ok(name)
}
/// How many of these objects are of one of the classes, or of a class below one. Those that only the VM sees are of none.
///
/// # Safety
/// They are live: nothing was freed or moved since they were listed.
pub(crate) unsafe fn count_of(
    addresses: impl Iterator<Item = usize>,
    wanted: &[VALUE],
) -> Result<usize, Trouble> {
    let classes = functions::classes().map_err(Trouble::Missing)?;
    let is_meant = |address: &usize| {
        // SAFETY: the caller's promise.
        let slot = unsafe { Object::read(*address) };
        is_shown(classes, slot) && wanted.iter().any(|class| is_a(classes, slot, *class))
    };
    Ok(addresses.filter(is_meant).count())
}

/// How many slots there are of each type, free ones included.
pub(crate) fn counts() -> Result<[u64; 32], Trouble> {
    let mut counts = [0; 32];
    walk::some_pages(|_, page| {
        for slot in page.slots() {
            if let Some(count) = counts.get_mut(slot.kind()) {
                *count += 1;
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(counts)
}

/// The name of an object's class, or of its type if the VM hides it. Under the GVL.
pub(crate) fn described(value: VALUE) -> Result<String, Trouble> {
    let classes = functions::classes().map_err(Trouble::Missing)?;
    let vm = functions::get().map_err(Trouble::Missing)?;
    // SAFETY: an object that something holds.
    let slot = unsafe { Object::read(value as usize) };
    if slot.kind() == T_IMEMO {
        return Ok(vm.name_of_imemo(slot.imemo_kind()));
    }
    // SAFETY: an object that is no imemo; a name is a string that the class holds, or nil.
    let name = unsafe {
        match slot.class() {
            0 => rb_sys::Qnil as VALUE,
            class => (classes.name)((classes.real)(class)),
        }
    };
    Ok(text_of(name).unwrap_or_else(|| types::name(slot.kind()).to_string()))
}

/// A copy of a string; nothing for any other value.
fn text_of(value: VALUE) -> Option<String> {
    // SAFETY: any value may be asked for its type; a string is copied at once.
    unsafe {
        if !rb_sys::RB_TYPE_P(value, rb_sys::ruby_value_type::RUBY_T_STRING) {
            return None;
        }
        let length = usize::try_from(rb_sys::RSTRING_LEN(value)).unwrap_or(0);
        let bytes = std::slice::from_raw_parts(rb_sys::RSTRING_PTR(value).cast::<u8>(), length);
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}
