//! `Memintro::Native`: the hook's table of functions, method by method, in plain integers and strings.
//!
//! Rule for neighbours: code that visits the table runs during a pause, so it only fills Rust vectors. Ruby objects
//! are made after the visit.

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use magnus::{Error, RArray, RModule, RString, Ruby, Symbol, Value, function, prelude::*};
use memintro_abi::{
    Figures, HookApi, Mode, Origin, SITE_BOOT, SITE_GC, SiteKind, SiteRecord, Status, ThreadFigures,
};

use memintro_analysis::estimates::Totals;

use super::errors;
use super::names;
use super::ractor_safe::ractor_safe;
use super::request;
use super::without_gvl::without_gvl;
use crate::{callers, contents, hook_link, objects, symbols, vm};

static VM_IS_LENT: AtomicBool = AtomicBool::new(false);

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    callers::init(native)?;
    native.define_singleton_method("open_short_cut", function!(vm::open_short_cut, 0))?;
    native.define_singleton_method("hook_path", function!(hook_path, 0))?;
    native.define_singleton_method("note_hook", function!(note_hook, 1))?;
    native.define_singleton_method("load_hook", function!(load_hook, 0))?;
    native.define_singleton_method("tracking?", function!(is_tracking, 0))?;
    native.define_singleton_method("reads_words?", function!(vm::reads_words, 0))?;
    native.define_singleton_method("preloaded?", function!(is_preloaded, 0))?;
    native.define_singleton_method("mode", function!(mode, 0))?;
    native.define_singleton_method("sample_bytes", function!(sample_bytes, 0))?;
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
    native.define_singleton_method("generation", function!(vm::generation, 0))?;
    native.define_singleton_method("refresh", function!(refresh, 0))?;
    native.define_singleton_method("dump", function!(dump, 1))?;
    native.define_singleton_method("dump_at_exit", function!(dump_at_exit, 1))?;
    Ok(())
}

/// The hook, connected to this VM; `Memintro::UnsupportedError` if there is none.
pub(super) fn hook(ruby: &Ruby) -> Result<&'static HookApi, Error> {
    let api = hook_link::load().map_err(|message| errors::error(ruby, "UnsupportedError", message))?;
    if !VM_IS_LENT.swap(true, Ordering::AcqRel) {
        if !vm::prepare() {
            return Ok(api);
        }
        // Evaluated outside of any method, whatever method calls this.
        let _ = ruby.eval::<Value>("TOPLEVEL_BINDING.eval('Memintro::Native.open_short_cut')");
        let Some(source) = vm::source() else { return Ok(api) };
        // SAFETY: the source's functions live as long as this library, which Ruby never unloads.
        unsafe { (api.set_vm)(&raw const source) };
        // The VM's memory is freed after this, but frees go on.
        vm::at_exit(take_vm_back);
        if vm::find_words() {
            without_gvl(vm::check_lock)?;
        }
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

/// Called when this library has been loaded.
fn note_hook(path: String) {
    hook_link::note(path.into());
}

fn load_hook(ruby: &Ruby) -> Result<Symbol, Error> {
    let api = hook(ruby)?;
    // A preloaded program tracks already.
    callers::follow_mode(ruby, api);
    Ok(ruby.to_symbol(if (api.origin)() == Origin::PRELOADED { "preloaded" } else { "loaded" }))
}

pub(super) fn is_tracking() -> bool {
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
    let array = figures_array(ruby, &figures)?;
    array.push(Totals::nothing_sampled(&figures, sample_bytes()))?;
    Ok(array)
}

/// The totals in the order that `Memintro::Totals` expects. Variance and skew of each come last, or nil; of this process
/// also what one sample would have stood for, if there is none.
pub(super) fn figures_array(ruby: &Ruby, figures: &Figures) -> Result<RArray, Error> {
    let array = ruby.ary_from_iter(figures.cells().map(|cell| cell.value));
    let doubts = || figures.cells().into_iter().flat_map(|cell| cell.doubts());
    array.push((figures.estimated != 0).then(|| ruby.ary_from_iter(doubts())))?;
    Ok(array)
}

/// The figures of this thread as `Memintro::ThreadTotals` takes them.
fn thread_totals(ruby: &Ruby) -> Result<RArray, Error> {
    let mut figures = ThreadFigures::default();
    if let Some(api) = hook_link::found() {
        // SAFETY: a valid record.
        unsafe { (api.thread_totals)(&raw mut figures) };
    }
    let estimates = [figures.freed_bytes, figures.allocations, figures.frees];
    let array = ruby.ary_from_iter([figures.allocated_bytes].into_iter().chain(estimates.map(|of| of.value)));
    let doubts = estimates.into_iter().zip(figures.per_sample()).map(|(of, one)| (of.variance, one));
    array.push((figures.estimated != 0).then(|| ruby.ary_from_iter(doubts)))?;
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

/// Visits all call sites at one instant, one by one, while no figure changes; none if there is no hook.
pub(super) fn visit_sites(ruby: &Ruby, each: impl FnMut(&SiteRecord)) -> Result<(), Error> {
    errors::need_room(ruby)?;
    let Some(api) = contents::settled() else { return Ok(()) };
    // SAFETY: the callback fits the record, the context outlives the visit.
    check(ruby, visit_each(|context, call| unsafe { (api.sites)(context, call) }, each))
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

pub(super) fn pseudo_name(id: u32) -> &'static str {
    match id {
        SITE_BOOT => "(boot)",
        SITE_GC => "(gc)",
        _ => "(other)",
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
