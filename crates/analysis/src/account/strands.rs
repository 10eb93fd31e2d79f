//! Walks over the chunks of a long heap in several places at once.
//!
//! The head of a chunk says where the next one is, so a walk waits for memory at each chunk. Several walks by turns, the
//! strands, wait together: each asks for its next head and lets the others go on. Each strand but the first begins at
//! what looks like a chunk, somewhere within the heap. Whether it was one shows in the end: the strand before it must
//! arrive exactly there. What a wrong strand and those after it have seen is forgotten, and is walked over again.

use super::chunks::{self, End, State, Step};

/// Strands, in the order of their addresses. With more, the processor does not wait for more words at once.
const STRANDS: usize = 24;
/// A heap of less is walked from one end to the other.
const LEAST: usize = 1 << 20;
/// Chunks that must follow one another where a strand begins. Old heads, within what is a free chunk now, lead to its
/// end in fewer steps than this.
const PROOF: usize = 64;
/// Bytes in which a beginning is looked for.
const SEARCHED: usize = 64 << 10;

/// Who sees the chunks.
pub trait Visitor {
    /// Sums of one strand.
    type Sums: Copy + Default;
    /// A chunk. Those of one strand come in their order.
    fn visit(&mut self, sums: &mut Self::Sums, at: usize, size: usize, state: State);
    /// Sums of a strand that was right.
    fn keep(&mut self, sums: &Self::Sums);
    /// What was seen from this address on was wrong.
    fn forget(&mut self, from: usize);
}

/// What the process has in its memory.
pub trait Memory {
    /// Eight bytes, or `None` where nothing is to be read.
    fn word(&self, at: usize) -> Option<u64>;
    /// The same of two words that follow one another.
    #[inline]
    fn pair(&self, at: usize) -> Option<(u64, u64)> {
        Some((self.word(at)?, self.word(at.checked_add(8)?)?))
    }
    /// The word will be read soon. It may be no valid address.
    fn soon(&self, at: usize);
}

#[derive(Clone, Copy, Default)]
struct Strand<S> {
    first: usize,
    /// Where the next strand begins.
    until: usize,
    at: usize,
    head: Option<u64>,
    ended: Option<End>,
    sums: S,
}

/// The chunks of a heap, or a part of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// Where the first one is.
    pub start: usize,
    /// Chunks that begin here and after are not visited; `usize::MAX` for all.
    pub until: usize,
    /// The end of the heap.
    pub end: usize,
    /// The topmost chunk of its arena.
    pub top: usize,
}

impl Part {
    /// Divides this where chunks seem to begin into pieces of about equal length, at least `least` bytes each. A walk over a
    /// piece must arrive exactly where the next one begins; otherwise what the next one has shown is wrong. Returns how many
    /// there are, at least one.
    pub fn divide(self, pieces: &mut [Self], least: usize, memory: &impl Memory) -> usize {
        let limit = self.limit();
        let bytes = limit.saturating_sub(self.start);
        let most = (bytes / least.max(1)).clamp(1, pieces.len().clamp(1, STRANDS));
        let mut borders = [Border::default(); STRANDS];
        let borders = borders.get_mut(..most).unwrap_or_default();
        for (number, border) in borders.iter_mut().enumerate().skip(1) {
            *border = Border::new(self.start + bytes / most * number, limit);
        }
        find(borders, self, memory);
        let mut used = 0_usize;
        for (number, border) in borders.iter().enumerate() {
            let first = if number == 0 { Some(self.start) } else { border.found };
            let before = used.checked_sub(1).and_then(|last| pieces.get_mut(last));
            let Some(first) =
                first.filter(|first| before.as_ref().is_none_or(|before| before.start < *first))
            else {
                continue;
            };
            if let Some(before) = before {
                before.until = first;
            }
            if let Some(place) = pieces.get_mut(used) {
                *place = Self { start: first, ..self };
                used += 1;
            }
        }
        used
    }

    /// All chunks that are visited begin before this.
    fn limit(&self) -> usize {
        self.last().min(self.until)
    }

    /// Where the heap's last chunk is, or its end.
    fn last(&self) -> usize {
        if (self.start..self.end).contains(&self.top) { self.top } else { self.end }
    }
}

/// Visits the chunks of a part: the same as [`chunks::walk`] does. Returns how that ended, or where the first chunk is that
/// begins at its limit or after.
pub fn walk<V: Visitor>(part: Part, memory: &impl Memory, visitor: &mut V) -> Result<End, usize> {
    let mut part = part;
    loop {
        let mut strands = [Strand::default(); STRANDS];
        let used = begin(&mut strands, part, memory);
        let strands = strands.get_mut(..used).unwrap_or_default();
        by_turns(strands, part, memory, visitor);
        let mut right = 0;
        let mut ended = None;
        // At least the first one is right, and so the start moves, or the walk has ended.
        while let Some(strand) =
            strands.get(right).filter(|strand| strand.first == part.start && ended.is_none())
        {
            visitor.keep(&strand.sums);
            (part.start, ended) = (strand.at, strand.ended);
            right += 1;
        }
        // All chunks of the strands that were right begin before this.
        if let Some(wrong) = strands.get(right) {
            visitor.forget(wrong.first);
        }
        if let Some(ended) = ended {
            return Ok(ended);
        }
        if part.start >= part.until {
            return Err(part.start);
        }
    }
}

/// Finds where strands may begin. Returns how many there are.
fn begin<S: Copy + Default>(strands: &mut [Strand<S>; STRANDS], part: Part, memory: &impl Memory) -> usize {
    let is_short = part.limit().saturating_sub(part.start) < LEAST;
    let mut pieces = [Part::default(); STRANDS];
    let pieces = pieces.get_mut(..if is_short { 1 } else { STRANDS }).unwrap_or_default();
    let used = part.divide(pieces, 1, memory);
    for (strand, Part { start, until, .. }) in strands.iter_mut().zip(pieces).take(used) {
        let head = memory.word(start.wrapping_add(8));
        *strand = Strand { first: *start, until: *until, at: *start, head, ended: None, sums: S::default() };
    }
    used
}

/// Looks for an address where a chunk seems to begin.
#[derive(Clone, Copy, Default)]
struct Border {
    /// Where the next proof begins, and the end of what is searched.
    next: usize,
    last: usize,
    /// The chunk that the proof has come to, its head, and how many are still to come; 0: none is going on.
    at: usize,
    head: Option<u64>,
    left: usize,
    found: Option<usize>,
}

impl Border {
    fn new(from: usize, limit: usize) -> Self {
        let last = limit.min(from.saturating_add(SEARCHED));
        Self { next: from.next_multiple_of(chunks::GRAIN), last, ..Self::default() }
    }

    /// Goes on by one chunk. Returns whether there is more to do.
    fn go_on(&mut self, part: Part, limit: usize, last: usize, memory: &impl Memory) -> bool {
        while self.left > 0 || self.next < self.last {
            if self.left == 0 {
                (self.at, self.head, self.left) = (self.next, memory.word(self.next + 8), PROOF);
                self.next += chunks::GRAIN;
            }
            let Step::Chunk { size, next_head, .. } = step(self.at, self.head, last, part, memory) else {
                self.left = 0;
                continue;
            };
            (self.at, self.head, self.left) = (self.at + size, next_head, self.left - 1);
            soon(self.at, self.head, memory);
            self.found = (self.left == 0 && self.at < limit).then_some(self.at);
            return self.found.is_none();
        }
        false
    }
}

/// Finds all of these, by turns: each waits for memory at each chunk.
fn find(borders: &mut [Border], part: Part, memory: &impl Memory) {
    let (limit, last) = (part.limit(), part.last());
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for border in borders.iter_mut().filter(|border| border.found.is_none()) {
            goes_on |= border.go_on(part, limit, last, memory);
        }
    }
}

/// What [`chunks::step`] answers. `last`: [`Part::last`].
#[inline]
fn step(at: usize, head: Option<u64>, last: usize, part: Part, memory: &impl Memory) -> Step {
    let quick = quick_step(at, head, last, memory);
    quick.unwrap_or_else(|| chunks::step(at, head, part.end, part.top, |at| memory.word(at)))
}

/// The head of the chunk after this one will be read soon.
#[inline]
fn soon(at: usize, head: Option<u64>, memory: &impl Memory) {
    let size = head.map_or(0, |head| (head & !chunks::FLAGS) as usize);
    memory.soon(at.wrapping_add(size).wrapping_add(8));
}

/// What [`chunks::step`] answers of most chunks: those that end before the top, and are as they should be.
#[inline]
fn quick_step(at: usize, head: Option<u64>, last: usize, memory: &impl Memory) -> Option<Step> {
    let head = head.filter(|head| head & (chunks::MAPPED | 8) == 0)?;
    let size = usize::try_from(head & !chunks::FLAGS).ok().filter(|size| *size > chunks::GRAIN)?;
    let next = at.checked_add(size).filter(|next| *next < last)?;
    let (before, next_head) = memory.pair(next)?;
    let is_used = next_head & chunks::PREVIOUS_IN_USE != 0;
    let state = if is_used { State::Used } else { State::Free };
    (is_used || before == size as u64).then_some(Step::Chunk { size, state, next_head: Some(next_head) })
}

fn by_turns<V: Visitor>(strands: &mut [Strand<V::Sums>], part: Part, memory: &impl Memory, visitor: &mut V) {
    let last = part.last();
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for strand in &mut *strands {
            if strand.ended.is_some() || strand.at >= strand.until {
                continue;
            }
            match step(strand.at, strand.head, last, part, memory) {
                Step::Chunk { size, state, next_head } => {
                    visitor.visit(&mut strand.sums, strand.at, size, state);
                    strand.at += size;
                    strand.head = next_head;
                    soon(strand.at, strand.head, memory);
                    goes_on = true;
                }
                Step::Top { size } => {
                    visitor.visit(&mut strand.sums, strand.at, size, State::Top);
                    strand.at += size;
                    strand.ended = Some(End::Whole(strand.at));
                }
                Step::Ended(ended) => strand.ended = Some(ended),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Heap(Vec<u64>);

    impl Memory for Heap {
        fn word(&self, at: usize) -> Option<u64> {
            at.is_multiple_of(8).then(|| self.0.get(at / 8).copied()).flatten()
        }

        fn soon(&self, _at: usize) {}
    }

    type Chunk = (usize, usize, State);

    #[derive(Default)]
    struct Seen {
        chunks: Vec<Chunk>,
        bytes: usize,
        forgotten: usize,
    }

    impl Visitor for Seen {
        type Sums = usize;

        fn visit(&mut self, sums: &mut usize, at: usize, size: usize, state: State) {
            self.chunks.push((at, size, state));
            *sums += size;
        }

        fn keep(&mut self, sums: &usize) {
            self.bytes += sums;
        }

        fn forget(&mut self, from: usize) {
            let before = self.chunks.len();
            self.chunks.retain(|chunk| chunk.0 < from);
            self.forgotten += before - self.chunks.len();
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as usize % most
        }
    }

    /// Chunks up to a top, with contents from `fill`. Returns the heap, and where its top is.
    fn heap(bytes: usize, random: &mut Random, mut fill: impl FnMut(&mut Random) -> u64) -> (Heap, usize) {
        let mut words: Vec<u64> = (0..bytes / 8).map(|_| fill(random)).collect();
        let (mut at, mut before_used) = (0, true);
        while at < bytes - 20_000 {
            let size = 32 + 16 * random.below(60);
            let used = !before_used || random.below(3) > 0;
            words[at / 8 + 1] = size as u64 | u64::from(before_used);
            if !used {
                words[(at + size) / 8] = size as u64;
            }
            (at, before_used) = (at + size, used);
        }
        words[at / 8 + 1] = (bytes - at) as u64 | u64::from(before_used);
        (Heap(words), at)
    }

    /// What both ways of walking see. Returns how much was seen in vain.
    fn compare(heap: &Heap, top: usize) -> usize {
        let end = heap.0.len() * 8;
        let mut slowly = Vec::new();
        let slow_end =
            chunks::walk(0, end, top, |at| heap.word(at), |at, size, state| slowly.push((at, size, state)));
        let mut seen = Seen::default();
        let all = Part { start: 0, until: usize::MAX, end, top };
        assert_eq!(walk(all, heap, &mut seen), Ok(slow_end));
        seen.chunks.sort_unstable_by_key(|chunk| chunk.0);
        in_parts(heap, all, &slowly, slow_end);
        assert!(seen.chunks == slowly, "{} chunks for {}", seen.chunks.len(), slowly.len());
        assert_eq!(seen.bytes, slowly.iter().map(|chunk| chunk.1).sum::<usize>());
        seen.forgotten
    }

    /// The first part up to each of some addresses: where it arrives, the rest begins.
    fn in_parts(heap: &Heap, all: Part, slowly: &[Chunk], slow_end: End) {
        let mut pieces = [Part::default(); 2];
        let used = all.divide(&mut pieces, LEAST, heap);
        let half = if used == 2 { pieces[1].start } else { all.end / 2 };
        for until in [0, 16, half, half + 16, all.end / 3, all.top, all.end] {
            let (mut first, mut second) = (Seen::default(), Seen::default());
            let next = slowly.iter().map(|chunk| chunk.0).find(|at| *at >= until);
            match walk(Part { until, ..all }, heap, &mut first) {
                Err(at) => {
                    // A chunk, or what is none and ends the walk.
                    assert!(at >= until && next.is_none_or(|next| next == at), "{at} from {until}");
                    assert_eq!(walk(Part { start: at, ..all }, heap, &mut second), Ok(slow_end));
                }
                Ok(end) => assert_eq!((end, next), (slow_end, None)),
            }
            let mut chunks = [first.chunks, second.chunks].concat();
            chunks.sort_unstable_by_key(|chunk| chunk.0);
            assert!(chunks == slowly, "{} chunks for {} up to {until}", chunks.len(), slowly.len());
        }
    }

    #[test]
    fn sees_what_a_plain_walk_sees() {
        let mut random = Random(1);
        for bytes in [64 << 10, 1 << 20, 5 << 20] {
            let (heap, top) = heap(bytes, &mut random, |_| 0);
            assert_eq!(compare(&heap, top), 0);
            let mut strands = [Strand::<()>::default(); STRANDS];
            let all = Part { start: 0, until: usize::MAX, end: bytes, top };
            let used = begin(&mut strands, all, &heap);
            assert_eq!(used, if bytes > LEAST { STRANDS } else { 1 });
            let mut pieces = [Part::default(); 5];
            assert_eq!(all.divide(&mut pieces, bytes, &heap), 1);
            if bytes > LEAST {
                assert_eq!(all.divide(&mut pieces, bytes / 8, &heap), 5);
                assert_eq!((pieces[0].start, pieces[4].until), (0, usize::MAX));
                for (number, piece) in pieces.iter().enumerate().take(4) {
                    assert!(piece.start.abs_diff(top / 5 * number) < 2 * SEARCHED, "{number}: {piece:?}");
                    assert_eq!(piece.until, pieces[number + 1].start);
                    assert_eq!(walk(*piece, &heap, &mut Seen::default()), Err(piece.until));
                }
            }
        }
    }

    /// Contents that look like heads of chunks lead strands astray.
    #[test]
    fn wrong_strands_are_forgotten() {
        let mut random = Random(2);
        let mut forgotten = 0;
        for kind in 0..6 {
            let (heap, top) = heap(3 << 20, &mut random, |random| match kind {
                0 => 48 | 1,
                1 => 32 | 1,
                2 => (16 * random.below(40) as u64) | 1,
                3 => 4096 | 1,
                4 => random.0,
                _ => 33 + 16 * (random.0 & 1),
            });
            forgotten += compare(&heap, top);
        }
        assert!(forgotten > 1000, "no strand went astray: {forgotten}");
    }

    #[test]
    fn damage_ends_the_walk_where_it_ends_a_plain_one() {
        let mut random = Random(3);
        for _ in 0..200 {
            // Little more than what is walked in strands: the time goes by the size.
            let (mut heap, top) = heap(LEAST + LEAST / 4, &mut random, |_| 0);
            let place = random.below(heap.0.len());
            heap.0[place] = random.0;
            compare(&heap, top);
            compare(&heap, usize::MAX);
        }
    }
}
