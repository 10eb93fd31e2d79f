//! Caches of threads, found by the threads: each has the address of its own at the same place before its control block.
//!
//! A walk over all chunks finds caches by their form. Without a walk, no cache may be left out, so all threads must be
//! found: as many as the kernel has counted.

use memintro_analysis::account::PAGE;
use memintro_analysis::account::arenas::HEAP;
use memintro_analysis::account::caches::{self, CACHE};
use memintro_analysis::account::chunks::FLAGS;

use super::frozen::Frozen;
use crate::copy::{self, own_memory::slice};

/// What the process knew before it was copied.
#[derive(Clone, Copy)]
pub(crate) struct Threads {
    /// How many there were.
    count: usize,
    /// The kernel's number of the one that made the copy.
    caller: u64,
}

/// Where a control block has the thread's number, which is zero once the thread has ended. Of glibc for x86-64.
const NUMBER: usize = 0x2d0;
/// Where control blocks begin, and how long they are at least.
const GRAIN: usize = 64;
/// More threads than are looked for.
const MOST: usize = 1 << 14;
/// Mappings of this size are searched as a whole, others at their end. The first thread's block is in such a one, or
/// where a mapping that was there first ends.
const SEARCHED: usize = 256 << 10;
/// Bytes before a control block in which a thread keeps its variables.
const VARIABLES: usize = 8 << 10;
/// Variables that may be the one that is looked for.
const CANDIDATES: usize = 4;

impl Threads {
    /// `None` where that is unknown, or where control blocks look otherwise.
    pub(super) fn now() -> Option<Self> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let (before, all) = (copy::threads(), counted()?);
        // If it has ended meanwhile, it may have been counted or not.
        let (ours, all) = if copy::threads() == before { (before, all) } else { (0, counted()?) };
        let count = all.checked_sub(ours)?;
        // SAFETY: a system call without arguments.
        let caller = unsafe { libc::syscall(libc::SYS_gettid) };
        Some(Self { count, caller: u64::try_from(caller).ok()? })
    }
}

/// How many threads the kernel counts.
fn counted() -> Option<usize> {
    let text = std::fs::read("/proc/self/stat").ok()?;
    // After the name, which may hold anything, the number of threads is the 18th word.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(text.get(end + 1..)?).ok()?.split_ascii_whitespace().nth(17)?.parse().ok()
}

/// Lists the caches of all threads, as chunks. `None` if some thread was not found. Called before anything is claimed
/// but stacks.
pub(super) fn caches(frozen: &Frozen<'_>, threads: Threads, list: &mut [usize]) -> Option<usize> {
    // SAFETY: an address of this thread.
    let own = unsafe { libc::pthread_self() } as usize;
    if number_of(frozen, own) != threads.caller {
        return None;
    }
    let blocks = slice::<usize>(MOST)?;
    let found = control_blocks(frozen, blocks)?;
    let blocks = blocks.get(..found)?;
    let alive = blocks.iter().filter(|block| number_of(frozen, **block) != 0).count();
    if alive != threads.count || !blocks.contains(&own) {
        return None;
    }
    let places = places(frozen, own)?;
    let mut used = 0_usize;
    for block in blocks {
        let begun = used;
        for place in places.into_iter().filter(|place| *place != 0) {
            let Some(chunk) = cache_at(frozen, block - place) else { continue };
            if !list.get(begun..used)?.contains(&chunk) {
                *list.get_mut(used)? = chunk;
                used += 1;
            }
        }
    }
    Some(used)
}

/// Where, before its control block, this thread has the address of its cache. Others may look like it; those of other
/// threads are empty or do not.
fn places(frozen: &Frozen<'_>, own: usize) -> Option<[usize; CANDIDATES]> {
    let mut places = [0; CANDIDATES];
    let mut used = 0;
    for place in (8..VARIABLES).step_by(8) {
        let Some(at) = own.checked_sub(place).filter(|at| frozen.word(*at).is_some()) else { break };
        if cache_at(frozen, at)
            .is_some_and(|chunk| caches::each_cached(chunk, |at| frozen.word(at), |_, _| {}).is_some())
        {
            *places.get_mut(used)? = place;
            used += 1;
        }
    }
    (used > 0).then_some(places)
}

/// The chunk of a cache, if the word at this address points to one.
fn cache_at(frozen: &Frozen<'_>, at: usize) -> Option<usize> {
    let block = usize::try_from(frozen.word(at)?).ok()?;
    let chunk = block.checked_sub(16).filter(|chunk| chunk.is_multiple_of(16))?;
    (frozen.word(chunk + 8)? & !FLAGS == CACHE as u64).then_some(chunk)
}

fn number_of(frozen: &Frozen<'_>, block: usize) -> u64 {
    frozen.word(block + NUMBER).map_or(0, |word| word & 0xffff_ffff)
}

/// A control block begins with its own address, and has it again in the third word. Those of threads are at the end of
/// their stacks, and are known already.
fn control_blocks(frozen: &Frozen<'_>, list: &mut [usize]) -> Option<usize> {
    let mut used = 0;
    for block in frozen.control_blocks.iter().copied().filter(|block| *block != 0) {
        *list.get_mut(used)? = block;
        used += 1;
    }
    for (area, region) in frozen.space.areas().iter().zip(frozen.regions.iter()) {
        if !region.may_have_chunks() || area.start.is_multiple_of(HEAP) {
            continue;
        }
        let first = if area.end - area.start <= SEARCHED { area.start } else { area.end - 16 * PAGE };
        let mut from = first;
        while let Some(page) = frozen.space.next_resident(area, from) {
            for at in (page..page + PAGE).step_by(GRAIN) {
                if frozen.is_control_block(at) {
                    *list.get_mut(used)? = at;
                    used += 1;
                }
            }
            from = page + PAGE;
        }
    }
    Some(used)
}
