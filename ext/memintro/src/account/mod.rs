//! An account of resident memory, made by a copy of this process in which nothing moves.
//!
//! The copy ([`crate::copy`]) allocates nothing, takes no lock, and ends by itself after a deadline; its answer is
//! plain text in shared memory, which the Ruby side reads as text of a stranger.
//!
//! libc's fork would hold malloc's locks meanwhile. Instead, the copy looks whether one of them was held at its
//! instant, and says so; the caller then makes another one.

pub(crate) mod answer;
mod child;
mod data_objects;
mod files;
pub(crate) mod frozen;
pub(crate) mod glibc;
mod heap_walk;
mod mapped;
pub(crate) mod objects;
pub(crate) mod resident;
mod shared;
mod sites;
mod statistics;
mod table;

use std::ffi::c_void;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memintro_abi::{HookApi, Mode, OwnRange};

use crate::copy::{self, Copy, Life, Outcome, Shared};
use crate::{contents, hook_link};

pub(crate) use objects::{HeapPage, heap_pages};
use shared::SharedPages;
pub(crate) use statistics::{Statistics, give_back, of_allocator};

/// Room for the answer: reserved, not taken.
const ROOM: usize = 24 << 20;
/// The part at the end for shared pages; before that, it is for the table of mappings.
const SHARED_PAGES: usize = 4 << 20;
const TABLE: usize = 4 << 20;
/// Before the text, its length, and whether it is whole.
const HEAD: usize = 64;
const OUTCOME_AT: usize = 8;
const TEXT: usize = ROOM - HEAD - TABLE - SHARED_PAGES;

/// What is wanted.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Ask which pages are resident; otherwise spread each mapping's resident bytes evenly, as where the
    /// kernel does not say.
    pub(crate) pagemap: bool,
    /// After so long the copy is ended.
    pub(crate) seconds: u32,
}

/// A copy at work.
pub(crate) struct Counting {
    copy: Copy,
    shared: Shared,
    /// Lines about pages of files that other processes have as well.
    shared_files: Vec<u8>,
    maps: File,
    /// What only this process can tell, read while the copy works.
    read: Option<Read>,
    /// For an allocator that gives memory back by itself, and so is asked at the copy's instant.
    allocator: Option<Statistics>,
    /// Whether the C library is asked as well. It goes through all free chunks, and no thread may allocate meanwhile.
    asks_libc: bool,
    deadline: Instant,
}

struct Read {
    quick: Option<files::Quick>,
    files: Option<Vec<u8>>,
    allocator: Statistics,
}

/// What is there before the copy is made.
pub(crate) struct Prepared {
    shared: Shared,
    pages: Option<SharedPages>,
}

/// Maps what the copy writes, and reads which pages are `shared`, if that is wanted. Needs no GVL: pages that are written
/// between this and the copy still count as shared.
pub(crate) fn prepare(wants_shared: bool) -> std::io::Result<Prepared> {
    let shared = Shared::map(ROOM)?;
    // SAFETY: the end of the mapping, which the copy and this process have as long as they use it.
    let room = unsafe { shared::Room::new(shared.start().wrapping_add(ROOM - SHARED_PAGES), SHARED_PAGES) };
    let pages = if wants_shared { room.read() } else { None };
    Ok(Prepared { shared, pages })
}

/// Makes the copy. The caller holds the GVL, or promises that no page of Ruby's heap is given.
pub(crate) fn begin(wanted: Wanted, pages: &[HeapPage], prepared: Prepared) -> std::io::Result<Counting> {
    let Prepared { shared, pages: shared_pages } = prepared;
    let hook = if pages.is_empty() { hook_link::found() } else { contents::settled() };
    let own = own_ranges(hook);
    let own_code = hook_link::path().and_then(|path| path.parent().map(Path::to_owned)).unwrap_or_default();
    let maps = File::open("/proc/self/smaps")?;
    let deadline = Instant::now() + Duration::from_secs(u64::from(wanted.seconds) + 1);
    let plan = child::Plan {
        wanted,
        pages,
        own: &own,
        own_code: own_code.as_os_str().as_bytes(),
        hook: hook.filter(|hook| (hook.mode)() != Mode::OFF),
        // SAFETY: a variable of Ruby, which is set before any extension is loaded.
        object: usize::try_from(unsafe { rb_sys::rb_cObject }).ok(),
        text: shared.start().wrapping_add(HEAD),
        room: TEXT,
        length: length(&shared),
        outcome: outcome(&shared),
        table: table(&shared),
        shared_pages: shared_pages.as_ref(),
    };
    let allocator = statistics::of_other();
    let copy = copy::make(Life { seconds: wanted.seconds, kept: [] }, || child::run(&plan))?;
    Ok(Counting {
        copy,
        shared,
        shared_files: shared_pages.map(|pages| pages.files).unwrap_or_default(),
        maps,
        read: None,
        allocator,
        asks_libc: !pages.is_empty(),
        deadline,
    })
}

/// What the hook has mapped for itself.
pub(crate) fn own_ranges(hook: Option<&HookApi>) -> Vec<(usize, usize)> {
    unsafe extern "C" fn add(context: *mut c_void, range: *const OwnRange) {
        // SAFETY: the vector below, which has room, and a record that is valid during the visit.
        let (list, range) = unsafe { (&mut *context.cast::<Vec<(usize, usize)>>(), &*range) };
        list.push((range.start as usize, range.end as usize));
    }
    let mut list: Vec<(usize, usize)> = Vec::new();
    if let Some(hook) = hook {
        // SAFETY: the callback fits the record, the context outlives the visit.
        unsafe { (hook.own_memory)((&raw mut list).cast(), add) };
    }
    list
}

/// The length of the text so far.
fn length(shared: &Shared) -> &AtomicU64 {
    // SAFETY: the mapping is longer, and begins at a page.
    unsafe { &*shared.start().cast::<AtomicU64>() }
}

/// Whether the copy has answered.
fn outcome(shared: &Shared) -> &Outcome {
    // SAFETY: after the length; transparent, and zeroes are valid.
    unsafe { &*shared.start().wrapping_add(OUTCOME_AT).cast::<Outcome>() }
}

fn table(shared: &Shared) -> table::Place {
    // SAFETY: before the end of the mapping, which the copy and this process have as long as they use it.
    unsafe { table::Place::new(shared.start().wrapping_add(ROOM - SHARED_PAGES - TABLE), TABLE) }
}

impl Counting {
    /// Waits for it, at most until a second after its deadline, and reads meanwhile what only this process can tell. `None`,
    /// some milliseconds after the flag is set: to be called again.
    pub(crate) fn finish(&mut self, interrupted: &AtomicBool) -> Option<CopyAnswer> {
        let shared = self.shared.start() as usize;
        if self.read.is_none() {
            let quick = files::Quick::new();
            let files = if quick.is_none() { files::list(&self.maps, shared) } else { None };
            let allocator = self.allocator.take().unwrap_or_else(|| statistics::of_libc(self.asks_libc));
            self.read = Some(Read { quick, files, allocator });
        }
        self.copy.answered(outcome(&self.shared), self.deadline, interrupted)?;
        let Read { quick, mut files, allocator } = self.read.take()?;
        if let Some(quick) = quick {
            let table = table(&self.shared);
            files = table.read().and_then(|table| quick.list(shared, table));
            files = files.or_else(|| files::list(&self.maps, shared));
        }
        let length = usize::try_from(length(&self.shared).load(Ordering::Acquire)).unwrap_or(0);
        let text = self.shared.start().wrapping_add(HEAD);
        // SAFETY: within the mapping, and not written any more.
        let text = unsafe { std::slice::from_raw_parts(text, length.min(TEXT)) };
        // Without the files it is no account.
        let text = files.map(|files| [&files, text, &self.shared_files].concat()).unwrap_or_default();
        Some(CopyAnswer { text, allocator, signal: self.copy.signal() })
    }
}

/// What was counted.
pub(crate) struct CopyAnswer {
    /// Lines of figures.
    pub(crate) text: Vec<u8>,
    /// What the allocator says.
    pub(crate) allocator: Statistics,
    /// The signal that has ended the copy, or 0.
    pub(crate) signal: i32,
}
