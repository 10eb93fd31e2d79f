//! Walks over one heap of glibc's, chunk by chunk.

use memintro_analysis::account::chunks::{End, State};
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::owners::{Owner, Owners};
use memintro_analysis::account::space::{Area, Space};
use memintro_analysis::account::strands::{self, Heap, Memory, Visitor};
use memintro_analysis::account::{PAGE, caches};

use super::answer::AnswerWriter;
use super::frozen::{Frozen, prefetch, read};

/// More threads' caches than any process has.
pub(super) const MOST_CACHES: usize = 1 << 16;

/// Resident bytes by what they are, and all bytes of chunks in use.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) used: u64,
    pub(super) free: u64,
    pub(super) top: u64,
    /// Whole pages within free chunks, which `malloc_trim` gives back.
    pub(super) whole_pages: u64,
    pub(super) used_size: u64,
    pub(super) free_chunks: u64,
    pub(super) bins: Bins,
}

/// Free chunks by their sizes: a class for each power of two from the least chunk's size on, the last one for all above.
#[derive(Clone, Copy, Default)]
pub(super) struct Bins([Pieces; 16]);

/// How many there are, and their resident bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Pieces {
    count: u64,
    resident: u64,
}

impl Bins {
    const LEAST: usize = 32;

    #[inline]
    fn count(&mut self, size: usize, resident: u64) {
        let class = (size / Self::LEAST).checked_ilog2().unwrap_or(0) as usize;
        let last = self.0.len() - 1;
        if let Some(pieces) = self.0.get_mut(class.min(last)) {
            pieces.add(1, resident);
        }
    }

    pub(super) fn add(&mut self, more: &Self) {
        for (pieces, more) in self.0.iter_mut().zip(more.0) {
            pieces.add(more.count, more.resident);
        }
    }

    /// A line for each class that has chunks, with its least size.
    pub(super) fn write(&self, answer: &mut AnswerWriter<'_>) {
        for (class, pieces) in self.0.iter().enumerate() {
            pieces.write("bin", Self::LEAST << class, answer);
        }
    }
}

impl Pieces {
    pub(super) fn add(&mut self, count: u64, resident: u64) {
        self.count += count;
        self.resident += resident;
    }

    pub(super) fn write(&self, key: &str, size: usize, answer: &mut AnswerWriter<'_>) {
        if self.count > 0 {
            answer.add(key, &[size as u64, self.count, self.resident].map(Word::Number));
        }
    }
}

/// What `malloc_trim` leaves of a free chunk, for its head and its places in lists.
const KEPT_OF_FREE: usize = 48;

/// Addresses of chunks that may be caches, and whose each chunk is.
pub(super) struct Candidates<'a> {
    pub(super) room: &'static mut [usize],
    pub(super) used: usize,
    pub(super) owners: Option<Owners<'a>>,
}

/// Walks one heap; returns the address up to which its pages are malloc's. What comes after a broken chunk is not
/// known, and is reported.
pub(super) fn one_heap(
    frozen: &Frozen<'_>,
    first: usize,
    end: usize,
    top: usize,
    sums: &mut Sums,
    candidates: &mut Candidates<'_>,
    answer: &mut AnswerWriter<'_>,
) -> usize {
    let Some(area) = frozen.space.area(first).filter(|area| area.holds(first, end)).copied() else {
        answer.add("broken", &[Word::Number(0), Word::Text(b"heap")]);
        return first;
    };
    let before = sums.free + sums.top;
    let mut tally = Tally { space: &frozen.space, area, end, sums, candidates };
    let ended = strands::walk(Heap { start: first, end, top }, &Readable(area), &mut tally);
    let (known, last) = match ended {
        End::Whole(last) => {
            // Marks at the end, and the part of the last page that no chunk has, are in use.
            let rounded = last.next_multiple_of(PAGE).min(end);
            (rounded, rounded)
        }
        End::Broken(at) => {
            let lost = frozen.space.resident(at, end);
            answer.add("broken", &[Word::Number(lost), Word::Text(b"chunk")]);
            // All of these pages are the heap's, known or not.
            (at, end)
        }
    };
    let free = sums.free + sums.top - before;
    sums.used += frozen.space.resident_in(&area, first, known).saturating_sub(free);
    last
}

/// The memory of one area.
pub(super) struct Readable(pub(super) Area);

impl Memory for Readable {
    #[inline]
    fn word(&self, at: usize) -> Option<u64> {
        let is_here = at.is_multiple_of(8) && self.0.holds(at, at.wrapping_add(8));
        // SAFETY: within a readable mapping of this process, in which nothing else runs.
        is_here.then(|| unsafe { read(at) })
    }

    #[inline]
    fn pair(&self, at: usize) -> Option<(u64, u64)> {
        let is_here = at.is_multiple_of(8) && self.0.holds(at, at.wrapping_add(16));
        // SAFETY: within a readable mapping of this process, in which nothing else runs.
        is_here.then(|| unsafe { (read(at), read(at + 8)) })
    }

    #[inline]
    fn soon(&self, at: usize) {
        prefetch(at);
    }
}

/// Counts the chunks of one heap.
struct Tally<'a, 'b, 'c> {
    space: &'a Space<'b>,
    area: Area,
    end: usize,
    sums: &'a mut Sums,
    candidates: &'a mut Candidates<'c>,
}

impl Visitor for Tally<'_, '_, '_> {
    type Sums = Sums;

    #[inline]
    fn visit(&mut self, sums: &mut Sums, at: usize, size: usize, state: State) {
        match state {
            State::Used => {
                sums.used_size += size as u64;
                self.candidates.own(at, Owner::Native);
                if size == caches::CACHE {
                    self.candidates.add(at);
                }
            }
            State::Free => sums.free_chunk(self.space, &self.area, at, at + size),
            State::Top => sums.top += self.space.resident_in(&self.area, at, at + size),
        }
    }

    fn keep(&mut self, sums: &Sums) {
        self.sums.add(sums);
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
        self.bins.add(&more.bins);
    }

    /// Counts a free chunk.
    pub(super) fn free_chunk(&mut self, space: &Space<'_>, area: &Area, from: usize, to: usize) {
        self.free_chunks += 1;
        let (first, last) = ((from + KEPT_OF_FREE).next_multiple_of(PAGE), to / PAGE * PAGE);
        let (resident, whole_pages) = if space.is_whole(area, from, to) {
            ((to - from) as u64, last.saturating_sub(first) as u64)
        } else {
            (space.resident_in(area, from, to), space.resident_in(area, first, last))
        };
        self.free += resident;
        self.whole_pages += whole_pages;
        self.bins.count(to - from, resident);
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
