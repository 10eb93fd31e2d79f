//! Finalizers, for Rubies that leave them out of their list of roots (3.4).
//!
//! | what | how it is found | without it |
//! |---|---|---|
//! | the collector's table | an object has a finalizer for a moment: the word of the VM's structure, or of the collector's, that leads to a table whose newest entry it is | what only a finalizer holds has no way to a root, and the dump says that finalizers are unknown |

use std::sync::OnceLock;

use magnus::{RArray, Ruby, Value, rb_sys::AsRawValue};
use rb_sys::VALUE;

use super::memory::{is_address, word};
use super::roots;
use crate::atlas::{RUBY, types};
use crate::lookup::look_up;
use crate::vm::Probe;

/// Words of a table (`struct st_table`): number of entries, the first that is used, the first that is not, entries.
const COUNT: usize = 2;
const START: usize = 4;
const BOUND: usize = 5;
const ENTRIES: usize = 6;
/// Words of an entry: a hash, which is all ones where nothing is; the object; an array with its finalizers.
const WORDS_OF_ENTRY: usize = 3;
const NOTHING: usize = usize::MAX;
/// More are not believed.
const MOST: usize = 1 << 26;

/// Where the address of the table is.
static PLACE: OnceLock<Option<usize>> = OnceLock::new();

/// Once, under the GVL; where Ruby itself tells of finalizers, there is nothing to do.
pub(super) fn prepare() {
    // Not `get_or_init`: Ruby may let another thread run amid `find`, which would wait here with the GVL.
    if !RUBY.lists_finalizers && PLACE.get().is_none() {
        let _ = PLACE.set(find());
    }
}

/// Whether the roots of a dump have finalizers.
pub(crate) fn are_told() -> bool {
    RUBY.lists_finalizers || PLACE.get().is_some_and(Option::is_some)
}

/// The array of each object that has finalizers, unless Ruby itself tells of them.
pub(crate) fn each_untold(visit: &mut dyn FnMut(VALUE)) {
    let Some(Some(place)) = PLACE.get() else { return };
    // SAFETY: the layout was found with a sample; the collector reads the same, and the VM is not changed meanwhile.
    unsafe {
        let table = word(*place, 0);
        if !is_address(table) {
            return;
        }
        let entries = word(table, ENTRIES);
        for index in word(table, START)..word(table, BOUND).min(MOST) {
            let entry = index * WORDS_OF_ENTRY;
            let array = word(entries, entry + 2);
            if word(entries, entry) != NOTHING && is_address(array) {
                visit(array as VALUE);
            }
        }
    }
}

fn find() -> Option<usize> {
    let ruby = Ruby::get().ok()?;
    // SAFETY: each name stands for a function of this type in every Ruby that has it.
    let (define, undefine) = unsafe {
        (
            look_up!(c"rb_define_finalizer", unsafe extern "C" fn(VALUE, VALUE) -> VALUE)?,
            look_up!(c"rb_undefine_finalizer", unsafe extern "C" fn(VALUE) -> VALUE)?,
        )
    };
    let probe = Probe::new()?;
    let samples: RArray = ruby.eval("[Object.new, proc {}]").ok()?;
    let sample = |index| samples.entry::<Value>(index).ok().map(|value| value.as_raw());
    let (object, block) = (sample(0)?, sample(1)?);
    // SAFETY: a plain object and a block, which the array keeps.
    if magnus::rb_sys::protect(|| unsafe { define(object, block) }).is_err() {
        // SAFETY: forgets what was raised.
        unsafe { rb_sys::rb_set_errinfo(rb_sys::Qnil as VALUE) };
        return None;
    }
    let found = roots::find_word(&probe, |address| is_table(&probe, address, object as usize));
    // SAFETY: the same object.
    if magnus::rb_sys::protect(|| unsafe { undefine(object) }).is_err() {
        // SAFETY: forgets what was raised.
        unsafe { rb_sys::rb_set_errinfo(rb_sys::Qnil as VALUE) };
    }
    found
}

/// Whether a table is here whose newest entry is this object, with an array.
fn is_table(probe: &Probe, address: usize, object: usize) -> bool {
    let newest = || {
        let table: [usize; ENTRIES + 1] = probe.words(address).filter(|_| is_address(address))?;
        let (start, bound, entries) = (table[START], table[BOUND], table[ENTRIES]);
        let used = bound.checked_sub(start).filter(|_| bound <= MOST)?;
        if !(1..=used).contains(&table[COUNT]) || !is_address(entries) {
            return None;
        }
        let last = entries.checked_add((bound - 1) * WORDS_OF_ENTRY * size_of::<usize>())?;
        let [hash, key, array] = probe.words(last)?;
        let [flags] = probe.words(array).filter(|_| is_address(array))?;
        Some(hash != NOTHING && key == object && flags & types::MASK == types::T_ARRAY)
    };
    newest() == Some(true)
}
