//! Native callers: takes the hook's copies of stacks away, finds out which C functions led to each allocation, and keeps
//! count of that for each call site.
//!
//! It runs under the GVL, outside of malloc: when figures are read, and in a postponed job that the hook asks for when its
//! places for copies are half full.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hint::black_box;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use magnus::{Error, RModule, Ruby, Value, function, prelude::*};
use memintro_abi::{CallerSample, HookApi, Mode, ModuleRecord};
use memintro_analysis::raw_dump::RawDump;
use memintro_analysis::report::NativeNames;
use memintro_analysis::sites;
use memintro_native::modules::Modules;
use memintro_native::{CallerFigures, Chain, Loaded, Name, Names, Registers, SiteFigures, Tally, Unwinder};
use parking_lot::Mutex;

use crate::copy::own_memory::has_room;
use crate::lookup::postponing::Postponed;
use crate::vm::machine_stack;
use crate::{hook_link, lookup};

/// The known callers. A thread that finds the lock taken does without them.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// The hook samples them.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The program's choice, one of the three below.
static WANTED: AtomicU32 = AtomicU32::new(NOT_SAID);
const NOT_SAID: u32 = 0;
const NEVER: u32 = 1;
const ALWAYS: u32 = 2;
/// Where the interpreter begins and ends; 0: it is not known.
static INTERPRETER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static POSTPONED: OnceLock<Option<Postponed>> = OnceLock::new();
/// Up to where [`learn`] may read the stack; 0: not at all.
static READABLE_UP_TO: AtomicUsize = AtomicUsize::new(0);

struct Known {
    unwinder: Unwinder,
    tally: Tally,
    names: Names,
}

/// The parts of Ruby that native callers need.
pub(crate) const ALLOCATE: &std::ffi::CStr = c"ruby_xmalloc";

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("learn_interpreter", function!(learn, 0))?;
    native.define_singleton_method("machine_stack_bytes", function!(machine_stack::used_bytes, 0))?;
    native.define_singleton_method("native_callers", function!(set, 1))
}

/// The loader's list, as the hook reads it.
pub(crate) struct Running(pub(crate) &'static HookApi);

impl Loaded for Running {
    fn each(&self, visit: &mut dyn FnMut(&ModuleRecord)) {
        unsafe extern "C" fn call(context: *mut c_void, record: *const ModuleRecord) {
            // SAFETY: the context is the pair below; the record is valid during the visit.
            unsafe { (*context.cast::<&mut dyn FnMut(&ModuleRecord)>())(&*record) };
        }
        let mut visit = visit;
        // SAFETY: the callback fits the context, which outlives the visit.
        unsafe { (self.0.modules)((&raw mut visit).cast(), call) };
    }
}

/// Whether they are wanted: in both modes, not at all, or (nil) as the variable says, else in full mode.
fn set(wanted: Option<bool>) {
    let wanted = match wanted {
        Some(true) => ALWAYS,
        Some(false) => NEVER,
        None => NOT_SAID,
    };
    WANTED.store(wanted, Ordering::Relaxed);
}

/// Those of these call sites for whose blocks Ruby itself asked, as far as samples tell.
pub(crate) fn rubys_sites(sites: Vec<u32>) -> Vec<u32> {
    let (Some(api), Some(mut known)) = (hook_link::found(), KNOWN.try_lock()) else { return Vec::new() };
    let Some(known) = known.as_mut().filter(|_| IS_ON.load(Ordering::Acquire)) else { return Vec::new() };
    untracked(api, || {
        known.drain(api);
        known.keep_live(api);
        sites.into_iter().filter(|site| known.tally.is_rubys(*site)).collect()
    })
}

/// The program's choice, or else that of its variables.
fn wanted() -> u32 {
    match WANTED.load(Ordering::Relaxed) {
        NOT_SAID => {
            match std::env::var_os("MEMINTRO_NATIVE_CALLERS").as_deref().and_then(|text| text.to_str()) {
                Some("0") => NEVER,
                Some("1") => ALWAYS,
                _ => NOT_SAID,
            }
        }
        said => said,
    }
}

/// Begins or ends it as the program wants it in this mode. Unless it says, nothing begins in sampled mode, which is made to
/// take little memory, and of which this would double the part.
pub(crate) fn follow_mode(ruby: &Ruby, api: &'static HookApi) {
    let mode = (api.mode)();
    let is_on = match wanted() {
        NEVER => false,
        ALWAYS => mode != Mode::OFF,
        _ => mode == Mode::FULL || IS_ON.load(Ordering::Relaxed),
    };
    if !is_on {
        if IS_ON.swap(false, Ordering::AcqRel) {
            (api.sample_callers)(false, None, 0, 0);
        }
    } else if !HAS_BEGUN.swap(true, Ordering::AcqRel) {
        untracked(api, || begin(ruby, api));
    } else if !IS_ON.load(Ordering::Relaxed) {
        // Earlier counts do not belong to later ones.
        if let Some(known) = KNOWN.lock().as_mut() {
            known.tally = Tally::default();
        }
        go_on(api);
    }
}

/// Looks for the interpreter, whether callers are sampled or not.
pub(crate) fn know_interpreter(ruby: &Ruby, api: &'static HookApi) {
    if !HAS_BEGUN.swap(true, Ordering::AcqRel) {
        untracked(api, || begin(ruby, api));
        follow_mode(ruby, api);
    }
}

/// Lets the hook sample native callers from now on, if the interpreter is known.
fn go_on(api: &HookApi) {
    let [start, end] = [0, 1].map(|at: usize| INTERPRETER[at].load(Ordering::Relaxed));
    if end != 0 {
        let postponed = POSTPONED.get_or_init(|| Postponed::new(run)).is_some();
        (api.sample_callers)(true, postponed.then_some(ask), start, end);
        IS_ON.store(true, Ordering::Release);
    }
}

/// Looks for this Ruby's interpreter and for the ends of its stacks, once, and begins.
fn begin(ruby: &Ruby, api: &'static HookApi) {
    let passed_over = vec![
        (&raw const *api) as u64,
        begin as fn(&Ruby, &'static HookApi) as *const () as u64,
        libc::dl_iterate_phdr as *const () as u64,
    ];
    let allocate = lookup::address(ALLOCATE) as u64;
    if allocate == 0 || !learns() {
        return;
    }
    // An address in the code, also of the hook, whose table of functions is data.
    let passed_over = passed_over.into_iter().chain([api.take_callers as *const () as u64]).collect();
    let known = Known {
        unwinder: Unwinder::new(allocate, passed_over),
        tally: Tally::default(),
        names: Names::default(),
    };
    *KNOWN.lock() = Some(known);
    let here = 0_u8;
    READABLE_UP_TO.store((&raw const here).addr(), Ordering::Relaxed);
    // The interpreter is on the stack twice: for the text, and for the block that Ruby's own `each` calls.
    let found: Result<bool, Error> =
        ruby.eval("[0].map { Memintro.const_get(:Native).learn_interpreter }[0]");
    READABLE_UP_TO.store(0, Ordering::Relaxed);
    let code = KNOWN.lock().as_mut().and_then(|known| known.unwinder.ruby_code(&Running(api)));
    let (true, Some(code)) = (found.unwrap_or(false), code) else {
        *KNOWN.lock() = None;
        return;
    };
    machine_stack::learn();
    for (place, address) in INTERPRETER.iter().zip([code.start, code.end]) {
        place.store(address as usize, Ordering::Relaxed);
    }
    go_on(api);
}

/// Called inside malloc, by a thread that runs Ruby.
extern "C" fn ask() {
    if let Some(Some(postponed)) = POSTPONED.get() {
        postponed.ask();
    }
}

/// The postponed job.
unsafe extern "C" fn run(_: *mut c_void) {
    // Samples that are not taken are dropped.
    if let Some(api) = hook_link::found()
        && has_room()
    {
        untracked(api, || {
            if let Some(mut known) = KNOWN.try_lock()
                && let Some(known) = known.as_mut()
            {
                known.drain(api);
            }
        });
    }
}

/// Where the interpreter is, if that is known.
pub(crate) fn interpreter() -> Vec<std::ops::Range<u64>> {
    KNOWN.lock().as_ref().map(|known| known.unwinder.interpreter().to_vec()).unwrap_or_default()
}

pub(crate) fn untracked<R>(api: &HookApi, action: impl FnOnce() -> R) -> R {
    (api.untracked_enter)();
    let result = action();
    (api.untracked_leave)();
    result
}

#[cfg(target_arch = "x86_64")]
fn learns() -> bool {
    true
}

#[cfg(not(target_arch = "x86_64"))]
fn learns() -> bool {
    false
}

/// Finds the interpreter on the present stack. `false` if it is not there, or if it was not asked for.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn learn() -> bool {
    let end = READABLE_UP_TO.load(Ordering::Relaxed) as u64;
    let (Some(api), true) = (hook_link::found(), end != 0) else { return false };
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: reads registers.
    unsafe {
        std::arch::asm!(
            "lea {ip}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp",
            ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp, options(nostack, preserves_flags),
        );
    }
    let read = |address: u64| {
        let is_inside = address >= sp && address < end.saturating_sub(8) && address.is_multiple_of(8);
        // SAFETY: between this frame and that of `begin`, which called this, the stack is the calling thread's own.
        is_inside.then(|| unsafe { (address as *const u64).read_volatile() })
    };
    let mut known = KNOWN.lock();
    known.as_mut().is_some_and(|known| known.unwinder.learn(Registers { ip, sp, bp }, read, &Running(api)))
}

#[cfg(not(target_arch = "x86_64"))]
fn learn() -> bool {
    false
}

impl Known {
    /// Takes the copies away, and counts what they say. A copy has addresses of blocks, and would leave them in memory that
    /// is used for something else then, where a search for leaks takes them for pointers. So each has a block of its own,
    /// which is never copied again, and is wiped.
    fn drain(&mut self, api: &'static HookApi) {
        unsafe extern "C" fn push(context: *mut c_void, sample: *const CallerSample) {
            // SAFETY: the context is the vector below; the sample is valid during the visit.
            let (samples, sample) = unsafe { (&mut *context.cast::<Vec<Box<[CallerSample]>>>(), &*sample) };
            samples.push(Box::from(slice::from_ref(sample)));
        }
        let mut samples: Vec<Box<[CallerSample]>> = Vec::new();
        // SAFETY: the callback fits the context, which outlives the visit.
        let epoch = unsafe { (api.take_callers)((&raw mut samples).cast(), push) };
        self.tally.begin(epoch);
        if samples.is_empty() {
            return;
        }
        self.unwinder.refresh(&Running(api));
        for sample in samples.iter_mut().flatten() {
            let chain = self.unwinder.chain(sample, &Running(api));
            self.tally.add(sample, chain);
            sample.block = 0;
            sample.stack.fill(0);
            // Otherwise the compiler may leave out what is not read.
            black_box(sample);
        }
        if self.tally.is_full() {
            self.keep_live(api);
        }
    }

    fn keep_live(&mut self, api: &HookApi) {
        self.tally.keep_live(|block, serial| (api.is_live)(block, serial));
    }
}

/// The native callers of all sites at this moment, with names.
#[derive(Default)]
pub(crate) struct Callers {
    sites: HashMap<u32, SiteFigures>,
}

/// A native caller with the names of its frames, the innermost first; none: all others.
pub(crate) struct Named<'a> {
    pub(crate) figures: &'a CallerFigures,
    pub(crate) names: Vec<Name>,
}

impl Callers {
    /// Reads them. To be called under the GVL, and not while the hook visits anything.
    pub(crate) fn now() -> Self {
        if !IS_ON.load(Ordering::Acquire) {
            return Self::default();
        }
        let (Some(api), Some(mut known)) = (hook_link::found(), KNOWN.try_lock()) else {
            return Self::default();
        };
        let Some(known) = known.as_mut() else { return Self::default() };
        untracked(api, || {
            known.drain(api);
            known.keep_live(api);
            Self { sites: known.tally.figures() }
        })
    }

    /// Those of a site, with the names of their frames.
    pub(crate) fn callers_of(&self, site: u32) -> Option<(&SiteFigures, Vec<Named<'_>>)> {
        let figures = self.sites.get(&site)?;
        let mut known = KNOWN.try_lock()?;
        let known = known.as_mut()?;
        let modules = known.unwinder.modules();
        let named = |figures: &'_ CallerFigures| known.names.look_up(&figures.places, modules);
        let mut named = named;
        Some((
            figures,
            figures.callers.iter().map(|figures| Named { names: named(figures), figures }).collect(),
        ))
    }
}

/// File and line of C of the innermost frame.
pub(crate) fn location(names: &[Name]) -> Option<String> {
    let (file, line) = names.first()?.line.as_ref()?;
    Some(format!("{file}:{line}"))
}

/// A site's native callers as Ruby has them in a row: samples, live samples, and the callers with the names of their
/// frames, the line of C of the innermost one, samples, live samples, share, and share of what is live.
pub(crate) fn cell(ruby: &Ruby, callers: &sites::Callers) -> Result<Value, Error> {
    let text = |text: &str| {
        let text = ruby.str_new(text);
        text.freeze();
        text
    };
    let list = ruby.ary_new_capa(callers.list.len());
    for one in &callers.list {
        let names = ruby.ary_from_iter(one.frames.iter().map(|name| text(name)));
        names.freeze();
        let row = ruby.ary_new_capa(6);
        row.push(names)?;
        row.push(one.location.as_deref().map(text))?;
        row.push(one.samples)?;
        row.push(one.live_samples)?;
        row.push(one.share)?;
        row.push(one.live_share)?;
        row.freeze();
        list.push(row)?;
    }
    list.freeze();
    let cell = ruby.ary_new_capa(3);
    cell.push(callers.samples)?;
    cell.push(callers.live_samples)?;
    cell.push(list)?;
    cell.freeze();
    Ok(cell.as_value())
}

/// The names of the frames that led to the native sites of a dump, the innermost first, by number of the site.
pub(crate) fn of_dump(dump: &RawDump<'_>) -> HashMap<u32, NativeNames> {
    if dump.native_stacks.is_empty() {
        return HashMap::new();
    }
    let mut unwinder = Unwinder::of_ended(Modules::of_maps(dump.maps));
    let mut names = Names::default();
    let mut found = HashMap::new();
    for stack in &dump.native_stacks {
        let read = |address: u64| {
            let at = address.checked_sub(stack.sp)?;
            let index = stack.words.binary_search_by_key(&at, |(at, _)| *at).ok()?;
            stack.words.get(index).map(|(_, word)| *word)
        };
        let of = Registers { ip: stack.ip, sp: stack.sp, bp: stack.bp };
        if let Chain::Native(places) = unwinder.chain_of_ended(of, read) {
            let named = names.look_up(&places, unwinder.modules());
            let frames = named.iter().map(|name| name.text.clone()).collect();
            found.insert(stack.site, NativeNames { frames, location: location(&named) });
        }
    }
    found
}
