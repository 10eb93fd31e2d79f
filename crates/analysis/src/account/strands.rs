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

/// The chunks of a heap.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// Where the first one is.
    pub start: usize,
    /// The end of the heap.
    pub end: usize,
    /// The topmost chunk of its arena.
    pub top: usize,
}

impl Heap {
    /// Where the heap's last chunk is, or its end.
    fn last(&self) -> usize {
        if (self.start..self.end).contains(&self.top) { self.top } else { self.end }
    }
}

/// Visits the chunks of a heap: the same as [`chunks::walk`] does. Returns how that ended.
pub fn walk<V: Visitor>(heap: Heap, memory: &impl Memory, visitor: &mut V) -> End {
    let mut rest = heap;
    loop {
        let mut strands = [Strand::default(); STRANDS];
        let used = begin(&mut strands, rest, memory);
        let strands = strands.get_mut(..used).unwrap_or_default();
        by_turns(strands, rest, memory, visitor);
        let mut right = 0;
        let mut ended = None;
        // At least the first one is right, and so the start moves, or the walk has ended.
        while let Some(strand) =
            strands.get(right).filter(|strand| strand.first == rest.start && ended.is_none())
        {
            visitor.keep(&strand.sums);
            (rest.start, ended) = (strand.at, strand.ended);
            right += 1;
        }
        // All chunks of the strands that were right begin before this.
        if let Some(wrong) = strands.get(right) {
            visitor.forget(wrong.first);
        }
        if let Some(ended) = ended {
            return ended;
        }
    }
}

/// Finds where strands may begin, at about equal distances: the first one at the start. Returns how many there are.
fn begin<S: Copy + Default>(strands: &mut [Strand<S>; STRANDS], heap: Heap, memory: &impl Memory) -> usize {
    let bytes = heap.last().saturating_sub(heap.start);
    let mut borders = [Border::default(); STRANDS];
    let borders = borders.get_mut(..if bytes < LEAST { 1 } else { STRANDS }).unwrap_or_default();
    for (number, border) in borders.iter_mut().enumerate().skip(1) {
        *border = Border::new(heap.start + bytes / STRANDS * number, heap.last());
    }
    find(borders, heap, memory);
    let mut used = 0_usize;
    for (number, border) in borders.iter().enumerate() {
        let first = if number == 0 { Some(heap.start) } else { border.found };
        let before = used.checked_sub(1).and_then(|last| strands.get_mut(last));
        let Some(first) = first.filter(|first| before.as_ref().is_none_or(|before| before.first < *first))
        else {
            continue;
        };
        if let Some(before) = before {
            before.until = first;
        }
        if let Some(place) = strands.get_mut(used) {
            let head = memory.word(first.wrapping_add(8));
            *place = Strand { first, until: usize::MAX, at: first, head, ended: None, sums: S::default() };
            used += 1;
        }
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
    fn new(from: usize, last: usize) -> Self {
        let last = last.min(from.saturating_add(SEARCHED));
        Self { next: from.next_multiple_of(chunks::GRAIN), last, ..Self::default() }
    }

    /// Goes on by one chunk. Returns whether there is more to do.
    fn go_on(&mut self, heap: Heap, last: usize, memory: &impl Memory) -> bool {
        while self.left > 0 || self.next < self.last {
            if self.left == 0 {
                (self.at, self.head, self.left) = (self.next, memory.word(self.next + 8), PROOF);
                self.next += chunks::GRAIN;
            }
            let Step::Chunk { size, next_head, .. } = step(self.at, self.head, last, heap, memory) else {
                self.left = 0;
                continue;
            };
            (self.at, self.head, self.left) = (self.at + size, next_head, self.left - 1);
            soon(self.at, self.head, memory);
            self.found = (self.left == 0 && self.at < last).then_some(self.at);
            return self.found.is_none();
        }
        false
    }
}

/// Finds all of these, by turns: each waits for memory at each chunk.
fn find(borders: &mut [Border], heap: Heap, memory: &impl Memory) {
    let last = heap.last();
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for border in borders.iter_mut().filter(|border| border.found.is_none()) {
            goes_on |= border.go_on(heap, last, memory);
        }
    }
}

/// What [`chunks::step`] answers. `last`: [`Heap::last`].
#[inline]
fn step(at: usize, head: Option<u64>, last: usize, heap: Heap, memory: &impl Memory) -> Step {
    let quick = quick_step(at, head, last, memory);
    quick.unwrap_or_else(|| chunks::step(at, head, heap.end, heap.top, |at| memory.word(at)))
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

fn by_turns<V: Visitor>(strands: &mut [Strand<V::Sums>], heap: Heap, memory: &impl Memory, visitor: &mut V) {
    let last = heap.last();
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for strand in &mut *strands {
            if strand.ended.is_some() || strand.at >= strand.until {
                continue;
            }
            match step(strand.at, strand.head, last, heap, memory) {
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

    struct Words(Vec<u64>);

    impl Memory for Words {
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
    fn heap(bytes: usize, random: &mut Random, mut fill: impl FnMut(&mut Random) -> u64) -> (Words, usize) {
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
        (Words(words), at)
    }

    /// What both ways of walking see. Returns how much was seen in vain.
    fn compare(heap: &Words, top: usize) -> usize {
        let end = heap.0.len() * 8;
        let mut slowly = Vec::new();
        let slow_end =
            chunks::walk(0, end, top, |at| heap.word(at), |at, size, state| slowly.push((at, size, state)));
        let mut seen = Seen::default();
        assert_eq!(walk(Heap { start: 0, end, top }, heap, &mut seen), slow_end);
        seen.chunks.sort_unstable_by_key(|chunk| chunk.0);
        assert!(seen.chunks == slowly, "{} chunks for {}", seen.chunks.len(), slowly.len());
        assert_eq!(seen.bytes, slowly.iter().map(|chunk| chunk.1).sum::<usize>());
        seen.forgotten
    }

    #[test]
    fn sees_what_a_plain_walk_sees() {
        let mut random = Random(1);
        for bytes in [64 << 10, 1 << 20, 5 << 20] {
            let (heap, top) = heap(bytes, &mut random, |_| 0);
            assert_eq!(compare(&heap, top), 0);
            let mut strands = [Strand::<()>::default(); STRANDS];
            let used = begin(&mut strands, Heap { start: 0, end: bytes, top }, &heap);
            assert_eq!(used, if bytes > LEAST { STRANDS } else { 1 });
            for (number, strand) in strands.iter().enumerate().take(used) {
                assert!(strand.first.abs_diff(top / STRANDS * number) < 2 * SEARCHED, "{number}");
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
