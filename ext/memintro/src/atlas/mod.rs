//! What differs between Rubies: one file for each minor version. All other code asks [`RUBY`], and [`Object`] reads words of
//! an object as it says. A gem is built for one minor version, so these are constants.
//!
//! To support another Ruby: add its file, with all that differs from the one before, and list it in [`ALL`]. A Ruby that is
//! not listed loads memintro; what needs only functions of Ruby works, and what reads words of objects is refused ([`IS_KNOWN`]).

mod gc_flags;
mod object;
mod ruby_3_1;
mod ruby_3_3;
mod ruby_3_4;
mod ruby_4_0;
pub(crate) mod types;

pub(crate) use gc_flags::{GcFlag, GcFlags};
pub(crate) use object::{Coderange, DataType, ISEQ, Object, is_string};

/// What one minor version of Ruby has where. Flags are bits of an object's first word; words of a slot count from 0, and the
/// first two are the flags and the class.
pub(crate) struct Atlas {
    /// The first two numbers of its version.
    pub(crate) version: (u8, u8),

    // The heap.
    /// Bytes of a page, which begins at a multiple of it.
    pub(crate) page_bytes: usize,
    /// Young arrays, hashes, structs and objects have their contents in a heap of Ruby's own.
    pub(crate) has_transient_heap: bool,
    /// Flags that an old object has, all of them.
    pub(crate) old: usize,
    /// Whether these flags are the age of objects that are not old yet, too.
    pub(crate) has_ages: bool,
    /// Bitmaps in a page's record, by which flags of the collector are known.
    pub(crate) bitmaps: usize,
    /// Behind these bitmaps, the record has the ages of objects.
    pub(crate) has_ages_in_record: bool,
    /// Ruby lists finalizers among the roots.
    pub(crate) lists_finalizers: bool,

    // Instance variables.
    /// A flag of an object other than a plain one: it has variables aside. 0: its shape tells.
    pub(crate) variables_aside: usize,
    /// A flag of a plain object. `embeds_if_set`: it is that the variables are in the slot, or that they are not.
    pub(crate) embeds: usize,
    pub(crate) embeds_if_set: bool,
    /// The word with the address of variables that are not in the slot.
    pub(crate) variables: usize,
    /// Where shapes are.
    pub(crate) shapes: Option<Shapes>,

    // Types.
    /// How objects of extensions have their type.
    pub(crate) data: Data,
    /// Small hashes have their table in the slot.
    pub(crate) embeds_hashes: bool,
    /// The word of a Hash with its default value or block.
    pub(crate) hash_default: usize,
    /// Flags of a string: a literal that warns when it is changed, and the like.
    pub(crate) chilled: Option<usize>,
    /// Kinds of internal objects.
    pub(crate) kinds: Kinds,
    /// The word of a match with its regular expression.
    pub(crate) match_regexp: usize,
    /// Bytes of the structure of an unlocked `Thread::Mutex` that are left from the last time it was locked.
    pub(crate) old_words_of_mutex: Option<(usize, usize)>,
    /// A thread's value is behind its group.
    pub(crate) has_value_behind_group: bool,

    /// The fields of a line in `ObjectSpace.dump_all`.
    pub(crate) dump: Dump,
}

/// Bits of the upper half of the flags.
#[derive(Clone, Copy)]
pub(crate) struct Shapes {
    /// The number that dumps have. A shape of an object with variables has one.
    pub(crate) number: usize,
    /// The variables are in a table; 0: a function tells.
    pub(crate) too_complex: usize,
    /// One of the variables is the number of the object; 0: never.
    pub(crate) has_object_id: usize,
}

/// Where an object of an extension has its type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// In word 2. Word 3 is 1, and bit 1 of it says that the structure is in the slot. Without a type, it is a function.
    TypeThenMark,
    /// In word 3, whose bit 0 says that the structure is in the slot. A flag says that there is a type.
    VariablesThenType,
}

/// A flag of objects with a type, where [`Data::VariablesThenType`].
const HAS_TYPE: usize = 1 << 6;

#[derive(Clone, Copy)]
pub(crate) struct Kinds {
    pub(crate) call_info: usize,
    pub(crate) call_cache: usize,
    /// Instance variables of an object that is no plain one.
    pub(crate) fields: Option<usize>,
}

#[derive(Clone, Copy)]
pub(crate) struct Dump {
    /// Lines have the shape, the size of the slot, and how strings are known to be encoded.
    pub(crate) has_shapes: bool,
    /// Internal objects have a shape.
    pub(crate) has_shapes_of_internals: bool,
}

/// All that are known.
pub(crate) const ALL: [&Atlas; 4] = [&ruby_3_1::RUBY, &ruby_3_3::RUBY, &ruby_3_4::RUBY, &ruby_4_0::RUBY];

/// The Ruby that this library is built for; of one that is not known, the last known one before it.
pub(crate) const RUBY: Atlas = if cfg!(ruby_gte_4_0) {
    ruby_4_0::RUBY
} else if cfg!(ruby_gte_3_4) {
    ruby_3_4::RUBY
} else if cfg!(ruby_gte_3_3) {
    ruby_3_3::RUBY
} else {
    ruby_3_1::RUBY
};

/// Whether the Ruby that this library is built for is one of [`ALL`].
pub(crate) const IS_KNOWN: bool =
    cfg!(all(target_pointer_width = "64", any(ruby_eq_3_1, ruby_eq_3_3, ruby_eq_3_4, ruby_eq_4_0)));
