//! `Memintro::Native::Measuring`: one measurement of the calling thread, from its begin to its end.
//!
//! What is counted last is read innermost: [`Measuring::begin`] reads the figures of malloc last, and [`Measuring::end`]
//! reads them first, so nothing that this file does is in them. Ruby objects are made after all figures are taken.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::OnceLock;

use magnus::{Error, RArray, RHash, RModule, Ruby, Value, function, method, prelude::*};
use memintro_abi::{BirthRecord, HookApi, MeasureFigures, MeasuredSite, SiteRecord, Status};
use memintro_analysis::json;

use super::native::{visit_each, visit_sites};
use super::site_rows::frozen_string;
use super::tracking_hold::{self, Had};
use super::{errors, request, sites};
use crate::hook_link;
use crate::measure::{self, objects};

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    native.define_singleton_method("measuring_in_child", function!(in_child, 0))?;
    native.define_singleton_method("hide_own", function!(hide_own, 0))?;
    native.define_singleton_method("show_own", function!(show_own, 0))?;
    let class = native.define_class("Measuring", ruby.class_object())?;
    super::know_class::<Measuring>(ruby);
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(Measuring::new, 4))?;
    class.define_method("begin", method!(Measuring::begin, 0))?;
    class.define_method("end", method!(Measuring::end, 2))
}

/// What this thread allocates from here on, and the objects that it makes, count for no line.
pub(super) fn hide_own() {
    if let Some(api) = hook_link::found() {
        (api.untracked_enter)();
    }
    objects::hide();
}

/// Undoes one [`hide_own`]. Returns the depth of untracked sections that are left.
pub(super) fn show_own() -> u32 {
    objects::show();
    hook_link::found().map_or(0, |api| (api.untracked_leave)())
}

/// Only the calling thread exists, in a forked child: the measurements of others are over.
fn in_child(ruby: &Ruby) -> Result<(), Error> {
    objects::in_child();
    hook_link::found().map_or(Ok(()), |api| tracking_hold::in_child(ruby, api))
}

/// Counters of `GC.stat`.
const GC: [&str; 4] = ["minor_gc_count", "major_gc_count", "total_allocated_objects", "total_freed_objects"];
/// Objects that compaction has moved. Ruby 3.4 also counts each of them as one that was made and one that was freed.
const MOVED: &str = "total_moved_objects";

/// Whether this Ruby has that counter; to ask for one that it has not raises.
static HAS_MOVED: OnceLock<bool> = OnceLock::new();

/// The clocks and counters that need no tracking.
#[derive(Clone, Copy, Default)]
struct Plain {
    wall_ns: u64,
    cpu_ns: u64,
    gc: [u64; 4],
    moved: u64,
    gc_ns: Option<u64>,
}

impl Plain {
    fn tell_time(&mut self) {
        self.wall_ns = clock(libc::CLOCK_MONOTONIC);
        self.cpu_ns = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    }

    /// Makes no object, in contrast to the other question.
    fn ask_counters(&mut self, ruby: &Ruby) {
        if let Some(functions) = measure::functions() {
            let has_moved = HAS_MOVED.get().copied().unwrap_or_default();
            let moved = has_moved.then_some((&mut self.moved, MOVED));
            for (figure, name) in self.gc.iter_mut().zip(GC).chain(moved) {
                let name = magnus::rb_sys::AsRawValue::as_raw(ruby.sym_new(name));
                // SAFETY: a Symbol that Ruby knows.
                *figure = unsafe { (functions.stat)(name) } as u64;
            }
        }
    }

    /// An error is an exception for the thread, as of [`collect_garbage`].
    fn ask_time(&mut self, ruby: &Ruby) -> Result<(), Error> {
        // Not `get_or_init`: a thread that waits for another one there has the GVL, and Ruby may have taken it from that one.
        if HAS_MOVED.get().is_none() {
            let _ = HAS_MOVED.set(ruby.eval(&format!("::GC.stat.key?(:{MOVED})")).unwrap_or_default());
        }
        // What Ruby does not measure is nil or does not exist.
        let gc: Value = ruby.class_object().const_get("GC")?;
        let is_on = gc.respond_to("measure_total_time", false)?
            && gc.funcall::<_, _, bool>("measure_total_time", ())?;
        self.gc_ns = if is_on { gc.funcall("total_time", ()).map(Some)? } else { None };
        Ok(())
    }
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid record.
    unsafe { libc::clock_gettime(id, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Figures of malloc when a measurement began.
pub(super) struct Malloc {
    pub(super) api: &'static HookApi,
    had: Had,
    /// Nothing is followed, because the thread was in an untracked section.
    untracked: bool,
    pub(super) begun: MeasureFigures,
    beginnings: u64,
    modes: u64,
}

impl Malloc {
    /// Begins a measurement of this thread, as the last thing before what is measured. `depth` is that of untracked
    /// sections.
    pub(super) fn begin(api: &'static HookApi, had: Had, depth: u32) -> Result<Self, Status> {
        let mut begun = MeasureFigures::default();
        // SAFETY: a valid record.
        let status = unsafe { (api.measure_begin)(&raw mut begun) };
        if status.0 < 0 {
            return Err(status);
        }
        let (beginnings, modes) = (request::beginnings(), tracking_hold::modes());
        Ok(Self { api, had, untracked: depth > 0, begun, beginnings, modes })
    }
}

/// Why a measurement could not begin.
pub(super) fn refusal(ruby: &Ruby, status: Status) -> Error {
    match status {
        Status::BAD_OPTION => errors::error(ruby, "Error", TOO_MANY),
        other => errors::from_status(ruby, other),
    }
}

/// What was found out of malloc at the end.
#[derive(Default)]
struct Found {
    ended: MeasureFigures,
    sites: HashMap<u32, SiteFigures>,
    retained: [u64; 4],
    status: Option<Status>,
}

/// One call site: allocations and bytes, and those of them that are left.
#[derive(Clone, Copy, Default)]
pub(super) struct SiteFigures {
    pub(super) allocations: u64,
    pub(super) bytes: u64,
    pub(super) retained_blocks: u64,
    pub(super) retained_bytes: u64,
}

#[derive(Default)]
struct State {
    wants_malloc: bool,
    wants_objects: bool,
    most_sites: u32,
    most_bytes: u64,
    /// The thread that it began in, while it is under way.
    thread: Option<libc::pthread_t>,
    malloc: Option<Malloc>,
    objects: Option<objects::Counts>,
    plain: Plain,
}

#[magnus::wrap(class = "Memintro::Native::Measuring", free_immediately)]
struct Measuring(RefCell<State>);

impl Measuring {
    /// Whether to follow malloc, with which limits if nothing is tracked yet, and whether to follow objects.
    fn new(wants_malloc: bool, wants_objects: bool, most_sites: u32, most_bytes: u64) -> Self {
        Self(RefCell::new(State { wants_malloc, wants_objects, most_sites, most_bytes, ..State::default() }))
    }

    /// Turns on what is needed, and reads the figures. What the thread does from here on belongs to the measurement. To
    /// be called between `hide_own` and `show_own`, whose effect it suspends until the end.
    fn begin(ruby: &Ruby, own: &Self) -> Result<(), Error> {
        let mut state = own.0.borrow_mut();
        let state = &mut *state;
        // First: it runs code of Ruby's, amid which other threads may run (and change the mode), or raise in this one.
        state.plain.ask_time(ruby)?;
        let malloc = if state.wants_malloc {
            Some(tracking_hold::take(ruby, state.most_sites, state.most_bytes)?)
        } else {
            None
        };
        if state.wants_objects {
            state.objects = match objects::begin(ruby) {
                Ok(begun) => begun,
                Err(error) => {
                    if let Some((api, _)) = malloc {
                        state.give_up(ruby, api);
                    }
                    return Err(error);
                }
            };
        }
        // SAFETY: asks for the calling thread.
        state.thread = Some(unsafe { libc::pthread_self() });
        state.plain.ask_counters(ruby);
        state.objects = state.objects.map(|_| objects::now());
        let depth = show_own();
        if let Some((api, had)) = malloc {
            match Malloc::begin(api, had, depth) {
                Ok(malloc) => state.malloc = Some(malloc),
                Err(status) => {
                    hide_own();
                    state.give_up(ruby, api);
                    return Err(refusal(ruby, status));
                }
            }
        }
        state.plain.tell_time();
        Ok(())
    }

    /// Reads the figures, and turns off what was turned on. Nil if it has not begun, or has ended. With `collect`, garbage is collected before what is left
    /// is counted. `most` is the number of call sites, by each of two figures.
    fn end(ruby: &Ruby, own: &Self, collect: bool, most: usize) -> Result<Option<RHash>, Error> {
        let mut ended = Plain::default();
        ended.tell_time();
        let mut state = own.0.borrow_mut();
        let Some(thread) = state.thread.take() else { return Ok(None) };
        hide_own();
        let state = &mut *state;
        // SAFETY: asks for the calling thread.
        let is_here = thread == unsafe { libc::pthread_self() };
        let malloc = state.malloc.take().filter(|_| is_here);
        let begun = state.objects.take().filter(|_| is_here);
        let mut found = malloc.as_ref().map(end_of_malloc);
        let counts = begun.map(|_| objects::now());
        ended.ask_counters(ruby);
        let asked = ended.ask_time(ruby);
        let collected = if collect { collect_garbage() } else { Ok(()) };
        if let Some((malloc, found)) = malloc.as_ref().zip(found.as_mut()) {
            rest_of_malloc(malloc, found);
        }
        let left = begun.zip(counts).map(|(begun, ended)| objects::close(&begun, &ended));
        // The call sites are read while the figures are there.
        let rows = match &found {
            Some(found) if found.status.is_none() => site_rows(ruby, &found.sites, most),
            _ => Ok(ruby.ary_new()),
        };
        let had = malloc.as_ref().map(|malloc| malloc.had);
        let is_lost = found.as_ref().is_none_or(|found| found.status.is_some());
        let problem = malloc.as_ref().and_then(|malloc| problem(malloc, is_lost));
        let given_back = malloc.as_ref().map_or(Ok(()), |malloc| tracking_hold::give_back(ruby, malloc.api));
        let answer = ruby.hash_new();
        let set = |name: &str, value: u64| answer.aset(ruby.to_symbol(name), value);
        set("wall_ns", ended.wall_ns.saturating_sub(state.plain.wall_ns))?;
        set("cpu_ns", ended.cpu_ns.saturating_sub(state.plain.cpu_ns))?;
        if measure::functions().is_some() {
            let [minor, major, made, freed] =
                std::array::from_fn(|at| ended.gc[at].saturating_sub(state.plain.gc[at]));
            set("minor_gc_count", minor)?;
            set("major_gc_count", major)?;
            if let (Some(begun), Some(counts), Some(left)) = (begun, counts, left) {
                let seen = counts.made_by_all - begun.made_by_all;
                let moved = ended.moved.saturating_sub(state.plain.moved);
                // A measurement begins only where there is one Ractor, of which Ruby tells each object.
                let (made, freed) =
                    if made == seen + moved { (seen, freed.saturating_sub(moved)) } else { (made, freed) };
                set("objects_allocated", counts.made - begun.made)?;
                set("objects_freed", counts.freed - begun.freed)?;
                set("objects_retained", left.of_thread)?;
                set("process_objects_allocated", made - (counts.hidden_made - begun.hidden_made))?;
                set("process_objects_freed", freed.saturating_sub(counts.hidden_freed - begun.hidden_freed))?;
                set("process_objects_retained", left.of_process)?;
                // Other Ractors make objects that Ruby does not tell of here.
                set("objects_unseen", made.saturating_sub(seen))?;
            }
        }
        if let Some((after, before)) = ended.gc_ns.zip(state.plain.gc_ns) {
            set("gc_time_ns", after.saturating_sub(before))?;
        }
        if let Some(had) = had {
            let name = match had {
                Had::Nothing => "was_on",
                Had::Started => "started",
                Had::Switched => "switched",
            };
            answer.aset(ruby.to_symbol("tracking"), ruby.sym_new(name))?;
        }
        answer.aset(ruby.to_symbol("problem"), problem.map(|name| ruby.sym_new(name)))?;
        if let (None, Some((malloc, found))) = (problem, malloc.as_ref().zip(found.as_ref())) {
            malloc_figures(&malloc.begun, found, set)?;
            answer.aset(ruby.to_symbol("sites"), rows?)?;
        }
        given_back?;
        asked.and(collected)?;
        Ok(Some(answer))
    }
}

const TOO_MANY: &str =
    "more than 64 measurements of this thread are within each other; measure further out, or further in";

impl State {
    /// It cannot begin after all.
    fn give_up(&mut self, ruby: &Ruby, api: &HookApi) {
        self.thread = None;
        if let Some(begun) = self.objects.take() {
            objects::close(&begun, &begun);
        }
        let _ = tracking_hold::give_back(ruby, api);
    }
}

/// The figures of this moment, and what the thread has allocated by call site.
fn end_of_malloc(malloc: &Malloc) -> Found {
    let mut found = Found::default();
    let sites = &mut found.sites;
    let ended = &raw mut found.ended;
    let status = visit_each(
        // SAFETY: valid records; the callback fits, the context outlives the visit.
        |context, call| unsafe { (malloc.api.measure_end)(&raw const malloc.begun, ended, context, call) },
        |site: &MeasuredSite| {
            let sum = sites.entry(site.site).or_default();
            sum.allocations += site.allocations;
            sum.bytes += site.total_bytes;
        },
    );
    found.status = (status.0 < 0).then_some(status);
    found
}

/// What is left of it.
fn rest_of_malloc(malloc: &Malloc, found: &mut Found) {
    let owner = malloc.begun.owner;
    let (sites, retained) = (&mut found.sites, &mut found.retained);
    let status = visit_each(
        // SAFETY: as in `end_of_malloc`.
        |context, call| unsafe {
            (malloc.api.measure_close)(&raw const malloc.begun, &raw const found.ended, context, call)
        },
        |birth: &BirthRecord| {
            retained[2] += 1;
            retained[3] += birth.size;
            if birth.owner == owner {
                retained[0] += 1;
                retained[1] += birth.size;
                let sum = sites.entry(birth.site).or_default();
                sum.retained_blocks += 1;
                sum.retained_bytes += birth.size;
            }
        },
    );
    if status.0 < 0 {
        found.status = Some(status);
    }
}

/// Collects all garbage at once, also where the program has disabled the collector. An error is an exception for the thread
/// as a whole (Timeout, `Thread#raise`, `Thread#kill`) that came meanwhile: Ruby has taken it from the thread's queue, so
/// whoever ignores it loses it, and a killed thread lives on.
pub(super) fn collect_garbage() -> Result<(), Error> {
    let Some(functions) = measure::functions() else { return Ok(()) };
    // SAFETY: sets a flag.
    let was_disabled = unsafe { rb_sys::rb_gc_enable() } == rb_sys::Qtrue as rb_sys::VALUE;
    let collected = magnus::rb_sys::protect(|| {
        // SAFETY: outside of a collection.
        unsafe { (functions.collect)() }
    });
    if was_disabled {
        // SAFETY: as above; ends a collection that is under way.
        unsafe { rb_sys::rb_gc_disable() };
    }
    collected.map(|_| ())
}

/// Why there are no figures of malloc.
pub(super) fn problem(malloc: &Malloc, is_lost: bool) -> Option<&'static str> {
    if malloc.untracked {
        Some("untracked")
    } else if is_lost {
        Some("lost")
    } else if request::beginnings() != malloc.beginnings {
        Some("began_anew")
    } else if tracking_hold::modes() != malloc.modes {
        Some("mode_changed")
    } else {
        None
    }
}

fn malloc_figures(
    begun: &MeasureFigures,
    found: &Found,
    set: impl Fn(&str, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let (ended, left) = (&found.ended, &found.retained);
    set("allocations", ended.thread.allocations.value - begun.thread.allocations.value)?;
    set("allocated_bytes", ended.thread.allocated_bytes - begun.thread.allocated_bytes)?;
    set("frees", ended.thread.frees.value - begun.thread.frees.value)?;
    set("freed_bytes", ended.thread.freed_bytes.value - begun.thread.freed_bytes.value)?;
    set("retained_blocks", left[0])?;
    set("retained_bytes", left[1])?;
    set("process_allocations", ended.process.allocations.value - begun.process.allocations.value)?;
    set(
        "process_allocated_bytes",
        ended.process.allocated_bytes.value - begun.process.allocated_bytes.value,
    )?;
    set("process_frees", ended.process.frees.value - begun.process.frees.value)?;
    set("process_freed_bytes", ended.process.freed_bytes.value - begun.process.freed_bytes.value)?;
    set("process_retained_blocks", left[2])?;
    set("process_retained_bytes", left[3])?;
    let dropped = ended.process.dropped - begun.process.dropped;
    set("dropped", dropped + (ended.lost - begun.lost))
}

/// Rows of kind, name, line and figures: of the sites with most bytes allocated, and of those with most retained.
pub(super) fn site_rows(
    ruby: &Ruby,
    sites: &HashMap<u32, SiteFigures>,
    most: usize,
) -> Result<RArray, Error> {
    let mut wanted: Vec<(u32, SiteFigures)> = sites.iter().map(|(id, figures)| (*id, *figures)).collect();
    if wanted.len() > most {
        wanted.sort_unstable_by_key(|(id, sum)| (std::cmp::Reverse((sum.retained_bytes, sum.bytes)), *id));
        let mut rest = wanted.split_off(most);
        wanted.retain(|(_, sum)| sum.retained_bytes > 0);
        rest.extend_from_slice(&wanted);
        rest.sort_unstable_by_key(|(id, sum)| (std::cmp::Reverse(sum.bytes), *id));
        rest.truncate(most);
        wanted.retain(|(id, _)| !rest.iter().any(|(other, _)| other == id));
        wanted.append(&mut rest);
    }
    let mut records: Vec<SiteRecord> = Vec::with_capacity(wanted.len());
    visit_sites(ruby, |record| {
        if records.len() < records.capacity() && wanted.iter().any(|(id, _)| *id == record.id) {
            records.push(*record);
        }
    })?;
    let rows = ruby.ary_new_capa(records.len());
    let named = sites::of(&records);
    for site in &named.list {
        let record = &site.record;
        let Some((_, sum)) = wanted.iter().find(|(id, _)| *id == record.id) else { continue };
        let row = ruby.ary_new_capa(7);
        row.push(ruby.to_symbol(json::kind(record.kind)))?;
        row.push(frozen_string(ruby, named.text(site)))?;
        row.push(record.line)?;
        for figure in [sum.allocations, sum.bytes, sum.retained_blocks, sum.retained_bytes] {
            row.push(figure)?;
        }
        rows.push(row)?;
    }
    Ok(rows)
}
