//! Walks over glibc's heaps in the copy.

use memintro_analysis::account::arenas::{self, Layout};
use memintro_analysis::account::chunks::{self, End, State};
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::owners::{Owner, Owners};
use memintro_analysis::account::space::Area;
use memintro_analysis::account::strands::{self, Memory, Visitor};
use memintro_analysis::account::{PAGE, caches, maps};

use super::answer::Answer;
use super::frozen::{Frozen, prefetch, read};
use super::threads::{self, Threads};
use super::{Ways, lists, mapped};
use crate::copy::own_memory::slice;

/// More threads' caches than any process has.
const MOST_CACHES: usize = 1 << 16;

/// Resident bytes by what they are, and all bytes of chunks in use.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) used: u64,
    pub(super) free: u64,
    pub(super) top: u64,
    /// Whole pages within free chunks, which `malloc_trim` gives back.
    whole_pages: u64,
    pub(super) used_size: u64,
    free_chunks: u64,
}

/// What `malloc_trim` leaves of a free chunk, for its head and its places in lists.
const KEPT_OF_FREE: usize = 48;

/// Addresses of chunks that may be caches, and whose each chunk is.
pub(super) struct Candidates<'a> {
    room: &'static mut [usize],
    used: usize,
    owners: Option<Owners<'a>>,
}

/// Ranges that are malloc's. They are claimed last: chunks of caches may lie in any arena.
pub(super) struct Claims {
    list: &'static mut [(usize, usize)],
    used: usize,
}

impl Claims {
    pub(super) fn add(&mut self, from: usize, to: usize) {
        if let Some(place) = self.list.get_mut(self.used) {
            *place = (from, to);
            self.used += 1;
        }
    }
}

/// Writes what malloc has. `None` if there is no memory for the walk. `threads`: where they are known, free chunks may
/// be counted by their lists, if nobody asks whose each chunk is.
pub(crate) fn walk(
    frozen: &mut Frozen<'_>,
    own: &[u8],
    (ways, threads): (Ways, Option<Threads>),
    answer: &mut Answer<'_>,
) -> Option<()> {
    let mut candidates = Candidates { room: slice(MOST_CACHES)?, used: 0, owners: frozen.owners.take() };
    let mut claims = Claims { list: slice(MOST_CACHES)?, used: 0 };
    let main = find(frozen, own);
    answer.figure("glibc", u64::from(main.is_some()));
    if let Some(main) = main {
        let threads = threads.filter(|_| ways != Ways::Walk && candidates.owners.is_none());
        let is_listed = threads
            .and_then(|threads| {
                by_lists(frozen, main, (threads, ways == Ways::Both), &mut candidates, &mut claims, answer)
            })
            .is_some();
        answer.figure("by_lists", u64::from(is_listed));
        if !is_listed || ways == Ways::Both {
            (candidates.used, claims.used) = (0, 0);
            by_chunks(frozen, main, &mut candidates, &mut claims, answer);
        }
    }
    let heaps = claims.list.get(..claims.used)?;
    for (from, to) in heaps {
        frozen.space.claim(*from, *to);
    }
    if main.is_some() {
        mapped::count(frozen, heaps, &mut candidates, answer);
        frozen.owners = candidates.owners;
    }
    Some(())
}

/// Writes what the lists of free chunks say. `None`, and nothing is written, if they do not say all.
fn by_lists(
    frozen: &Frozen<'_>,
    main: (usize, Layout),
    (threads, takes_many): (Threads, bool),
    candidates: &mut Candidates<'_>,
    claims: &mut Claims,
    answer: &mut Answer<'_>,
) -> Option<()> {
    candidates.used = threads::caches(frozen, threads, candidates.room)?;
    for (number, arena) in (0..).zip(lists::count(frozen, main, takes_many, claims)?) {
        write(number, arena.heaps, &arena.sums, answer);
    }
    cached(frozen, main, candidates, answer);
    Some(())
}

/// Walks over all chunks.
fn by_chunks(
    frozen: &Frozen<'_>,
    main: (usize, Layout),
    candidates: &mut Candidates<'_>,
    claims: &mut Claims,
    answer: &mut Answer<'_>,
) {
    let (arena, layout) = main;
    let mut claim = |from, to| claims.add(from, to);
    walk_main(frozen, arena, layout, candidates, &mut claim, answer);
    let mut number = 0;
    let whole = arenas::each_other(
        arena,
        layout,
        |at| either(frozen, at, arena, layout),
        |other| {
            number += 1;
            walk_other(frozen, (number, other), layout, candidates, &mut claim, answer);
        },
    );
    if !whole {
        answer.add("broken", &[Word::Number(0), Word::Text(b"arenas")]);
    }
    cached(frozen, main, candidates, answer);
}

/// Anonymous memory, or the main arena itself.
pub(super) fn either(frozen: &Frozen<'_>, at: usize, arena: usize, layout: Layout) -> Option<u64> {
    if (arena..arena + layout.size).contains(&at) && at.is_multiple_of(8) {
        // SAFETY: the main arena was found in readable memory.
        return Some(unsafe { read(at) });
    }
    frozen.word(at)
}

/// The main arena, in the writable data of libc.
pub(crate) fn find(frozen: &Frozen<'_>, own: &[u8]) -> Option<(usize, Layout)> {
    let mut found = None;
    maps::each(own, |mapping| {
        let file = mapping.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_libc = file.starts_with(b"libc.so") || file.starts_with(b"libc-2");
        if found.is_some() || !is_libc || !mapping.writable || !mapping.readable {
            return;
        }
        let word = |at: usize| {
            let is_here = mapping.start <= at && at <= mapping.end - 8 && at.is_multiple_of(8);
            // SAFETY: within a readable mapping.
            if is_here { Some(unsafe { read(at) }) } else { frozen.word(at) }
        };
        found = (mapping.start..mapping.end)
            .step_by(8)
            .find_map(|at| arenas::main_arena(at, word).map(|layout| (at, layout)));
    });
    found
}

fn walk_main(
    frozen: &Frozen<'_>,
    arena: usize,
    layout: Layout,
    candidates: &mut Candidates<'_>,
    claim: &mut impl FnMut(usize, usize),
    answer: &mut Answer<'_>,
) {
    let mut sums = Sums::default();
    let top = either(frozen, arena + layout.top, arena, layout).unwrap_or(0) as usize;
    let (mut heaps, mut walked) = (0, 0);
    for (area, region) in frozen.space.areas().iter().zip(frozen.regions.iter()) {
        if !region.is_brk {
            continue;
        }
        heaps += 1;
        let end = one_heap(frozen, area.start, area.end, top, &mut sums, candidates, answer);
        claim(area.start, end);
        walked += end - area.start;
    }
    let all = either(frozen, arena + layout.system_bytes, arena, layout).unwrap_or(0) as usize;
    if all > walked.saturating_add(PAGE) {
        heaps += walk_parts(frozen, top, all - walked, &mut sums, candidates, claim, answer);
    }
    answer.figure("busy", u64::from(is_busy(arena, |at| either(frozen, at, arena, layout))));
    write(0, heaps, &sums, answer);
}

/// Where the end of the data segment could not be moved, the main arena has mappings as well, and nothing says where
/// they are: they are known by chunks that lead from a page to two marks, or to the top. What is not found is
/// reported. Returns how many there are.
fn walk_parts(
    frozen: &Frozen<'_>,
    top: usize,
    missing: usize,
    sums: &mut Sums,
    candidates: &mut Candidates<'_>,
    claim: &mut impl FnMut(usize, usize),
    answer: &mut Answer<'_>,
) -> u64 {
    let (mut parts, mut found) = (0, 0);
    for (area, region) in frozen.space.areas().iter().zip(frozen.regions.iter()) {
        let mut from = area.start;
        while !region.is_brk
            && let Some(at) = frozen.space.next_resident(area, from)
        {
            let end = end_of_part(frozen, at, area.end, top);
            if let Some(end) = end {
                one_heap(frozen, at, end, top, sums, candidates, answer);
                claim(at, end);
                parts += 1;
                found += end - at;
            }
            from = end.unwrap_or(at + PAGE);
        }
    }
    if found + PAGE < missing {
        answer.add("broken", &[Word::Number(0), Word::Text(b"parts of the main arena")]);
    }
    parts
}

/// Where the part of the main arena ends that begins at this page, if one does.
fn end_of_part(frozen: &Frozen<'_>, page: usize, end: usize, top: usize) -> Option<usize> {
    let head = frozen.word(page + 8)?;
    if head & chunks::FLAGS != chunks::PREVIOUS_IN_USE || frozen.word(page)? != 0 {
        return None;
    }
    let word = |at: usize| {
        let is_here = at.is_multiple_of(8) && page <= at && at.checked_add(8).is_some_and(|next| next <= end);
        // SAFETY: within a readable mapping of this process, in which nothing else runs.
        if is_here { Some(unsafe { read(at) }) } else { None }
    };
    match chunks::walk(page, end, top, word, |_, _, _| {}) {
        End::Whole(last) if last.is_multiple_of(PAGE) => Some(last),
        _ => None,
    }
}

fn walk_other(
    frozen: &Frozen<'_>,
    (number, arena): (u64, usize),
    layout: Layout,
    candidates: &mut Candidates<'_>,
    claim: &mut impl FnMut(usize, usize),
    answer: &mut Answer<'_>,
) {
    let mut sums = Sums::default();
    let top = frozen.word(arena + layout.top).unwrap_or(0) as usize;
    let mut heaps = 0;
    let whole = arenas::each_heap(
        arena,
        layout,
        |at| frozen.word(at),
        |heap| {
            heaps += 1;
            // The structures before the first chunk.
            sums.used += frozen.space.resident(heap.start, heap.first);
            let end = one_heap(frozen, heap.first, heap.end, top, &mut sums, candidates, answer);
            // Up to the end of what is not broken; the rest of a page belongs to the last chunk.
            claim(heap.start, end);
        },
    );
    if !whole {
        answer.add("broken", &[Word::Number(0), Word::Text(b"heaps")]);
    }
    answer.figure("busy", u64::from(is_busy(arena, |at| frozen.word(at))));
    write(number, heaps, &sums, answer);
}

pub(super) fn is_busy(arena: usize, word: impl Fn(usize) -> Option<u64>) -> bool {
    word(arena).is_some_and(|lock| lock & 0xffff_ffff != 0)
}

fn write(number: u64, heaps: u64, sums: &Sums, answer: &mut Answer<'_>) {
    // Of the topmost chunk, `malloc_trim` gives back the main arena's.
    let trimmed = sums.whole_pages + if number == 0 { sums.top } else { 0 };
    let figures = [number, heaps, sums.used, sums.free, sums.top, sums.used_size, sums.free_chunks, trimmed];
    answer.add("arena", &figures.map(Word::Number));
}

/// Walks one heap; returns the address up to which its pages are malloc's. What comes after a broken chunk is not
/// known, and is reported.
fn one_heap(
    frozen: &Frozen<'_>,
    first: usize,
    end: usize,
    top: usize,
    sums: &mut Sums,
    candidates: &mut Candidates<'_>,
    answer: &mut Answer<'_>,
) -> usize {
    let Some(area) = frozen.space.area(first).filter(|area| area.holds(first, end)).copied() else {
        answer.add("broken", &[Word::Number(0), Word::Text(b"heap")]);
        return first;
    };
    let memory = Readable(area);
    let mut tally = Tally { frozen, area, end, sums, candidates };
    let ended = strands::walk(first, end, top, &memory, &mut tally);
    match ended {
        End::Whole(last) => {
            // Marks at the end, and the part of the last page that no chunk has.
            let rounded = last.next_multiple_of(PAGE).min(end);
            sums.used += frozen.space.resident(last, rounded);
            rounded
        }
        End::Broken(at) => {
            let lost = frozen.space.resident(at, end);
            answer.add("broken", &[Word::Number(lost), Word::Text(b"chunk")]);
            // All of these pages are the heap's, known or not.
            end
        }
    }
}

/// The memory of one area.
struct Readable(Area);

impl Memory for Readable {
    #[inline]
    fn word(&self, at: usize) -> Option<u64> {
        let is_here = at.is_multiple_of(8) && self.0.holds(at, at.wrapping_add(8));
        // SAFETY: within a readable mapping of this process, in which nothing else runs.
        is_here.then(|| unsafe { read(at) })
    }

    #[inline]
    fn soon(&self, at: usize) {
        prefetch(at);
    }
}

/// Counts the chunks of one heap.
struct Tally<'a, 'b, 'c> {
    frozen: &'a Frozen<'b>,
    area: Area,
    end: usize,
    sums: &'a mut Sums,
    candidates: &'a mut Candidates<'c>,
}

/// Sums of one strand, and the neighbours of one state that are counted together.
#[derive(Clone, Copy, Default)]
struct Strand {
    sums: Sums,
    run: Option<(usize, usize, State)>,
}

impl Visitor for Tally<'_, '_, '_> {
    type Sums = Strand;

    #[inline]
    fn visit(&mut self, strand: &mut Strand, at: usize, size: usize, state: State) {
        match state {
            State::Used => {
                strand.sums.used_size += size as u64;
                self.candidates.own(at, Owner::Native);
                if size == caches::CACHE {
                    self.candidates.add(at);
                }
            }
            State::Free => strand.sums.free_chunks += 1,
            State::Top => {}
        }
        match &mut strand.run {
            Some(run) if run.2 == state && run.1 == at => run.1 = at + size,
            _ => {
                self.finish(strand);
                strand.run = Some((at, at + size, state));
            }
        }
    }

    fn finish(&mut self, strand: &mut Strand) {
        let Some((from, to, state)) = strand.run.take() else { return };
        let resident = self.frozen.space.resident_in(&self.area, from, to);
        match state {
            State::Used => strand.sums.used += resident,
            State::Free => strand.sums.free_range(self.frozen, &self.area, from, to),
            State::Top => strand.sums.top += resident,
        }
    }

    fn keep(&mut self, strand: &Strand) {
        self.sums.add(&strand.sums);
    }

    fn forget(&mut self, from: usize) {
        self.candidates.forget(from, self.end);
    }
}

impl Sums {
    fn add(&mut self, more: &Self) {
        self.used += more.used;
        self.free += more.free;
        self.top += more.top;
        self.whole_pages += more.whole_pages;
        self.used_size += more.used_size;
        self.free_chunks += more.free_chunks;
    }

    /// Counts a free chunk.
    pub(super) fn free_chunk(&mut self, frozen: &Frozen<'_>, area: &Area, from: usize, to: usize) {
        self.free_chunks += 1;
        self.free_range(frozen, area, from, to);
    }

    fn free_range(&mut self, frozen: &Frozen<'_>, area: &Area, from: usize, to: usize) {
        self.free += frozen.space.resident_in(area, from, to);
        let (first, last) = ((from + KEPT_OF_FREE).next_multiple_of(PAGE), to / PAGE * PAGE);
        if first < last {
            self.whole_pages += frozen.space.resident_in(area, first, last);
        }
    }
}

impl Candidates<'_> {
    /// What was noted in this range was wrong.
    fn forget(&mut self, from: usize, to: usize) {
        let mut kept = 0;
        for place in 0..self.used {
            let Some(chunk) = self.room.get(place).copied() else { break };
            if !(from..to).contains(&chunk)
                && let Some(place) = self.room.get_mut(kept)
            {
                *place = chunk;
                kept += 1;
            }
        }
        self.used = kept;
        if let Some(owners) = &mut self.owners
            && from < to
        {
            owners.forget(from, to);
        }
    }

    pub(super) fn own(&mut self, chunk: usize, owner: Owner) {
        if let Some(owners) = &mut self.owners {
            owners.set(chunk, owner);
        }
    }

    fn add(&mut self, chunk: usize) {
        if let Some(place) = self.room.get_mut(self.used) {
            *place = chunk;
            self.used += 1;
        }
    }
}

/// Chunks in caches and fast bins: resident bytes and sizes.
fn cached(
    frozen: &Frozen<'_>,
    (main, layout): (usize, Layout),
    candidates: &mut Candidates<'_>,
    answer: &mut Answer<'_>,
) {
    let word = |at: usize| frozen.word(at);
    let (mut caches, mut count, mut resident, mut size_sum) = (0, 0, 0, 0);
    for place in 0..candidates.used {
        let Some(chunk) = candidates.room.get(place).copied() else { break };
        let found = caches::each_cached(chunk, word, |at, size| {
            candidates.own(at, Owner::Cached);
            resident += frozen.space.resident(at, at + size);
            size_sum += size as u64;
        });
        // Memory of zeroes looks like a cache that holds nothing.
        if let Some(found) = found.filter(|found| *found > 0) {
            caches += 1;
            count += found as u64;
        }
    }
    answer.add("tcache", &[caches, count, resident, size_sum].map(Word::Number));
    let Some(bins) = layout.fast_bins else { return };
    let (mut count, mut resident, mut size_sum) = (0, 0, 0);
    let mut visit = |at: usize, size: usize| {
        candidates.own(at, Owner::Cached);
        count += 1;
        resident += frozen.space.resident(at, at + size);
        size_sum += size as u64;
    };
    let all = |at: usize| either(frozen, at, main, layout);
    caches::each_fast(main + bins, true, all, &mut visit);
    arenas::each_other(main, layout, all, |arena| caches::each_fast(arena + bins, true, all, &mut visit));
    answer.add("fast", &[count, resident, size_sum].map(Word::Number));
}
