//! Blocks that nothing points to, found in a frozen copy of this process.
//!
//! host ── [`crate::copy`] ──► the copy: lists all blocks ([`blocks`]), reaches them from roots ([`roots`]), and writes
//! what it found as plain lines into shared memory ([`found`]). It allocates nothing, takes no lock, and ends by itself.
//!
//! The copy has the memory of all threads, but not what they held in registers. So a block that nothing reaches counts
//! only if nothing reached it in an earlier copy either: the caller makes two, where another thread may have run. And where a
//! thread may have kept addresses in registers all the time, a few blocks alone are not called leaked ([`registers`]).

mod blocks;
mod child;
mod found;
mod held;
mod memory;
mod own_data;
mod registers;
mod roots;
mod threads;
mod unused;

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memintro_abi::{HookApi, Mode, Status};

use crate::account::{HeapPage, own_ranges};
use crate::contents;
use crate::copy::{self, Copy, Life, Shared};

pub(crate) use held::Held;
use own_data::OwnData;
use roots::Machinery;
use threads::{Threads, Waiting};

/// Parts of the shared memory: some words, the threads that wait, the text, and the list of blocks.
const THREADS_AT: usize = 4096;
const MOST_THREADS: usize = (TEXT_AT - THREADS_AT) / size_of::<Waiting>();
const TEXT_AT: usize = 64 << 10;
const TEXT_ROOM: usize = 8 << 20;
const LIST_AT: usize = TEXT_AT + TEXT_ROOM;
const MOST_LISTED: usize = 4 << 20;
const ROOM: usize = LIST_AT + MOST_LISTED * size_of::<(usize, usize)>();

/// What is wanted.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// glibc answers malloc, so that all its blocks can be listed.
    pub(crate) glibc: bool,
    /// What the first words of leaked blocks look like.
    pub(crate) first_words: bool,
    /// After so long the copy is ended.
    pub(crate) seconds: u32,
}

/// Why there is no copy.
pub(crate) enum Refused {
    System(std::io::Error),
    Hook(Status),
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

/// A copy at work, or what it has found.
pub(crate) struct Scan {
    copy: Copy,
    shared: Shared,
    deadline: Instant,
    /// Whether another thread may have run when the copy was made, so that a second one may have other registers.
    pub(crate) may_change: bool,
}

/// Makes the copy. The caller holds the GVL. `held`: what its own registers and stack hold. `earlier`: a scan that has
/// come to its end.
pub(crate) fn begin(
    wanted: Wanted,
    pages: &[HeapPage],
    held: &Held,
    earlier: Option<&Scan>,
) -> Result<Scan, Refused> {
    let shared = Shared::map(ROOM)?;
    let hook = contents::settled();
    let own = own_ranges(hook);
    let maps = File::open("/proc/self/smaps")?;
    let deadline = Instant::now() + Duration::from_secs(u64::from(wanted.seconds) + 1);
    let before = Threads::now(MOST_THREADS);
    let plan = child::Plan {
        wanted,
        pages,
        held,
        machinery: Machinery::find(),
        own: &own,
        own_data: OwnData::find(),
        hook: hook.filter(|hook| (hook.mode)() != Mode::OFF),
        sampled: hook.is_some_and(|hook| (hook.mode)() == Mode::SAMPLED),
        maps: maps.as_raw_fd(),
        shared: &shared,
        earlier: earlier.map(|scan| list(&scan.shared)),
        unused_stack: crate::vm::unused_stack(),
        // The host's own lists, which only its own frames point to.
        lists: [
            pages.as_ptr() as usize,
            own.as_ptr() as usize,
            before.waiting.as_ptr() as usize,
            before.times.as_ptr() as usize,
        ],
    };
    let copy = match plan.hook {
        Some(hook) => copy_while_nothing_is_recorded(hook, &plan)?,
        None => make(&plan)?,
    };
    let may_change = write_threads(&shared, &before);
    Ok(Scan { copy, shared, deadline, may_change })
}

fn make(plan: &child::Plan<'_>) -> std::io::Result<Copy> {
    copy::make(Life { seconds: plan.wanted.seconds, kept: [plan.maps] }, || child::run(plan))
}

/// No thread is in the middle of recording at that instant. What was written down meanwhile, the copy records as well.
fn copy_while_nothing_is_recorded(hook: &HookApi, plan: &child::Plan<'_>) -> Result<Copy, Refused> {
    struct Making<'a> {
        plan: &'a child::Plan<'a>,
        made: Option<std::io::Result<Copy>>,
    }
    /// The copy does not return from here.
    unsafe extern "C" fn run(making: *mut c_void) {
        // SAFETY: the record below.
        let making = unsafe { &mut *making.cast::<Making<'_>>() };
        making.made = Some(make(making.plan));
    }
    let mut making = Making { plan, made: None };
    // SAFETY: the callback fits the record, which outlives the call.
    let status = unsafe { (hook.at_one_instant)((&raw mut making).cast(), run) };
    match making.made {
        Some(made) => Ok(made?),
        None => Err(Refused::Hook(status)),
    }
}

/// The threads that waited before the copy was made, and wait at the same place now. Returns whether any thread may have run
/// meanwhile.
fn write_threads(shared: &Shared, before: &Threads) -> bool {
    let after = Threads::now(MOST_THREADS);
    let words = shared.start().wrapping_add(THREADS_AT).cast::<Waiting>();
    let mut count = 0;
    for thread in before.waiting.iter().filter(|thread| after.waiting.contains(thread)).take(MOST_THREADS) {
        // SAFETY: within the mapping; the copy reads it once the count is there.
        unsafe { words.add(count).write(*thread) };
        count += 1;
    }
    // A thread that began or ended meanwhile counts for one that ran.
    let all = before.count.max(after.count);
    others_word(shared).store(all.saturating_sub(count) as u64, Ordering::Relaxed);
    threads_word(shared).store(count as u64 + 1, Ordering::Release);
    !before.have_rested_until(&after)
}

/// The length of the text so far.
fn length(shared: &Shared) -> &AtomicU64 {
    // SAFETY: the mapping is longer, and begins at a page.
    unsafe { &*shared.start().cast::<AtomicU64>() }
}

/// How many threads wait, and 1; 0 before.
fn threads_word(shared: &Shared) -> &AtomicU64 {
    // SAFETY: as above.
    unsafe { &*shared.start().cast::<AtomicU64>().add(1) }
}

/// How many other threads there are.
fn others_word(shared: &Shared) -> &AtomicU64 {
    // SAFETY: as above.
    unsafe { &*shared.start().cast::<AtomicU64>().add(3) }
}

/// How many blocks are listed.
fn listed(shared: &Shared) -> &AtomicU64 {
    // SAFETY: as above.
    unsafe { &*shared.start().cast::<AtomicU64>().add(2) }
}

/// The blocks that nothing reached in a copy that has ended, in the order of their addresses.
fn list(shared: &Shared) -> &[(usize, usize)] {
    let count = usize::try_from(listed(shared).load(Ordering::Acquire)).unwrap_or(0).min(MOST_LISTED);
    // SAFETY: within the mapping, and not written any more.
    unsafe { std::slice::from_raw_parts(shared.start().wrapping_add(LIST_AT).cast(), count) }
}

impl Scan {
    /// Waits for its end, at most until a second after its deadline. Returns its text, and whether it came to its end. `None`,
    /// some milliseconds after the flag is set: to be called again.
    pub(crate) fn finish(&mut self, interrupted: &AtomicBool) -> Option<(Vec<u8>, bool)> {
        let ended = self.copy.wait_until(self.deadline, interrupted)?;
        let length = usize::try_from(length(&self.shared).load(Ordering::Acquire)).unwrap_or(0);
        let text = self.shared.start().wrapping_add(TEXT_AT);
        // SAFETY: within the mapping, and not written any more.
        let text = unsafe { std::slice::from_raw_parts(text, length.min(TEXT_ROOM)) }.to_vec();
        Some((text, ended))
    }

    /// The signal that has ended the copy, or 0.
    pub(crate) fn signal(&self) -> i32 {
        self.copy.signal()
    }

    /// How many blocks nothing reached.
    pub(crate) fn unreached(&self) -> usize {
        list(&self.shared).len()
    }
}
