//! Counts objects by thread while something is measured, and knows those that were made meanwhile and live.
//!
//! Ruby tells of each object that is made or freed ([`crate::object_events`]). Nothing there makes a Ruby object, raises
//! or releases the GVL; memory for the list of objects is not tracked, so it is in no figures.
//!
//! As in the hook, a *moment* is a number that grows by one whenever a measurement begins or ends.
//!
//! Rule for neighbours: everything here is called with the GVL of the main Ractor, which is what keeps it consistent.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, Hasher};

use magnus::{Error, Ruby};
use rb_sys::VALUE;

use super::lines::Lines;
use crate::hook_link;
use crate::object_events::{self, FREED, Follower, Functions, MADE};

/// Addresses of slots have nothing in their lowest bits, so they are spread by a multiplication.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

/// Owner of the objects that memintro makes for measurements, which are in no figure.
const HIDDEN: u32 = u32::MAX;

/// What is known of a live object: the number of its thread, 0 if that measures nothing, the moment of its birth, and
/// the line that made it, 0 unless its thread asks for lines.
#[derive(Clone, Copy)]
struct Birth {
    owner: u32,
    moment: u32,
    line: u32,
}

/// A thread that measures, or whose objects are hidden.
struct Thread {
    id: libc::pthread_t,
    number: u32,
    /// Its measurements under way, those included whose objects are still to be counted.
    open: u32,
    /// Those of them that ask for the lines and bytes of objects.
    detailed: u32,
    /// Depth of nested sections whose objects are hidden.
    hidden: u32,
    made: u64,
    /// Bytes of the slots of those that were made while lines and bytes were asked for.
    made_bytes: u64,
    freed: u64,
}

struct Objects {
    live: HashMap<u64, Birth, BuildHasherDefault<Spread>>,
    threads: Vec<Thread>,
    lines: Lines,
    moment: u32,
    numbers: u32,
    /// Objects that were made while anything was measured, by whichever thread.
    made: u64,
    /// Those of them that are hidden, and how many of these were freed.
    hidden_made: u64,
    hidden_freed: u64,
}

/// See the rule for neighbours.
struct Guarded(UnsafeCell<Option<Objects>>);

// SAFETY: it is used with the GVL only.
unsafe impl Sync for Guarded {}

static OBJECTS: Guarded = Guarded(UnsafeCell::new(None));

fn with<R>(use_them: impl FnOnce(&mut Objects) -> R) -> R {
    // SAFETY: the caller has the GVL, and what runs in here calls nothing that runs Ruby code or another `with`.
    let objects = unsafe { &mut *OBJECTS.0.get() };
    use_them(objects.get_or_insert_with(|| Objects {
        live: HashMap::default(),
        threads: Vec::new(),
        lines: Lines::default(),
        moment: 0,
        numbers: 0,
        made: 0,
        hidden_made: 0,
        hidden_freed: 0,
    }))
}

/// Does this without tracking what it allocates.
fn untracked<R>(work: impl FnOnce() -> R) -> R {
    let api = hook_link::found();
    if let Some(api) = api {
        (api.untracked_enter)();
    }
    let answer = work();
    if let Some(api) = api {
        (api.untracked_leave)();
    }
    answer
}

/// The calling thread's counts at one moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) moment: u32,
    owner: u32,
    /// Made by the thread.
    pub(crate) made: u64,
    /// Bytes of their slots, where they were asked for.
    pub(crate) made_bytes: u64,
    /// Freed while the thread collected.
    pub(crate) freed: u64,
    /// Made by all threads that Ruby told of.
    pub(crate) made_by_all: u64,
    /// Hidden ones of these, and how many of them were freed.
    pub(crate) hidden_made: u64,
    pub(crate) hidden_freed: u64,
}

/// Objects that were made in a measurement and live.
#[derive(Clone, Copy, Default)]
pub(crate) struct Left {
    pub(crate) of_thread: u64,
    pub(crate) of_process: u64,
}

/// Begins to count for a measurement of this thread. `None`: this Ruby does not tell of objects.
pub(crate) fn begin(ruby: &Ruby) -> Result<Option<Counts>, Error> {
    let Some(events) = object_events::functions(ruby) else { return Ok(None) };
    object_events::prepare(ruby, &FOLLOWER)?;
    if !with(|all| all.is_on()) {
        events.listen(on_freed, FREED)?;
        if let Err(error) = events.listen(on_made, MADE) {
            events.ignore(on_freed);
            return Err(error);
        }
    }
    with(|all| {
        all.thread().open += 1;
        all.live.reserve(1024);
    });
    Ok(Some(now()))
}

/// The counts of this moment, which ends or begins a measurement.
pub(crate) fn now() -> Counts {
    with(|all| {
        all.moment = all.moment.wrapping_add(1);
        let mut counts = Counts {
            moment: all.moment,
            made_by_all: all.made,
            hidden_made: all.hidden_made,
            hidden_freed: all.hidden_freed,
            ..Counts::default()
        };
        if let Some(own) = own(&mut all.threads) {
            (counts.owner, counts.made, counts.freed) = (own.number, own.made, own.freed);
            counts.made_bytes = own.made_bytes;
        }
        counts
    })
}

/// Ends the counting for a measurement of this thread. Returns what is left of the objects that were made between the
/// two moments.
pub(crate) fn close(begun: &Counts, ended: &Counts) -> Left {
    let mut left = Left::default();
    let is_last = with(|all| {
        let length = ended.moment.wrapping_sub(begun.moment);
        let is_within = |birth: &&Birth| birth.moment.wrapping_sub(begun.moment) < length;
        for birth in all.live.values().filter(is_within).filter(|birth| birth.owner != HIDDEN) {
            left.of_process += 1;
            left.of_thread += u64::from(birth.owner == begun.owner);
        }
        all.thread().open -= 1;
        all.drop_idle();
        !all.is_on()
    });
    if is_last {
        switch_off();
    }
    left
}

/// From here on the line and the bytes of each object that this thread makes are noted, until [`end_of_details`].
pub(crate) fn details() {
    with(|all| all.thread().detailed += 1);
}

/// Undoes one [`details`].
pub(crate) fn end_of_details() {
    with(|all| {
        let own = all.thread();
        own.detailed = own.detailed.saturating_sub(1);
    });
}

/// Visits each object that this thread has made since a moment and that lives: its address, the moment of its birth, and
/// its line, to be given to [`line_text`]. Nothing of Ruby's runs in there.
pub(crate) fn each_left(from: u32, mut visit: impl FnMut(u64, u32, u32)) {
    with(|all| {
        let (until, Some(owner)) = (all.moment.wrapping_add(1), own(&mut all.threads).map(|own| own.number))
        else {
            return;
        };
        let is_meant = |birth: &Birth| {
            birth.owner == owner && birth.moment.wrapping_sub(from) < until.wrapping_sub(from)
        };
        for (object, birth) in all.live.iter().filter(|(_, birth)| is_meant(birth)) {
            visit(*object, birth.moment, birth.line);
        }
    });
}

/// Path and line of a number; an empty path where no line ran.
pub(crate) fn line_text(number: u32) -> (Vec<u8>, u32) {
    with(|all| all.lines.text(number))
}

/// Only the calling thread exists, in a forked child.
pub(crate) fn in_child() {
    // SAFETY: asks for the calling thread.
    let id = unsafe { libc::pthread_self() };
    let is_over = with(|all| {
        let was_on = all.is_on();
        all.threads.retain(|thread| thread.id == id);
        was_on && !all.is_on()
    });
    if is_over {
        switch_off();
    }
}

/// What this thread makes from here on is in no figure, until [`show`].
pub(crate) fn hide() {
    untracked(|| with(|all| all.thread().hidden += 1));
}

/// Undoes one [`hide`].
pub(crate) fn show() {
    with(|all| {
        let own = all.thread();
        own.hidden = own.hidden.saturating_sub(1);
        all.drop_idle();
    });
}

/// Whether a measurement counts objects now.
pub(crate) fn is_on() -> bool {
    with(|all| all.is_on())
}

fn switch_off() {
    if let Some(events) = object_events::found() {
        events.ignore(on_made);
        events.ignore(on_freed);
    }
    with(|all| {
        untracked(|| {
            all.live = HashMap::default();
            all.lines = Lines::default();
        });
    });
}

fn own(threads: &mut [Thread]) -> Option<&mut Thread> {
    // SAFETY: asks for the calling thread.
    let id = unsafe { libc::pthread_self() };
    threads.iter_mut().find(|thread| thread.id == id)
}

unsafe extern "C" fn on_made(_: VALUE, argument: *mut c_void) {
    let Some(events) = object_events::found() else { return };
    // SAFETY: the argument of an event.
    let object = unsafe { events.object(argument) };
    with(|all| all.made(object, events));
}

unsafe extern "C" fn on_freed(_: VALUE, argument: *mut c_void) {
    let Some(events) = object_events::found() else { return };
    // SAFETY: as above.
    let object = unsafe { events.object(argument) };
    with(|all| all.freed(object));
}

/// A measurement keeps no object alive.
static FOLLOWER: Follower = Follower { each_kept: |_| {}, moved };

/// Objects have moved, and Ruby asks to update references.
fn moved(events: &Functions) {
    with(|all| all.moved(events));
}

impl Objects {
    /// Whether anything is measured.
    fn is_on(&self) -> bool {
        self.threads.iter().any(|thread| thread.open > 0)
    }

    /// The calling thread's entry.
    fn thread(&mut self) -> &mut Thread {
        // SAFETY: asks for the calling thread.
        let id = unsafe { libc::pthread_self() };
        let at = self.threads.iter().position(|thread| thread.id == id).unwrap_or_else(|| {
            self.numbers = self.numbers.wrapping_add(1).clamp(1, HIDDEN - 1);
            let number = self.numbers;
            self.threads.push(Thread {
                id,
                number,
                open: 0,
                detailed: 0,
                hidden: 0,
                made: 0,
                made_bytes: 0,
                freed: 0,
            });
            self.threads.len() - 1
        });
        &mut self.threads[at]
    }

    fn drop_idle(&mut self) {
        self.threads.retain(|thread| thread.open > 0 || thread.hidden > 0);
    }

    fn made(&mut self, object: u64, events: &Functions) {
        self.made += 1;
        let mut line = 0;
        let owner = match own(&mut self.threads) {
            Some(own) if own.hidden > 0 => HIDDEN,
            Some(own) => {
                own.made += 1;
                if own.detailed > 0 {
                    // SAFETY: Ruby tells of an object that is in its slot.
                    own.made_bytes += unsafe { events.slot_bytes(object) } as u64;
                    line = untracked(|| self.lines.now());
                }
                own.number
            }
            None => 0,
        };
        self.hidden_made += u64::from(owner == HIDDEN);
        if self.live.len() == self.live.capacity() {
            untracked(|| self.live.reserve(1));
        }
        self.live.insert(object, Birth { owner, moment: self.moment, line });
    }

    fn freed(&mut self, object: u64) {
        if self.live.remove(&object).is_some_and(|birth| birth.owner == HIDDEN) {
            self.hidden_freed += 1;
        } else if let Some(own) = own(&mut self.threads) {
            own.freed += 1;
        }
    }

    fn moved(&mut self, events: &Functions) {
        if self.live.is_empty() {
            return;
        }
        untracked(|| {
            let old = std::mem::take(&mut self.live);
            self.live.reserve(old.len());
            // SAFETY: what was freed is not listed, and Ruby asks right now.
            self.live.extend(old.into_iter().map(|(at, birth)| (unsafe { events.location(at) }, birth)));
        });
    }
}
