//! `Memintro::Native::HeapSurvey`: what a snapshot needs of the heap, read in steps, as rows in Rust's memory.

use std::cell::RefCell;
use std::mem;
use std::time::Duration;

use magnus::rb_sys::protect;
use magnus::{Error, RArray, RHash, RModule, Ruby, Symbol, Value, function, method, prelude::*};
use memintro_analysis::heap::{Heap, Place, Row};

use super::errors;
use super::heap::checked;
use super::slices::yield_rows;
use super::without_gvl::without_gvl;
use super::{names, occupancy};
use crate::heap::leaves_marking;
use crate::heap::survey::{Files, HeapSurvey as Walk, Wanted, tells_outlived};
use crate::lookup::look_up;

/// How long a step keeps other threads waiting, in addition to the time that Ruby needs to list its pages.
const STEP: Duration = Duration::from_millis(4);

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("HeapSurvey", ruby.class_object())?;
    super::know_class::<HeapSurvey>(ruby);
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(HeapSurvey::new, 2))?;
    class.define_singleton_method("check", function!(check, 1))?;
    class.define_singleton_method("leaves_marking?", function!(leaves_marking, 0))?;
    class.define_singleton_method("tells_outlived?", function!(tells_outlived, 0))?;
    class.define_method("step", method!(HeapSurvey::step, 1))?;
    class.define_method("collect", method!(HeapSurvey::collect, 1))?;
    class.define_method("rows", method!(HeapSurvey::rows, 1))?;
    class.define_method("iseq_totals", method!(HeapSurvey::iseq_totals, 0))?;
    class.define_method("pools", method!(HeapSurvey::pools, 0))?;
    class.define_method("clear", method!(HeapSurvey::clear, 0))
}

enum State {
    Walking(Box<Walk>),
    Done(Heap),
    /// The walk has failed, or is no longer wanted.
    Failed,
}

/// See [`crate::heap::survey`].
#[magnus::wrap(class = "Memintro::Native::HeapSurvey", free_immediately)]
pub(super) struct HeapSurvey(RefCell<State>);

fn with(part: &str, mut wanted: Wanted) -> Wanted {
    match part {
        "types" => wanted.types = true,
        "classes" => wanted.classes = true,
        "iseqs" => wanted.iseqs = true,
        "internals" => wanted.internals = true,
        "occupancy" => wanted.occupancy = true,
        "outlived" => wanted.outlived = true,
        "old" => wanted.old = true,
        _ => {}
    }
    wanted
}

/// Raises if this Ruby lacks what the part needs.
fn check(ruby: &Ruby, part: Symbol) -> Result<(), Error> {
    checked(ruby, with(&part.name()?, Wanted::default()).check())
}

impl HeapSurvey {
    /// For these parts. `own` are memintro's files, and folders with a slash at the end.
    fn new(ruby: &Ruby, parts: RArray, own: RArray) -> Result<Self, Error> {
        let mut wanted = Wanted::default();
        for index in 0..parts.len() {
            wanted = with(&parts.entry::<Symbol>(index.cast_signed())?.name()?, wanted);
        }
        if parts.is_empty() {
            return Ok(Self(RefCell::new(State::Done(Heap::default()))));
        }
        let walk = checked(ruby, Walk::new(wanted, Files(names::all_bytes(own)?)))?;
        Ok(Self(RefCell::new(State::Walking(Box::new(walk)))))
    }

    /// Continues for some milliseconds. True: all pages have been read, and the rows sorted (during which other
    /// threads ran). The collector's counters at the instant of the last page go into the hash. `GC.stat` has filled
    /// the hash before, so this makes no object.
    fn step(ruby: &Ruby, this: &Self, counters: RHash) -> Result<bool, Error> {
        this.go_on(ruby, counters, STEP)
    }

    /// Collects garbage, and reads all pages behind it, without letting another thread run: what is there has outlived the
    /// collection. For the rest see [`Self::step`].
    fn collect(ruby: &Ruby, this: &Self, counters: RHash) -> Result<(), Error> {
        // SAFETY: a function of this type in every Ruby that has it.
        let collect = unsafe { look_up!(c"rb_gc_start", unsafe extern "C" fn() -> rb_sys::VALUE) };
        if let Some(collect) = collect {
            // Runs finalizers.
            // SAFETY: called by a thread with the GVL, which holds no Ruby value outside of its stack.
            protect(|| unsafe { collect() })?;
        }
        while !this.go_on(ruby, counters, Duration::MAX)? {}
        Ok(())
    }

    fn go_on(&self, ruby: &Ruby, counters: RHash, time: Duration) -> Result<bool, Error> {
        let mut state = self.0.try_borrow_mut().map_err(|_| busy(ruby))?;
        let State::Walking(walk) = &mut *state else { return Ok(true) };
        match checked(ruby, walk.step(time)) {
            Ok(false) => Ok(false),
            Ok(true) => {
                let gc = ruby.class_object().const_get::<_, RModule>("GC")?;
                let _: Value = gc.funcall("stat", (counters,))?;
                if let State::Walking(walk) = mem::replace(&mut *state, State::Failed) {
                    *state = State::Done(without_gvl(|| walk.heap())?);
                }
                Ok(true)
            }
            Err(error) => {
                *state = State::Failed;
                Err(error)
            }
        }
    }

    /// Frees the memory, which otherwise would wait for Ruby's collector.
    fn clear(&self) {
        if let Ok(mut state) = self.0.try_borrow_mut() {
            *state = State::Failed;
        }
    }

    /// Calls the block with the results, once all pages have been read.
    pub(super) fn read<T>(&self, ruby: &Ruby, read: impl FnOnce(&Heap) -> T) -> Result<T, Error> {
        match &*self.0.try_borrow().map_err(|_| busy(ruby))? {
            State::Done(heap) => Ok(read(heap)),
            _ => Err(errors::error(ruby, "Error", "the walk over the heap did not finish")),
        }
    }

    /// Yields slices of `[[name, count, bytes], …]`, greatest first. For part `occupancy` these are the holders, with
    /// pages instead of bytes. Yields nothing for a part that was not requested.
    fn rows(ruby: &Ruby, this: &Self, list: Symbol) -> Result<(), Error> {
        let list = list.name()?.into_owned();
        this.read(ruby, |heap| {
            let iseqs = heap.iseqs.as_ref();
            let places = match list.as_str() {
                "paths" => iseqs.map(|iseqs| (iseqs, &iseqs.paths)),
                "locations" => iseqs.map(|iseqs| (iseqs, &iseqs.locations)),
                _ => None,
            };
            if let Some((iseqs, places)) = places {
                return yield_rows(ruby, places, |place: &Place| {
                    (names::string(ruby, &iseqs.name(place)), place.count, place.bytes)
                });
            }
            if list == "occupancy" {
                let holders = heap.occupancy.as_ref().map_or(&[][..], |occupancy| &occupancy.holders);
                return yield_rows(ruby, holders, |holder| {
                    (names::string(ruby, &holder.name), holder.count, holder.pages)
                });
            }
            let rows = match list.as_str() {
                "types" => &heap.types,
                "classes" => &heap.classes,
                _ => &heap.internals,
            };
            yield_rows(ruby, rows.as_deref().unwrap_or_default(), |row: &Row| {
                (names::string(ruby, &row.name), row.count, row.bytes)
            })
        })?
    }

    /// `[count, bytes]` of all instruction sequences.
    fn iseq_totals(ruby: &Ruby, this: &Self) -> Result<(u64, u64), Error> {
        this.read(ruby, |heap| heap.iseqs.as_ref().map_or((0, 0), |iseqs| iseqs.totals()))
    }

    /// `[[slot_size, pages, slots, live, sparse_pages, sparse_live, empty_pages], …]`
    fn pools(ruby: &Ruby, this: &Self) -> Result<RArray, Error> {
        this.read(ruby, |heap| {
            let rows = ruby.ary_new();
            for pool in heap.occupancy.iter().flat_map(|occupancy| &occupancy.pools) {
                rows.push(occupancy::pool_row(pool))?;
            }
            Ok(rows)
        })?
    }
}

fn busy(ruby: &Ruby) -> Error {
    errors::error(ruby, "BusyError", "another thread uses this walk over the heap; start another one")
}
