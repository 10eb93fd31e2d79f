//! Which chunks of the arena are free: those that came back, and those that were never used, for which address space is
//! taken as they are wanted.

use super::budget::HUGE;
use crate::mmap::Refusal;
use crate::space::Space;

/// What a pool gets at a time.
pub(super) const CHUNK_BYTES: usize = 32 << 10;

/// Which chunks no pool has.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Chunks from here on were never used.
    fresh: usize,
    /// Number of those in the list of the others.
    pub(super) again: usize,
    space: Space,
    pieces: Pieces,
}

impl Chunks {
    /// Those of an arena without memory.
    pub(super) const NONE: Self = Self { fresh: 0, again: 0, space: Space::new(), pieces: Pieces::NEW };

    /// Those of a space that may come to so many.
    pub(super) fn of(space: Space, end: usize) -> Self {
        let mut pieces = Pieces::NEW;
        pieces.add(0);
        pieces.grow((space.len() / CHUNK_BYTES).min(end));
        Self { space, pieces, ..Self::NONE }
    }

    /// What was handed out, from number to number.
    pub(super) fn used(&self) -> impl Iterator<Item = (usize, usize)> {
        self.pieces.used(self.fresh)
    }

    /// All are as if never used.
    pub(super) fn restart(&mut self) {
        self.again = 0;
        self.fresh = 0;
        self.pieces.current = 0;
    }

    /// The next chunk that was never used, as long as the numbers stay below `end`.
    pub(super) fn fresh(&mut self, end: usize) -> Option<usize> {
        loop {
            let (_, piece_end) = self.pieces.current()?;
            if self.fresh < piece_end {
                self.fresh += 1;
                return Some(self.fresh - 1);
            }
            if self.pieces.go_on() {
                self.fresh = self.pieces.current().map_or(end, |(start, _)| start);
                continue;
            }
            if self.fresh >= end {
                return None;
            }
            match self.space.cover((self.fresh + 1) * CHUNK_BYTES) {
                Ok(()) => self.pieces.grow((self.space.len() / CHUNK_BYTES).min(end)),
                Err(Refusal::Exhausted) => return None,
                Err(Refusal::InTheWay) => {
                    let start = (self.fresh + WAY_ROUND).next_multiple_of(HUGE / CHUNK_BYTES);
                    if start >= end || !self.pieces.add(start) {
                        return None;
                    }
                    self.space.pass_over(start * CHUNK_BYTES);
                    self.fresh = start;
                }
            }
        }
    }
}

/// Chunks that are left out where somebody's memory is in the way: a GiB.
const WAY_ROUND: usize = (1 << 30) / CHUNK_BYTES;

/// The parts of the arena that are its own, from chunk to chunk. There is one unless somebody came in its way.
#[derive(Debug)]
struct Pieces {
    all: [(usize, usize); 16],
    count: usize,
    /// The one whose chunks are handed out.
    current: usize,
}

impl Pieces {
    const NEW: Self = Self { all: [(0, 0); 16], count: 0, current: 0 };

    fn current(&self) -> Option<(usize, usize)> {
        self.all.get(self.current).filter(|_| self.current < self.count).copied()
    }

    /// To the next piece that there is.
    fn go_on(&mut self) -> bool {
        let more = self.current + 1 < self.count;
        self.current += usize::from(more);
        more
    }

    /// The last piece ends here now.
    fn grow(&mut self, end: usize) {
        if let Some(last) = self.count.checked_sub(1).and_then(|last| self.all.get_mut(last)) {
            last.1 = end;
        }
    }

    /// One more, empty, and the current one.
    fn add(&mut self, start: usize) -> bool {
        let Some(piece) = self.all.get_mut(self.count) else { return false };
        *piece = (start, start);
        self.current = self.count;
        self.count += 1;
        true
    }

    /// The chunks that were handed out, from number to number.
    fn used(&self, fresh: usize) -> impl Iterator<Item = (usize, usize)> {
        let passed = self.all.iter().take(self.current).copied();
        passed.chain(self.current().map(|(start, end)| (start, fresh.min(end).max(start))))
    }
}
