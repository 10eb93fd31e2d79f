//! The cells of a heap page: an array in which each block lies as near as possible to the place that its tag
//! determines.
//!
//! The home of a cell is its tag scaled to the length of the array. So the order of homes is the order of tags, and
//! an array is copied into a longer one from front to back. Tags are the numbers of granules, spread over their range
//! ([`super::cell::tag_at`]). Blocks at equal distances therefore have homes at nearly equal distances and seldom
//! collide, even if only a part of the heap page is in use. A cell whose home is taken lies behind it, in the order
//! of homes (the first place follows the last one). So no place between a cell and its home is empty.
//!
//! A *short* array, of at most 16 cells, is a list instead: its cells lie at the front, in no order, and may fill it. With
//! so few, homes meet by chance, and each cell that has to be passed is a branch that no processor foresees. So all cells
//! are compared at once ([`super::list`]).
//!
//! Rule for neighbours: only a thread that holds its heap page uses an array; one that is not short has at least one
//! empty place. What is behind a short array can be read, up to the length of the longest one.

use super::cell;
use super::list;

/// An array of cells in the arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Array {
    first: *mut u64,
    len: usize,
}

/// Where a missing cell belongs, and how far that is from its home.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    place: usize,
    way: usize,
}

/// How far an array is filled: the next place that may be empty, and the last tag.
struct Run {
    next: usize,
    last: u64,
}

/// The result of a search.
pub(super) enum Sought {
    /// The place of the block, and its cell.
    Found(usize, u64),
    Missing(Gap),
}

impl Sought {
    /// Where the cell belongs, if it is missing.
    #[inline(always)]
    pub(super) fn missing(self) -> Option<Gap> {
        match self {
            Self::Found(..) => None,
            Self::Missing(gap) => Some(gap),
        }
    }
}

impl Array {
    /// # Safety
    /// There are `len` cells at `first`, no other thread uses them meanwhile, and one of them is empty; `len` is not
    /// 0.
    #[inline]
    pub(super) unsafe fn new(first: *mut u64, len: usize) -> Self {
        Self { first, len }
    }

    #[inline(always)]
    pub(super) fn home(self, tag: u64) -> usize {
        (tag as usize).wrapping_mul(self.len) >> cell::TAG_BITS
    }

    /// Whether it is a list.
    #[inline(always)]
    pub(super) fn is_short(self) -> bool {
        self.len <= list::MOST
    }

    /// The place in a list with so many cells of the block with this tag, and its cell. Blocks with two cells are not
    /// found.
    #[inline(always)]
    pub(super) fn find_listed(self, tag: u64, used: usize) -> Option<(usize, u64)> {
        let place = self.first_listed(tag);
        if place >= used {
            return None;
        }
        let cell = self.get(place);
        cell::is_short_block(cell, tag).then_some((place, cell))
    }

    /// The first place in a list where this tag is; or any that is not less than its number of cells.
    #[inline(always)]
    pub(super) fn first_listed(self, tag: u64) -> usize {
        // SAFETY: what is behind the array can be read.
        unsafe { list::with_tag(self.first, tag) }.trailing_zeros() as usize
    }

    /// Empties a place of a list with so many cells.
    #[inline(always)]
    pub(super) fn take_listed(self, place: usize, used: usize) {
        let last = used.wrapping_sub(1);
        self.set(place, self.get(last));
        self.set(last, 0);
    }

    /// Number of cells of a list.
    fn listed(self) -> usize {
        (0..self.len).take_while(|place| self.get(*place) != 0).count()
    }

    /// The first cell of a list that is like this, and its place.
    #[cold]
    #[inline(never)]
    fn search(self, is_it: impl Fn(u64) -> bool) -> Option<(usize, u64)> {
        (0..self.len).map(|place| (place, self.get(place))).find(|(_, cell)| is_it(*cell))
    }

    /// The place behind a place; behind the last one it is the first.
    #[inline(always)]
    pub(super) fn next(self, place: usize) -> usize {
        let next = place.wrapping_add(1);
        if next == self.len { 0 } else { next }
    }

    /// The cell at a place below the length, which may be empty.
    #[inline(always)]
    pub(super) fn get(self, place: usize) -> u64 {
        debug_assert!(place < self.len);
        // SAFETY: homes and the places after them are below the length.
        unsafe { self.first.add(place).read() }
    }

    #[inline(always)]
    pub(super) fn set(self, place: usize, cell: u64) {
        debug_assert!(place < self.len);
        // SAFETY: as in `get`.
        unsafe { self.first.add(place).write(cell) }
    }

    /// How far a cell is from its home.
    #[inline]
    fn way(self, cell: u64, place: usize) -> usize {
        let way = place.wrapping_sub(self.home(cell::tag(cell)));
        if way > self.len { way.wrapping_add(self.len) } else { way }
    }

    /// The block with this tag: its place and cell.
    #[inline(always)]
    pub(super) fn find(self, tag: u64) -> Option<(usize, u64)> {
        if self.is_short() {
            return self.search(|cell| cell::is_block(cell, tag));
        }
        let mut place = self.home(tag);
        loop {
            let cell = self.get(place);
            if cell::is_block(cell, tag) {
                return Some((place, cell));
            }
            if cell == 0 {
                return None;
            }
            place = self.next(place);
        }
    }

    /// As [`Array::find`], but blocks with two cells are not found.
    #[inline(always)]
    pub(super) fn find_short(self, tag: u64) -> Option<(usize, u64)> {
        let mut place = self.home(tag);
        loop {
            let cell = self.get(place);
            if cell::is_short_block(cell, tag) {
                return Some((place, cell));
            }
            if cell == 0 {
                return None;
            }
            place = self.next(place);
        }
    }

    /// The extension of the block with this tag. The block must have one.
    #[cold]
    #[inline(never)]
    pub(super) fn extension(self, tag: u64) -> Option<(usize, u64)> {
        if self.is_short() {
            return self.search(|cell| cell::is_extension(cell, tag));
        }
        let mut place = self.home(tag);
        loop {
            let cell = self.get(place);
            if cell::is_extension(cell, tag) {
                return Some((place, cell));
            }
            if cell == 0 {
                return None;
            }
            place = self.next(place);
        }
    }

    /// Finds the block with this tag, or the place where its cell belongs: before the first cell that is nearer to
    /// its own home.
    #[inline]
    pub(super) fn seek(self, tag: u64) -> Sought {
        if self.is_short() {
            return match self.find(tag) {
                Some((place, cell)) => Sought::Found(place, cell),
                None => Sought::Missing(Gap { place: self.listed(), way: 0 }),
            };
        }
        let mut place = self.home(tag);
        let mut way = 0;
        loop {
            let cell = self.get(place);
            if cell::is_block(cell, tag) {
                return Sought::Found(place, cell);
            }
            if cell == 0 || self.way(cell, place) < way {
                return Sought::Missing(Gap { place, way });
            }
            place = self.next(place);
            way = way.wrapping_add(1);
        }
    }

    /// Puts a cell into its place, and returns how many cells were passed or moved. The array must have two empty
    /// places or more; one, if it is short.
    #[inline]
    pub(super) fn put_into(self, gap: Gap, cell: u64) -> usize {
        let Gap { mut place, mut way } = gap;
        let mut cell = cell;
        loop {
            let other = self.get(place);
            self.set(place, cell);
            if other == 0 {
                return way;
            }
            cell = other;
            place = self.next(place);
            way = way.wrapping_add(1);
        }
    }

    /// Puts a cell behind all others with its home, and returns the same as `put_into`.
    #[inline(never)]
    pub(super) fn put(self, cell: u64) -> usize {
        if self.is_short() {
            self.set(self.listed(), cell);
            return 0;
        }
        let mut place = self.home(cell::tag(cell));
        let mut way = 0;
        loop {
            let other = self.get(place);
            if other == 0 || self.way(other, place) < way {
                return self.put_into(Gap { place, way }, cell);
            }
            place = self.next(place);
            way = way.wrapping_add(1);
        }
    }

    /// Fills this array, which is empty and has room, with the cells of another one. They come nearly in the order of
    /// their tags. A cell in that order goes to its home or right behind the cell before it, so it need not be
    /// compared.
    pub(super) fn fill(self, from: Self) {
        if self.is_short() {
            return from.cells().enumerate().for_each(|(place, (_, cell))| self.set(place, cell));
        }
        if from.is_short() {
            return from.cells().for_each(|(_, cell)| {
                self.put(cell);
            });
        }
        // Cells at the front whose home is further back have wrapped around the end, so they are the last in the
        // order.
        let round = (0..from.len).take_while(|place| from.home(cell::tag(from.get(*place))) > *place).count();
        let mut run = Run { next: 0, last: 0 };
        (round..from.len).for_each(|place| self.append(from.get(place), &mut run));
        (0..round).for_each(|place| self.append(from.get(place), &mut run));
    }

    #[inline]
    fn append(self, cell: u64, run: &mut Run) {
        if cell == 0 {
            return;
        }
        let tag = cell::tag(cell);
        let place = self.home(tag).max(run.next);
        if tag >= run.last && place < self.len {
            self.set(place, cell);
            *run = Run { next: place.wrapping_add(1), last: tag };
            return;
        }
        self.put(cell);
        while run.next < self.len && self.get(run.next) != 0 {
            run.next = run.next.wrapping_add(1);
        }
    }

    /// Empties a place. Cells behind it that are not at home move one place forward.
    #[inline(always)]
    pub(super) fn take(self, place: usize) {
        if self.is_short() {
            return self.take_listed(place, self.listed());
        }
        let mut hole = place;
        loop {
            let next = self.next(hole);
            let cell = self.get(next);
            if cell == 0 || self.home(cell::tag(cell)) == next {
                return self.set(hole, 0);
            }
            self.set(hole, cell);
            hole = next;
        }
    }

    /// All cells that are not empty, with their places.
    pub(super) fn cells(self) -> impl Iterator<Item = (usize, u64)> {
        (0..self.len).map(move |place| (place, self.get(place))).filter(|(_, cell)| *cell != 0)
    }

    /// Makes all places empty.
    pub(super) fn empty(self) {
        // SAFETY: the array has this length, and zeroes are empty cells.
        unsafe { self.first.write_bytes(0, self.len) }
    }
}
