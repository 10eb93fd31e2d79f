//! One slot of Ruby's heap: its flag word and its class, read directly from memory.

use std::ffi::CStr;

use rb_sys::VALUE;

use super::functions::Functions;

// Types and flags have had these numbers since Ruby 2.7 at least. They are part of the public headers (value_type.h
// and fl_type.h), except for the imemo kind (four bits above FL_USHIFT; internal/imemo.h) and the two flags of an
// iseq that is not compiled yet (iseq.h). They are the same in 3.1, 3.3 and 3.4.
/// Both bits of an age up to 3.2, one bit since.
const PROMOTED: usize = rb_sys::ruby_fl_type::RUBY_FL_PROMOTED as usize;
const TYPE_MASK: usize = 0x1f;
pub(super) const T_NONE: usize = 0x00;
pub(super) const T_CLASS: usize = 0x02;
pub(super) const T_MODULE: usize = 0x03;
pub(super) const T_IMEMO: usize = 0x1a;
pub(super) const T_NODE: usize = 0x1b;
pub(super) const T_ICLASS: usize = 0x1c;
pub(super) const T_ZOMBIE: usize = 0x1d;
pub(super) const T_MOVED: usize = 0x1e;
const USER_SHIFT: usize = 12;
const IMEMO_MASK: usize = 0x0f;
const ISEQ_UNFINISHED: usize = (1 << (USER_SHIFT + 5)) | (1 << (USER_SHIFT + 6));
/// The kind of an imemo that is an instruction sequence. [`iseq_kind_is`] checks it.
const IMEMO_ISEQ: usize = 7;
/// Cache lines at the start of an iseq's body from which its size is computed.
#[cfg(target_arch = "x86_64")]
const BODY_LINES: usize = 5;
/// The flags of a slot that mean "imemo, of kind iseq".
const ISEQ_BITS: usize = T_IMEMO | (IMEMO_ISEQ << USER_SHIFT);
const KIND_BITS: usize = TYPE_MASK | (IMEMO_MASK << USER_SHIFT);

/// A slot and its flag word.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) value: VALUE,
    pub(super) flags: usize,
}

impl Slot {
    /// # Safety
    /// `address` is a slot of a heap page.
    #[inline]
    pub(super) unsafe fn read(address: usize) -> Self {
        // SAFETY: the caller's promise; every slot begins with its flags.
        Self { value: address as VALUE, flags: unsafe { *(address as *const usize) } }
    }

    #[inline]
    pub(super) fn kind(self) -> usize {
        self.flags & TYPE_MASK
    }

    /// Whether an object is in the slot. Free slots, slots of moved objects and those that await their finalizer hold
    /// none.
    #[inline]
    pub(super) fn is_object(self) -> bool {
        !matches!(self.kind(), T_NONE | T_ZOMBIE | T_MOVED)
    }

    /// Whether it has outlived so many collections that Ruby counts it as old. An object without write barriers never
    /// is.
    #[inline]
    pub(super) fn is_old(self) -> bool {
        self.flags & PROMOTED == PROMOTED
    }

    /// Whether its age in the slot is not zero. From 3.3 on, only old objects have one there.
    #[inline]
    pub(super) fn has_age(self) -> bool {
        self.flags & PROMOTED != 0
    }

    #[inline]
    pub(super) fn is_iseq(self) -> bool {
        self.flags & KIND_BITS == ISEQ_BITS
    }

    /// Whether an iseq is being compiled or loaded, so that it has no path yet.
    #[inline]
    pub(super) fn is_unfinished_iseq(self) -> bool {
        self.flags & ISEQ_UNFINISHED != 0
    }

    /// Prefetches the body of an iseq. Any address may be prefetched.
    #[inline]
    pub(super) fn fetch_body(self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a slot has at least five words; a prefetch reads nothing.
            unsafe {
                let body = *(self.value as *const *const i8).add(2);
                for line in 0..BODY_LINES {
                    _mm_prefetch::<_MM_HINT_T0>(body.wrapping_add(line * 64));
                }
            }
        }
    }

    #[inline]
    pub(super) fn imemo_kind(self) -> usize {
        (self.flags >> USER_SHIFT) & IMEMO_MASK
    }

    /// The class word: 0 for internal objects; it may be a singleton class.
    ///
    /// # Safety An object is in the slot, and it is not an imemo.
    #[inline]
    pub(super) unsafe fn class(self) -> VALUE {
        // SAFETY: the caller's promise; the class is the second word of an object.
        unsafe { *(self.value as *const VALUE).add(1) }
    }

    /// Bytes of the slot and of the memory that it owns, as Ruby counts them.
    #[inline]
    pub(super) fn memsize(self, vm: &Functions) -> u64 {
        if self.kind() == T_NODE {
            return 0; // No Ruby of today has such objects in its heap, and older ones stop the process over them.
        }
        // SAFETY: an object of the heap, while nothing else runs. Allocates nothing.
        unsafe { (vm.memsize)(self.value) as u64 }
    }
}

/// Ruby's name for a kind of imemo.
pub(super) fn imemo_name(vm: &Functions, kind: usize) -> String {
    match imemo_text(vm, kind) {
        None => format!("imemo_{kind}"),
        Some(name) => format!("imemo_{}", String::from_utf8_lossy(name)),
    }
}

/// The same without what it begins with.
pub(super) fn imemo_text(vm: &Functions, kind: usize) -> Option<&'static [u8]> {
    // SAFETY: a kind that was found in the heap; the answer is null or a terminated constant.
    unsafe {
        let name = (vm.imemo_name)(kind as i32);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes())
    }
}

/// Whether iseqs have the same number in this Ruby as in all known ones.
pub(super) fn iseq_kind_is(vm: &Functions) -> bool {
    imemo_name(vm, IMEMO_ISEQ) == "imemo_iseq"
}

/// The name of a type, as in Ruby's headers.
pub(crate) fn type_name(kind: usize) -> &'static str {
    const NAMES: [&str; 32] = [
        "T_NONE",
        "T_OBJECT",
        "T_CLASS",
        "T_MODULE",
        "T_FLOAT",
        "T_STRING",
        "T_REGEXP",
        "T_ARRAY",
        "T_HASH",
        "T_STRUCT",
        "T_BIGNUM",
        "T_FILE",
        "T_DATA",
        "T_MATCH",
        "T_COMPLEX",
        "T_RATIONAL",
        "T_0x10",
        "T_NIL",
        "T_TRUE",
        "T_FALSE",
        "T_SYMBOL",
        "T_FIXNUM",
        "T_UNDEF",
        "T_0x17",
        "T_0x18",
        "T_0x19",
        "T_IMEMO",
        "T_NODE",
        "T_ICLASS",
        "T_ZOMBIE",
        "T_MOVED",
        "T_0x1f",
    ];
    NAMES[kind & TYPE_MASK]
}
