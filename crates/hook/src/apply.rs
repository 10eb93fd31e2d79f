//! What an event changes: the table, the samples, the counters. [`crate::record`] and [`crate::replay`] say when.

use core::num::NonZeroU32;

use memintro_tracker::births::Birth;
use memintro_tracker::counters::CounterCache;
use memintro_tracker::in_band::Found;
use memintro_tracker::samples::{Drawn, Put, Sample};
use memintro_tracker::table::{Block, Inserted, Removed};
use memintro_tracker::threads::{ThreadState, bump};

use crate::sampling::{self, SAMPLES};
use crate::shared::{self, BIRTHS, FOLLOWED, IN_BAND_RECORDS, SITES, TABLE, THREADS};

/// A block that was taken out of the table while the allocator moves it.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) block: Lookup,
    pub(crate) epoch: u32,
    /// GC generation in which it was taken out.
    pub(crate) generation: u32,
    /// Its note, if it was born in a measurement.
    pub(crate) birth: Option<Birth>,
    /// It had an intact in-band record.
    pub(crate) had_record: bool,
}

/// What the look-up of a block found.
#[derive(Debug)]
pub(crate) enum Lookup {
    Unknown,
    Followed(Removed),
    Sampled(Sample),
    /// The block has not been looked up yet, because its free is queued.
    Queued,
    /// The block has an in-band record, which must not change while the gate is closed.
    InBand,
}

/// The state of the thread in which the event happened, and the counters of the thread that records it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) owner: &'a ThreadState,
    pub(crate) counters: &'a CounterCache,
    /// Whether the block is still the running thread's.
    pub(crate) owns: bool,
    /// Whether it may get a record.
    pub(crate) writes: bool,
}

impl<'a> Origin<'a> {
    #[inline(always)]
    pub(crate) fn of_thread(own: &'a ThreadState) -> Self {
        Self { owner: own, counters: &own.counters, owns: true, writes: true }
    }

    /// The same for the block that a move has made. If the old block had no record, or an overwritten one,
    /// the bytes behind its size may belong to the program, which expects them in the new block.
    #[inline]
    pub(crate) fn of_moved(own: &'a ThreadState, moving: &Moving) -> Self {
        Self { writes: moving.had_record, ..Self::of_thread(own) }
    }
}

/// A block begins at this address, so whatever the table still has for the address is out of date.
pub(crate) fn born_untracked(origin: Origin<'_>, address: usize, generation: u32) {
    heal(origin, TABLE.remove(address, generation), generation);
    if heal_record(origin, address, generation) {
        IN_BAND_RECORDS.doubt(address);
    }
    heal_sample(origin, address);
    unnote(address);
}

/// Removes the note of a block that is freed or about to move, if it was born in a measurement.
#[inline(always)]
pub(crate) fn unnote(address: usize) -> Option<Birth> {
    if BIRTHS.is_on() { BIRTHS.take(address) } else { None }
}

/// A block is born. If its native caller is due to be sampled, returns how many blocks of its site it stands
/// for.
#[inline(always)]
pub(crate) fn born(
    origin: Origin<'_>,
    address: usize,
    size: u64,
    site: u32,
    generation: u32,
) -> Option<NonZeroU32> {
    heal_sample(origin, address);
    let block = Block { site, size, generation };
    match insert(origin, address, block, generation) {
        Inserted::New => {}
        Inserted::Replaced(stale) => heal(origin, Some(stale), generation),
        Inserted::Full => {
            dropped(origin, address);
            return None;
        }
    }
    origin.owner.traffic.born(size);
    let due = origin.counters.allocated(site, size, generation, |id| SITES.counters(id));
    if BIRTHS.is_on() {
        note(origin, address, size, site);
    }
    due
}

/// Inserts a block into the table, or writes its in-band record.
#[inline(always)]
fn insert(origin: Origin<'_>, address: usize, block: Block, now: u32) -> Inserted {
    if IN_BAND_RECORDS.is_on() && put_into_block(origin, address, &block, now) {
        return Inserted::New;
    }
    TABLE.insert(address, block, now)
}

/// Writes the in-band record of a block, if it can have one. Heals the record that an earlier block left
/// there.
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "its callers are Rust's, of the same build")]
extern "C" fn put_into_block(origin: Origin<'_>, address: usize, block: &Block, now: u32) -> bool {
    let has_healed = heal_record(origin, address, now);
    if IN_BAND_RECORDS.is_to_look(now) {
        THREADS.make_unusual();
    }
    let has_record = origin.owns
        && origin.writes
        && IN_BAND_RECORDS.takes()
        && IN_BAND_RECORDS.make_room(address)
        // SAFETY: the block has just been handed out to this thread.
        && unsafe { IN_BAND_RECORDS.put_fast(address, block) };
    if has_healed && !has_record {
        // The earlier record is still there.
        IN_BAND_RECORDS.doubt(address);
    }
    has_record
}

/// As [`heal`], for blocks with an in-band record. The bytes of a block with a damaged record stay in the
/// sums. `true`: the record was intact.
#[inline]
fn heal_record(origin: Origin<'_>, address: usize, now: u32) -> bool {
    if !IN_BAND_RECORDS.is_on() {
        return false;
    }
    // SAFETY: a block that the running thread has just been handed out, if it owns it.
    match unsafe { IN_BAND_RECORDS.take_stale(address, now, origin.owns) } {
        Found::Nothing => false,
        Found::Whole(stale) => {
            heal(origin, Some(stale), now);
            damage_found();
            true
        }
        Found::Damaged => {
            bump(&origin.owner.traffic.missed_frees, 1);
            damage_found();
            false
        }
    }
}

/// A record was damaged or stale: the next events check whether the table must take over.
#[cold]
#[inline(never)]
fn damage_found() {
    THREADS.make_unusual();
}

#[cold]
#[inline(never)]
fn dropped(origin: Origin<'_>, address: usize) {
    bump(&origin.owner.traffic.dropped, 1);
    unnote(address);
}

#[cold]
#[inline(never)]
fn note(origin: Origin<'_>, address: usize, size: u64, site: u32) {
    BIRTHS.born(address, size, site, &origin.owner.measuring);
}

pub(crate) fn born_sampled(origin: Origin<'_>, address: usize, size: u64, site: u32, birth: u32, mean: u64) {
    let own = origin.owner;
    unnote(address);
    if SAMPLES.filter.may_hold(address)
        && let Some(stale) = TABLE.remove(address, birth)
    {
        SAMPLES.uncount(address);
        heal(origin, Some(stale), birth);
    }
    let sample = Sample { size, mean, site, birth, mark: SAMPLES.marks(), drawn: Drawn::Bytes };
    match SAMPLES.put(address, sample) {
        Put::New => {}
        Put::Replaced(stale) => {
            bump(&own.traffic.missed_frees, 1);
            SAMPLES.count_death(&stale, birth, Some(&own.estimate));
        }
        Put::Full => {
            bump(&own.traffic.dropped, sample.share().blocks());
            return;
        }
    }
    SAMPLES.count_birth(&sample, Some(&own.estimate));
}

/// As [`heal`], for blocks that were sampled before the switch to full mode.
#[inline(always)]
fn heal_sample(origin: Origin<'_>, address: usize) {
    if !SAMPLES.is_empty() {
        heal_a_sample(origin, address);
    }
}

#[cold]
#[inline(never)]
fn heal_a_sample(origin: Origin<'_>, address: usize) {
    if let Some(stale) = SAMPLES.take(address) {
        bump(&origin.owner.traffic.missed_frees, 1);
        SAMPLES.count_death(&stale, shared::generation(), Some(&origin.owner.estimate));
    }
}

/// The allocator returned an address whose free was never seen.
#[cold]
#[inline(never)]
fn heal(origin: Origin<'_>, stale: Option<Removed>, now: u32) {
    if let Some(stale) = stale {
        bump(&origin.owner.traffic.missed_frees, 1);
        died(origin, &stale, now);
    }
}

/// `now` is the GC generation from which the block's age is computed.
#[inline(always)]
pub(crate) fn died(origin: Origin<'_>, block: &Removed, now: u32) {
    origin.owner.traffic.died(block.size);
    origin.counters.freed(block.site, block.size, block.age, now, |id| SITES.counters(id));
}

/// A block that was taken out has been freed. `aged_at` is the GC generation from which its age was computed.
#[inline]
pub(crate) fn gone(origin: Origin<'_>, block: &Lookup, aged_at: u32) {
    match block {
        Lookup::Unknown | Lookup::Queued | Lookup::InBand => {}
        Lookup::Followed(removed) => died(origin, removed, aged_at),
        Lookup::Sampled(sample) => {
            SAMPLES.count_death(sample, shared::generation(), Some(&origin.owner.estimate))
        }
    }
}

/// Takes a block out of the table or the samples.
pub(crate) fn take(address: usize, now: u32) -> Lookup {
    take_block(address, now).map_or_else(|| take_sample(address), Lookup::Followed)
}

/// Takes a block out of the table. If it is not there, [`take_sample`] has to be called.
#[inline(always)]
pub(crate) fn take_block(address: usize, now: u32) -> Option<Removed> {
    FOLLOWED.freed(address as u64);
    if IN_BAND_RECORDS.is_on() {
        // SAFETY: the block is not given back before its end is recorded.
        match unsafe { IN_BAND_RECORDS.take(address, now) } {
            Found::Whole(removed) => return Some(removed),
            Found::Damaged => damage_found(),
            Found::Nothing => {}
        }
    }
    let removed = TABLE.remove(address, now)?;
    if sampling::is_on() {
        uncount(address);
    }
    Some(removed)
}

#[cold]
#[inline(never)]
fn uncount(address: usize) {
    SAMPLES.uncount(address);
}

/// Takes a block out of the samples.
pub(crate) fn take_sample(address: usize) -> Lookup {
    if SAMPLES.is_empty() {
        return Lookup::Unknown;
    }
    SAMPLES.take(address).map_or(Lookup::Unknown, Lookup::Sampled)
}

/// Puts a block back that was taken out but not freed. `aged_at` is the GC generation from which its age was
/// computed.
pub(crate) fn put_back(origin: Origin<'_>, block: &Lookup, address: usize, aged_at: u32) {
    let now = shared::generation();
    let traffic = &origin.owner.traffic;
    match block {
        Lookup::Unknown | Lookup::Queued | Lookup::InBand => {}
        Lookup::Followed(old) => {
            let again = Block { site: old.site, size: old.size, generation: aged_at.wrapping_sub(old.age) };
            if let Inserted::Full = TABLE.insert(address, again, now) {
                // The block can no longer be followed, but the sums must still agree.
                bump(&traffic.dropped, 1);
                died(origin, old, aged_at);
            } else if sampling::is_on() {
                SAMPLES.count_again(address);
            }
        }
        Lookup::Sampled(old) => {
            // The mode may have changed meanwhile, and this may have been the only sample.
            THREADS.make_unusual();
            if SAMPLES.put(address, *old) == Put::Full {
                bump(&traffic.dropped, old.share().blocks());
                SAMPLES.count_death(old, now, Some(&origin.owner.estimate));
            }
        }
    }
}
