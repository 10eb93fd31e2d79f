//! Ruby's marks, read where the collector keeps them: in bits of each page's structure, one for each unit of the page. So the
//! hook looks at 64 slots at once ([`crate::marked_objects`]), and no function is called for each.
//!
//! | what | where |
//! |---|---|
//! | whether objects are marked; whether they are old ("uncollectible") | two arrays of bits in the structure to which the first word of a page points |
//! | which bit is an object's | its distance in the page, divided by the size of the least slots |
//!
//! Known from `struct heap_page` and `MARKED_IN_BITMAP` of 3.1, 3.3 and 3.4; where in the structure the arrays are differs.
//! So at the end of a marking, what `rb_obj_gc_flags` answers for some hundred objects is compared with all places of the
//! structures of their pages. An array counts as found if it is the only one that agrees, with objects of both kinds. From
//! then on, each page that is looked at is compared in one object; if that differs, the bits are not read again.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use memintro_abi::MarkedPage;

use crate::markings::{Mark, Markings};
use crate::object_words::{self, Pages};
use crate::vm::Probe;

/// Distances of the two arrays in a page's structure; 0: not known. No array is at the beginning.
static MARKED_AT: AtomicUsize = AtomicUsize::new(0);
static OLD_AT: AtomicUsize = AtomicUsize::new(0);
/// How many more markings are learnt from; 0: none.
static TRIES: AtomicUsize = AtomicUsize::new(64);

/// Objects of each mark that are remembered of a marking, and how many of them are needed.
const MOST_SEEN: usize = 256;
const NEEDED: usize = 4;
/// Words of a structure that are searched, and how many are read at once.
const WORDS: usize = 192;
const AT_A_TIME: usize = 32;
/// Pages that are searched.
const MOST_PAGES: usize = 32;

/// The results of a marking for some objects.
struct Seen(UnsafeCell<Vec<(usize, Mark)>>);
// SAFETY: it is used by one thread at a time, with the VM's lock, and not while it is used already.
unsafe impl Sync for Seen {}
/// How many of them have each mark.
static COUNTS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
static SEEN: Seen = Seen(UnsafeCell::new(Vec::new()));

fn seen<R>(use_it: impl FnOnce(&mut Vec<(usize, Mark)>) -> R) -> R {
    // SAFETY: see `Seen`.
    use_it(unsafe { &mut *SEEN.0.get() })
}

/// Whether both arrays are found.
pub(crate) fn are_found() -> bool {
    MARKED_AT.load(Ordering::Relaxed) != 0 && OLD_AT.load(Ordering::Relaxed) != 0
}

/// Takes the memory that learning needs, before the first marking.
pub(crate) fn prepare() {
    if !are_found() && TRIES.load(Ordering::Relaxed) != 0 {
        seen(|seen| seen.reserve_exact(4 * MOST_SEEN));
    }
}

/// A marking begins to be looked at.
pub(crate) fn begin() {
    seen(Vec::clear);
    COUNTS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
}

/// There is room for as many as were reserved: nothing is allocated in a collection.
fn add(slot: usize, mark: Mark) {
    seen(|seen| {
        if seen.len() < seen.capacity() {
            seen.push((slot, mark));
        }
    });
}

/// The answer of Ruby's function for an object.
pub(crate) fn note(slot: usize, mark: Mark) {
    if TRIES.load(Ordering::Relaxed) == 0 || are_found() {
        return;
    }
    let Some(count) = COUNTS.get(mark as usize) else { return };
    let alike = count.load(Ordering::Relaxed);
    if alike < MOST_SEEN {
        count.store(alike + 1, Ordering::Relaxed);
        add(slot, mark);
    }
}

/// All objects of a marking were looked at: finds the arrays, if they can be told from all else.
pub(crate) fn learn(markings: &Markings) {
    let tries = TRIES.load(Ordering::Relaxed);
    let Some(pages) = object_words::pages().filter(|_| tries != 0 && !are_found()) else { return };
    TRIES.store(tries - 1, Ordering::Relaxed);
    // Classes are old soon, and few of the tracked objects may be.
    // SAFETY: classes that Ruby never frees.
    let classes = unsafe {
        [
            rb_sys::rb_cObject,
            rb_sys::rb_cString,
            rb_sys::rb_cArray,
            rb_sys::rb_cHash,
            rb_sys::rb_mKernel,
            rb_sys::rb_cModule,
            rb_sys::rb_cClass,
            rb_sys::rb_cSymbol,
            rb_sys::rb_cProc,
            rb_sys::rb_cIO,
            rb_sys::rb_cInteger,
            rb_sys::rb_cFloat,
            rb_sys::rb_cRange,
            rb_sys::rb_cRegexp,
            rb_sys::rb_cStruct,
            rb_sys::rb_cThread,
            rb_sys::rb_cTime,
            rb_sys::rb_mEnumerable,
            rb_sys::rb_eStandardError,
            rb_sys::rb_eArgError,
            rb_sys::rb_eTypeError,
            rb_sys::rb_mGC,
        ]
    };
    for class in classes {
        // SAFETY: an object.
        add(class as usize, unsafe { markings.mark(class as usize) });
    }
    seen(|seen| {
        if let Some(probe) = Probe::new() {
            look(&probe, pages, seen);
        }
    });
    if are_found() {
        seen(|seen| *seen = Vec::new());
    }
}

fn look(probe: &Probe, pages: Pages, seen: &[(usize, Mark)]) {
    let page = |slot: usize| slot & pages.bytes.wrapping_neg();
    let mut structures: Vec<(usize, Vec<usize>)> = Vec::new();
    // Classes come last, and are needed most.
    for (slot, _) in seen.iter().rev() {
        if structures.len() < MOST_PAGES && !structures.iter().any(|(known, _)| *known == page(*slot)) {
            structures.push((page(*slot), structure(probe, page(*slot))));
        }
    }
    let find = |is_set: fn(Mark) -> Option<bool>| {
        let of = |structure: &Vec<usize>, at: usize, slot: usize| {
            let bit = (slot - page(slot)) / pages.unit;
            structure.get(at + bit / 64).map(|word| word >> (bit % 64) & 1 == 1)
        };
        let known: Vec<(usize, bool, &Vec<usize>)> = seen
            .iter()
            .filter_map(|(slot, mark)| {
                let (_, structure) = structures.iter().find(|(known, _)| *known == page(*slot))?;
                Some((*slot, is_set(*mark)?, structure))
            })
            .collect();
        let set = known.iter().filter(|(_, is_set, _)| *is_set).count();
        if set < NEEDED || known.len() - set < NEEDED {
            return None;
        }
        let fits = |at: &usize| known.iter().all(|(slot, set, words)| of(words, *at, *slot) == Some(*set));
        let mut fitting = (1..WORDS).filter(fits);
        // If several agree, none can be believed.
        let first = fitting.next();
        first.filter(|_| fitting.next().is_none())
    };
    let bytes = |at: usize| at * size_of::<usize>();
    if let Some(at) = find(|mark| Some(mark != Mark::Garbage)) {
        MARKED_AT.store(bytes(at), Ordering::Relaxed);
    }
    // Garbage may have been old.
    if let Some(at) = find(|mark| (mark != Mark::Garbage).then_some(mark == Mark::LivesOn)) {
        OLD_AT.store(bytes(at), Ordering::Relaxed);
    }
}

/// The words of a page's structure, as far as they can be read.
fn structure(probe: &Probe, page: usize) -> Vec<usize> {
    let mut words = Vec::new();
    let Some([begin]) = probe.words(page) else { return words };
    for first in (0..WORDS).step_by(AT_A_TIME) {
        let Some(more) = probe.words::<AT_A_TIME>(begin + first * size_of::<usize>()) else { break };
        words.extend(more);
    }
    words
}

/// For the hook: the bits of the page with this slot.
pub(crate) unsafe extern "C" fn page(context: *mut c_void, slot: usize, answer: *mut MarkedPage) -> bool {
    let (marked_at, old_at) = (MARKED_AT.load(Ordering::Relaxed), OLD_AT.load(Ordering::Relaxed));
    let Some(pages) = object_words::pages().filter(|_| marked_at != 0) else { return false };
    let begin = slot & pages.bytes.wrapping_neg();
    // SAFETY: there is an object in the page, so it begins with the address of its structure, which has the arrays.
    let (marked, old) = unsafe {
        let structure = (begin as *const *const u8).read();
        (structure.add(marked_at).cast::<u64>(), structure.add(old_at).cast::<u64>())
    };
    let bit = (slot - begin) / pages.unit;
    // SAFETY: as above.
    let is_set = |bits: *const u64| unsafe { bits.add(bit / 64).read() } >> (bit % 64) & 1 == 1;
    let told = match (is_set(marked), old_at == 0 || is_set(old)) {
        (false, _) => Mark::Garbage,
        (true, false) => Mark::Lives,
        (true, true) => Mark::LivesOn,
    };
    // SAFETY: the context of `marked_objects`; the object is in its slot.
    let asked = unsafe { (*context.cast_const().cast::<Markings>()).mark(slot) };
    let agrees = told == asked || old_at == 0 && (told == Mark::Garbage) == (asked == Mark::Garbage);
    if !agrees {
        MARKED_AT.store(0, Ordering::Relaxed);
        OLD_AT.store(0, Ordering::Relaxed);
        TRIES.store(0, Ordering::Relaxed);
        return false;
    }
    let old = if old_at == 0 { std::ptr::null() } else { old };
    let found = MarkedPage { begin, bytes: pages.bytes, unit: pages.unit, marked, old };
    // SAFETY: the hook's own record.
    unsafe { answer.write(found) };
    true
}
