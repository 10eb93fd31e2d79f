//! Finds whether Ruby is moving young objects out of its transient heap.
//!
//! Up to 3.2 the contents of young arrays, hashes, structs and objects are in a heap of Ruby's own. Contents that
//! outlive a collection are moved into malloc soon after. That happens in a postponed job, while some line of Ruby
//! runs, and not while the collector runs. These allocations, hundreds of thousands of them, belong to the collector
//! and not to that line.
//!
//! No function tells this. But a thread that runs postponed jobs masks two kinds of interrupts, with bits in a word
//! of its execution context. And the virtual machine takes jobs from the end of an array, so the running job is just
//! behind those that are left. The job that moves objects is the only one of Ruby's own without an argument.
//!
//! | what | where | since |
//! |---|---|---|
//! | interrupts that are not taken now: 4 postponed jobs, 8 handlers of signals | a word of the execution context | 2.5 |
//! | the array of jobs, a function and its argument each; behind it the number of those that are left | two words of the virtual machine | 2.0 to 3.2 |
//!
//! Known from `vm_core.h` and `vm_trace.c` of 3.1. Both places are verified: [`prepare`] requests a job of its own.
//! When that job runs, it searches for the one word that has got these bits, and for the one array that has this job
//! in its place. If they are not found, or on a later Ruby, [`is_going_on`] says no.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::context::{self, Context};
use super::functions;
use super::probe::Probe;
use super::words;
use crate::lookup;
use crate::lookup::postponing::Older;

/// The bits for postponed jobs and for signal handlers: none are run while a job runs.
const BITS: u32 = 4 | 8;
/// Half words of an execution context that are searched. Machine registers begin behind them.
const HALVES: usize = 64;
/// Words of the virtual machine's structure that are searched.
const WORDS: usize = 512;
/// Words of it that are read at once.
const AT_A_TIME: usize = 64;
/// Number of jobs that Ruby has room for.
const MOST_JOBS: usize = 1024;
/// Number of attempts, if another thread ran in between.
const MOST_TRIES: u32 = 5;

/// Index of the half word of an execution context that has the bits; `NOT_FOUND`: unknown.
static MASK: AtomicUsize = AtomicUsize::new(NOT_FOUND);
const NOT_FOUND: usize = usize::MAX;
/// The place of the array of jobs in the virtual machine's structure.
static JOBS: AtomicPtr<Jobs> = AtomicPtr::new(std::ptr::null_mut());
/// The address range of Ruby's own functions.
static RUBY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

static TRIES: AtomicU32 = AtomicU32::new(0);
/// The half words of the context when the job was requested, and the context itself.
static BEFORE: [AtomicU32; HALVES] = [const { AtomicU32::new(0) }; HALVES];
static ASKED_BY: AtomicUsize = AtomicUsize::new(0);

#[repr(C)]
#[derive(Clone, Copy)]
struct Job {
    function: usize,
    argument: usize,
}

#[repr(C)]
struct Jobs {
    array: *const Job,
    left: AtomicU32,
}

/// Whether the thread of this context is in the job that moves objects out of the transient heap.
#[inline]
pub(super) fn is_going_on(context: *const c_void) -> bool {
    let mask = MASK.load(Ordering::Relaxed);
    // SAFETY: the context is the calling thread's own and alive; `look` has found the half word in one.
    mask != NOT_FOUND && unsafe { *context.cast::<u32>().add(mask) } & BITS == BITS && is_in_job_that_moves()
}

#[cold]
fn is_in_job_that_moves() -> bool {
    let jobs = JOBS.load(Ordering::Relaxed);
    // SAFETY: `look` has found it in the virtual machine, which is there as long as its functions are lent. The array
    // has room for one more than are left, for one of them runs.
    let job = unsafe {
        let left = (*jobs).left.load(Ordering::Relaxed) as usize;
        if left >= MOST_JOBS {
            return false;
        }
        *(*jobs).array.add(left)
    };
    job.argument == 0 && is_ruby_s(job.function)
}

fn is_ruby_s(function: usize) -> bool {
    let [start, end] = [0, 1].map(|at| RUBY[at].load(Ordering::Relaxed));
    (start..end).contains(&function)
}

/// Finds the places by a job that the VM runs soon. To be called under the GVL, outside of malloc; may be called
/// again.
pub(super) fn prepare() {
    if MASK.load(Ordering::Relaxed) != NOT_FOUND || TRIES.fetch_add(1, Ordering::Relaxed) >= MOST_TRIES {
        return;
    }
    let (Some(older), Some(probe), Context::At(context)) = (Older::find(), Probe::new(), context::current())
    else {
        return;
    };
    let Some(halves) = halves(&probe, context) else { return };
    for (before, half) in BEFORE.iter().zip(halves) {
        before.store(half, Ordering::Relaxed);
    }
    ASKED_BY.store(context as usize, Ordering::Relaxed);
    older.ask(look, argument());
}

/// Distinguishes this job from others in the array, even if they have the same function.
fn argument() -> *mut c_void {
    (&raw const BEFORE).cast_mut().cast()
}

/// The job.
unsafe extern "C" fn look(_: *mut c_void) {
    let (Some(probe), Context::At(context)) = (Probe::new(), context::current()) else { return };
    if MASK.load(Ordering::Relaxed) != NOT_FOUND || ASKED_BY.load(Ordering::Relaxed) != context as usize {
        return;
    }
    let Some(now) = halves(&probe, context) else { return };
    let mut masks = now.iter().zip(&BEFORE).enumerate().filter(|(_, (now, before))| {
        let before = before.load(Ordering::Relaxed);
        // In a signal handler one of the two bits is set already.
        before & BITS != BITS && **now == before | BITS
    });
    let (Some((mask, _)), None) = (masks.next(), masks.next()) else { return };
    let (Some(jobs), Some([start, end])) = (jobs(&probe), ruby_s_functions()) else { return };
    JOBS.store(jobs, Ordering::Relaxed);
    RUBY[0].store(start, Ordering::Relaxed);
    RUBY[1].store(end, Ordering::Relaxed);
    // Release: a thread that sees the mask sees the others. Reads need no order: lines are read under the GVL, which
    // this thread has.
    MASK.store(mask, Ordering::Release);
    words::mask(mask, BITS);
}

fn halves(probe: &Probe, context: *const c_void) -> Option<[u32; HALVES]> {
    let words: [usize; HALVES / 2] = probe.words(context as usize)?;
    let mut halves = [0; HALVES];
    for (pair, word) in halves.chunks_exact_mut(2).zip(words) {
        for (half, bytes) in pair.iter_mut().zip(word.to_ne_bytes().chunks_exact(4)) {
            *half = u32::from_ne_bytes(bytes.try_into().ok()?);
        }
    }
    Some(halves)
}

/// The one place in the virtual machine's structure that leads to this job, which runs now.
fn jobs(probe: &Probe) -> Option<*mut Jobs> {
    let [machine] = probe.words(lookup::address(c"ruby_current_vm_ptr") as usize)?;
    let mut found = pairs(probe, machine).into_iter().filter(|(_, [array, left])| {
        let left = left & u32::MAX as usize;
        left < MOST_JOBS
            && array.is_multiple_of(size_of::<usize>())
            && probe.words(array.wrapping_add(left * size_of::<Job>()))
                == Some([look as *const () as usize, argument() as usize])
    });
    let (Some((place, _)), None) = (found.next(), found.next()) else { return None };
    Some(place as *mut Jobs)
}

/// The places of the virtual machine's structure, each with its word and the next one. They are read many at a time, and
/// singly only where some of these cannot be read: a start must not make a thousand system calls.
fn pairs(probe: &Probe, machine: usize) -> Vec<(usize, [usize; 2])> {
    let place = |word: usize| machine + word * size_of::<usize>();
    let mut pairs = Vec::with_capacity(WORDS);
    for first in (0..WORDS).step_by(AT_A_TIME) {
        let all: Option<[usize; AT_A_TIME + 1]> = probe.words(place(first));
        for word in first..(first + AT_A_TIME).min(WORDS) {
            let pair = match &all {
                Some(words) => words.get(word - first..).and_then(|rest| rest.first_chunk().copied()),
                None => probe.words(place(word)),
            };
            pairs.extend(pair.map(|pair| (place(word), pair)));
        }
    }
    pairs
}

/// The address range of the module that contains the VM's functions.
fn ruby_s_functions() -> Option<[usize; 2]> {
    struct Search {
        inside: usize,
        found: Option<[usize; 2]>,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> libc::c_int {
        // SAFETY: the loader's own record, and the search below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        for at in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the loader says how many there are.
            let header = unsafe { &*info.dlpi_phdr.add(at) };
            let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            let range = [start, start.wrapping_add(header.p_memsz as usize)];
            if header.p_type == libc::PT_LOAD && (range[0]..range[1]).contains(&search.inside) {
                search.found = Some(range);
                return 1;
            }
        }
        0
    }
    let mut search = Search { inside: functions::get()?.gc_count as *const c_char as usize, found: None };
    // SAFETY: the callback fits, and the search outlives the visit.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}
