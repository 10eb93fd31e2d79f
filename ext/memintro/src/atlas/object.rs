//! An object as words of memory: its flags, and what they say of the rest.

use std::ffi::{CStr, c_char};

use rb_sys::{VALUE, ruby_fl_type};

use super::types::{self, *};
use super::{Data, HAS_TYPE, IS_KNOWN, RUBY};

/// The first of the flags that each type has for itself.
const USER: u32 = 12;
const USER1: usize = 1 << (USER + 1);
const CODERANGE_SHIFT: u32 = USER + 8;
const ENCODING_SHIFT: u32 = 22;
const SHAPE_SHIFT: u32 = 32;

/// Bytes of a slot before what the type itself has there.
const HEADER: usize = 16;
/// Where a structure of C is that is in the slot.
const STRUCTURE: usize = 4 * size_of::<usize>();
/// Variables that are in a slot where all slots have one size.
const FEW_VARIABLES: usize = 3;

const IMEMO_MASK: usize = 0x0f;
/// The kind of an internal object that is an instruction sequence: the same in all Rubies so far.
pub(crate) const ISEQ: usize = 7;
const KIND_BITS: usize = types::MASK | IMEMO_MASK << USER;
const ISEQ_BITS: usize = T_IMEMO | ISEQ << USER;
/// Flags of a sequence that is being compiled or loaded.
const ISEQ_UNFINISHED: usize = 3 << (USER + 5);
/// Cache lines at the start of a sequence's body from which its size is computed.
#[cfg(target_arch = "x86_64")]
const BODY_LINES: usize = 5;

/// A slot that holds an object, or is free.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    pub(crate) address: usize,
    pub(crate) flags: usize,
}

/// What an object of an extension has for a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataType {
    /// The address of the type, which begins with its name.
    Typed(usize),
    /// Functions that mark and free, or 0.
    Untyped { mark: usize, free: usize },
}

impl DataType {
    /// Of an object with these flags, whose third and fourth word are these.
    #[inline]
    pub(crate) fn of(flags: usize, second: usize, third: usize) -> Self {
        let of = match RUBY.data {
            Data::TypeThenMark => (third & !2 == 1).then_some(second),
            Data::VariablesThenType => (flags & HAS_TYPE != 0).then_some(third & !1),
        };
        of.map_or(Self::Untyped { mark: second, free: third }, Self::Typed)
    }
}

/// Whether the bytes of a string are known to be of ASCII, valid or broken: as the flags have it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coderange {
    Unknown,
    Ascii,
    Valid,
    Broken,
}

impl Coderange {
    pub(crate) fn name(self) -> &'static [u8] {
        match self {
            Self::Unknown => b"unknown",
            Self::Ascii => b"7bit",
            Self::Valid => b"valid",
            Self::Broken => b"broken",
        }
    }
}

impl Object {
    pub(crate) const FROZEN: usize = ruby_fl_type::RUBY_FL_FREEZE as usize;
    /// Of arrays: the content is in the slot.
    pub(crate) const EMBEDDED: usize = USER1;
    /// Of strings: the content is outside of the slot.
    pub(crate) const OUTSIDE: usize = USER1;
    /// Of strings and arrays: the content is another one's.
    pub(crate) const SHARED: usize = ruby_fl_type::RUBY_ELTS_SHARED as usize;
    pub(crate) const INTERNED: usize = 1 << (USER + 17);
    pub(crate) const HAS_DEFAULT_PROC: usize = 1 << (USER + 2);
    /// Of a Hash: it has more pairs than fit into a small table, or had.
    pub(crate) const HAS_LARGE_TABLE: usize = 1 << (USER + 3);
    pub(crate) const SINGLETON: usize = ruby_fl_type::RUBY_FL_SINGLETON as usize;
    /// The type, and all that types use for themselves.
    pub(crate) const OF_TYPE: usize = types::MASK | 0xffff_f000;
    /// All that a shape tells.
    pub(crate) const SHAPE: usize = if RUBY.shapes.is_some() { 0xffff_ffff << SHAPE_SHIFT } else { 0 };

    /// # Safety
    /// The address is that of a slot.
    #[inline]
    pub(crate) unsafe fn read(address: usize) -> Self {
        // SAFETY: each slot begins with its flags.
        Self { address, flags: unsafe { std::ptr::with_exposed_provenance::<usize>(address).read() } }
    }

    #[inline]
    pub(crate) fn kind(self) -> usize {
        self.flags & types::MASK
    }

    #[inline]
    pub(crate) fn has(self, flags: usize) -> bool {
        self.flags & flags == flags
    }

    #[inline]
    pub(crate) fn value(self) -> VALUE {
        self.address as VALUE
    }

    /// A word of the slot; slots have five at least.
    #[inline]
    pub(crate) fn word(self, index: usize) -> usize {
        // SAFETY: within the slot.
        unsafe { std::ptr::with_exposed_provenance::<usize>(self.address).add(index.min(4)).read() }
    }

    /// Whether an object is in the slot. Free slots, slots of moved objects and those that await their finalizer hold none.
    #[inline]
    pub(crate) fn is_object(self) -> bool {
        !matches!(self.kind(), T_NONE | T_ZOMBIE | T_MOVED)
    }

    /// Whether it has outlived so many collections that Ruby counts it as old. An object without write barriers never is.
    #[inline]
    pub(crate) fn is_old(self) -> bool {
        self.has(RUBY.old)
    }

    /// Whether all Ractors may use it.
    #[inline]
    pub(crate) fn is_shareable(self) -> bool {
        self.has(1 << 8)
    }

    /// Whether its age in the slot is not zero: on a Ruby that has ages there.
    #[inline]
    pub(crate) fn has_age(self) -> bool {
        self.flags & RUBY.old != 0
    }

    /// The class word: 0 for internal objects; it may be a singleton class.
    ///
    /// # Safety
    /// An object is in the slot, and it is not an imemo.
    #[inline]
    pub(crate) unsafe fn class(self) -> VALUE {
        self.word(1) as VALUE
    }
}

/// Internal objects.
impl Object {
    #[inline]
    pub(crate) fn imemo_kind(self) -> usize {
        self.flags >> USER & IMEMO_MASK
    }

    #[inline]
    pub(crate) fn is_iseq(self) -> bool {
        self.flags & KIND_BITS == ISEQ_BITS
    }

    /// Whether an iseq is being compiled or loaded, so that it has no path yet.
    #[inline]
    pub(crate) fn is_unfinished_iseq(self) -> bool {
        self.flags & ISEQ_UNFINISHED != 0
    }

    /// Prefetches the body of an iseq. Any address may be prefetched.
    #[inline]
    pub(crate) fn fetch_body(self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let body = std::ptr::with_exposed_provenance::<i8>(self.word(2));
            for line in 0..BODY_LINES {
                // SAFETY: a prefetch reads nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(body.wrapping_add(line * 64)) };
            }
        }
    }

    /// Whether it holds the instance variables of another object.
    #[inline]
    pub(crate) fn is_fields(self) -> bool {
        RUBY.kinds.fields.is_some_and(|kind| self.flags & KIND_BITS == T_IMEMO | kind << USER)
    }
}

/// Instance variables.
impl Object {
    /// Whether an object that is no plain one, no class and no internal one has instance variables.
    #[inline]
    pub(crate) fn has_variables_aside(self) -> bool {
        match RUBY.shapes {
            Some(shapes) if RUBY.variables_aside == 0 => {
                self.flags >> SHAPE_SHIFT & (shapes.number | shapes.too_complex) != 0
                    && !matches!(self.kind(), T_NONE | T_OBJECT | T_CLASS | T_MODULE | T_ICLASS | T_IMEMO)
            }
            _ => self.has(RUBY.variables_aside),
        }
    }

    /// Of a plain object: its variables are in its slot.
    #[inline]
    pub(crate) fn embeds_variables(self) -> bool {
        self.has(RUBY.embeds) == RUBY.embeds_if_set
    }

    /// The number of its shape, as it stands in a dump.
    #[inline]
    pub(crate) fn shape(self) -> usize {
        RUBY.shapes.map_or(0, |shapes| self.flags >> SHAPE_SHIFT & shapes.number)
    }

    /// Whether the flags tell that its variables are in a table.
    #[inline]
    pub(crate) fn is_too_complex(self) -> bool {
        RUBY.shapes.is_some_and(|shapes| self.flags >> SHAPE_SHIFT & shapes.too_complex != 0)
    }

    /// Whether it has got a number (`object_id`): on a Ruby whose shapes tell that.
    #[inline]
    pub(crate) fn has_object_id(self) -> bool {
        RUBY.shapes.is_some_and(|shapes| self.flags >> SHAPE_SHIFT & shapes.has_object_id != 0)
            && self.kind() != T_IMEMO
    }

    /// What tells which instance variables a plain object has (its shape, or before shapes its class), where they are, how many
    /// (`None` if the shape tells that), and for how many there is room at most.
    #[inline(always)]
    pub(crate) fn place_of_variables(self, slot_size: usize) -> Option<(usize, usize, Option<usize>, usize)> {
        let is_inside = self.embeds_variables();
        if RUBY.shapes.is_none() {
            let count = if is_inside { FEW_VARIABLES } else { self.number_of_variables() };
            let start = if is_inside { self.address + HEADER } else { self.word(RUBY.variables) };
            return Some((self.word(1), start, Some(count), count));
        }
        let shape = self.flags >> SHAPE_SHIFT << 1 | 1;
        if self.is_too_complex() {
            None
        } else if is_inside {
            let room = slot_size.saturating_sub(HEADER) / size_of::<usize>();
            Some((shape, self.address + HEADER, None, room))
        } else {
            Some((shape, self.word(RUBY.variables), None, usize::MAX))
        }
    }

    /// Of a plain object whose variables are outside, before shapes.
    fn number_of_variables(self) -> usize {
        self.word(2) & 0xffff_ffff
    }

    /// Number of a plain object's variables, as `dump_all` counts them.
    pub(crate) fn variables(self) -> u64 {
        if RUBY.shapes.is_none() {
            return if self.embeds_variables() { FEW_VARIABLES } else { self.number_of_variables() } as u64;
        }
        // SAFETY: an object of the heap; reads its shape, or the size of its table.
        unsafe { rb_sys::rb_ivar_count(self.value()) as u64 + u64::from(self.has_object_id()) }
    }
}

/// Objects of extensions, and of Ruby's own code in C (`T_DATA`).
impl Object {
    #[inline]
    pub(crate) fn data_type(self) -> DataType {
        DataType::of(self.flags, self.word(2), self.word(3))
    }

    /// The name of its type; empty if it has none, and for other objects.
    pub(crate) fn type_name(self) -> &'static [u8] {
        match self.data_type() {
            DataType::Typed(of) if IS_KNOWN && self.kind() == T_DATA && of != 0 => {
                // SAFETY: a type is a constant that begins with its name, which is terminated, or null.
                unsafe {
                    let name = std::ptr::with_exposed_provenance::<*const c_char>(of).read();
                    if name.is_null() { b"" } else { CStr::from_ptr(name).to_bytes() }
                }
            }
            _ => b"",
        }
    }

    /// Whether its structure is in its slot.
    #[inline]
    pub(crate) fn embeds_structure(self) -> bool {
        match RUBY.data {
            Data::TypeThenMark => self.word(3) == 3,
            Data::VariablesThenType => self.has(HAS_TYPE) && self.word(3) & 1 != 0,
        }
    }

    /// Where its structure is; 0: it has none.
    #[inline]
    pub(crate) fn structure(self) -> usize {
        if self.embeds_structure() { self.address + STRUCTURE } else { self.word(4) }
    }
}

/// Strings, arrays and hashes.
impl Object {
    /// Whether a string warns when it is changed, as literals do.
    #[inline]
    pub(crate) fn is_chilled(self) -> bool {
        RUBY.chilled.is_some_and(|flags| self.flags & flags != 0)
    }

    #[inline]
    pub(crate) fn encoding(self) -> usize {
        (self.flags >> ENCODING_SHIFT) & 127
    }

    #[inline]
    pub(crate) fn coderange(self) -> Coderange {
        match (self.flags >> CODERANGE_SHIFT) & 3 {
            0 => Coderange::Unknown,
            1 => Coderange::Ascii,
            2 => Coderange::Valid,
            _ => Coderange::Broken,
        }
    }

    /// Bytes of a string.
    #[inline]
    pub(crate) fn string(self) -> &'static [u8] {
        // SAFETY: a string of a heap in which nothing moves; an empty one may have no address.
        unsafe {
            let length = usize::try_from(rb_sys::RSTRING_LEN(self.value())).unwrap_or(0);
            let start = rb_sys::RSTRING_PTR(self.value()).cast::<u8>();
            if start.is_null() || length == 0 { &[] } else { std::slice::from_raw_parts(start, length) }
        }
    }

    /// For how many bytes a string has room whose content is outside.
    #[inline]
    pub(crate) fn capacity(self) -> usize {
        self.word(4)
    }

    pub(crate) fn array_length(self) -> i64 {
        // SAFETY: an array.
        unsafe { rb_sys::RARRAY_LEN(self.value()) }
    }

    /// The default value or block of a Hash.
    pub(crate) fn default_of_hash(self) -> usize {
        self.word(RUBY.hash_default)
    }

    /// Where what it holds is, outside of the slot: to be fetched ahead, and for nothing else. Any number otherwise.
    #[inline]
    pub(crate) fn outside(self) -> usize {
        match self.kind() {
            T_STRING => self.word(3),
            T_OBJECT => self.word(RUBY.variables),
            T_HASH if !RUBY.embeds_hashes => self.word(2),
            T_ARRAY => self.word(4),
            _ => 0,
        }
    }

    /// The first key of a small Hash, to be fetched ahead, and for nothing else. Any number otherwise.
    #[inline]
    pub(crate) fn first_key(self) -> usize {
        if RUBY.embeds_hashes {
            return self.word(4);
        }
        match self.word(2) {
            table @ 1.. if self.kind() == T_HASH && !self.has(Self::HAS_LARGE_TABLE) => {
                // SAFETY: the table of a small Hash of the heap.
                unsafe { std::ptr::with_exposed_provenance::<usize>(table).read() }
            }
            _ => 0,
        }
    }

    /// Whether what it owns may have pointers to further blocks that Ruby counts as its own. Strings, arrays, structs and
    /// instance variables have one block, and what is in it are values or bytes.
    pub(crate) fn has_nested_blocks(self) -> bool {
        !matches!(self.kind(), T_OBJECT | T_STRING | T_ARRAY | T_STRUCT | T_BIGNUM)
    }
}

/// Whether a value of Ruby is a string.
pub(crate) fn is_string(value: VALUE) -> bool {
    const SPECIAL: VALUE = 7;
    const NIL: VALUE = rb_sys::Qnil as VALUE;
    // SAFETY: an object, which begins with its flags.
    value != 0
        && value != NIL
        && value & SPECIAL == 0
        && unsafe { Object::read(value as usize) }.kind() == T_STRING
}
