//! The table of functions that the hook offers to readers of its figures.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use memintro_abi::{
    BlockFigures, BlockRecord, ContentsOf, EACH_SITE, Figures, Frame, HookApi, Judge, Mode, ObjectFigures,
    Origin, OwnRange, PageOf, PatchEntry, SITE_ALONE, START_SETTINGS, SiteRecord, StartOptions, Status,
    ThreadFigures, Visitor, VmSource,
};
use memintro_tracker::estimate;
use memintro_tracker::sites::Site;
use memintro_tracker::table::Removed;
use memintro_tracker::{ranges, stack};

use crate::figures::{self, is_used};
use crate::object_samples::{self, OBJECT_SAMPLES};
use crate::sampling::{self, SAMPLES};
use crate::shared::{self, SITES, TABLE, THREADS};
use crate::{
    callers, contents, dump, exit, functions, in_band, lost, measure, object_birth, objects, other_process,
    patch, stacks, start, state, thread,
};

/// The table. A reader compares `version` and `size` before anything else.
#[unsafe(no_mangle)]
pub(crate) static memintro_hook_api: HookApi = HookApi {
    version: memintro_abi::VERSION,
    size: size_of::<HookApi>() as u32,
    origin,
    mode,
    start,
    stop,
    set_vm,
    untracked_enter,
    untracked_leave,
    mark,
    clear,
    reset,
    totals,
    thread_totals,
    sites,
    blocks,
    refresh,
    patches,
    allocator,
    dump: dump_to,
    dump_at_exit,
    track_objects,
    object_made,
    object_freed,
    object_moved,
    objects_marked,
    objects: each_object,
    sample_bytes,
    options,
    measure_begin: measure::begin,
    measure_end: measure::end,
    measure_close: measure::close,
    stacks: each_stack,
    stack_frame: stacks::frame,
    own_memory,
    sample_objects,
    object_drawn,
    object_distance,
    at_one_instant,
    sample_callers: callers::want,
    take_callers: callers::take,
    is_live: callers::is_live,
    modules: callers::modules,
    other_process: other_process::visit,
    object_words: object_birth::lend,
    object_event: object_birth::event,
    contents_to_lines,
};

/// Touches stack pages before anything is locked. The pages cover what the loader and a visitor need, so no stack
/// overflow can leave a lock taken.
fn reach_down() {
    stack::touch_pages::<3>();
}

extern "C" fn sample_bytes() -> u64 {
    sampling::mean()
}

unsafe extern "C" fn options(answer: *mut StartOptions) {
    // SAFETY: the caller's own record.
    unsafe { answer.write(state::options()) };
}

extern "C" fn origin() -> Origin {
    state::origin()
}

extern "C" fn mode() -> Mode {
    shared::mode()
}

unsafe extern "C" fn start(options: *const StartOptions) -> Status {
    reach_down();
    // SAFETY: the caller's options, or null for the defaults.
    let options = unsafe { options.as_ref() };
    let defaults = StartOptions::new(Mode::FULL, [0; START_SETTINGS.len()]);
    start::start(options.unwrap_or(&defaults))
}

extern "C" fn stop() -> Status {
    reach_down();
    start::stop()
}

unsafe extern "C" fn set_vm(source: *const VmSource) -> Status {
    reach_down();
    // It may have been loaded after a start.
    in_band::find_ruby();
    // SAFETY: the caller's functions, or null.
    state::set_vm(unsafe { source.as_ref() }.copied())
}

extern "C" fn untracked_enter() -> u32 {
    change_untracked(|depth| depth.saturating_add(1))
}

extern "C" fn untracked_leave() -> u32 {
    change_untracked(|depth| depth.saturating_sub(1))
}

fn change_untracked(change: impl FnOnce(u32) -> u32) -> u32 {
    thread::own().map_or(0, |own| {
        let depth = change(own.untracked.get());
        if depth > 0 {
            sampling::suspend(&own);
        }
        own.untracked.set(depth);
        sampling::resume(&own);
        depth
    })
}

extern "C" fn mark() -> Status {
    reach_down();
    state::done(state::paused(|_| {
        shared::flush();
        lost::take_out();
        SITES.mark();
        SAMPLES.mark();
        OBJECT_SAMPLES.mark();
    }))
}

extern "C" fn clear() -> Status {
    reach_down();
    match state::paused(|_| state::empty_again()) {
        Some(false) => Status::NO_MEMORY,
        other => state::done(other),
    }
}

extern "C" fn reset() -> Status {
    reach_down();
    state::done(state::paused(|_| state::reset_counters()))
}

unsafe extern "C" fn totals(answer: *mut Figures) {
    if let Some(own) = thread::kept() {
        THREADS.catch_up(own);
    }
    // SAFETY: the caller's own record.
    unsafe { answer.write(figures::of_process()) };
}

unsafe extern "C" fn thread_totals(answer: *mut ThreadFigures) {
    let figures = thread::own().map_or_else(ThreadFigures::default, |own| {
        THREADS.catch_up(&own);
        figures::of_thread(&own)
    });
    // SAFETY: the caller's own record.
    unsafe { answer.write(figures) };
}

unsafe extern "C" fn sites(context: *mut c_void, visit: Visitor<SiteRecord>) -> Status {
    each_site(&mut |id, site, now, walk| {
        if site.is_stack() {
            return;
        }
        let mut parts = SITES.with_stacks(id).filter(|(id, site)| is_used(*id, *site));
        let Some((first, part)) = parts.next() else { return };
        let mut sum = site_record(first, part, now, walk);
        (sum.id, sum.stack) = (id, 0);
        for (id, part) in parts {
            sum.add(&site_record(id, part, now, walk));
        }
        // SAFETY: the caller's own callback and context.
        unsafe { visit(context, &raw const sum) };
    })
}

unsafe extern "C" fn each_stack(context: *mut c_void, visit: Visitor<SiteRecord>) -> Status {
    each_site(&mut |id, site, now, walk| {
        if is_used(id, site) {
            // SAFETY: the caller's own callback and context.
            unsafe { visit(context, &site_record(id, site, now, walk)) };
        }
    })
}

/// Visits all sites at one instant, with the generation and the number of the walk over modules.
fn each_site(visit: &mut dyn FnMut(u32, Site<'_>, u32, u32)) -> Status {
    reach_down();
    static WALKS: AtomicU32 = AtomicU32::new(0);
    let modules = patch::LoadedModules::now();
    state::done(state::paused(|_| {
        let walk = WALKS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        modules.each(|path, build, base| SITES.note_loaded(walk, path, build, base));
        shared::flush();
        lost::take_out();
        let now = shared::generation();
        for id in 0..SITES.count() {
            if let Some(site) = SITES.get(id) {
                visit(id, site, now, walk);
            }
        }
    }))
}

fn site_record(id: u32, site: Site<'_>, now: u32, walk: u32) -> SiteRecord {
    let (path, path_len) = site.path();
    // If a module is no longer loaded, another one may be at the address.
    let (address, module_build) = match SITES.loaded(site, walk) {
        Some(module) => (module.base.map_or(0, |base| base.wrapping_add(site.offset())), module.build),
        None => (site.address(), 0),
    };
    let young = figures::young(id, site, now);
    let (mut blocks, mut of_objects) = (BlockFigures::default(), ObjectFigures::default());
    figures::add_site(&mut blocks, id, site);
    objects::add(&mut of_objects, id, now);
    SiteRecord {
        id,
        kind: figures::kind(site),
        path,
        path_len,
        line: site.line(),
        address,
        module_offset: if path.is_null() { 0 } else { site.offset() },
        module_build,
        blocks,
        old_blocks: estimate::old(&blocks.allocations, &blocks.frees, &young.blocks),
        old_bytes: estimate::old(&blocks.total_bytes, &blocks.freed_bytes, &young.bytes),
        objects: of_objects,
        stack: u64::from(site.node()),
    }
}

/// Whether a block of this site is of that one: all of them, a line with all its stacks, one without them, or a stack.
fn is_of(site: u32, wanted: u32) -> bool {
    match wanted {
        u32::MAX | EACH_SITE => true,
        _ if wanted & SITE_ALONE != 0 => site == wanted & !SITE_ALONE,
        _ => site == wanted || SITES.leaf_of(site) == wanted,
    }
}

/// The site to show for a block in an answer that lists the blocks of `wanted`.
fn shown_site(site: u32, wanted: u32) -> u32 {
    match wanted {
        u32::MAX => SITES.leaf_of(site),
        EACH_SITE => site,
        _ => wanted,
    }
}

unsafe extern "C" fn blocks(
    site: u32,
    min_age: u32,
    context: *mut c_void,
    visit: Visitor<BlockRecord>,
) -> Status {
    reach_down();
    let now = shared::generation();
    let is_all = state::paused_anywhere(|_| {
        lost::take_out();
        let mut each = |address: usize, block: Removed| {
            if is_of(block.site, site) && block.age >= min_age {
                let record = BlockRecord {
                    address: address as u64,
                    size: block.size,
                    site: shown_site(block.site, site),
                    age: block.age,
                    weight: 1.0,
                };
                // SAFETY: the caller's own callback and context.
                unsafe { visit(context, &raw const record) };
            }
        };
        TABLE.for_each(now, &mut each);
        let is_all = in_band::for_each(now, &mut each);
        SAMPLES.for_each(&mut |address, block| {
            let age = block.age(now);
            if is_of(block.site, site) && age >= min_age {
                let record = BlockRecord {
                    address: address as u64,
                    size: block.size,
                    site: shown_site(block.site, site),
                    age,
                    weight: block.share().weight(),
                };
                // SAFETY: the caller's own callback and context.
                unsafe { visit(context, &raw const record) };
            }
        });
        if shared::is_copy() {
            in_band::each_given_up(&mut |address, size| {
                let (address, site) = (address as u64, shown_site(memintro_abi::SITE_OTHER, site));
                let record = BlockRecord { address, size, site, age: 0, weight: 0.0 };
                // SAFETY: the caller's own callback and context.
                unsafe { visit(context, &raw const record) };
            });
        }
        is_all
    });
    if is_all == Some(false) { Status::UNREADABLE } else { state::done(is_all) }
}

extern "C" fn track_objects(on: bool) -> Status {
    reach_down();
    objects::track(on, 0)
}

extern "C" fn sample_objects(mean: u64) -> Status {
    reach_down();
    objects::track(true, mean)
}

extern "C" fn object_drawn(slot: usize, bytes: usize) -> u64 {
    objects::drawn(slot, bytes)
}

extern "C" fn object_distance() -> u64 {
    object_samples::distance()
}

unsafe extern "C" fn at_one_instant(
    context: *mut c_void,
    run: unsafe extern "C" fn(context: *mut c_void),
) -> Status {
    reach_down();
    // SAFETY: the caller's own callback and context.
    state::done(state::paused(|_| unsafe { run(context) }))
}

unsafe extern "C" fn object_made(slot: usize, bytes: usize, frame: *mut Frame) {
    // SAFETY: the caller's own record.
    objects::made(slot, bytes, unsafe { &mut *frame });
}

extern "C" fn object_freed(slot: usize) {
    objects::freed(slot);
}

extern "C" fn object_moved(from: usize, to: usize) {
    objects::moved(from, to);
}

unsafe extern "C" fn objects_marked(
    all: bool,
    context: *mut c_void,
    judge: Judge,
    page: Option<PageOf>,
) -> Status {
    reach_down();
    objects::marked(all, &mut objects::Vm { context, judge, page })
}

unsafe extern "C" fn contents_to_lines(context: *mut c_void, of: ContentsOf) -> Status {
    reach_down();
    contents::to_lines(context, of)
}

unsafe extern "C" fn each_object(context: *mut c_void, visit: Visitor<BlockRecord>) -> Status {
    reach_down();
    objects::each(&mut |record| {
        // SAFETY: the caller's own callback and context.
        unsafe { visit(context, record) };
    })
}

extern "C" fn refresh() -> Status {
    reach_down();
    patch::refresh();
    Status::OK
}

unsafe extern "C" fn own_memory(context: *mut c_void, visit: Visitor<OwnRange>) {
    ranges::each(|start, end| {
        let range = OwnRange { start: start as u64, end: end as u64 };
        // SAFETY: the caller's own callback and context.
        unsafe { visit(context, &raw const range) };
    });
}

unsafe extern "C" fn patches(context: *mut c_void, visit: Visitor<PatchEntry>) {
    reach_down();
    patch::visit(&mut |entry| {
        // SAFETY: the caller's own callback and context.
        unsafe { visit(context, entry) };
    });
}

unsafe extern "C" fn allocator(buffer: *mut c_char, len: usize) -> Status {
    let real = functions::malloc::REAL.load(Ordering::Acquire).cast_const().cast();
    // A library in front of a preloaded hook gets the call first and may not pass it on.
    let first = patch::look_up(c"malloc");
    let is_ours = module(first).is_none_or(|found| {
        module((&raw const memintro_hook_api).cast()).is_some_and(|own| own.dli_fbase == found.dli_fbase)
    });
    let Some(info) = module(if is_ours { real } else { first }).filter(|info| !info.dli_fname.is_null())
    else {
        return Status::NO_ALLOCATOR;
    };
    // SAFETY: the loader's own text, terminated.
    let path = unsafe { CStr::from_ptr(info.dli_fname).to_bytes_with_nul() };
    if path.len() > len {
        return Status::BAD_OPTION;
    }
    // SAFETY: the caller's buffer has room for `len` bytes.
    unsafe { core::ptr::copy_nonoverlapping(path.as_ptr().cast(), buffer, path.len()) };
    Status::OK
}

/// The module that holds this address.
fn module(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: zero is a valid Dl_info, and dladdr only reads the loader's lists.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        (libc::dladdr(address, &raw mut info) != 0).then_some(info)
    }
}

unsafe extern "C" fn dump_to(path: *const c_char) -> Status {
    // SAFETY: the caller's terminated path.
    dump::write(unsafe { CStr::from_ptr(path) })
}

unsafe extern "C" fn dump_at_exit(path: *const c_char) -> Status {
    // SAFETY: the caller's terminated path, or null.
    exit::arm((!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }))
}
