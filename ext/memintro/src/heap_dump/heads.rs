//! How lines begin, behind the address: objects of one class and shape have the same text, which is kept.

use super::text::Padded;
use crate::atlas::{Object, RUBY, types};

/// The type as it stands in a line.
#[inline]
pub(super) fn type_text(kind: usize) -> &'static [u8] {
    const TEXTS: [&[u8]; 32] = [
        b", \"type\":\"NONE\"",
        b", \"type\":\"OBJECT\"",
        b", \"type\":\"CLASS\"",
        b", \"type\":\"MODULE\"",
        b", \"type\":\"FLOAT\"",
        b", \"type\":\"STRING\"",
        b", \"type\":\"REGEXP\"",
        b", \"type\":\"ARRAY\"",
        b", \"type\":\"HASH\"",
        b", \"type\":\"STRUCT\"",
        b", \"type\":\"BIGNUM\"",
        b", \"type\":\"FILE\"",
        b", \"type\":\"DATA\"",
        b", \"type\":\"MATCH\"",
        b", \"type\":\"COMPLEX\"",
        b", \"type\":\"RATIONAL\"",
        b", \"type\":\"UNKNOWN\"",
        b", \"type\":\"NIL\"",
        b", \"type\":\"TRUE\"",
        b", \"type\":\"FALSE\"",
        b", \"type\":\"SYMBOL\"",
        b", \"type\":\"FIXNUM\"",
        b", \"type\":\"UNDEF\"",
        b", \"type\":\"UNKNOWN\"",
        b", \"type\":\"UNKNOWN\"",
        b", \"type\":\"UNKNOWN\"",
        b", \"type\":\"IMEMO\"",
        b", \"type\":\"NODE\"",
        b", \"type\":\"ICLASS\"",
        b", \"type\":\"ZOMBIE\"",
        b", \"type\":\"UNKNOWN\"",
        b", \"type\":\"UNKNOWN\"",
    ];
    TEXTS[kind & 31]
}

/// How lines of such objects begin, behind the address.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) key: Key,
    pub(super) text: Padded<{ Head::LONGEST }>,
}

impl Head {
    pub(super) const LONGEST: usize = 128;
    /// Type and class, and where dumps have shapes, the shape and the slot, too.
    pub(super) const USUAL: usize = if RUBY.dump.has_shapes { 96 } else { 64 };
    /// A power of two.
    pub(super) const COUNT: usize = 64;
}

/// What the text depends on. All zero for none.
#[derive(Clone, Copy)]
pub(super) struct Key {
    flags: usize,
    class: usize,
    slot_size: usize,
}

impl Key {
    #[inline(always)]
    pub(super) fn of(object: Object, class: usize, slot_size: usize) -> Self {
        Self { flags: object.flags & (types::MASK | Object::FROZEN | Object::SHAPE), class, slot_size }
    }

    #[inline(always)]
    pub(super) fn place(self) -> usize {
        (self.class >> 3 ^ self.class >> 9 ^ self.flags ^ self.flags >> 32 ^ self.slot_size >> 3)
            & (Head::COUNT - 1)
    }

    /// One word after the other: all together would be read from memory to which they have just been written one by one,
    /// and the processor waits for that.
    #[inline(always)]
    pub(super) fn is(self, other: Self) -> bool {
        self.flags == other.flags && self.class == other.class && self.slot_size == other.slot_size
    }
}
