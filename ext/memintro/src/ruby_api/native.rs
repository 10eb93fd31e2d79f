//! `Memintro::Native`: the hook's table of functions, method by method, in plain integers and strings.
//!
//! Rule for neighbours: code that visits the table runs during a pause, so it only fills Rust vectors. Ruby objects
//! are made after the visit.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use magnus::{Error, RArray, RModule, RString, Ruby, Symbol, Value, function, prelude::*};
use memintro_abi::{
    BlockFigures, Figures, HookApi, Mode, ObjectFigures, Origin, SITE_BOOT, SITE_GC, SiteKind, SiteRecord,
    Status, ThreadFigures, Unit,
};

use super::errors;
use super::names;
use super::ractor_safe::ractor_safe;
use super::request;
use super::without_gvl::without_gvl;
use crate::callers::Callers;
use crate::{callers, contents, hook_link, objects, symbols, vm};

static VM_IS_LENT: AtomicBool = AtomicBool::new(false);

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    callers::init(native)?;
    native.define_singleton_method("open_short_cut", function!(vm::open_short_cut, 0))?;
    native.define_singleton_method("hook_path", function!(hook_path, 0))?;
    native.define_singleton_method("load_hook", function!(load_hook, 0))?;
    native.define_singleton_method("give_pages_back", function!(give_pages_back, 0))?;
    native.define_singleton_method("tracking?", function!(is_tracking, 0))?;
    native.define_singleton_method("reads_words?", function!(vm::reads_words, 0))?;
    native.define_singleton_method("preloaded?", function!(is_preloaded, 0))?;
    native.define_singleton_method("mode", function!(mode, 0))?;
    native.define_singleton_method("sample_bytes", function!(sample_bytes, 0))?;
    // Here, because each report asks it: see together.ld.
    native.define_singleton_method("tracks_objects", function!(objects::is_on, 0))?;
    ractor_safe(|| {
        native.define_singleton_method("untracked_enter", function!(untracked_enter, 0))?;
        native.define_singleton_method("untracked_leave", function!(untracked_leave, 0))
    })?;
    native.define_singleton_method("mark", function!(mark, 0))?;
    native.define_singleton_method("clear", function!(clear, 0))?;
    native.define_singleton_method("reset", function!(reset, 0))?;
    native.define_singleton_method("totals", function!(totals, 0))?;
    native.define_singleton_method("thread_totals", function!(thread_totals, 0))?;
    native.const_set("SITE_COLUMNS", ruby.ary_from_iter(site_columns().map(|name| ruby.to_symbol(name))))?;
    native.define_singleton_method("sites", function!(sites, 0))?;
    native.define_singleton_method("generation", function!(generation, 0))?;
    native.define_singleton_method("refresh", function!(refresh, 0))?;
    native.define_singleton_method("dump", function!(dump, 1))?;
    native.define_singleton_method("dump_at_exit", function!(dump_at_exit, 1))?;
    Ok(())
}

/// The hook, connected to this VM; `Memintro::UnsupportedError` if there is none.
pub(super) fn hook(ruby: &Ruby) -> Result<&'static HookApi, Error> {
    let api = hook_link::load().map_err(|message| errors::error(ruby, "UnsupportedError", message))?;
    if !VM_IS_LENT.swap(true, Ordering::AcqRel) {
        // Each part needs code of its own, once.
        let give_back = || crate::pages::give_back_with((&raw const *api).cast());
        give_back();
        if !vm::prepare() {
            return Ok(api);
        }
        give_back();
        // Evaluated outside of any method, whatever method calls this.
        let _ = ruby.eval::<Value>("TOPLEVEL_BINDING.eval('Memintro::Native.open_short_cut')");
        let Some(source) = vm::source() else { return Ok(api) };
        // SAFETY: the source's functions live as long as this library, which Ruby never unloads.
        unsafe { (api.set_vm)(&raw const source) };
        // The VM's memory is freed after this, but frees go on.
        vm::at_exit(take_vm_back);
        give_back();
        let checked = if vm::find_words() { without_gvl(vm::check_lock) } else { Ok(()) };
        give_back();
        checked?;
    }
    vm::tell_evacuations();
    Ok(api)
}

unsafe extern "C" fn take_vm_back(_vm: *mut rb_sys::ruby_vm_t) {
    if let Some(api) = hook_link::found() {
        // SAFETY: null takes the functions back.
        unsafe { (api.set_vm)(std::ptr::null()) };
    }
}

pub(super) fn check(ruby: &Ruby, status: Status) -> Result<(), Error> {
    if status.0 >= 0 { Ok(()) } else { Err(errors::from_status(ruby, status)) }
}

fn hook_path(ruby: &Ruby) -> Option<RString> {
    hook_link::path().map(|path| names::string(ruby, path.as_os_str().as_encoded_bytes()))
}

fn load_hook(ruby: &Ruby) -> Result<Symbol, Error> {
    let api = hook(ruby)?;
    // A preloaded program tracks already.
    callers::follow_mode(ruby, api);
    Ok(ruby.to_symbol(if (api.origin)() == Origin::PRELOADED { "preloaded" } else { "loaded" }))
}

/// See [`crate::pages`].
pub(super) fn give_pages_back() {
    if let Some(api) = hook_link::found() {
        crate::pages::give_back_with((&raw const *api).cast());
    }
}

/// See [`crate::pages::apart`].
pub(super) fn with_pages_apart<R>(work: impl FnOnce() -> R) -> R {
    match hook_link::found() {
        Some(api) => crate::pages::apart((&raw const *api).cast(), work),
        None => work(),
    }
}

fn is_tracking() -> bool {
    hook_link::found().is_some_and(|api| (api.mode)() != Mode::OFF)
}

fn is_preloaded() -> bool {
    hook_link::found().is_some_and(|api| (api.origin)() == Origin::PRELOADED)
}

fn mode(ruby: &Ruby) -> Symbol {
    let mode = hook_link::found().map_or(Mode::OFF, |api| (api.mode)());
    ruby.to_symbol(match mode {
        Mode::OFF => "off",
        Mode::SAMPLED => "sampled",
        _ => "full",
    })
}

fn sample_bytes() -> u64 {
    hook_link::found().map_or(0, |api| (api.sample_bytes)())
}

fn untracked_enter() -> u32 {
    hook_link::found().map_or(0, |api| (api.untracked_enter)())
}

fn untracked_leave() -> u32 {
    hook_link::found().map_or(0, |api| (api.untracked_leave)())
}

fn mark(ruby: &Ruby) -> Result<(), Error> {
    contents::settled().map_or(Ok(()), |api| check(ruby, (api.mark)()))
}

fn clear(ruby: &Ruby) -> Result<(), Error> {
    request::figures_begin_anew();
    hook_link::found().map_or(Ok(()), |api| check(ruby, (api.clear)()))
}

fn reset(ruby: &Ruby) -> Result<(), Error> {
    request::figures_begin_anew();
    contents::settled().map_or(Ok(()), |api| check(ruby, (api.reset)()))
}

fn totals(ruby: &Ruby) -> Result<RArray, Error> {
    let mut figures = Figures::default();
    if let Some(api) = hook_link::found() {
        // SAFETY: a valid record.
        unsafe { (api.totals)(&raw mut figures) };
    }
    figures_array(ruby, &figures)
}

/// The totals in the order that `Memintro::Totals` expects. The variances and skews, or nil, come last.
pub(super) fn figures_array(ruby: &Ruby, figures: &Figures) -> Result<RArray, Error> {
    let array = ruby.ary_from_iter(figures.values());
    array.push((figures.estimated != 0).then(|| ruby.ary_from_iter(figures.doubts())))?;
    Ok(array)
}

/// The last cell of a call site's row, or nil: the variances of sums of blocks and bytes, of growth, of sums of ages; the
/// covariance of ages with frees; the skews of the first.
fn variances_array(ruby: &Ruby, blocks: &BlockFigures) -> Option<RArray> {
    (blocks.estimated != 0).then(|| {
        let sums = || blocks.sums().into_iter().zip(BlockFigures::SUM_UNITS);
        let skewed = || sums().filter(|(_, unit)| *unit != Unit::Ages).map(|(of, _)| of);
        let ages = sums().filter(|(_, unit)| *unit == Unit::Ages).map(|(of, _)| of.variance);
        let array = ruby.ary_from_iter(skewed().map(|of| of.variance));
        for more in [blocks.marked_bytes.variance].into_iter().chain(ages).chain([blocks.age_covariance]) {
            let _ = array.push(more);
        }
        for of in skewed() {
            let _ = array.push(of.skew);
        }
        array
    })
}

fn thread_totals(ruby: &Ruby) -> Result<RArray, Error> {
    let mut figures = ThreadFigures::default();
    if let Some(api) = hook_link::found() {
        // SAFETY: a valid record.
        unsafe { (api.thread_totals)(&raw mut figures) };
    }
    let array = ruby.ary_from_iter([
        figures.allocated_bytes,
        figures.freed_bytes,
        figures.allocations,
        figures.frees,
    ]);
    array.push((figures.estimated != 0).then(|| {
        ruby.ary_from_iter([
            figures.freed_bytes_variance,
            figures.allocations_variance,
            figures.frees_variance,
            figures.freed_bytes_per_sample,
            figures.allocations_per_sample,
            figures.frees_per_sample,
        ])
    }))?;
    Ok(array)
}

/// Collects through the C callback of the hook.
pub(super) fn visit<T: Copy>(
    ruby: &Ruby,
    run: impl FnOnce(*mut c_void, memintro_abi::Visitor<T>) -> Status,
) -> Result<Vec<T>, Error> {
    errors::need_room(ruby)?;
    let mut records: Vec<T> = Vec::new();
    check(ruby, visit_each(run, |record| records.push(*record)))?;
    Ok(records)
}

/// Visits with a closure through the C callback of the hook.
pub(super) fn visit_each<T, F: FnMut(&T)>(
    run: impl FnOnce(*mut c_void, memintro_abi::Visitor<T>) -> Status,
    mut each: F,
) -> Status {
    unsafe extern "C" fn call<T, F: FnMut(&T)>(context: *mut c_void, record: *const T) {
        // SAFETY: the context is the closure below, the record is valid during the visit.
        unsafe { (*context.cast::<F>())(&*record) };
    }
    run((&raw mut each).cast(), call::<T, F>)
}

fn sites(ruby: &Ruby) -> Result<RArray, Error> {
    let array = ruby.ary_new();
    let mut paths = Paths::new(ruby);
    let records = site_records(ruby)?;
    let callers = Callers::now();
    for record in &records {
        array.push(site_row(ruby, record, &mut paths, &callers)?)?;
    }
    Ok(array)
}

/// All call sites at one instant; none if there is no hook.
fn site_records(ruby: &Ruby) -> Result<Vec<SiteRecord>, Error> {
    let mut records = Vec::new();
    visit_sites(ruby, |record| records.push(*record))?;
    Ok(records)
}

/// The same, one by one, while no figure changes.
pub(super) fn visit_sites(ruby: &Ruby, each: impl FnMut(&SiteRecord)) -> Result<(), Error> {
    errors::need_room(ruby)?;
    let Some(api) = contents::settled() else { return Ok(()) };
    // SAFETY: the callback fits the record, the context outlives the visit.
    check(ruby, visit_each(|context, call| unsafe { (api.sites)(context, call) }, each))
}

/// A frozen String for each path, made once, because a file has many lines.
pub(super) struct Paths {
    /// A Ruby array, so that the collector sees the strings and may move them.
    strings: RArray,
    /// The index in the array, by the interner's address and length.
    places: HashMap<(usize, u32), isize>,
}

impl Paths {
    pub(super) fn new(ruby: &Ruby) -> Paths {
        Paths { strings: ruby.ary_new(), places: HashMap::new() }
    }

    fn string(&mut self, ruby: &Ruby, record: &SiteRecord) -> Result<RString, Error> {
        let key = (record.path.addr(), record.path_len);
        if let Some(place) = self.places.get(&key) {
            return self.strings.entry(*place);
        }
        // SAFETY: the interner keeps the path until a clear or start, which need the GVL that we hold.
        let path = unsafe { std::slice::from_raw_parts(record.path, record.path_len as usize) };
        let string = names::string(ruby, path);
        string.freeze();
        self.places.insert(key, self.strings.len().cast_signed());
        self.strings.push(string)?;
        Ok(string)
    }
}

/// The whole name of a call site. The caller holds the GVL.
pub(super) fn site_name(record: &SiteRecord) -> Vec<u8> {
    match record.kind {
        SiteKind::RUBY => {
            // SAFETY: the interner keeps the path until a clear or start, which need the GVL.
            let path = unsafe { std::slice::from_raw_parts(record.path, record.path_len as usize) };
            [path, format!(":{}", record.line).as_bytes()].concat()
        }
        SiteKind::NATIVE => symbols::name(record).into_bytes(),
        _ => pseudo_name(record.id).as_bytes().to_vec(),
    }
}

/// The columns of a row, as `lib/memintro/malloc/site_row.rb` names them.
pub(super) fn site_columns() -> impl Iterator<Item = &'static str> {
    let cells = ["variances", "old", "objects", "native_callers"];
    ["id", "kind", "name", "lineno"].into_iter().chain(BlockFigures::VALUES).chain(cells)
}

pub(super) fn site_row(
    ruby: &Ruby,
    record: &SiteRecord,
    paths: &mut Paths,
    callers: &Callers,
) -> Result<RArray, Error> {
    let (kind, name) = match record.kind {
        SiteKind::RUBY => ("ruby", paths.string(ruby, record)?),
        SiteKind::NATIVE => ("native", names::string(ruby, symbols::name(record).as_bytes())),
        _ => ("pseudo", names::string(ruby, pseudo_name(record.id).as_bytes())),
    };
    let row = ruby.ary_new_capa(site_columns().count());
    row.push(record.id)?;
    row.push(ruby.to_symbol(kind))?;
    row.push(name)?;
    row.push(record.line)?;
    push_blocks(ruby, row, &record.blocks)?;
    row.push(old_blocks(ruby, record)?)?;
    row.push(object_figures(ruby, &record.objects)?)?;
    row.push(callers::cell(ruby, callers, record.id)?)?;
    Ok(row)
}

/// As `SiteRow` names them; nil if the site has made no object that was tracked.
pub(super) fn object_figures(ruby: &Ruby, objects: &ObjectFigures) -> Result<Option<RArray>, Error> {
    if *objects == ObjectFigures::default() {
        return Ok(None);
    }
    let row = ruby.ary_from_iter(objects.values());
    if objects.estimated != 0 {
        for doubt in objects.doubts() {
            row.push(doubt)?;
        }
    }
    Ok(Some(row))
}

/// The figures of blocks, and their variances.
pub(super) fn push_blocks(ruby: &Ruby, row: RArray, blocks: &BlockFigures) -> Result<(), Error> {
    for figure in blocks.values() {
        // Bytes that were live at a mark are negative if the mark came after `Mwrap.reset`.
        row.push(figure.cast_signed())?;
    }
    row.push(variances_array(ruby, blocks))
}

/// As a row of `live_by_site(1)`, but at the same instant as all other figures.
fn old_blocks(ruby: &Ruby, record: &SiteRecord) -> Result<RArray, Error> {
    let row = ruby.ary_new_capa(6);
    row.push(record.old_bytes.value)?;
    row.push(record.old_blocks.value)?;
    if record.blocks.estimated != 0 {
        let (bytes, blocks) = (record.old_bytes, record.old_blocks);
        for doubt in [bytes.variance, blocks.variance, bytes.skew, blocks.skew] {
            row.push(doubt.max(0.0))?;
        }
    }
    Ok(row)
}

pub(super) fn pseudo_name(id: u32) -> &'static str {
    match id {
        SITE_BOOT => "(boot)",
        SITE_GC => "(gc)",
        _ => "(other)",
    }
}

fn generation(ruby: &Ruby) -> Result<usize, Error> {
    match vm::gc_count() {
        Some(count) => Ok(count),
        None => ruby.class_object().const_get::<_, RModule>("GC")?.funcall("count", ()),
    }
}

fn refresh(ruby: &Ruby) -> Result<(), Error> {
    hook_link::found().map_or(Ok(()), |api| check(ruby, (api.refresh)()))
}

fn c_path(ruby: &Ruby, path: RString) -> Result<CString, Error> {
    // SAFETY: copied at once.
    CString::new(unsafe { path.as_slice() }.to_vec())
        .map_err(|_| Error::new(ruby.exception_arg_error(), "the path has a NUL byte in it"))
}

fn dump(ruby: &Ruby, path: RString) -> Result<(), Error> {
    let path = c_path(ruby, path)?;
    let api = hook(ruby)?;
    contents::settle(api);
    // SAFETY: a terminated path.
    check(ruby, unsafe { (api.dump)(path.as_ptr()) })
}

fn dump_at_exit(ruby: &Ruby, path: Value) -> Result<(), Error> {
    let api = hook(ruby)?;
    let path = Option::<RString>::try_convert(path)?.map(|path| c_path(ruby, path)).transpose()?;
    let pointer = path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
    // SAFETY: a terminated path or null; the hook copies it.
    check(ruby, unsafe { (api.dump_at_exit)(pointer) })
}
