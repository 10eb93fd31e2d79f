//! Names of references: how an object holds another one.
//!
//! Runs in the copy: nothing here allocates, locks, raises or writes to Ruby's memory. What Ruby does not tell by a
//! function is read from places that [`layout`] has found, and compared with samples, before the copy was made; where
//! they are not found, references have no name. A wrong place could not invent a reference either, because the writer
//! takes names only for references that Ruby reports. Those of arrays, hashes and plain objects come from functions that
//! the collector uses itself ([`Tellers`], [`elements`]).

mod classes;
mod closures;
mod data;
pub(crate) mod finalizers;
mod layout;
mod memory;
mod objects;
mod roots;
mod threads;

use rb_sys::{ID, VALUE};

use crate::atlas::{Object, RUBY, types};
pub(super) use memory::is_address;
pub(super) use objects::elements;

/// How an object holds another one. The writer makes text of it, and redacts what is a string of the program.
#[allow(dead_code, reason = "made where edges have names")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum EdgeName<'a> {
    /// As it is: `superclass`, `self`, `block`, `(internal)`.
    Text(&'a [u8]),
    /// A name of Ruby with a sign before and text behind it: `("@" is part of the name of an instance variable)`
    /// `::NAME`, `.member`, `local bus`, `local bus at main.rb:30`.
    Name { before: &'a [u8], name: ID, after: &'a [u8] },
    /// An element of an array, or of what is like one: `[3]`.
    Element(usize),
    /// The value of a Hash under this key: `[:key]`, `[7]`, `["text"]` or `[String of 4 bytes]`, `[#<Foo 0x…>]`.
    ValueOf(VALUE),
}

impl EdgeName<'_> {
    /// Whether only memintro, which was asked, holds the object so.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Text(OURS))
    }
}

/// Functions of Ruby that tell all references of plain objects and hashes, in the collector's order.
#[derive(Clone, Copy)]
pub(super) struct Tellers {
    pub(super) each_variable: layout::OnVariables,
    pub(super) each_pair: layout::OnPairs,
}

impl Tellers {
    pub(super) fn find() -> Option<Self> {
        let layout::Functions { each_variable, each_pair, .. } = layout::get()?.functions;
        Some(Self { each_variable, each_pair })
    }
}

/// What is written of each reference.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(VALUE, EdgeName<'_>);

/// How memintro's own frames and their arguments hold an object: the caller must not appear in its own answer.
pub(crate) const OURS: &[u8] = b"(memintro)";

/// Yields what the object holds, with names: in the order of `rb_objspace_reachable_objects_from` wherever that is
/// cheap, because the writer looks for each child from where it found the one before. A child that Ruby does not
/// report is left out; one that is not yielded here has no name.
pub(crate) fn for_each_edge(object: VALUE, visit: &mut dyn FnMut(VALUE, EdgeName<'_>)) {
    let Some(layout) = layout::get() else { return };
    // SAFETY: the caller gives an object of the heap.
    let object = unsafe { Object::read(object as usize) };
    match object.kind() {
        types::T_OBJECT => objects::variables(layout, object, visit),
        types::T_HASH => objects::hash(layout, object, visit),
        types::T_ARRAY => objects::array(object, visit),
        types::T_CLASS | types::T_MODULE | types::T_ICLASS => classes::edges(layout, object, visit),
        types::T_IMEMO => closures::imemo(layout, object, visit),
        types::T_DATA => data_object(layout, object, visit),
        _ => objects::others(layout, object, visit),
    }
    if object.has_variables_aside()
        && !matches!(
            object.kind(),
            types::T_OBJECT | types::T_CLASS | types::T_MODULE | types::T_ICLASS | types::T_IMEMO
        )
    {
        if RUBY.kinds.fields.is_none() {
            objects::variables(layout, object, visit);
        } else {
            classes::each_child(layout, object, &mut |child| {
                if child.is_fields() {
                    visit(child.value(), EdgeName::Text(classes::VARIABLES));
                }
            });
        }
    }
}

fn data_object(layout: &layout::Layout, object: Object, visit: Visit<'_>) {
    match object.type_name() {
        b"proc" => closures::of_proc(layout, object, visit),
        b"binding" => closures::binding(layout, object, visit),
        b"method" => closures::method(object, visit),
        b"VM/thread" => threads::thread(layout, object, visit),
        b"fiber" => threads::fiber(layout, object, visit),
        b"iseq" => closures::first_word(object, b"code", visit),
        _ => {}
    }
    data::parts(layout, object, visit);
}

/// What only memintro's own frames hold, because it was asked. A list of objects, some of them more than once, as often
/// as the thread or fiber that asks holds them so.
#[derive(Clone, Copy)]
pub(crate) struct Ours {
    objects: [VALUE; Self::MOST],
    count: usize,
}

impl Ours {
    const MOST: usize = 256;

    pub(crate) fn find() -> Self {
        let mut ours = Self { objects: [0; Self::MOST], count: 0 };
        if let Some(layout) = layout::get() {
            threads::ours(layout, &mut |object| {
                if let Some(place) = ours.objects.get_mut(ours.count) {
                    *place = object;
                    ours.count += 1;
                }
            });
        }
        ours
    }

    /// Whether the stack that asks holds the object so.
    pub(crate) fn has(&self, object: VALUE) -> bool {
        self.objects.iter().take(self.count).any(|other| *other == object)
    }

    /// Takes one reference out; whether there was one.
    pub(crate) fn take(&mut self, object: VALUE) -> bool {
        let found = self.objects.iter_mut().take(self.count).find(|other| **other == object);
        found.map(|other| *other = 0).is_some()
    }

    /// Whether this is a thread or fiber whose stack asks.
    pub(crate) fn are_of(object: VALUE) -> bool {
        layout::get().is_some_and(|layout| threads::asks(layout, object))
    }
}

/// Where a closure, frame or instruction sequence was made, and in which method: the writer's `at` and `label`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) line: usize,
    pub(crate) label: &'a [u8],
}

/// The place of a PROC, env, iseq, method or thread; `None` for other objects.
pub(crate) fn place_of(object: VALUE) -> Option<Place<'static>> {
    let layout = layout::get()?;
    // SAFETY: the caller gives an object of the heap.
    let object = unsafe { Object::read(object as usize) };
    match object.kind() {
        types::T_IMEMO => closures::place_of_imemo(layout, object),
        types::T_DATA => match object.type_name() {
            b"proc" | b"binding" => closures::place_of_block(layout, object),
            b"VM/thread" => threads::place_of_thread(layout, object),
            b"fiber" => threads::place_of_fiber(layout, object),
            _ => None,
        },
        _ => None,
    }
}

/// The object whose singleton class this is.
pub(super) fn object_of_singleton(class: VALUE) -> Option<Object> {
    // SAFETY: the caller gives an object of the heap.
    classes::object_of_singleton(layout::get()?, unsafe { Object::read(class as usize) })
}

/// The name of a root's reference: `$name`, `local bus at main.rb:30`. `category` as Ruby calls it.
pub(crate) fn for_each_root_edge(category: &[u8], visit: &mut dyn FnMut(VALUE, EdgeName<'_>)) {
    roots::edges(category, visit);
}

/// Looks up what the functions above need, before the copy is made; under the GVL, may allocate and raise nothing.
pub(crate) fn prepare() {
    layout::prepare();
    data::prepare();
    roots::prepare();
    finalizers::prepare();
}
