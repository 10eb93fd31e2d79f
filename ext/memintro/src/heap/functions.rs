//! Ruby's functions that read the heap. They are looked up by name, so that a Ruby that lacks one still loads
//! memintro.
//!
//! | function | 3.1 | 3.3 | 3.4 | without it |
//! |---|---|---|---|---|
//! | `rb_objspace_each_objects`, `rb_during_gc`, `rb_obj_memsize_of`, `rb_imemo_name` | yes | yes | yes | no walk of any kind |
//! | `rb_objspace_internal_object_p`, `rb_class_real`, `rb_class_get_superclass`, `rb_mod_name` | yes | yes | yes | objects have no class: no histogram, no occupancy |
//! | `rb_objspace_each_objects_without_setup`, `rb_gc_latest_gc_info` | yes | not looked up | not looked up | a walk finishes a marking that is under way |
//! | `rb_iseq_path`, `rb_iseq_label`, `rb_iseq_first_lineno` | yes | yes | yes | an iseq has no path, label or line |
//!
//! Known from the symbols of Debian's libruby3.1 (3.1.2), libruby3.3 (3.3.8) and libruby3.4 (3.4.11).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use rb_sys::VALUE;

use crate::atlas::types::T_NODE;
use crate::atlas::{self, Object};
use crate::lookup::{self, look_up};

/// Called for each page with its first slot, its end, the distance of its slots, and the caller's own word.
pub(super) type PageCallback = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void) -> c_int;
type EachPage = unsafe extern "C" fn(PageCallback, *mut c_void);
pub(super) type OfValue = unsafe extern "C" fn(VALUE) -> VALUE;

const WALK: [&CStr; 4] =
    [c"rb_objspace_each_objects", c"rb_during_gc", c"rb_obj_memsize_of", c"rb_imemo_name"];
const CLASSES: [&CStr; 4] =
    [c"rb_objspace_internal_object_p", c"rb_class_real", c"rb_class_get_superclass", c"rb_mod_name"];
const ISEQS: [&CStr; 3] = [c"rb_iseq_path", c"rb_iseq_label", c"rb_iseq_first_lineno"];

/// The functions that this Ruby has.
pub(super) struct Functions {
    pub(super) each_page: EachPage,
    pub(super) marking: Option<Marking>,
    pub(super) during_gc: unsafe extern "C" fn() -> c_int,
    pub(super) memsize: unsafe extern "C" fn(VALUE) -> usize,
    pub(super) imemo_name: unsafe extern "C" fn(c_int) -> *const c_char,
    pub(super) classes: Option<ClassFunctions>,
    pub(super) iseq_path: Option<OfValue>,
    pub(super) iseq_label: Option<OfValue>,
    pub(super) iseq_line: Option<OfValue>,
}

impl Functions {
    /// Bytes of the slot and of the memory that it owns, as Ruby counts them.
    #[inline]
    pub(super) fn bytes_of(&self, object: Object) -> u64 {
        if object.kind() == T_NODE {
            return 0; // No Ruby of today has such objects in its heap, and older ones stop the process over them.
        }
        // SAFETY: an object of the heap, while nothing else runs. Allocates nothing.
        unsafe { (self.memsize)(object.value()) as u64 }
    }

    /// Ruby's name for a kind of imemo.
    pub(super) fn name_of_imemo(&self, kind: usize) -> String {
        match self.text_of_imemo(kind) {
            None => format!("imemo_{kind}"),
            Some(name) => format!("imemo_{}", String::from_utf8_lossy(name)),
        }
    }

    /// The same without what it begins with.
    pub(super) fn text_of_imemo(&self, kind: usize) -> Option<&'static [u8]> {
        // SAFETY: a kind that was found in the heap; the answer is null or a terminated constant.
        unsafe {
            let name = (self.imemo_name)(kind as c_int);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes())
        }
    }

    /// Whether iseqs have the same number in this Ruby as in all known ones.
    pub(super) fn knows_iseqs(&self) -> bool {
        self.name_of_imemo(atlas::ISEQ) == "imemo_iseq"
    }
}

/// Functions that a walk in the middle of a marking needs.
#[derive(Clone, Copy)]
pub(super) struct Marking {
    /// Does not finish a collection that is under way.
    pub(super) each_page: EachPage,
    gc_info: OfValue,
    state: VALUE,
    is_marking: VALUE,
}

impl Marking {
    /// Whether the collector is marking in steps and has not begun to sweep. Then nothing has been freed, and each
    /// slot can be read as usual.
    pub(super) fn is_under_way(self) -> bool {
        // SAFETY: reads a word of the VM; the answer to this question is a symbol, which is no new object.
        unsafe { (self.gc_info)(self.state) == self.is_marking }
    }
}

/// Functions that find an object's class.
#[derive(Clone, Copy)]
pub(super) struct ClassFunctions {
    pub(super) internal: unsafe extern "C" fn(VALUE) -> c_int,
    pub(super) real: OfValue,
    pub(super) superclass: OfValue,
    pub(super) name: OfValue,
}

/// Names of functions that this Ruby lacks: for any walk, for the classes of objects, for the details of an iseq.
pub(crate) fn missing() -> [Vec<&'static str>; 3] {
    [lookup::missing(&WALK), lookup::missing(&CLASSES), lookup::missing(&ISEQS)]
}

/// The functions, or the names of those that are missing.
pub(super) fn get() -> Result<&'static Functions, Vec<&'static str>> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    FUNCTIONS.get_or_init(walk_functions).as_ref().ok_or_else(|| lookup::missing(&WALK))
}

/// The functions that find classes, or the names of those that are missing.
pub(super) fn classes() -> Result<ClassFunctions, Vec<&'static str>> {
    get()?.classes.ok_or_else(|| lookup::missing(&CLASSES))
}

fn walk_functions() -> Option<Functions> {
    // SAFETY: each name stands for a function of the type of its field, in every Ruby that has it.
    unsafe {
        Some(Functions {
            each_page: look_up!(WALK[0], EachPage)?,
            marking: marking_functions(),
            during_gc: look_up!(WALK[1], unsafe extern "C" fn() -> c_int)?,
            memsize: look_up!(WALK[2], unsafe extern "C" fn(VALUE) -> usize)?,
            imemo_name: look_up!(WALK[3], unsafe extern "C" fn(c_int) -> *const c_char)?,
            classes: class_functions(),
            iseq_path: look_up!(ISEQS[0], OfValue),
            iseq_label: look_up!(ISEQS[1], OfValue),
            iseq_line: look_up!(ISEQS[2], OfValue),
        })
    }
}

fn marking_functions() -> Option<Marking> {
    // SAFETY: as above. Symbols of names that were interned are there for good.
    unsafe {
        let symbol = |name: &CStr| rb_sys::rb_id2sym(rb_sys::rb_intern(name.as_ptr()));
        Some(Marking {
            each_page: look_up!(c"rb_objspace_each_objects_without_setup", EachPage)?,
            gc_info: look_up!(c"rb_gc_latest_gc_info", OfValue)?,
            state: symbol(c"state"),
            is_marking: symbol(c"marking"),
        })
    }
}

fn class_functions() -> Option<ClassFunctions> {
    // SAFETY: as above.
    unsafe {
        Some(ClassFunctions {
            internal: look_up!(CLASSES[0], unsafe extern "C" fn(VALUE) -> c_int)?,
            real: look_up!(CLASSES[1], OfValue)?,
            superclass: look_up!(CLASSES[2], OfValue)?,
            name: look_up!(CLASSES[3], OfValue)?,
        })
    }
}
