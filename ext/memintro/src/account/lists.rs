//! Counts what malloc has free by its lists of free chunks; all else of its heaps is in use.
//!
//! It takes a step for each free chunk, where [`super::glibc::walk`] takes one for each chunk, and serves where the
//! owners of chunks are not asked for. If anything is not as it should be, that walk counts everything.

use std::cell::Cell;

use memintro_analysis::account::PAGE;
use memintro_analysis::account::arenas::{self, HEAP, Layout};
use memintro_analysis::account::bins;
use memintro_analysis::account::chunks::{FLAGS, GRAIN};
use memintro_analysis::account::space::Area;
use memintro_analysis::account::strands::Memory;

use super::frozen::{Frozen, prefetch, read};
use super::glibc::{Claims, either, is_busy};
use super::heap_walk::Sums;
use crate::copy::own_memory::slice;

/// A list is followed one chunk after the other, where a walk is in many places at once: it is given up where there is more
/// than one free chunk in so many bytes, and more than so many.
const BYTES_PER_CHUNK: usize = 64 << 10;
const FEW_CHUNKS: usize = 4096;
/// More arenas than are counted so.
const MOST_ARENAS: usize = 1 << 12;

/// How many free chunks of an arena of so many bytes are followed.
pub(super) fn most_chunks(system: usize) -> u64 {
    FEW_CHUNKS.max(system / BYTES_PER_CHUNK) as u64
}

/// One arena.
#[derive(Clone, Copy, Default)]
pub(super) struct Arena {
    pub(super) heaps: u64,
    pub(super) sums: Sums,
}

/// Counts all arenas, the main one first. `None` if one was in use at this instant, is not as it should be, or, unless that
/// is of no matter, has many free chunks.
pub(super) fn count(
    frozen: &Frozen<'_>,
    (main, layout): (usize, Layout),
    takes_many: bool,
    claims: &mut Claims,
) -> Option<&'static [Arena]> {
    let list = slice::<Arena>(MOST_ARENAS)?;
    *list.get_mut(0)? = main_arena(frozen, main, (layout, takes_many), claims)?;
    let (mut used, mut is_whole) = (1, true);
    let word = |at: usize| either(frozen, at, main, layout);
    is_whole &= arenas::each_other(main, layout, word, |arena| {
        if !is_whole {
            return;
        }
        match (list.get_mut(used), other_arena(frozen, arena, (layout, takes_many), claims)) {
            (Some(place), Some(counted)) => *place = counted,
            _ => is_whole = false,
        }
        used += 1;
    });
    if is_whole { list.get(..used) } else { None }
}

/// The main arena, if all of it is where the data segment is.
fn main_arena(
    frozen: &Frozen<'_>,
    arena: usize,
    (layout, takes_many): (Layout, bool),
    claims: &mut Claims,
) -> Option<Arena> {
    let word = |at: usize| either(frozen, at, arena, layout);
    let mut segments = frozen.space.areas().iter().zip(frozen.regions.iter()).filter(|both| both.1.is_brk);
    let (area, _) = segments.next()?;
    let top = usize::try_from(word(arena + layout.top)?).ok()?;
    let top_size = usize::try_from(frozen.word(top.checked_add(8)?)? & !FLAGS).ok()?;
    let end = top.checked_add(top_size)?;
    let system = usize::try_from(word(arena + layout.system_bytes)?).ok()?;
    if segments.next().is_some()
        || !area.holds(area.start, end)
        || end - area.start != system
        || is_busy(arena, word)
    {
        return None;
    }
    let mut sums = free_of(frozen, arena, (layout, takes_many), |chunk, size| {
        area.start <= chunk && chunk + size <= top
    })?;
    let last = end.next_multiple_of(PAGE).min(area.end);
    sums.top = frozen.space.resident_in(area, top, end);
    sums.used = frozen.space.resident_in(area, area.start, last).checked_sub(sums.free + sums.top)?;
    sums.used_size = ((top - area.start) as u64).checked_sub(sums.used_size)?;
    claims.add(area.start, last);
    Some(Arena { heaps: 1, sums })
}

fn other_arena(
    frozen: &Frozen<'_>,
    arena: usize,
    (layout, takes_many): (Layout, bool),
    claims: &mut Claims,
) -> Option<Arena> {
    let word = |at: usize| frozen.word(at);
    if is_busy(arena, word) {
        return None;
    }
    let is_inside = |chunk: usize, size: usize| {
        let heap = chunk & !(HEAP - 1);
        frozen.word(heap) == Some(arena as u64) && chunk + size <= heap + HEAP
    };
    let mut sums = free_of(frozen, arena, (layout, takes_many), is_inside)?;
    let top = usize::try_from(word(arena + layout.top)?).ok()?;
    let top_size = usize::try_from(word(top.checked_add(8)?)? & !FLAGS).ok()?;
    let (mut heaps, mut all, mut sizes, mut is_right) = (0, 0, 0, true);
    let is_whole = arenas::each_heap(arena, layout, word, |heap| {
        heaps += 1;
        // The newest heap, which comes first, ends with the top; two marks close the others.
        let last = if heaps == 1 { top.saturating_add(top_size) } else { heap.end - GRAIN };
        let is_closed = heaps == 1 || word(heap.end - 8).is_some_and(|mark| mark & !FLAGS == 0);
        let area = frozen.space.area(heap.start).filter(|area| area.holds(heap.start, heap.end));
        let (Some(area), true) = (area, is_closed && heap.first <= last && last <= heap.end) else {
            is_right = false;
            return;
        };
        let end = last.next_multiple_of(PAGE).min(heap.end);
        all += frozen.space.resident_in(area, heap.start, end);
        sizes += (if heaps == 1 { top } else { last } - heap.first) as u64;
        if heaps == 1 {
            sums.top = frozen.space.resident_in(area, top, last);
        }
        claims.add(heap.start, end);
    });
    sums.used = all.checked_sub(sums.free + sums.top)?;
    sums.used_size = sizes.checked_sub(sums.used_size)?;
    (is_whole && is_right).then_some(Arena { heaps, sums })
}

/// Sums of free chunks; `used_size` is theirs.
fn free_of(
    frozen: &Frozen<'_>,
    arena: usize,
    (layout, takes_many): (Layout, bool),
    is_inside: impl Fn(usize, usize) -> bool,
) -> Option<Sums> {
    let memory = Everywhere { frozen, arena: (arena, arena + layout.size), last: Cell::new(Area::default()) };
    let mut sums = Sums::default();
    let mut is_right = true;
    let system = usize::try_from(either(frozen, arena + layout.system_bytes, arena, layout)?).ok()?;
    let mut left =
        if takes_many { usize::MAX } else { usize::try_from(most_chunks(system)).unwrap_or(usize::MAX) };
    let is_whole = bins::each_free(arena, layout, &memory, |chunk, size| {
        let area = memory.last.get();
        left = left.saturating_sub(1);
        is_right &= is_inside(chunk, size) && area.holds(chunk, chunk + size);
        sums.free_chunk(&frozen.space, &area, chunk, chunk + size);
        sums.used_size += size as u64;
        is_right && left > 0
    });
    (is_whole && is_right).then_some(sums)
}

/// An arena, and all anonymous memory. Most words follow one another in one area.
struct Everywhere<'a, 'b> {
    frozen: &'a Frozen<'b>,
    arena: (usize, usize),
    last: Cell<Area>,
}

impl Memory for Everywhere<'_, '_> {
    #[inline]
    fn word(&self, at: usize) -> Option<u64> {
        let end = at.checked_add(8).filter(|_| at.is_multiple_of(8))?;
        if self.arena.0 <= at && end <= self.arena.1 {
            // SAFETY: the arena was found in readable memory.
            return Some(unsafe { read(at) });
        }
        if !self.last.get().holds(at, end) {
            self.last.set(*self.frozen.space.area(at)?);
        }
        // SAFETY: within a readable mapping of this process, in which nothing else runs.
        self.last.get().holds(at, end).then(|| unsafe { read(at) })
    }

    #[inline]
    fn soon(&self, at: usize) {
        prefetch(at);
    }
}
