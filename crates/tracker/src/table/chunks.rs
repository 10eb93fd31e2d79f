//! The free chunks of the arena: chunks that were given back, and chunks that were never used. Address space for the
//! latter is reserved when it is needed.

use super::budget::HUGE;
use crate::mmap::Refusal;
use crate::space::Space;

/// Size of the pieces that a pool gets at a time.
pub(super) const CHUNK_BYTES: usize = 32 << 10;

/// The chunks that belong to no pool.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Number of the first chunk that was never used.
    fresh: usize,
    /// Number of chunks in the list of those that were given back.
    pub(super) again: usize,
    space: Space,
    pieces: Pieces,
}

impl Chunks {
    /// For an arena without memory.
    pub(super) const NONE: Self = Self { fresh: 0, again: 0, space: Space::new(), pieces: Pieces::NEW };

    /// The chunks of a space with at most `end` of them.
    pub(super) fn of(space: Space, end: usize) -> Self {
        let mut pieces = Pieces::NEW;
        pieces.add(0);
        pieces.grow((space.len() / CHUNK_BYTES).min(end));
        Self { space, pieces, ..Self::NONE }
    }

    /// The chunks that were handed out, as ranges of numbers.
    pub(super) fn used(&self) -> impl Iterator<Item = (usize, usize)> {
        self.pieces.used(self.fresh)
    }

    /// Marks all chunks as never used.
    pub(super) fn restart(&mut self) {
        self.again = 0;
        self.fresh = 0;
        self.pieces.current = 0;
    }

    /// The next chunk that was never used, if its number is below `end`.
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

/// Number of chunks that are left out where other memory is in the way: 1 GiB.
const WAY_ROUND: usize = (1 << 30) / CHUNK_BYTES;

/// The parts of the arena that belong to it, as ranges of chunks. There is only one unless other memory was in the
/// way.
#[derive(Debug)]
struct Pieces {
    all: [(usize, usize); 16],
    count: usize,
    /// The piece whose chunks are handed out now.
    current: usize,
}

impl Pieces {
    const NEW: Self = Self { all: [(0, 0); 16], count: 0, current: 0 };

    fn current(&self) -> Option<(usize, usize)> {
        self.all.get(self.current).filter(|_| self.current < self.count).copied()
    }

    /// Goes on to the next piece, if there is one.
    fn go_on(&mut self) -> bool {
        let more = self.current + 1 < self.count;
        self.current += usize::from(more);
        more
    }

    /// Sets the end of the last piece.
    fn grow(&mut self, end: usize) {
        if let Some(last) = self.count.checked_sub(1).and_then(|last| self.all.get_mut(last)) {
            last.1 = end;
        }
    }

    /// Adds an empty piece and makes it the current one.
    fn add(&mut self, start: usize) -> bool {
        let Some(piece) = self.all.get_mut(self.count) else { return false };
        *piece = (start, start);
        self.current = self.count;
        self.count += 1;
        true
    }

    /// The chunks that were handed out, as ranges of numbers.
    fn used(&self, fresh: usize) -> impl Iterator<Item = (usize, usize)> {
        let passed = self.all.iter().take(self.current).copied();
        passed.chain(self.current().map(|(start, end)| (start, fresh.min(end).max(start))))
    }
}
