//! Walks over the chunks of glibc's malloc, from the first to the topmost.
//!
//! A chunk begins with the size of the one before it, if that is free, and with its own size, whose lowest bits say:
//! the one before is in use (1), mapped on its own (2), not of the main arena (4). So whether a chunk is in use is
//! written in the next one. Chunks in a thread's cache and in fast bins look as if they were in use
//! ([`super::caches`]).

/// The chunk before this one is in use.
pub const PREVIOUS_IN_USE: u64 = 1;
/// This chunk has a mapping of its own.
pub const MAPPED: u64 = 2;
/// The lowest bits, which are no part of the size.
pub const FLAGS: u64 = 7;
/// Chunks begin at multiples of this, and have such sizes.
pub const GRAIN: usize = 16;
/// A chunk's head, before what malloc's caller has.
const HEAD: usize = 16;

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Handed out, or in a cache.
    Used,
    /// In a bin.
    Free,
    /// The rest at the end of the arena's memory.
    Top,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the top chunk, or at the mark that closes a heap: here.
    Whole(usize),
    /// This is no chunk.
    Broken(usize),
}

/// Visits the chunks from `start` on, which all lie below `end`. `word` reads eight bytes, or answers `None` where
/// nothing is to be read.
pub fn walk(
    start: usize,
    end: usize,
    top: usize,
    word: impl Fn(usize) -> Option<u64>,
    mut visit: impl FnMut(usize, usize, State),
) -> End {
    let mut at = start;
    let mut head = word(at.wrapping_add(8));
    loop {
        match step(at, head, end, top, &word) {
            Step::Chunk { size, state, next_head } => {
                visit(at, size, state);
                at += size;
                head = next_head;
            }
            Step::Top { size } => {
                visit(at, size, State::Top);
                return End::Whole(at + size);
            }
            Step::Ended(ended) => return ended,
        }
    }
}

/// What is at an address where a chunk should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A chunk, and the head of the next one, where that can be read.
    Chunk { size: usize, state: State, next_head: Option<u64> },
    /// The topmost chunk, after which the walk has ended.
    Top { size: usize },
    /// Nothing more to visit.
    Ended(End),
}

/// `head`: the chunk's own size and flags, which were read before.
#[inline]
pub(super) fn step(
    at: usize,
    head: Option<u64>,
    end: usize,
    top: usize,
    word: impl Fn(usize) -> Option<u64>,
) -> Step {
    let Some(head) = head else { return Step::Ended(End::Broken(at)) };
    let Ok(size) = usize::try_from(head & !FLAGS) else { return Step::Ended(End::Broken(at)) };
    if at == top {
        return match at.checked_add(size) {
            Some(next) if next <= end && size >= GRAIN => Step::Top { size },
            _ => Step::Ended(End::Broken(at)),
        };
    }
    // Two small chunks close a heap that is full; the second one has no size.
    if size == 0 && end.saturating_sub(at) <= 2 * GRAIN {
        return Step::Ended(End::Whole(at));
    }
    // So do two at the end of a page where the main arena's memory goes on elsewhere. No block is that small.
    if size == GRAIN
        && let Some(closed) = at.checked_add(2 * GRAIN).filter(|closed| closed.is_multiple_of(super::PAGE))
        && word(at + GRAIN + 8).is_some_and(|head| head & !FLAGS == GRAIN as u64)
    {
        return Step::Ended(End::Whole(closed));
    }
    let Some(next) = at.checked_add(size).filter(|next| *next < end) else {
        return Step::Ended(End::Broken(at));
    };
    if size < GRAIN || !size.is_multiple_of(GRAIN) || head & MAPPED != 0 {
        return Step::Ended(End::Broken(at));
    }
    let next_head = word(next.wrapping_add(8));
    let used = next_head.is_some_and(|head| head & PREVIOUS_IN_USE != 0);
    // A free chunk has its size a second time, at its end.
    if next_head.is_some() && !used && word(next) != Some(size as u64) {
        return Step::Ended(End::Broken(at));
    }
    Step::Chunk { size, state: if used { State::Used } else { State::Free }, next_head }
}

/// A chunk with a mapping of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Where it begins: at a page, unless its caller wanted it aligned.
    pub chunk: usize,
    /// Bytes of the mapping.
    pub size: usize,
}

/// The chunk whose mapping begins at a page, if one does. `room` are the bytes up to the end of the memory in which it lies.
pub fn mapped(page: usize, room: usize, word: impl Fn(usize) -> Option<u64>) -> Option<Mapped> {
    let size = |chunk: usize| {
        let head = word(chunk.checked_add(8)?)?;
        usize::try_from(head & !FLAGS).ok().filter(|_| head & FLAGS == MAPPED)
    };
    let is_whole = |size: usize| size >= super::PAGE && size.is_multiple_of(super::PAGE) && size <= room;
    let first = size(page).filter(|size| is_whole(*size) && word(page) == Some(0))?;
    // This head is left over from an aligned block (its size may be out of date); the chunk's own is in front of the block. It
    // begins with the bytes that were skipped, which are at least the two heads.
    let aligned = |shift: u32| {
        let alignment = 1_usize << shift;
        let least = page.checked_add(2 * HEAD)?;
        let chunk = least.checked_add(HEAD)?.checked_next_multiple_of(alignment)? - HEAD;
        let skipped = chunk - page;
        let size = size(chunk).filter(|_| skipped < room)?.checked_add(skipped)?;
        (is_whole(size) && word(chunk) == Some(skipped as u64)).then_some(Mapped { chunk, size })
    };
    // Each alignment that may have been asked for gives one place.
    let shifts = HEAD.ilog2() + 1..=room.ilog2();
    Some(shifts.filter_map(aligned).next().unwrap_or(Mapped { chunk: page, size: first }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(heap: &[u64]) -> impl Fn(usize) -> Option<u64> + '_ {
        |address| (address % 8 == 0).then(|| heap.get(address / 8).copied()).flatten()
    }

    /// Chunks at 0 (32 bytes, used), 32 (64, free), 96 (16) and the top at 112.
    fn heap() -> Vec<u64> {
        let mut heap = vec![0; 64];
        heap[1] = 32 | 1;
        heap[5] = 64 | 1;
        heap[12] = 64;
        heap[13] = 16;
        heap[15] = 400 | 1;
        heap
    }

    fn walked(heap: &[u64], top: usize) -> (End, Vec<(usize, usize, State)>) {
        let mut found = Vec::new();
        let end = walk(0, 512, top, reader(heap), |at, size, state| found.push((at, size, state)));
        (end, found)
    }

    #[test]
    fn all_chunks_with_their_states() {
        let (end, found) = walked(&heap(), 112);
        assert_eq!(end, End::Whole(512));
        let states =
            [(0, 32, State::Used), (32, 64, State::Free), (96, 16, State::Used), (112, 400, State::Top)];
        assert_eq!(found, states);
    }

    #[test]
    fn what_is_no_chunk_ends_the_walk() {
        let broken = |place: usize, value: u64| {
            let mut heap = heap();
            heap[place] = value;
            walked(&heap, 112).0
        };
        assert_eq!(broken(1, 0), End::Broken(0));
        assert_eq!(broken(1, 40 | 1), End::Broken(0));
        assert_eq!(broken(5, u64::MAX), End::Broken(32));
        assert_eq!(broken(5, (1 << 40) | 1), End::Broken(32));
        assert_eq!(broken(12, 65), End::Broken(32), "the size at the end of the free chunk differs");
        assert_eq!(broken(13, 16 | 2), End::Broken(96), "a mapped chunk within a heap");
        assert_eq!(broken(15, (1 << 20) | 1), End::Broken(112), "the top is longer than the heap");
        assert_eq!(walked(&heap(), 100).0, End::Broken(112), "the top was stepped over");
    }

    #[test]
    fn a_closed_heap_ends_at_its_mark() {
        let mut heap = heap();
        heap[15] = 384 | 1;
        heap[63] = 1;
        assert_eq!(walk(0, 512, 4096, reader(&heap), |_, _, _| {}), End::Whole(496));
    }

    #[test]
    fn a_part_of_the_main_arena_ends_at_two_marks() {
        let mut heap = vec![0; 1024];
        (heap[1], heap[509], heap[511]) = (4064 | 1, 16 | 1, 16 | 1);
        assert_eq!(walk(0, 8192, 1 << 20, reader(&heap), |_, _, _| {}), End::Whole(4096));
    }

    #[test]
    fn any_memory_ends_the_walk() {
        let mut state = 1_u64;
        for _ in 0..2_000 {
            let heap: Vec<u64> = (0..64)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) % 96
                })
                .collect();
            let mut sum = 0;
            walk(0, 512, 112, reader(&heap), |_, size, _| sum += size);
            assert!(sum <= 512);
        }
    }

    #[test]
    fn mapped_chunks_are_known_by_their_heads() {
        let with =
            |first: u64, second: u64| mapped(0, 8192, |address| [first, second].get(address / 8).copied());
        assert_eq!(with(0, 8192 | 2), Some(Mapped { chunk: 0, size: 8192 }));
        assert_eq!(
            (with(1, 8192 | 2), with(0, 8192 | 3), with(0, 8000 | 2), with(0, 12288 | 2)),
            (None, None, None, None)
        );
    }

    #[test]
    fn mapped_chunks_of_aligned_blocks_begin_further_back() {
        const PAGES: usize = 32 * 4096;
        let found = |page: usize, skipped: usize, [first, size]: [usize; 2]| {
            let at = |at: usize, word: usize| (at, (word | 2) as u64);
            let heads = [
                (page, 0),
                at(page + 8, first),
                (page + skipped, skipped as u64),
                at(page + skipped + 8, size),
            ];
            mapped(page, PAGES, |address| {
                Some(heads.iter().find(|head| head.0 == address).map_or(0, |head| head.1))
            })
        };
        let page = 0x7f00_0000_3000;
        for skipped in [48, 112, 4080, 0x5000 - 16, 0xd000 - 16] {
            let expected = Some(Mapped { chunk: page + skipped, size: PAGES });
            assert_eq!(found(page, skipped, [PAGES, PAGES - skipped]), expected, "{skipped}");
            // It was resized since: only its own head is up to date.
            let shorter = Some(Mapped { chunk: page + skipped, size: PAGES - 4096 });
            assert_eq!(found(page, skipped, [PAGES, PAGES - 4096 - skipped]), shorter, "{skipped}");
        }
        let plain = Some(Mapped { chunk: page, size: PAGES });
        // No alignment leads there; the sizes do not agree; so much is not there.
        for (skipped, size) in [(32, PAGES - 32), (48, PAGES - 40), (48, PAGES + 4096 - 48)] {
            assert_eq!(found(page, skipped, [PAGES, size]), plain, "{skipped}");
        }
    }
}
