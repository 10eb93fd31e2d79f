//! Walks over glibc's heaps in the copy.

use memintro_analysis::account::arenas::{self, Layout};
use memintro_analysis::account::chunks::{self, End};
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::owners::Owner;
use memintro_analysis::account::{PAGE, caches, maps};

use super::answer::AnswerWriter;
use super::frozen::{Frozen, prefetch, read};
use super::heap_walk::{Bins, Candidates, MOST_CACHES, Pieces, Sums, one_heap};
use super::mapped;
use crate::copy::own_memory::slice;

/// Chunks between one that may be a cache and the one that is read from memory meanwhile.
const AHEAD: usize = 8;

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

/// Writes what malloc has. `object`: one of Ruby's objects, where the pages of its heap are not claimed. `None` if there
/// is no memory for the walk.
pub(crate) fn walk(
    frozen: &mut Frozen<'_>,
    own: &[u8],
    object: Option<usize>,
    answer: &mut AnswerWriter<'_>,
) -> Option<()> {
    let mut candidates = Candidates { room: slice(MOST_CACHES)?, used: 0, owners: frozen.owners.take() };
    let mut claims = Claims { list: slice(MOST_CACHES)?, used: 0 };
    let main = find(frozen, own);
    answer.figure("glibc", u64::from(main.is_some()));
    if let Some(main) = main {
        all_arenas(frozen, main, &mut candidates, &mut claims, answer);
    }
    let heaps = claims.list.get(..claims.used)?;
    for (from, to) in heaps {
        frozen.space.claim(*from, *to);
    }
    if main.is_some() {
        let search = mapped::Wanted { heaps, object, counted: counted_mapped(frozen, own) };
        mapped::count(frozen, &search, &mut candidates, answer)?;
        frozen.owners = candidates.owners;
    }
    Some(())
}

/// Walks over all chunks of all arenas.
fn all_arenas(
    frozen: &Frozen<'_>,
    main: (usize, Layout),
    candidates: &mut Candidates<'_>,
    claims: &mut Claims,
    answer: &mut AnswerWriter<'_>,
) {
    let (arena, layout) = main;
    let mut claim = |from, to| claims.add(from, to);
    let mut bins = Bins::default();
    walk_main(frozen, (arena, layout), candidates, &mut claim, &mut bins, answer);
    let mut number = 0;
    let whole = arenas::each_other(
        arena,
        layout,
        |at| either(frozen, at, arena, layout),
        |other| {
            number += 1;
            walk_other(frozen, (number, other), layout, candidates, &mut claim, &mut bins, answer);
        },
    );
    if !whole {
        answer.add("broken", &[Word::Number(0), Word::Text(b"arenas")]);
    }
    bins.write(answer);
    cached(frozen, main, candidates, answer);
}

/// Anonymous memory, or the main arena itself.
fn either(frozen: &Frozen<'_>, at: usize, arena: usize, layout: Layout) -> Option<u64> {
    if (arena..arena + layout.size).contains(&at) && at.is_multiple_of(8) {
        // SAFETY: the main arena was found in readable memory.
        return Some(unsafe { read(at) });
    }
    frozen.word(at)
}

/// The main arena, in the writable data of libc.
pub(crate) fn find(frozen: &Frozen<'_>, own: &[u8]) -> Option<(usize, Layout)> {
    find_in_libc(frozen, own, |at, word| arenas::main_arena(at, word).map(|layout| (at, layout)))
}

/// What libc says of blocks with a mapping of their own: how many, and their bytes.
fn counted_mapped(frozen: &Frozen<'_>, own: &[u8]) -> Option<(u64, u64)> {
    let both = frozen.space.areas().iter().zip(frozen.regions.iter()).find(|both| both.1.is_brk)?;
    find_in_libc(frozen, own, |at, word| arenas::counted_mapped(at, both.0.start, word))
}

/// The first answer for an address in the writable data of libc.
fn find_in_libc<T>(
    frozen: &Frozen<'_>,
    own: &[u8],
    ask: impl Fn(usize, &dyn Fn(usize) -> Option<u64>) -> Option<T>,
) -> Option<T> {
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
        found = (mapping.start..mapping.end).step_by(8).find_map(|at| ask(at, &word));
    });
    found
}

fn walk_main(
    frozen: &Frozen<'_>,
    (arena, layout): (usize, Layout),
    candidates: &mut Candidates<'_>,
    claim: &mut impl FnMut(usize, usize),
    bins: &mut Bins,
    answer: &mut AnswerWriter<'_>,
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
    bins.add(&sums.bins);
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
    answer: &mut AnswerWriter<'_>,
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
    bins: &mut Bins,
    answer: &mut AnswerWriter<'_>,
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
    bins.add(&sums.bins);
}

fn is_busy(arena: usize, word: impl Fn(usize) -> Option<u64>) -> bool {
    word(arena).is_some_and(|lock| lock & 0xffff_ffff != 0)
}

fn write(number: u64, heaps: u64, sums: &Sums, answer: &mut AnswerWriter<'_>) {
    // `malloc_trim` gives back the topmost chunk of the main arena only.
    let trimmed = sums.whole_pages + if number == 0 { sums.top } else { 0 };
    let figures = [number, heaps, sums.used, sums.free, sums.top, sums.used_size, sums.free_chunks, trimmed];
    answer.add("arena", &figures.map(Word::Number));
}

/// Chunks in caches and fast bins: resident bytes and sizes, of all and of each size.
fn cached(
    frozen: &Frozen<'_>,
    (main, layout): (usize, Layout),
    candidates: &mut Candidates<'_>,
    answer: &mut AnswerWriter<'_>,
) {
    let word = |at: usize| frozen.word(at);
    let (mut caches, mut sums) = (0, BySize::<{ caches::LISTS }>::new());
    for place in 0..candidates.used {
        let Some(chunk) = candidates.room.get(place).copied() else { break };
        if let Some(soon) = candidates.room.get(place + AHEAD) {
            prefetch(caches::counts_of(*soon));
        }
        let found = caches::each_cached(chunk, word, |at, size| sums.count(frozen, candidates, at, size));
        // Memory of zeroes looks like a cache that holds nothing.
        caches += u64::from(found.is_some_and(|found| found > 0));
    }
    answer.add("tcache", &[caches, sums.count, sums.resident, sums.size].map(Word::Number));
    sums.write("tcache_bin", answer);
    let Some(bins) = layout.fast_bins else { return };
    let mut sums = BySize::<{ caches::FAST_LISTS }>::new();
    let mut visit = |at: usize, size: usize| sums.count(frozen, candidates, at, size);
    let all = |at: usize| either(frozen, at, main, layout);
    caches::each_fast(main + bins, true, all, &mut visit);
    arenas::each_other(main, layout, all, |arena| caches::each_fast(arena + bins, true, all, &mut visit));
    answer.add("fast", &[sums.count, sums.resident, sums.size].map(Word::Number));
    sums.write("fast_bin", answer);
}

/// Chunks in lists of one size each.
struct BySize<const LISTS: usize> {
    count: u64,
    resident: u64,
    size: u64,
    lists: [Pieces; LISTS],
}

impl<const LISTS: usize> BySize<LISTS> {
    fn new() -> Self {
        Self { count: 0, resident: 0, size: 0, lists: [Pieces::default(); LISTS] }
    }

    fn count(&mut self, frozen: &Frozen<'_>, candidates: &mut Candidates<'_>, at: usize, size: usize) {
        candidates.own(at, Owner::Cached);
        let resident = frozen.space.resident(at, at + size);
        self.count += 1;
        self.resident += resident;
        self.size += size as u64;
        if let Some(list) = self.lists.get_mut(caches::list_of(size)) {
            list.add(1, resident);
        }
    }

    fn write(&self, key: &str, answer: &mut AnswerWriter<'_>) {
        for (number, list) in self.lists.iter().enumerate() {
            list.write(key, caches::size_of(number), answer);
        }
    }
}
