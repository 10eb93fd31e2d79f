//! Plain objects, arrays, hashes, structs and the smaller types.

use std::ffi::c_int;

use rb_sys::{ID, VALUE};

use super::layout::{Layout, StData};
use super::memory::is_address;
use super::{EdgeName, Visit};
use crate::atlas::{Object, RUBY, types};

const CONTINUE: c_int = 0;
/// The word of an Array with the one whose elements it has.
const SHARED_ARRAY: usize = 3;
/// Words of a slot that may hold a reference.
const LAST_WORD: usize = 4;

/// What a walk's function is given.
struct Walk<'a> {
    visit: Visit<'a>,
}

/// Instance variables: of a plain object, a class, or those that Ruby keeps aside for any other object. Those of a
/// class are also its class variables, and what Ruby keeps under names that are no variables.
pub(super) fn variables(layout: &Layout, object: Object, visit: Visit<'_>) {
    extern "C" fn on_variable(name: ID, value: VALUE, walk: StData) -> c_int {
        if is_address(value as usize) {
            // SAFETY: what the call below was given, which no other code uses meanwhile.
            let walk = unsafe { &mut *(walk as *mut Walk<'_>) };
            (walk.visit)(value, EdgeName::Name { before: b"", name, after: b"" });
        }
        CONTINUE
    }
    let mut walk = Walk { visit };
    let argument = std::ptr::from_mut(&mut walk) as StData;
    // SAFETY: an object of the heap; Ruby reads its table or its shape, and calls the function for each.
    unsafe { (layout.functions.each_variable)(object.value(), on_variable, argument) };
}

/// Keys and values, then the default value or block.
pub(super) fn hash(layout: &Layout, object: Object, visit: Visit<'_>) {
    extern "C" fn on_pair(key: StData, value: StData, walk: StData) -> c_int {
        // SAFETY: what the call below was given, which no other code uses meanwhile.
        let walk = unsafe { &mut *(walk as *mut Walk<'_>) };
        if is_address(key) {
            (walk.visit)(key as VALUE, EdgeName::Text(b"key"));
        }
        if is_address(value) {
            (walk.visit)(value as VALUE, EdgeName::ValueOf(key as VALUE));
        }
        CONTINUE
    }
    let default = object.default_of_hash();
    let mut walk = Walk { visit };
    let argument = std::ptr::from_mut(&mut walk) as StData;
    // SAFETY: a Hash of the heap; the collector walks over it by the same function.
    unsafe { (layout.functions.each_pair)(object.value(), on_pair, argument) };
    if is_address(default) {
        (walk.visit)(default as VALUE, EdgeName::Text(b"default"));
    }
}

pub(super) fn array(object: Object, visit: Visit<'_>) {
    if object.has(Object::SHARED) && !object.has(Object::EMBEDDED) {
        visit(object.word(SHARED_ARRAY) as VALUE, EdgeName::Text(b"shared array"));
        return;
    }
    for (index, element) in elements(object).iter().enumerate() {
        if is_address(*element as usize) {
            visit(*element, EdgeName::Element(index));
        }
    }
}

/// The elements of an array, which may have none of its own.
pub(in crate::heap_dump) fn elements(object: Object) -> &'static [VALUE] {
    let length = usize::try_from(object.array_length()).unwrap_or(0);
    // SAFETY: an array of the heap; nothing changes it in the copy. One without elements may have no address.
    unsafe {
        let start = rb_sys::RARRAY_CONST_PTR(object.value());
        if start.is_null() || length == 0 { &[] } else { std::slice::from_raw_parts(start, length) }
    }
}

pub(super) fn others(layout: &Layout, object: Object, visit: Visit<'_>) {
    let mut words = |names: &[(usize, &'static [u8])]| {
        for (index, name) in names {
            if is_address(object.word(*index)) {
                visit(object.word(*index) as VALUE, EdgeName::Text(name));
            }
        }
    };
    match object.kind() {
        types::T_STRUCT => members(layout, object, visit),
        types::T_STRING if object.has(Object::OUTSIDE) && object.has(Object::SHARED) => {
            words(&[(LAST_WORD, b"shared string")])
        }
        types::T_REGEXP => words(&[(3, b"source")]),
        types::T_MATCH => words(&[(2, b"string"), (RUBY.match_regexp, b"regexp")]),
        types::T_RATIONAL => words(&[(2, b"numerator"), (3, b"denominator")]),
        types::T_COMPLEX => words(&[(2, b"real"), (3, b"imaginary")]),
        types::T_SYMBOL => words(&[(3, b"name")]),
        _ => {}
    }
}

/// Members of a Struct or Data, whose names the class or one above it has as an array.
fn members(layout: &Layout, object: Object, visit: Visit<'_>) {
    // SAFETY: a struct of the heap: reads its length, which is a small Integer.
    let length = unsafe { (layout.functions.struct_size)(object.value()) } >> 1;
    let names = names_of_members(layout, object);
    for index in 0..length as usize {
        // SAFETY: a small Integer within the length: reads the member.
        let value = unsafe { (layout.functions.struct_member)(object.value(), ((index << 1) | 1) as VALUE) };
        if !is_address(value as usize) {
            continue;
        }
        match names.and_then(|names| symbol(names, index)) {
            Some(name) => visit(value, EdgeName::Name { before: b".", name, after: b"" }),
            None => visit(value, EdgeName::Element(index)),
        }
    }
}

fn names_of_members(layout: &Layout, object: Object) -> Option<Object> {
    const MOST_CLASSES: usize = 100;
    let mut class = object.word(1);
    for _ in 0..MOST_CLASSES {
        if !is_address(class) {
            return None;
        }
        // SAFETY: a class of the heap; the variable is read without a call of any method.
        let names = unsafe { (layout.functions.variable)(class as VALUE, layout.members) } as usize;
        if is_address(names) {
            // SAFETY: an object.
            let names = unsafe { Object::read(names) };
            return (names.kind() == types::T_ARRAY).then_some(names);
        }
        // SAFETY: a class of the heap.
        class = unsafe { (layout.functions.superclass)(class as VALUE) } as usize;
    }
    None
}

/// The name of a symbol that needs no object, as names of members do unless they were made at run time.
fn symbol(names: Object, index: usize) -> Option<ID> {
    const STATIC: usize = 0x0c;
    if index >= usize::try_from(names.array_length()).ok()? {
        return None;
    }
    // SAFETY: an element of an array.
    let symbol = unsafe { rb_sys::RARRAY_CONST_PTR(names.value()).add(index).read() } as usize;
    (symbol & 0xff == STATIC).then_some((symbol >> 8) as ID)
}
