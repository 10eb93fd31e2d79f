//! Objects as words of memory: the layouts and flags that a dump reads, by Ruby version. `crate::heap::slot` has those
//! of a walk over the heap.

use rb_sys::VALUE;

use super::text::Padded;

pub(super) const T_OBJECT: usize = 0x01;
pub(super) const T_CLASS: usize = 0x02;
pub(super) const T_MODULE: usize = 0x03;
pub(super) const T_FLOAT: usize = 0x04;
pub(super) const T_STRING: usize = 0x05;
pub(super) const T_ARRAY: usize = 0x07;
pub(super) const T_HASH: usize = 0x08;
pub(super) const T_BIGNUM: usize = 0x0a;
pub(super) const T_FILE: usize = 0x0b;
pub(super) const T_DATA: usize = 0x0c;
pub(super) const T_SYMBOL: usize = 0x14;
pub(super) const T_IMEMO: usize = 0x1a;
pub(super) const T_NODE: usize = 0x1b;
pub(super) const T_ICLASS: usize = 0x1c;
pub(super) const T_ZOMBIE: usize = 0x1d;
pub(super) const T_MOVED: usize = 0x1e;

pub(super) const FROZEN: usize = 1 << 11;
pub(super) const HAS_GENERIC_VARIABLES: usize = 1 << 10;
const USER: u32 = 12;
const USER1: usize = 1 << (USER + 1);
const USER2: usize = 1 << (USER + 2);
/// A flag of arrays and objects: their content is in the slot.
pub(super) const EMBEDDED: usize = USER1;
/// A flag of strings: their content is outside of the slot.
pub(super) const OUTSIDE: usize = USER1;
/// A flag of strings and arrays: the content is another one's.
pub(super) const SHARED: usize = rb_sys::ruby_fl_type::RUBY_ELTS_SHARED as usize;
pub(super) const INTERNED: usize = 1 << (USER + 17);
/// A flag of a string: a literal that warns when it is changed.
#[cfg(ruby_gte_3_4)]
pub(super) const CHILLED: usize = USER2 | (1 << (USER + 3));
pub(super) const HAS_DEFAULT_PROC: usize = USER2;
/// A flag of a Hash: it has more pairs than fit into a small table, or had.
pub(super) const HAS_LARGE_TABLE: usize = 1 << (USER + 3);
pub(super) const SINGLETON: usize = rb_sys::ruby_fl_type::RUBY_FL_SINGLETON as usize;
const CODERANGE_SHIFT: u32 = USER + 8;
const ENCODING_SHIFT: u32 = 22;
/// Bytes of a slot before what the type itself has there.
#[allow(dead_code, reason = "not all versions are known")]
const HEADER: usize = 16;
#[cfg(not(ruby_gte_3_2))]
const EMBEDDED_VARIABLES: usize = 3;
#[cfg(ruby_gte_3_3)]
const DEFAULT_OF_HASH: usize = 2;
#[cfg(not(ruby_gte_3_3))]
const DEFAULT_OF_HASH: usize = 3;

/// Whether the bytes of a string are known to be of ASCII, valid or broken: as the flags have it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Coderange {
    Unknown,
    Ascii,
    Valid,
    Broken,
}

impl Coderange {
    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Self::Unknown => b"unknown",
            Self::Ascii => b"7bit",
            Self::Valid => b"valid",
            Self::Broken => b"broken",
        }
    }
}

/// A slot that holds an object.
#[derive(Clone, Copy)]
pub(super) struct Object {
    pub(super) address: usize,
    pub(super) flags: usize,
}

impl Object {
    /// # Safety
    /// The address is that of a slot.
    #[inline]
    pub(super) unsafe fn read(address: usize) -> Self {
        // SAFETY: each slot begins with its flags.
        Self { address, flags: unsafe { std::ptr::with_exposed_provenance::<usize>(address).read() } }
    }

    #[inline]
    pub(super) fn kind(self) -> usize {
        self.flags & 0x1f
    }

    #[inline]
    pub(super) fn has(self, flags: usize) -> bool {
        self.flags & flags == flags
    }

    #[inline]
    pub(super) fn value(self) -> VALUE {
        self.address as VALUE
    }

    /// A word of the slot; slots have five at least.
    #[inline]
    pub(super) fn word(self, index: usize) -> usize {
        // SAFETY: within the slot.
        unsafe { std::ptr::with_exposed_provenance::<usize>(self.address).add(index.min(4)).read() }
    }

    #[inline]
    pub(super) fn encoding(self) -> usize {
        (self.flags >> ENCODING_SHIFT) & 127
    }

    #[inline]
    pub(super) fn coderange(self) -> Coderange {
        match (self.flags >> CODERANGE_SHIFT) & 3 {
            0 => Coderange::Unknown,
            1 => Coderange::Ascii,
            2 => Coderange::Valid,
            _ => Coderange::Broken,
        }
    }

    /// Bytes of a string.
    #[inline]
    pub(super) fn string(self) -> &'static [u8] {
        // SAFETY: a string of a heap in which nothing moves; an empty one may have no address.
        unsafe {
            let length = usize::try_from(rb_sys::RSTRING_LEN(self.value())).unwrap_or(0);
            let start = rb_sys::RSTRING_PTR(self.value()).cast::<u8>();
            if start.is_null() || length == 0 { &[] } else { std::slice::from_raw_parts(start, length) }
        }
    }

    /// For how many bytes a string has room whose content is outside.
    #[inline]
    pub(super) fn capacity(self) -> usize {
        self.word(4)
    }

    /// Where what it holds is, outside of the slot: to be fetched ahead, and for nothing else. Any number otherwise.
    #[inline]
    pub(super) fn outside(self) -> usize {
        const OF_VARIABLES: usize = if cfg!(ruby_gte_3_2) { 2 } else { 3 };
        match self.kind() {
            T_STRING => self.word(3),
            T_OBJECT => self.word(OF_VARIABLES),
            T_HASH if !cfg!(ruby_gte_3_3) => self.word(2),
            T_ARRAY => self.word(4),
            _ => 0,
        }
    }

    /// The first key of a small Hash, to be fetched ahead, and for nothing else. Any number otherwise.
    #[inline]
    pub(super) fn first_key(self) -> usize {
        // In the slot since 3.3; before, where a table of the Hash begins.
        #[cfg(ruby_gte_3_3)]
        return self.word(4);
        #[cfg(not(ruby_gte_3_3))]
        match self.word(2) {
            table @ 1.. if self.kind() == T_HASH && self.flags & HAS_LARGE_TABLE == 0 => {
                // SAFETY: the table of a small Hash of the heap.
                unsafe { std::ptr::with_exposed_provenance::<usize>(table).read() }
            }
            _ => 0,
        }
    }

    pub(super) fn array_length(self) -> i64 {
        // SAFETY: an array.
        unsafe { rb_sys::RARRAY_LEN(self.value()) }
    }

    pub(super) fn default_proc(self) -> usize {
        self.word(DEFAULT_OF_HASH)
    }

    /// The type of a data object, if it has one, or what tells its type otherwise.
    #[inline]
    pub(super) fn data_type(self) -> (bool, usize) {
        // Typed ones have 1 to 3 in their fourth word, where others have a function.
        ((1..=3).contains(&self.word(3)), self.word(2))
    }

    /// What tells which instance variables a plain object has (its class, and since 3.2 its shape), where they are,
    /// how many (`None` if the shape tells that), and for how many there is room at most.
    #[inline(always)]
    pub(super) fn place_of_variables(
        self,
        _slot_size: usize,
    ) -> Option<(usize, usize, Option<usize>, usize)> {
        #[cfg(not(ruby_gte_3_2))]
        return if self.has(EMBEDDED) {
            Some((self.word(1), self.address + HEADER, Some(EMBEDDED_VARIABLES), EMBEDDED_VARIABLES))
        } else {
            let count = self.word(2) & 0xffff_ffff;
            Some((self.word(1), self.word(3), Some(count), count))
        };
        #[cfg(all(ruby_gte_3_3, ruby_lte_3_4))]
        return {
            let shape = (self.flags >> 32) << 1 | 1;
            if self.has(EMBEDDED) {
                let room = _slot_size.saturating_sub(HEADER) / size_of::<usize>();
                Some((shape, self.address + HEADER, None, room))
            } else {
                Some((shape, self.word(2), None, usize::MAX))
            }
        };
        #[allow(unreachable_code, reason = "other versions have them elsewhere")]
        None
    }

    /// Number of a plain object's variables, as `dump_all` counts them.
    #[cfg(not(ruby_gte_3_2))]
    pub(super) fn variables(self) -> u64 {
        if self.has(EMBEDDED) { EMBEDDED_VARIABLES as u64 } else { self.word(2) as u64 & 0xffff_ffff }
    }
    #[cfg(ruby_gte_3_2)]
    pub(super) fn variables(self) -> u64 {
        // SAFETY: an object of the heap; reads its shape, or the size of its table.
        unsafe { rb_sys::rb_ivar_count(self.value()) as u64 }
    }
}

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
    /// Type and class; since 3.3 the shape and the slot, too.
    pub(super) const USUAL: usize = if cfg!(ruby_gte_3_3) { 96 } else { 64 };
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
        const SHAPE: usize = if cfg!(ruby_gte_3_3) { 0xffff_ffff << 32 } else { 0 };
        Self { flags: object.flags & (0x1f | FROZEN | SHAPE), class, slot_size }
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
