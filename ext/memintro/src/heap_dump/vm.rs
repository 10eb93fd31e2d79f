//! What the writer must know of this Ruby: functions that only read, layouts and names. Found before the copy is made.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_objspace_reachable_objects_from`, `…_from_root`, those of [`GcFlags`], `rb_obj_memsize_of`, `rb_imemo_name`, `rb_class_get_superclass`, `rb_class_real`, `rb_mod_name`, `rb_hash_size_num`, `rb_id2str`, `rb_sym2str`, `rb_objspace_internal_object_p` | yes | yes | yes | no dump |
//! | `rb_shape_obj_too_complex` | no shapes | yes | yes | the shape tells |
//! | `rb_class_variation_count` | no | no | no | since 4.0; no `variation_count` |
//!
//! None of them allocates or raises when called as here. `rb_objspace_reachable_objects_from` calls the mark functions
//! of C extensions; and where a method was redefined, Ruby frees caches of calls while it marks a class, for which
//! malloc's lock may be held. So the host watches the copy, and makes another one if it stands still.
//!
//! Known from the sources of 3.1 and 3.3 and from the behaviour of 3.4.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};

use magnus::{Error, RArray, RString, Ruby, Value, prelude::*};
use rb_sys::{ID, VALUE};

use super::text::Padded;
use crate::atlas::{GcFlags, Object};
use crate::lookup::{self, look_up};

pub(super) type OnReference = unsafe extern "C" fn(VALUE, *mut c_void);
pub(super) type OnRoot = unsafe extern "C" fn(*const c_char, VALUE, *mut c_void);
type OfValue = unsafe extern "C" fn(VALUE) -> VALUE;

const NEEDED: [&CStr; 11] = [
    c"rb_objspace_reachable_objects_from",
    c"rb_objspace_reachable_objects_from_root",
    c"rb_obj_memsize_of",
    c"rb_imemo_name",
    c"rb_class_get_superclass",
    c"rb_class_real",
    c"rb_mod_name",
    c"rb_hash_size_num",
    c"rb_id2str",
    c"rb_sym2str",
    c"rb_objspace_internal_object_p",
];

#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) references: unsafe extern "C" fn(VALUE, OnReference, *mut c_void),
    pub(super) roots: unsafe extern "C" fn(OnRoot, *mut c_void),
    pub(super) gc_flags: GcFlags,
    pub(super) memsize: unsafe extern "C" fn(VALUE) -> usize,
    pub(super) is_internal: unsafe extern "C" fn(VALUE) -> c_int,
    pub(super) imemo_name: unsafe extern "C" fn(c_int) -> *const c_char,
    pub(super) superclass: OfValue,
    pub(super) real_class: OfValue,
    pub(super) class_name: OfValue,
    pub(super) hash_size: unsafe extern "C" fn(VALUE) -> usize,
    pub(super) name_of: unsafe extern "C" fn(ID) -> VALUE,
    pub(super) text_of_symbol: OfValue,
    pub(super) too_complex: Option<unsafe extern "C" fn(VALUE) -> bool>,
    pub(super) variations: Option<unsafe extern "C" fn(VALUE) -> c_uchar>,
}

/// How to tell whether a string's bytes are valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Binary,
    Ascii,
    Utf8,
    /// Ruby must look.
    Other,
}

pub(super) struct Encoding {
    /// As it stands in a line: `, "encoding":"UTF-8"`; nothing for plain bytes.
    pub(super) member: Padded<{ Encoding::LONGEST }>,
    /// No if it is not loaded: there is no string of it, then.
    pub(super) ascii_compatible: bool,
    pub(super) coding: Coding,
    /// Ruby has loaded it, and so can look at its strings.
    pub(super) loaded: bool,
}

impl Encoding {
    /// Ruby's names have 63 bytes at most.
    pub(super) const LONGEST: usize = 96;
}

pub(super) struct Vm {
    pub(super) functions: Functions,
    pub(super) encodings: Vec<Encoding>,
    /// Names of flags of the collector.
    pub(super) flags: [ID; FLAGS.len()],
}

fn functions() -> Option<Functions> {
    // SAFETY: each name stands for a function of the type of its field, in every Ruby that has it.
    unsafe {
        Some(Functions {
            references: look_up!(NEEDED[0], unsafe extern "C" fn(VALUE, OnReference, *mut c_void))?,
            roots: look_up!(NEEDED[1], unsafe extern "C" fn(OnRoot, *mut c_void))?,
            gc_flags: GcFlags::find()?,
            memsize: look_up!(NEEDED[2], unsafe extern "C" fn(VALUE) -> usize)?,
            is_internal: look_up!(NEEDED[10], unsafe extern "C" fn(VALUE) -> c_int)?,
            imemo_name: look_up!(NEEDED[3], unsafe extern "C" fn(c_int) -> *const c_char)?,
            superclass: look_up!(NEEDED[4], OfValue)?,
            real_class: look_up!(NEEDED[5], OfValue)?,
            class_name: look_up!(NEEDED[6], OfValue)?,
            hash_size: look_up!(NEEDED[7], unsafe extern "C" fn(VALUE) -> usize)?,
            name_of: look_up!(NEEDED[8], unsafe extern "C" fn(ID) -> VALUE)?,
            text_of_symbol: look_up!(NEEDED[9], OfValue)?,
            too_complex: look_up!(c"rb_shape_obj_too_complex", unsafe extern "C" fn(VALUE) -> bool),
            variations: look_up!(c"rb_class_variation_count", unsafe extern "C" fn(VALUE) -> c_uchar),
        })
    }
}

/// Functions that this Ruby lacks for dumps.
pub(crate) fn missing() -> Vec<&'static str> {
    [lookup::missing(&NEEDED), GcFlags::missing()].concat()
}

/// Flags of the collector: of all Rubies, then of 4.0.
const FLAGS: [&str; 10] = [
    "old",
    "wb_protected",
    "uncollectible",
    "marking",
    "marked",
    "pinned",
    "remembered",
    "age",
    "object_id",
    "shareable",
];

impl Vm {
    /// The bit of the first of these, and the place of the age.
    pub(super) const OLD: u32 = 1;
    pub(super) const AGE: usize = 7;

    /// Whether the variables of a plain object are in a table.
    pub(super) fn is_too_complex(&self, object: Object) -> bool {
        // SAFETY: an object of the heap; reads its shape.
        self.functions.too_complex.map_or(object.is_too_complex(), |is_so| unsafe { is_so(object.value()) })
    }

    /// `None` if functions are [`missing`].
    pub(super) fn get(ruby: &Ruby) -> Result<Option<Self>, Error> {
        let Some(functions) = functions() else { return Ok(None) };
        // Its first call makes the names of flags, which allocates.
        // SAFETY: a class of the heap.
        unsafe { functions.gc_flags.each(rb_sys::rb_cObject, |_| ()) };
        Ok(Some(Self { functions, encodings: encodings(ruby)?, flags: FLAGS.map(intern) }))
    }
}

fn intern(name: &str) -> ID {
    // SAFETY: so many bytes of ASCII.
    unsafe { rb_sys::rb_intern2(name.as_ptr().cast(), name.len() as _) }
}

/// All encodings in the order of their numbers.
fn encodings(ruby: &Ruby) -> Result<Vec<Encoding>, Error> {
    let class: Value = ruby.class_object().const_get("Encoding")?;
    let list: RArray = class.funcall("list", ())?;
    let mut encodings = Vec::with_capacity(list.len());
    for index in 0..list.len() {
        let encoding: Value = list.entry(index as isize)?;
        let name: RString = encoding.funcall("name", ())?;
        // SAFETY: copied at once.
        let name = unsafe { name.as_slice() }.to_vec();
        let coding = match name.as_slice() {
            b"ASCII-8BIT" | b"BINARY" => Coding::Binary,
            b"US-ASCII" => Coding::Ascii,
            b"UTF-8" => Coding::Utf8,
            _ => Coding::Other,
        };
        // SAFETY: the number of an encoding; null or a description, which stays.
        let loaded = unsafe {
            let description = rb_sys::rb_enc_from_index(index as c_int);
            !description.is_null() && (*description).max_enc_len > 0
        };
        // Ruby would load its library to answer, one for each encoding there is.
        let ascii_compatible = loaded && encoding.funcall("ascii_compatible?", ())?;
        let member = match coding {
            Coding::Binary => None,
            _ => Padded::of(&[b", \"encoding\":\"", name.as_slice(), b"\""].concat()),
        };
        let member = member.unwrap_or(Padded::EMPTY);
        encodings.push(Encoding { member, ascii_compatible, coding, loaded });
    }
    Ok(encodings)
}
