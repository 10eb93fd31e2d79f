//! Closures and what they consist of: blocks, environments with local variables, instruction sequences, methods.
//!
//! | what | where | Rubies |
//! |---|---|---|
//! | a block: self, environment pointer, code | the first three words of a proc's and of a binding's structure | 3.1 to 3.4 |
//! | of an environment: code, pointer, first local variable | words 1, 2, 3 of the object | 3.1 to 3.4 |
//! | outer environment, if the flags lack `LOCAL`; the object of an environment | words -1 and 1 from the pointer | 3.1 to 3.4 |
//! | names of local variables, their number | of the code's body, where [`super::layout`] finds them | |
//! | of a method's entry: defined class, name, owner | words 1, 3, 4 | 3.1 to 3.4 |
//!
//! Known from `vm_core.h` and `method.h`; compared with samples.

use rb_sys::{ID, VALUE};

use super::classes::each_child;
use super::layout::Layout;
use super::memory::{is_address, text, word};
use super::{EdgeName, Place, Visit};
use crate::atlas::{Object, types};

const ENV: usize = 0;
const MENT: usize = 6;
pub(super) use crate::atlas::ISEQ;
/// A flag of an environment: it is that of a method, not of a block within one.
const LOCAL: usize = 2;
/// More local variables are not believed.
const MOST_LOCALS: usize = 1 << 16;
/// Words between the last local variable and where the environment pointer points to.
const BEHIND_LOCALS: usize = 2;

pub(super) fn imemo_kind(object: Object) -> Option<usize> {
    (object.kind() == types::T_IMEMO).then(|| object.imemo_kind())
}

/// # Safety
/// At the address is an object.
pub(super) unsafe fn is_iseq(address: usize) -> bool {
    // SAFETY: the caller's promise.
    is_address(address) && imemo_kind(unsafe { Object::read(address) }) == Some(ISEQ)
}

fn is_finished(iseq: usize) -> bool {
    // SAFETY: an instruction sequence.
    !unsafe { Object::read(iseq) }.is_unfinished_iseq()
}

pub(super) fn imemo(layout: &Layout, object: Object, visit: Visit<'_>) {
    match imemo_kind(object) {
        Some(ENV) => env(layout, object, visit),
        Some(ISEQ) => each_child(layout, object, &mut |child| {
            let name: &[u8] = match imemo_kind(child) {
                Some(ISEQ) => b"code",
                Some(_) => b"cache",
                None => b"literal",
            };
            visit(child.value(), EdgeName::Text(name));
        }),
        Some(MENT) => {
            visit(object.word(4) as VALUE, EdgeName::Text(b"owner"));
            visit(object.word(1) as VALUE, EdgeName::Text(b"class"));
            each_child(layout, object, &mut |child| {
                let name: &[u8] = match imemo_kind(child) {
                    Some(ISEQ) => b"code",
                    Some(MENT) => b"method",
                    _ => b"definition",
                };
                visit(child.value(), EdgeName::Text(name));
            });
        }
        Some(_) if object.is_fields() => super::objects::variables(layout, object, visit),
        Some(_) => each_child(layout, object, &mut |child| {
            let name: &[u8] = match imemo_kind(child) {
                Some(MENT) => b"method",
                Some(ISEQ) => b"code",
                _ if matches!(child.kind(), types::T_CLASS | types::T_MODULE | types::T_ICLASS) => b"class",
                _ => b"(internal)",
            };
            visit(child.value(), EdgeName::Text(name));
        }),
        None => {}
    }
}

/// Local variables with names, then the code and the environment around it.
fn env(layout: &Layout, object: Object, visit: Visit<'_>) {
    let (iseq, pointer, first) = (object.word(1), object.word(2), object.word(3));
    if layout.envs && is_address(pointer) && is_address(first) {
        // SAFETY: of an environment: the code, or 0.
        let locals = if unsafe { is_iseq(iseq) } { locals_of(layout, iseq) } else { Locals::NONE };
        for index in 0..locals.count {
            // SAFETY: an environment has its local variables one behind the other.
            let value = unsafe { word(first, index) };
            if is_address(value) {
                visit(
                    value as VALUE,
                    EdgeName::Name { before: b"local ", name: locals.name(index), after: b"" },
                );
            }
        }
        // SAFETY: three words at the pointer and one behind it belong to each environment that is an object.
        unsafe { around(pointer, visit) };
    }
    visit(iseq as VALUE, EdgeName::Text(b"code"));
}

/// What an environment pointer has besides local variables.
unsafe fn around(pointer: usize, visit: Visit<'_>) {
    // SAFETY: the caller's promise; the environment around one that is an object is an object too.
    unsafe {
        let below = pointer - BEHIND_LOCALS * size_of::<usize>();
        visit(word(below, 0) as VALUE, EdgeName::Text(b"method"));
        let (outer, flags) = (word(below, 1), word(pointer, 0));
        if flags & LOCAL != 0 {
            visit((outer & !3) as VALUE, EdgeName::Text(b"block"));
        } else if is_address(outer & !3) {
            visit(word(outer & !3, 1) as VALUE, EdgeName::Text(b"outer locals"));
        }
    }
}

/// The table of a sequence's local variables.
#[derive(Clone, Copy)]
pub(super) struct Locals {
    table: usize,
    pub(super) count: usize,
}

impl Locals {
    pub(super) const NONE: Self = Self { table: 0, count: 0 };

    pub(super) fn name(self, index: usize) -> ID {
        // SAFETY: the table has so many names.
        unsafe { word(self.table, index) as ID }
    }
}

pub(super) fn locals_of(layout: &Layout, iseq: usize) -> Locals {
    let Some(place) = layout.locals.as_ref().filter(|_| is_finished(iseq)) else { return Locals::NONE };
    // SAFETY: a finished sequence has a body, whose layout was found in sequences of this Ruby.
    unsafe {
        let body = word(iseq, 2);
        if !is_address(body) {
            return Locals::NONE;
        }
        let count = (word(body, place.count / 2) >> (32 * (place.count % 2))) & 0xffff_ffff;
        let table = word(body, place.table);
        if count > MOST_LOCALS || !is_address(table) { Locals::NONE } else { Locals { table, count } }
    }
}

/// Self, code and environment of a block that a structure begins with.
fn block(object: Object, visit: Visit<'_>) -> usize {
    let block = object.structure();
    if !is_address(block) {
        return 0;
    }
    // SAFETY: a proc's or binding's structure begins with three words of a block.
    unsafe {
        let (receiver, pointer, code) = (word(block, 0), word(block, 1), word(block, 2));
        visit(receiver as VALUE, EdgeName::Text(b"self"));
        if is_iseq_of(object, code) {
            visit(code as VALUE, EdgeName::Text(b"code"));
            // A proc's environment is an object, with its address behind the pointer.
            visit(word(pointer, 1) as VALUE, EdgeName::Text(b"locals"));
            return code;
        }
    }
    0
}

/// Whether a block has code of Ruby: Ruby then says the same.
fn is_iseq_of(object: Object, code: usize) -> bool {
    // SAFETY: an object whose function is asked for; the code of any other block is a symbol, a proc or of C.
    unsafe {
        match object.type_name() {
            b"proc" => {
                let mut lambda = 0;
                super::layout::get().is_some_and(|layout| {
                    let iseq = (layout.functions.iseq_of_proc)(object.value(), &raw mut lambda);
                    !iseq.is_null() && iseq as usize == code
                })
            }
            _ => is_address(code) && is_iseq(code),
        }
    }
}

pub(super) fn of_proc(layout: &Layout, object: Object, visit: Visit<'_>) {
    if layout.envs {
        block(object, visit);
    }
}

pub(super) fn binding(layout: &Layout, object: Object, visit: Visit<'_>) {
    if layout.envs {
        block(object, visit);
    }
}

pub(super) fn method(object: Object, visit: Visit<'_>) {
    let (start, names) =
        (object.structure(), [b"receiver".as_slice(), b"class", b"class", b"owner", b"method"]);
    for (index, name) in names.iter().enumerate().take(if is_address(start) { 4 } else { 0 }) {
        // SAFETY: a method's structure has four words at least.
        visit(unsafe { word(start, index) } as VALUE, EdgeName::Text(name));
    }
}

/// What the first word of a data object's structure holds.
pub(super) fn first_word(object: Object, name: &'static [u8], visit: Visit<'_>) {
    let start = object.structure();
    if is_address(start) {
        // SAFETY: a structure of one word at least.
        visit(unsafe { word(start, 0) } as VALUE, EdgeName::Text(name));
    }
}

pub(super) fn place_of_imemo(layout: &Layout, object: Object) -> Option<Place<'static>> {
    match imemo_kind(object)? {
        ISEQ => place_of_iseq(layout, object.address),
        // SAFETY: the code of an environment, or 0.
        ENV if unsafe { is_iseq(object.word(1)) } => place_of_iseq(layout, object.word(1)),
        _ => None,
    }
}

pub(super) fn place_of_block(layout: &Layout, object: Object) -> Option<Place<'static>> {
    if !layout.envs {
        return None;
    }
    match block(object, &mut |_, _| ()) {
        0 => None,
        iseq => place_of_iseq(layout, iseq),
    }
}

/// Where a sequence begins.
pub(super) fn place_of_iseq(layout: &Layout, iseq: usize) -> Option<Place<'static>> {
    if !is_finished(iseq) {
        return None;
    }
    let functions = &layout.functions;
    // SAFETY: a finished sequence: Ruby answers strings that it holds, and a small Integer.
    unsafe {
        let line = (functions.iseq_line)(iseq as VALUE) as usize;
        Some(Place {
            path: text((functions.iseq_path)(iseq as VALUE)),
            line: if line & 1 == 1 { line >> 1 } else { 0 },
            label: text((functions.iseq_label)(iseq as VALUE)),
        })
    }
}
