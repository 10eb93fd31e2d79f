//! The states of tracking: off → full or sampled, from one mode to the other, → off.
//!
//! | state | who may change it | effect |
//! |---|---|---|
//! | [`ACTIVE`] 0 | `start` | functions jump straight to the real ones |
//! | [`ACTIVE`] 1 | `start`, `stop` | every event is recorded |
//! | [`ACTIVE`] 2 | `start`, `stop` | those of sampled blocks are ([`crate::sampling`]) |
//! | [`IN_BAND`](shared::IN_BAND), [`LEAVING`](shared::LEAVING) | also [`in_band`] | every event is recorded, some of them within blocks |
//!
//! [`crate::changes`] serialises transitions. They are made while the world is paused, so that no thread sees half of
//! one.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memintro_abi::{FIRST_REAL_SITE, Mode, Origin, START_SETTINGS, StartOptions, Status, VmSource};
use memintro_tracker::mmap;
use memintro_tracker::threads::Paused;

use crate::in_band;
use crate::lost;
use crate::object_samples::{self, OBJECT_SAMPLES};
use crate::sampling::{self, SAMPLES};
use crate::shared::{
    self, ACTIVE, BIRTHS, BOOTING, EPOCH, IN_BAND_RECORDS, LOOKED_AT, OBJECTS, PRELOADED, SITES, STACK_DEPTH,
    TABLE, THREADS, TRACKS_OBJECTS, generation, is_lost, mode,
};
use crate::thread;

/// The most that the table may take, far more than it reserves at first: room for a billion blocks.
const MOST_TABLE_BYTES: usize = 16 << 30;
/// Where address space is limited (`ulimit -v`), the part of it that tracking may reserve.
const PART_OF_ADDRESS_SPACE: usize = 64;
/// A program with a lower limit is not tracked from its start: Ruby itself takes 80 MB, and tracking reserves
/// up to 90 (lib/memintro/autorun.rb has the same figure).
const LEAST_ADDRESS_SPACE: usize = 256 << 20;
/// Mappings that tracking needs in any program: the first call sites and paths, some threads, the book of patches.
const FIXED_BYTES: usize = (1 << 20) + 4096;
/// A smaller table would be of no use.
const LEAST_TABLE_BYTES: usize = 1 << 20;

/// What live objects may take at least.
const LEAST_FOR_OBJECTS: usize = 1 << 19;

/// The objects' part of the budget; 0: no objects are tracked.
static FOR_OBJECTS: AtomicUsize = AtomicUsize::new(0);
static MAX_SITES: AtomicU32 = AtomicU32::new(0);
static MAX_BYTES: AtomicU64 = AtomicU64::new(0);

/// How the library was loaded.
pub(crate) fn origin() -> Origin {
    if PRELOADED.load(Ordering::Relaxed) { Origin::PRELOADED } else { Origin::LOADED }
}

/// Runs `action` while no other thread records. `None` if that is not possible: there is no memory for a state, it
/// was called from inside the hook, or another thread does not finish recording.
pub(crate) fn paused<R>(action: impl FnOnce(&Paused<'_>) -> R) -> Option<R> {
    if is_lost() {
        return None;
    }
    let own = thread::own()?;
    let paused = THREADS.pause(&own)?;
    // The figures may have become unusable while this waited.
    (!is_lost()).then(|| action(&paused))
}

/// The same for a reading that a copy of the process may want as well ([`shared::is_copy`]).
pub(crate) fn paused_anywhere<R>(action: impl FnOnce(&Paused<'_>) -> R) -> Option<R> {
    if !shared::is_copy() {
        return paused(action);
    }
    let own = thread::own().filter(|_| !is_lost())?;
    THREADS.pause_in_copy(&own).map(|paused| action(&paused))
}

/// The status to return for the result of [`paused`].
pub(crate) fn done<R>(outcome: Option<R>) -> Status {
    match outcome {
        Some(_) => Status::OK,
        None if is_lost() => Status::FIGURES_LOST,
        None if thread::own().is_none() => Status::NO_MEMORY,
        None => Status::BUSY,
    }
}

/// Stores the VM's functions, or removes them.
pub(crate) fn set_vm(source: Option<VmSource>) -> Status {
    let done = paused(|_| shared::lend_vm(source));
    BOOTING.store(false, Ordering::Release);
    self::done(done)
}

/// The options in force, with defaults filled in.
pub(crate) fn normalised(options: &StartOptions) -> Result<StartOptions, Status> {
    if options.mode != Mode::FULL && options.mode != Mode::SAMPLED {
        return Err(Status::BAD_OPTION);
    }
    let mut values = options.values();
    for (value, setting) in values.iter_mut().zip(&START_SETTINGS) {
        if *value > setting.most {
            return Err(Status::BAD_OPTION);
        }
        if *value == 0 {
            *value = setting.default;
        }
    }
    Ok(StartOptions { seed: options.seed, ..StartOptions::new(options.mode, values) })
}

/// Whether these (normalised) options are in force already.
pub(crate) fn is_active_with(options: &StartOptions) -> bool {
    mode() == options.mode
        && (options.mode != Mode::SAMPLED || sampling::mean() == options.sample_bytes)
        && has_limits_of(options)
}

/// The options in force.
pub(crate) fn options() -> StartOptions {
    StartOptions {
        mode: mode(),
        max_sites: u64::from(MAX_SITES.load(Ordering::Relaxed)),
        max_tracker_bytes: MAX_BYTES.load(Ordering::Relaxed),
        sample_bytes: sampling::mean(),
        seed: 0,
        stack_depth: u64::from(STACK_DEPTH.load(Ordering::Relaxed)),
    }
}

fn has_limits_of(options: &StartOptions) -> bool {
    u64::from(MAX_SITES.load(Ordering::Relaxed)) == options.max_sites
        && MAX_BYTES.load(Ordering::Relaxed) == options.max_tracker_bytes
        && u64::from(STACK_DEPTH.load(Ordering::Relaxed)) == options.stack_depth
}

/// Whether a start with these options, which are not in force, begins with empty figures.
pub(crate) fn begins_anew(options: &StartOptions) -> bool {
    mode() == Mode::OFF || !has_limits_of(options)
}

/// Begins to record: with empty figures, or with the present ones if only the mode changes.
pub(crate) fn activate(options: &StartOptions) -> Status {
    let keeps = !begins_anew(options);
    MAX_SITES.store(options.max_sites as u32, Ordering::Relaxed);
    MAX_BYTES.store(options.max_tracker_bytes, Ordering::Relaxed);
    let activated = paused(|_| {
        shared::set_stack_depth(options.stack_depth as u32);
        let tracks_objects = TRACKS_OBJECTS.load(Ordering::Relaxed);
        if keeps {
            in_band::end();
        } else {
            in_band::forget();
        }
        if !keeps && !(empty() && (!tracks_objects || make_room_for_objects())) || !prepare(options) {
            return Status::NO_MEMORY;
        }
        THREADS.deferred.init();
        // Release: a thread that sees the mode sees what the mode needs.
        ACTIVE.store(in_band::active(options.mode), Ordering::Release);
        if keeps { Status::SWITCHED } else { Status::OK }
    });
    activated.unwrap_or_else(|| done(activated))
}

/// Prepares the tables of a mode. The world is paused.
fn prepare(options: &StartOptions) -> bool {
    let for_blocks = room_for_blocks();
    if options.mode == Mode::FULL {
        return TABLE.init(for_blocks.saturating_sub(SAMPLES.block_bytes())).is_ok();
    }
    // Sampled blocks are few. Blocks that are followed already are not sampled.
    let rest = for_blocks.saturating_sub(TABLE.resident_bytes());
    if !sampling::make_room(rest.min(for_blocks / 4)) {
        return false;
    }
    sampling::recount(|add| TABLE.for_each(generation(), &mut |address, _| add(address)));
    sampling::set_mean(options.sample_bytes, options.seed);
    true
}

/// Stops recording; the figures stay.
pub(crate) fn deactivate() {
    let stop = || {
        in_band::end();
        // Subtracts now what a later reading would subtract.
        lost::take_out();
        ACTIVE.store(0, Ordering::Release);
    };
    if paused(|_| stop()).is_none() {
        ACTIVE.store(0, Ordering::Release);
        THREADS.make_unusual();
    }
}

/// Forgets all figures and blocks. The world is paused.
fn empty() -> bool {
    // First: see `defer::free_with_record`.
    IN_BAND_RECORDS.forget_all();
    lost::forget();
    LOOKED_AT.store(0, Ordering::Relaxed);
    EPOCH.fetch_add(1, Ordering::Release);
    for state in THREADS.states() {
        state.counters.discard();
        state.sites.discard();
        state.stacks.discard();
        state.measuring.discard();
        state.end_move();
    }
    BIRTHS.forget();
    THREADS.reset_traffic();
    TABLE.clear();
    OBJECTS.clear();
    OBJECT_SAMPLES.clear();
    SITES.clear();
    sampling::empty();
    SITES.init(MAX_SITES.load(Ordering::Relaxed), budget() / 4, FIRST_REAL_SITE)
}

/// Forgets all figures and blocks; tracking goes on, if it is on. The world is paused.
pub(crate) fn empty_again() -> bool {
    let is_empty = match mode() {
        // Before the first start there is nothing to forget.
        Mode::OFF => MAX_SITES.load(Ordering::Relaxed) == 0 || empty(),
        Mode::FULL => empty() && TABLE.init(room_for_blocks()).is_ok(),
        _ => empty(),
    };
    is_empty && (!TRACKS_OBJECTS.load(Ordering::Relaxed) || make_room_for_objects())
}

pub(crate) fn budget() -> usize {
    usize::try_from(MAX_BYTES.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
}

/// Divides the budget: a quarter for call sites; an eighth, but at least what any program needs, for threads and the
/// like; the rest for blocks.
fn budget_for_blocks() -> usize {
    let budget = budget();
    let for_rest = (budget / 8).max(FIXED_BYTES);
    (budget - budget / 4).saturating_sub(for_rest).min(reservable()).max(LEAST_TABLE_BYTES)
}

/// Prepares the table of those objects that are tracked. `false`: there is no memory. The world is paused.
pub(crate) fn make_room_for_objects() -> bool {
    // The objects' part of the budget: half of what blocks have not used yet, taken from theirs.
    let budget = (budget_for_blocks().saturating_sub(TABLE.resident_bytes()) / 2).max(LEAST_FOR_OBJECTS);
    FOR_OBJECTS.store(budget, Ordering::Relaxed);
    let is_made =
        if object_samples::is_on() { OBJECT_SAMPLES.init(budget) } else { OBJECTS.init(budget).is_ok() };
    is_made && share_with_blocks()
}

/// Returns the objects' part of the budget to blocks. The world is paused.
pub(crate) fn take_room_from_objects() {
    if FOR_OBJECTS.swap(0, Ordering::Relaxed) != 0 {
        share_with_blocks();
    }
}

fn share_with_blocks() -> bool {
    mode() != Mode::FULL || TABLE.init(room_for_blocks()).is_ok()
}

/// What blocks may take of the budget.
fn room_for_blocks() -> usize {
    budget_for_blocks().saturating_sub(FOR_OBJECTS.load(Ordering::Relaxed)).max(LEAST_TABLE_BYTES)
}

/// Address space that the table may reserve. The program needs the rest.
fn reservable() -> usize {
    address_space().map_or(MOST_TABLE_BYTES, |limit| limit / PART_OF_ADDRESS_SPACE)
}

/// Whether the limit on address space is so low that the program would need what tracking reserves.
pub(crate) fn is_cramped() -> bool {
    address_space().is_some_and(|limit| limit < LEAST_ADDRESS_SPACE)
}

/// The address space that this process may have, where it is limited.
fn address_space() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid record.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY)
        .then(|| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Sets all counters to zero but keeps the blocks known. The world is paused.
pub(crate) fn reset_counters() {
    for state in THREADS.states() {
        state.counters.discard();
    }
    THREADS.reset_traffic();
    IN_BAND_RECORDS.forget_damaged();
    lost::forget();
    LOOKED_AT.store(0, Ordering::Relaxed);
    // The counters no longer say how much is live.
    lost::bar();
    SITES.reset();
    SAMPLES.reset_sums();
    OBJECT_SAMPLES.reset_sums();
}

/// Bytes that tracking itself uses now.
pub(crate) fn tracker_bytes() -> u64 {
    let unused = SITES.unused_bytes(TRACKS_OBJECTS.load(Ordering::Relaxed));
    (mmap::mapped_bytes().saturating_sub(unused)
        + TABLE.resident_bytes()
        + IN_BAND_RECORDS.resident_bytes()
        + OBJECTS.resident_bytes()
        + SAMPLES.filter.resident_bytes()
        + OBJECT_SAMPLES.filter.resident_bytes()) as u64
}
