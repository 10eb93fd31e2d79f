//! Tells the time before the collector has marked from the time after, within one collection.
//!
//! Keys of lines are addresses of code, which hold until that code is freed. Code that ends while the collector marks
//! step by step is freed in the same collection, and other code may get its address before the next one begins. So
//! keys also hold which marking was the last to look at an object of ours.
//!
//! That object has no write barriers. The collector looks at such an object when it begins to mark, and once more in the
//! end, right before it frees. So counts of its marking show on 3.1.7, 3.3.8 and 3.4.11. An event of the collector would
//! tell the same, but with any such event Ruby 3.1 makes each object the slow way.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use super::words::{self, WORDS};

/// Markings are counted in the bits that no address of a program has.
const SHIFT: u32 = 48;

/// The key as it is since the last marking.
#[inline]
pub(super) fn since(key: usize) -> usize {
    key ^ WORDS.marks.load(Ordering::Relaxed)
}

/// Notes how many collections there were.
pub(super) fn note() {
    if let Some(count) = super::gc_count() {
        WORDS.last_marked.store(count.wrapping_add(1), Ordering::Relaxed);
    }
}

/// Makes the object. Under the GVL, outside malloc.
pub(super) fn prepare() {
    // If Ruby has no memory for it, keys are addresses alone.
    let _ = magnus::rb_sys::protect(|| {
        // SAFETY: the type lives as long as this library; the object is never collected. Without data, the collector would
        // not ask it.
        unsafe {
            let data = (&raw const MARKED).cast_mut().cast::<c_void>();
            let object = rb_sys::rb_data_typed_object_wrap(rb_sys::rb_cObject, data, &raw const MARKED.0);
            rb_sys::rb_gc_register_mark_object(object);
        }
        rb_sys::Qnil as rb_sys::VALUE
    });
}

/// The type of the object.
struct Marked(rb_sys::rb_data_type_t);
// SAFETY: never written; its pointers lead to functions and a text.
unsafe impl Sync for Marked {}

static MARKED: Marked = Marked(rb_sys::rb_data_type_t {
    wrap_struct_name: c"memintro/marks".as_ptr(),
    function: rb_sys::rb_data_type_struct__bindgen_ty_1 {
        dmark: Some(marked),
        dfree: None,
        dsize: None,
        dcompact: None,
        reserved: [std::ptr::null_mut(); 1],
    },
    parent: std::ptr::null(),
    data: std::ptr::null_mut(),
    flags: 0,
});

unsafe extern "C" fn marked(_: *mut c_void) {
    WORDS.marks.fetch_add(1 << SHIFT, Ordering::Relaxed);
    note();
    words::check();
}
