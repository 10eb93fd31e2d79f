//! Where Ruby keeps what it tells of a new object, for the hook's own handler ([`memintro_abi::ObjectWords`]).
//!
//! | what | where | how it is found |
//! |---|---|---|
//! | the object of an event | a word of the event's argument | the one that is `rb_tracearg_object`'s answer in each of the first events |
//! | bytes of a slot, where they differ | 16 bits of the page's structure, to which the first word of a page points | the only ones that are `rb_gc_obj_slot_size`'s answer for strings of several sizes |
//!
//! Known from `struct rb_trace_arg_struct` and `struct heap_page` of 3.1, 3.3 and 3.4. Where anything differs, the hook calls
//! the extension's handler for each object, which asks the functions.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use magnus::Ruby;
use memintro_abi::ObjectWords;
use rb_sys::VALUE;

use crate::object_events::{Functions, Handler};
use crate::vm::Probe;

/// Words of which none is known yet, with the handler that is called then.
pub(crate) const fn unknown(otherwise: Handler) -> ObjectWords {
    ObjectWords {
        object: AtomicUsize::new(0),
        slot_bytes: AtomicUsize::new(0),
        page_bytes: AtomicUsize::new(0),
        slot_bytes_at: AtomicUsize::new(0),
        otherwise,
    }
}

/// Words of an argument that may be the object. The first one is the kind of the event.
const ARGUMENT_WORDS: usize = 12;
/// Events in which the object's place is looked for.
const EVENTS: u32 = 32;

/// A bit for each word of an argument that was the object so far; 0: none is, ever again.
static CANDIDATES: AtomicU32 = AtomicU32::new(((1 << ARGUMENT_WORDS) - 1) & !1);
static EVENTS_SEEN: AtomicU32 = AtomicU32::new(0);

/// The pages of Ruby's heap.
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    /// A power of two.
    pub(crate) bytes: usize,
    /// What a bit of a page's marks stands for.
    pub(crate) unit: usize,
}

static PAGES: OnceLock<Option<Pages>> = OnceLock::new();

/// Finds what can be found before the first event. Under the GVL.
pub(crate) fn prepare(ruby: &Ruby, vm: &Functions, words: &ObjectWords) {
    // Not `get_or_init`: what it asks Ruby may let another thread run, which would wait there with the GVL.
    if PAGES.get().is_some() {
        return;
    }
    let constant =
        |name: &str| ruby.eval::<Option<usize>>(&format!("::GC::INTERNAL_CONSTANTS[:{name}]")).ok().flatten();
    let unit = constant("BASE_SLOT_SIZE").or_else(|| constant("RVALUE_SIZE"));
    let pages = constant("HEAP_PAGE_SIZE")
        .zip(unit)
        .filter(|(bytes, unit)| bytes.is_power_of_two() && *bytes >= 4096 && (8..=*bytes).contains(unit))
        .map(|(bytes, unit)| Pages { bytes, unit });
    if PAGES.set(pages).is_ok()
        && let Some(pages) = pages
    {
        find_slot_bytes(vm, words, pages);
    }
}

/// The pages, if this Ruby tells of them.
pub(crate) fn pages() -> Option<Pages> {
    PAGES.get().copied().flatten()
}

fn find_slot_bytes(vm: &Functions, words: &ObjectWords, pages: Pages) {
    words.page_bytes.store(pages.bytes, Ordering::Relaxed);
    if let Some(bytes) = vm.one_size() {
        words.slot_bytes.store(bytes, Ordering::Relaxed);
        return;
    }
    let Some(probe) = Probe::new() else { return };
    let text = [0_u8; 700];
    let mut fits = u32::from(u16::MAX);
    let mut sizes = Vec::new();
    for length in [1, 45, 120, 250, 600] {
        // SAFETY: under the GVL; so short a string is in its slot wherever slots are large enough. Ruby is out of memory if
        // it raises.
        let Ok(string) =
            magnus::rb_sys::protect(|| unsafe { rb_sys::rb_str_new(text.as_ptr().cast(), length) })
        else {
            return;
        };
        // SAFETY: the string is there, and no other object is made before it is looked at.
        let bytes = unsafe { vm.slot_bytes(string) };
        let page: Option<[usize; 1]> = probe.words(string as usize & pages.bytes.wrapping_neg());
        let Some(halves) = page.and_then(|[structure]| probe.words::<4>(structure)) else { return };
        let halves = halves.map(usize::to_ne_bytes);
        for (at, half) in halves.as_flattened().chunks_exact(2).enumerate() {
            if half.iter().copied().ne((bytes as u16).to_ne_bytes()) {
                fits &= !(1 << at);
            }
        }
        std::hint::black_box(string);
        if !sizes.contains(&bytes) {
            sizes.push(bytes);
        }
    }
    if sizes.len() >= 3 && fits.is_power_of_two() {
        words.slot_bytes_at.store(2 * fits.trailing_zeros() as usize, Ordering::Relaxed);
    } else {
        CANDIDATES.store(0, Ordering::Relaxed);
    }
}

/// Looks where the argument has its object.
///
/// # Safety
/// It is the argument of an event that Ruby tells just now.
pub(crate) unsafe fn learn(words: &ObjectWords, argument: *mut c_void, object: VALUE) {
    let candidates = CANDIDATES.load(Ordering::Relaxed);
    if candidates == 0 || pages().is_none() {
        return;
    }
    let mut left = candidates;
    for at in (0..ARGUMENT_WORDS).filter(|at| candidates & 1 << at != 0) {
        // SAFETY: the argument is on the stack of the function that tells, which has further words behind it.
        let word = unsafe { argument.cast::<VALUE>().add(at).read() };
        if word != object {
            left &= !(1 << at);
        }
    }
    if left != candidates {
        CANDIDATES.store(left, Ordering::Relaxed);
    }
    if left == 0 {
        words.object.store(0, Ordering::Release);
    } else if EVENTS_SEEN.load(Ordering::Relaxed) < EVENTS {
        EVENTS_SEEN.fetch_add(1, Ordering::Relaxed);
    } else if left.is_power_of_two() {
        // Release: who sees it sees the others.
        words.object.store(left.trailing_zeros() as usize * size_of::<VALUE>(), Ordering::Release);
    }
}
