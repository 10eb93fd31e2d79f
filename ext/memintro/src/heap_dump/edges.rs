//! Names of references: how an object holds another one.
//!
//! Runs in the copy: nothing here allocates, locks, raises or writes to Ruby's memory.

use rb_sys::{ID, VALUE};

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

/// Yields what the object holds, with names: in the order of `rb_objspace_reachable_objects_from` wherever that is
/// cheap, because the writer looks for each child from where it found the one before. A child that Ruby does not
/// report is left out; one that is not yielded here has no name.
pub(crate) fn for_each_edge(_object: VALUE, _visit: &mut dyn FnMut(VALUE, EdgeName<'_>)) {}

/// Where a closure, frame or instruction sequence was made, and in which method: the writer's `at` and `label`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) line: usize,
    pub(crate) label: &'a [u8],
}

/// The place of a PROC, env, iseq, method or thread; `None` for other objects.
pub(crate) fn place_of(_object: VALUE) -> Option<Place<'static>> {
    None
}

/// The name of a root's reference: `$name`, `local bus at main.rb:30`. `category` as Ruby calls it.
pub(crate) fn for_each_root_edge(_category: &[u8], _visit: &mut dyn FnMut(VALUE, EdgeName<'_>)) {}

/// Looks up what the functions above need, before the copy is made; under the GVL, may allocate and raise nothing.
pub(crate) fn prepare() {}
