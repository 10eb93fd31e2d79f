//! What roots and threads hold, read in the process itself: under the GVL, without making objects.

use std::ffi::{CStr, c_char, c_void};

use rb_sys::VALUE;

use super::edges::{self, EdgeName, OURS};
use crate::atlas::{Object, types};
use crate::lookup::look_up;

/// One reference: from what, how it is called, and to what.
pub(crate) struct Held {
    pub(crate) from: &'static str,
    pub(crate) name: Option<String>,
    pub(crate) object: VALUE,
}

/// More are not told.
const MOST: usize = 1_000_000;

/// Every root. `None` if this Ruby does not tell.
pub(crate) fn roots() -> Option<Vec<Held>> {
    type OnRoot = unsafe extern "C" fn(*const c_char, VALUE, *mut c_void);
    unsafe extern "C" fn on_root(category: *const c_char, object: VALUE, list: *mut c_void) {
        // SAFETY: the list that the call below was given; a category is one of Ruby's constants.
        let (list, from) =
            unsafe { (&mut *list.cast::<Vec<Held>>(), CStr::from_ptr(category).to_str().unwrap_or("root")) };
        if list.len() < MOST && is_address(object) {
            list.push(Held { from, name: None, object });
        }
    }
    // SAFETY: the name stands for a function of this type in every Ruby that has it.
    let each = unsafe {
        look_up!(c"rb_objspace_reachable_objects_from_root", unsafe extern "C" fn(OnRoot, *mut c_void))
    }?;
    edges::prepare();
    let mut found: Vec<Held> = Vec::with_capacity(4096);
    // SAFETY: the list outlives the call; nothing in it runs code of Ruby.
    unsafe { each(on_root, (&raw mut found).cast()) };
    edges::finalizers::each_untold(&mut |object| found.push(Held { from: "finalizers", name: None, object }));
    let mut start = 0;
    while let Some(from) = found.get(start).map(|held| held.from) {
        let end = found
            .iter()
            .skip(start)
            .position(|held| held.from != from)
            .map_or(found.len(), |length| start + length);
        if let Some(group) = found.get_mut(start..end) {
            edges::for_each_root_edge(from.as_bytes(), &mut |object, name| name_one(group, object, name));
        }
        start = end;
    }
    Some(found)
}

/// What an object holds: that of a thread or fiber is what its stacks and registers hold.
pub(crate) fn children(object: VALUE) -> Option<Vec<Held>> {
    type OnChild = unsafe extern "C" fn(VALUE, *mut c_void);
    unsafe extern "C" fn on_child(object: VALUE, list: *mut c_void) {
        // SAFETY: the list that the call below was given.
        let list = unsafe { &mut *list.cast::<Vec<Held>>() };
        if list.len() < MOST && is_address(object) {
            list.push(Held { from: "", name: None, object });
        }
    }
    // SAFETY: the name stands for a function of this type in every Ruby that has it.
    let each = unsafe {
        look_up!(c"rb_objspace_reachable_objects_from", unsafe extern "C" fn(VALUE, OnChild, *mut c_void))
    }?;
    if !is_address(object) {
        return Some(Vec::new());
    }
    edges::prepare();
    let mut found: Vec<Held> = Vec::with_capacity(256);
    // SAFETY: an object that the caller holds; the list outlives the call.
    unsafe { each(object, on_child, (&raw mut found).cast()) };
    edges::for_each_edge(object, &mut |child, name| name_one(&mut found, child, name));
    found.retain(|held| held.name.as_deref().is_none_or(|name| name.as_bytes() != OURS));
    Some(found)
}

fn is_address(value: VALUE) -> bool {
    value > 0xff && value & 7 == 0
}

fn name_one(list: &mut [Held], object: VALUE, name: EdgeName<'_>) {
    if let Some(held) = list.iter_mut().find(|held| held.object == object && held.name.is_none()) {
        held.name = Some(text(name));
    }
}

fn text(name: EdgeName<'_>) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match name {
        EdgeName::Text(text) => lossy(text),
        EdgeName::Name { before, name, after } => {
            format!(
                "{}{}{}",
                lossy(before),
                name_of(name).unwrap_or_else(|| "(internal)".into()),
                lossy(after)
            )
        }
        EdgeName::Element(index) => format!("[{index}]"),
        EdgeName::ValueOf(key) => format!("[{}]", key_text(key)),
    }
}

fn name_of(id: rb_sys::ID) -> Option<String> {
    // SAFETY: the name stands for a function of this type in every Ruby; a name that it does not know is 0.
    let string = unsafe {
        look_up!(c"rb_id2str", unsafe extern "C" fn(rb_sys::ID) -> VALUE).map_or(0, |text| text(id))
    };
    // SAFETY: 0 or a string of the heap.
    is_address(string)
        .then(|| String::from_utf8_lossy(unsafe { Object::read(string as usize) }.string()).into_owned())
}

fn key_text(key: VALUE) -> String {
    const STATIC_SYMBOL: VALUE = 0x0c;
    match key {
        _ if key & 1 == 1 => (key.cast_signed() >> 1).to_string(),
        _ if key & 0xff == STATIC_SYMBOL => {
            format!(":{}", name_of((key >> 8) as rb_sys::ID).unwrap_or_default())
        }
        _ if !is_address(key) => "…".into(),
        _ => {
            // SAFETY: an object of the heap.
            let object = unsafe { Object::read(key as usize) };
            if object.kind() == types::T_STRING {
                format!("String of {} bytes", object.string().len())
            } else {
                format!("0x{key:x}")
            }
        }
    }
}
