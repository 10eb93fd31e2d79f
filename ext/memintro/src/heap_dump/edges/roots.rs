//! Roots: global variables, addresses that C code has registered, finalizers.
//!
//! Lists are made before the copy, under the GVL; values are read in the copy.
//!
//! | root | how it is found | without it |
//! |---|---|---|
//! | `$name` | `rb_f_global_variables` and `rb_gv_get`; only of names that are words, because others are computed | no name |
//! | an address of `rb_gc_register_address` | one of ours is registered for good; the VM's or the collector's list that leads to it | no name |

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Mutex, OnceLock};

use rb_sys::{ID, VALUE};

use super::memory::is_address;
use super::{EdgeName, Visit};
use super::{finalizers, layout};
use crate::lookup::{address, look_up};
use crate::vm::Probe;

/// What is listed before each copy.
#[derive(Default)]
struct Roots {
    /// Values of global variables.
    variables: Vec<(ID, VALUE)>,
    /// Addresses and how they are called.
    registered: Vec<(usize, Vec<u8>)>,
}

static ROOTS: Mutex<Roots> = Mutex::new(Roots { variables: Vec::new(), registered: Vec::new() });

/// Most of each kind: later ones have no names.
const MOST: usize = 10_000;

pub(super) fn prepare() {
    let found = Roots { variables: global_variables(), registered: registered() };
    if let Ok(mut roots) = ROOTS.lock() {
        *roots = found;
    }
}

pub(super) fn edges(category: &[u8], visit: Visit<'_>) {
    // Where another thread held it at the copy's instant, nothing has a name.
    let Ok(roots) = ROOTS.try_lock() else { return };
    match category {
        b"finalizers" => {
            let mut named = |value| visit(value, EdgeName::Text(b"finalizer"));
            each_of(category, &mut named);
            finalizers::each_untold(&mut named);
        }
        b"machine_context" => {}
        _ => {
            for (name, value) in &roots.variables {
                visit(*value, EdgeName::Name { before: b"", name: *name, after: b"" });
            }
            for (place, name) in &roots.registered {
                // SAFETY: registered, so that the collector reads it too.
                let value = unsafe { std::ptr::with_exposed_provenance::<VALUE>(*place).read() };
                if is_address(value as usize) {
                    visit(value, EdgeName::Text(name));
                }
            }
        }
    }
}

/// All roots of a category.
fn each_of(category: &[u8], visit: &mut dyn FnMut(VALUE)) {
    struct Walk<'a> {
        category: &'a [u8],
        visit: &'a mut dyn FnMut(VALUE),
    }
    unsafe extern "C" fn on_root(category: *const c_char, value: VALUE, walk: *mut c_void) {
        // SAFETY: what the call below was given, and one of Ruby's constants.
        unsafe {
            let walk = &mut *walk.cast::<Walk<'_>>();
            if CStr::from_ptr(category).to_bytes() == walk.category {
                (walk.visit)(value);
            }
        }
    }
    let Some(layout) = layout::get() else { return };
    let mut walk = Walk { category, visit };
    // SAFETY: in the copy, where nothing else runs.
    unsafe { (layout.functions.roots)(on_root, std::ptr::from_mut(&mut walk).cast()) };
}

/// Values of variables whose names are words. Reading another one may run code, or warn.
fn global_variables() -> Vec<(ID, VALUE)> {
    // SAFETY: each name stands for a function of this type in every Ruby that has it.
    let functions = unsafe {
        (
            look_up!(c"rb_f_global_variables", unsafe extern "C" fn() -> VALUE),
            look_up!(c"rb_gv_get", unsafe extern "C" fn(*const c_char) -> VALUE),
        )
    };
    let (Some(list), Some(value)) = functions else { return Vec::new() };
    let mut found = Vec::new();
    let list_all = || {
        // SAFETY: makes an array of symbols.
        let names = unsafe { list() };
        // SAFETY: an array, which this stack keeps.
        let length = unsafe { rb_sys::RARRAY_LEN(names) };
        for index in 0..usize::try_from(length).unwrap_or(0).min(MOST) {
            // SAFETY: an element; a symbol.
            let name = unsafe { rb_sys::rb_sym2id(rb_sys::rb_ary_entry(names, index as _)) };
            // SAFETY: a name that Ruby knows.
            let text = unsafe { CStr::from_ptr(rb_sys::rb_id2name(name)) };
            if is_plain(text.to_bytes()) {
                let text = CString::from(text);
                // SAFETY: a name that is a word: the variable is read.
                let value = unsafe { value(text.as_ptr()) };
                if is_address(value as usize) {
                    found.push((name, value));
                }
            }
        }
        rb_sys::Qnil as VALUE
    };
    // Outside of the main Ractor, most are refused.
    if magnus::rb_sys::protect(list_all).is_err() {
        // SAFETY: forgets what was raised.
        unsafe { rb_sys::rb_set_errinfo(rb_sys::Qnil as VALUE) };
    }
    found
}

fn is_plain(name: &[u8]) -> bool {
    /// Reading these warns, and of the last one opens the next file of the program's arguments and takes it out of them.
    const CHANGE: [&[u8]; 4] = [b"$KCODE", b"$SAFE", b"$IGNORECASE", b"$FILENAME"];
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte > 127;
    match name {
        // The last line that was read, which each frame has of its own.
        b"$_" => false,
        [b'$', first, rest @ ..] => {
            is_letter(*first)
                && rest.iter().all(|byte| is_letter(*byte) || byte.is_ascii_digit())
                && !CHANGE.contains(&name)
        }
        _ => false,
    }
}

/// Where the list of registered addresses begins: the address of the word with its first record.
static LIST: OnceLock<Option<usize>> = OnceLock::new();
/// Registered, so that the list is found. Never an object.
static mut OURS: VALUE = rb_sys::Qnil as VALUE;

fn registered() -> Vec<(usize, Vec<u8>)> {
    let mut found = Vec::new();
    let Some(probe) = Probe::new() else { return found };
    let ours = &raw const OURS as usize;
    let Some(list) = *LIST.get_or_init(|| {
        // SAFETY: our own variable, which is never freed.
        unsafe { rb_sys::rb_gc_register_address(&raw mut OURS) };
        // The record of our address.
        find_word(&probe, |word| word.is_multiple_of(8) && probe.words::<1>(word) == Some([ours]))
    }) else {
        return found;
    };
    let mut next = probe.words::<1>(list).map_or(0, |[first]| first);
    while next != 0 && found.len() < MOST {
        let Some([place, after]) = probe.words(next) else { break };
        if place != ours && probe.words::<1>(place).is_some() {
            found.push((place, name_of(place)));
        }
        next = after;
    }
    found
}

/// Where a word of the VM's structure, or of the collector's that it leads to, leads to what is looked for.
pub(super) fn find_word(probe: &Probe, leads: impl Fn(usize) -> bool) -> Option<usize> {
    const PIECE: usize = 256;
    const PIECES: usize = 12;
    let within = |start: usize, pieces: usize| {
        (0..pieces).map(|piece| start + piece * PIECE * 8).find_map(|piece| {
            let words = probe.words::<PIECE>(piece)?;
            words.iter().position(|word| leads(*word)).map(|index| piece + index * 8)
        })
    };
    let vm = address(c"ruby_current_vm_ptr") as usize;
    let vms: Vec<usize> = if vm == 0 {
        // A thread's structure leads to the VM's.
        // SAFETY: under the GVL; a thread has an object.
        let thread = unsafe { crate::atlas::Object::read(rb_sys::rb_thread_current() as usize) };
        probe.words::<32>(thread.structure())?.into_iter().filter(|word| is_address(*word)).collect()
    } else {
        probe.words::<1>(vm)?.into()
    };
    if let Some(place) = vms.iter().find_map(|vm| within(*vm, PIECES)) {
        return Some(place);
    }
    if vms.len() > 1 {
        return None;
    }
    let behind = |vm: usize| {
        (0..PIECES).filter_map(move |piece| probe.words::<PIECE>(vm + piece * PIECE * 8)).flatten()
    };
    vms.into_iter().flat_map(behind).filter(|word| is_address(*word)).find_map(|word| within(word, 3))
}

/// `C address registered (libfoo.so+0x12f0)`.
fn name_of(place: usize) -> Vec<u8> {
    // SAFETY: room for the answer; any address may be asked for.
    let (found, info) = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(place as *const c_void, &raw mut info), info)
    };
    if found == 0 || info.dli_fname.is_null() {
        return format!("C address registered (0x{place:x})").into_bytes();
    }
    // SAFETY: the name of a loaded library.
    let file = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    let file = file.rsplit('/').next().unwrap_or_default();
    format!("C address registered ({file}+0x{:x})", place - info.dli_fbase as usize).into_bytes()
}
