//! Queues events while the gate is closed, each in its own thread. The thread that opens the gate records
//! them ([`crate::replay`]).
//!
//! The thread asks the VM for the line immediately, because frames and paths exist only now. It interns
//! nothing, because during a fork no thread may change the memory that the child gets. See
//! [`memintro_tracker::threads`] for who closes the gate and why no thread waits for it.

use core::cell::{Cell, OnceCell};
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::Ordering;

use memintro_abi::{Frame, FrameKind, SITE_BOOT, SITE_GC, SITE_OTHER};
use memintro_tracker::deferred::Event;
use memintro_tracker::mmap::Errno;
use memintro_tracker::sites::MAX_PATH_BYTES;
use memintro_tracker::threads::{Noted, ThreadState};

use crate::apply::{Lookup, Moving};
use crate::clear;
use crate::in_band;
use crate::pending::Pending;
use crate::place;
use crate::shared::{self, ACTIVE, BIRTHS, EPOCH, FOLLOWED, IN_BAND_RECORDS, THREADS};

/// Kinds of events.
pub(crate) mod kind {
    pub(crate) const BIRTH: u32 = 1;
    pub(crate) const SAMPLED_BIRTH: u32 = 2;
    pub(crate) const UNTRACKED_BIRTH: u32 = 3;
    pub(crate) const FREE: u32 = 4;
    pub(crate) const DEATH: u32 = 5;
    pub(crate) const SAMPLED_DEATH: u32 = 6;
    pub(crate) const PUT_BACK: u32 = 7;
    pub(crate) const PUT_BACK_SAMPLE: u32 = 8;
    /// The block is given back when this is recorded.
    pub(crate) const FREE_WITH_RECORD: u32 = 9;
}

/// How an event names its call site: one of these numbers, or the number of a pseudo-site.
pub(crate) mod site_by {
    pub(crate) const BY_CALLER: u32 = u32::MAX;
    pub(crate) const BY_LINE: u32 = u32::MAX - 1;
    pub(crate) const BY_PLACE: u32 = u32::MAX - 2;
}

/// Whether events are to be written down: the gate is closed and tracking is on. Otherwise this thread is recording,
/// or the event came while tracking was off.
pub(crate) fn is_wanted(own: &ThreadState) -> bool {
    !own.is_busy() && ACTIVE.load(Ordering::Relaxed) != 0
}

fn event(own: &ThreadState, kind: u32, address: usize) -> Event {
    let mut event = Event::default();
    (event.kind, event.address, event.owner) = (kind, address as u64, ptr::from_ref(own) as u64);
    (event.epoch, event.generation) = (EPOCH.load(Ordering::Relaxed), shared::generation());
    event
}

/// Writes the event down. `false`: the gate is open now, so the event can be recorded at once.
fn note(own: &ThreadState, event: &Event, path: &[u8], pending: Option<Pending>) -> bool {
    match THREADS.note(own, event, path) {
        Noted::Down => {
            if let Some(pending) = pending {
                pending.goes_on();
            }
            true
        }
        Noted::GateIsOpen => false,
        Noted::Lost => {
            lost(own);
            true
        }
    }
}

/// Counts an event that cannot be recorded. It does not check whether tracking is still on: with that check,
/// the compiler adds unwind tables to functions that run inside malloc.
pub(crate) fn lost(own: &ThreadState) {
    // Not `bump`, because another thread may be resetting the figure.
    own.traffic.dropped.fetch_add(1, Ordering::Relaxed);
}

/// Writes down the birth of a block. `mean` is that of its sample. `false`: try again.
#[cold]
#[inline(never)]
pub(crate) fn birth(own: &ThreadState, address: usize, size: u64, caller: usize, mean: Option<u64>) -> bool {
    if !is_wanted(own) {
        return true;
    }
    if own.untracked.get() != 0 {
        return note(own, &event(own, kind::UNTRACKED_BIRTH, address), &[], Some(Pending::begin()));
    }
    if mean.is_none() && clear::is_on() && is_open_again(own) {
        return false;
    }
    let errno = Errno::save();
    let mut birth = event(own, if mean.is_some() { kind::SAMPLED_BIRTH } else { kind::BIRTH }, address);
    (birth.size, birth.mean, birth.caller) = (size, mean.unwrap_or(0), caller as u64);
    let done = match tell_site(&mut birth) {
        Told::Known => note(own, &birth, &[], Some(Pending::begin())),
        Told::Line(path) => note(own, &birth, path, Some(Pending::begin())),
        Told::Native => place::with_place(caller, |place| {
            birth.site = site_by::BY_CALLER;
            let mut path: &[u8] = &[];
            if let Some(place) = place {
                birth.site = site_by::BY_PLACE;
                (birth.build, birth.offset, path) = (place.build, place.offset, place.path);
            }
            note(own, &birth, path, Some(Pending::begin()))
        }),
    };
    drop(errno);
    done
}

/// In a memory check, call sites are native stacks, and only the recording thread can unwind them. A test
/// suite may wait, but not for ever: the caller may hold a lock that the thread which closed the gate waits
/// for.
#[cold]
#[inline(never)]
fn is_open_again(own: &ThreadState) -> bool {
    /// Number of waits, of a twentieth of a second each at least.
    const WAITS: u32 = 2;
    if own.forks.get() > 0 || THREADS.is_pauser(own) {
        return false;
    }
    (0..WAITS).any(|_| {
        THREADS.catch_up(own);
        !THREADS.is_closed()
    })
}

/// What the thread alone knows of a call site.
enum Told<'a> {
    /// Everything: the site is a pseudo-site.
    Known,
    /// A line of Ruby in this file.
    Line(&'a [u8]),
    /// Only the caller's address.
    Native,
}

/// Fills in the block's call site, as far as the VM knows it.
fn tell_site(birth: &mut Event) -> Told<'static> {
    let Some(vm) = shared::vm() else {
        if shared::is_booting() {
            birth.site = SITE_BOOT;
            return Told::Known;
        }
        return Told::Native;
    };
    let mut frame = Frame { key: 0, detail: 0, generation: 0, path: ptr::null(), line: 0 };
    // SAFETY: the lender promises that it may be called from any thread, inside malloc; `frame` is valid.
    let kind = unsafe { (vm.frame)(&raw mut frame) };
    if clear::is_on() {
        let mut counted = frame;
        // SAFETY: as above. Asked for only to be counted: a check says how many stacks it has not.
        unsafe { (vm.stack_key)(&raw mut counted, 1) };
    }
    birth.generation = frame.generation;
    match kind {
        FrameKind::GC => birth.site = SITE_GC,
        FrameKind::RUBY => {
            // SAFETY: as above, and the frame was answered just now.
            unsafe { (vm.locate)(&raw mut frame) };
            birth.site = match (frame.path.is_null(), frame.line) {
                (true, _) => SITE_OTHER,
                (false, 0) => SITE_BOOT,
                (false, line) => {
                    (birth.site, birth.line) = (site_by::BY_LINE, line);
                    // SAFETY: the VM's path is terminated and stays in place while this thread is in malloc, which is
                    // longer than the answer is used.
                    let path = unsafe { CStr::from_ptr(frame.path) }.to_bytes();
                    return Told::Line(path.get(..MAX_PATH_BYTES).unwrap_or(path));
                }
            };
        }
        _ => return Told::Native,
    }
    Told::Known
}

/// How to treat a block that is freed while the gate is closed.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    /// It must not be given back yet.
    pub(crate) stays: Cell<bool>,
    /// It has been taken out anyway, and its end must be recorded.
    pub(crate) taken: OnceCell<Moving>,
}

/// Writes down that a block is about to be freed or moved, where it could not be taken out. `false`: try again.
#[cold]
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "its callers are Rust's, of the same build")]
pub(crate) extern "C" fn free(own: &ThreadState, address: usize, leaving: &Leaving) -> bool {
    if let Some(taken) = leaving.taken.get() {
        return settled(own, taken, None);
    }
    if IN_BAND_RECORDS.is_on() && IN_BAND_RECORDS.has(address) && is_wanted(own) {
        return free_with_record(own, address, leaving);
    }
    !is_wanted(own) || note(own, &event(own, kind::FREE, address), &[], None)
}

/// The same for a block with an in-band record.
#[allow(improper_ctypes_definitions, reason = "its callers are Rust's, of the same build")]
extern "C" fn free_with_record(own: &ThreadState, address: usize, leaving: &Leaving) -> bool {
    if in_band::holds_enough() && !BIRTHS.is_on() {
        // This reads the epoch first, and a clear forgets records first, so a record that was taken before a
        // clear is not counted after it.
        let (epoch, generation) = (EPOCH.load(Ordering::Acquire), shared::generation());
        // SAFETY: the caller's block.
        if let Some(removed) = unsafe { IN_BAND_RECORDS.claim(address, generation) } {
            FOLLOWED.freed(address as u64);
            let taken =
                Moving { block: Lookup::Followed(removed), epoch, generation, birth: None, had_record: true };
            let _ = leaving.taken.set(taken);
            return free(own, address, leaving);
        }
        if !IN_BAND_RECORDS.has(address) {
            // It has just moved to the table.
            return false;
        }
    }
    // SAFETY: the caller's block, which is freed.
    unsafe { in_band::hold(address, 1) };
    let noted = THREADS.note(own, &event(own, kind::FREE_WITH_RECORD, address), &[]);
    if let Noted::Down = noted {
        leaving.stays.set(true);
        return true;
    }
    // SAFETY: as above.
    unsafe { in_band::hold(address, -1) };
    if let Noted::GateIsOpen = noted {
        return false;
    }
    IN_BAND_RECORDS.forget(address);
    lost(own);
    true
}

/// Writes down that a block that had been taken out is freed (`address`: `None`) or still exists. `false`: try again.
#[cold]
#[inline(never)]
pub(crate) fn settled(own: &ThreadState, moving: &Moving, address: Option<usize>) -> bool {
    if !is_wanted(own) {
        return true;
    }
    let mut settled = event(own, 0, address.unwrap_or(0));
    (settled.epoch, settled.generation) = (moving.epoch, moving.generation);
    match &moving.block {
        Lookup::Unknown | Lookup::Queued | Lookup::InBand => return true,
        Lookup::Followed(removed) => {
            settled.kind = if address.is_none() { kind::DEATH } else { kind::PUT_BACK };
            (settled.site, settled.size, settled.extra) = (removed.site, removed.size, removed.age);
        }
        Lookup::Sampled(sample) => {
            settled.kind = if address.is_none() { kind::SAMPLED_DEATH } else { kind::PUT_BACK_SAMPLE };
            (settled.site, settled.size, settled.mean) = (sample.site, sample.size, sample.mean);
            (settled.line, settled.extra) = (sample.birth, sample.mark);
        }
    }
    note(own, &settled, &[], address.map(|_| Pending::begin()))
}
