//! Insert, remove and find, inside malloc.
//!
//! Rule for neighbours: everything here holds the lock of the block's home line from beginning to end, and in addition
//! the lock of the line where the block lives, which is the same one for most.

use super::hash::Hash;
use super::line::{Line, LineGuard, Slot};
use super::packed;
use super::shards::{Lines, TAIL};
use super::{Block, Inserted, MAX_AGE, MAX_SITE, Removed, Table};

/// A block that lives so many lines behind its home makes the table ask whether the shard is full.
const CROWDED_DISTANCE: usize = 4;

/// How far behind its home a block may live; the tail has as many lines.
const MAX_DISTANCE: usize = TAIL;

/// A block's locked home, in the lines that the shard has while the lock is held.
struct Home<'a> {
    lines: Lines<'a>,
    index: usize,
    line: LineGuard<'a>,
}

impl Table {
    /// Notes that `address` was allocated at generation `now`. Never allocates, and waits for nobody but other
    /// operations on the same cache line or a shard that grows.
    #[inline]
    pub fn insert(&self, address: usize, block: Block, now: u32) -> Inserted {
        self.clock.tick(self, now);
        let Some(hash) = Hash::of(address) else { return Inserted::Full };
        if block.site > MAX_SITE {
            return Inserted::Full;
        }
        let age = now.wrapping_sub(block.generation);
        // An age above half of the range is a generation in the future: as new as can be.
        let birth = if age > u32::MAX / 2 { now } else { now.wrapping_sub(age.min(MAX_AGE)) };
        loop {
            let Some(home) = self.home(hash) else { return Inserted::Full };
            let lines = home.lines;
            match self.insert_at(home, hash, block, birth, now) {
                Placed::At { distance, inserted } => {
                    if distance >= CROWDED_DISTANCE {
                        self.crowded(hash.shard, lines);
                    }
                    return inserted;
                }
                Placed::NoRoom => {
                    if self.grow(hash.shard, lines) == super::growth::Growth::Refused {
                        return Inserted::Full;
                    }
                }
                Placed::NoCode => return Inserted::Full,
            }
        }
    }

    /// Forgets the block at `address` and tells what it was; `None` if it is not known, which is normal.
    #[inline]
    pub fn remove(&self, address: usize, now: u32) -> Option<Removed> {
        self.clock.tick(self, now);
        let hash = Hash::of(address)?;
        let home = self.home(hash)?;
        let (distance, guard, slot) = home.seek(hash)?;
        let line: &Line = guard.as_ref().unwrap_or(&home.line);
        let value = line.value(slot);
        let removed = packed::decode(value, now, |code| self.sizes.get(code));
        line.kept().vacate(slot);
        if distance > 0 {
            home.lines.from(home.index).take(distance).for_each(Line::unpass);
        }
        if let Some(code) = packed::large(value) {
            self.sizes.release(code);
        }
        Some(removed)
    }

    /// Fetches the cache line of `address`, for an operation that is soon to come.
    #[inline]
    pub fn prefetch(&self, address: usize) {
        let Some(hash) = Hash::of(address) else { return };
        let Some(span) = self.spans.get(hash.shard) else { return };
        let lines = span.load();
        if let Some(line) = lines.line(hash.home(lines.count())) {
            line.prefetch();
        }
    }

    /// Looks a block up under its locks.
    pub(super) fn find<T>(&self, address: usize, read: impl FnOnce(&Line, Slot) -> T) -> Option<T> {
        let hash = Hash::of(address)?;
        let home = self.home(hash)?;
        let (_, guard, slot) = home.seek(hash)?;
        Some(read(guard.as_ref().unwrap_or(&home.line), slot))
    }

    /// Locks the home of a hash. `None` if the table has no memory.
    #[inline]
    fn home(&self, hash: Hash) -> Option<Home<'_>> {
        let span = self.spans.get(hash.shard)?;
        loop {
            let lines = span.load();
            let index = hash.home(lines.count());
            let line = lines.line(index)?;
            let line = if self.is_shared() { line.lock() } else { line.lock_alone() };
            if span.load() == lines {
                return Some(Home { lines, index, line });
            }
        }
    }

    #[inline]
    fn insert_at(&self, home: Home<'_>, hash: Hash, block: Block, birth: u32, now: u32) -> Placed {
        let size = if block.size < packed::LARGE {
            block.size
        } else {
            match self.sizes.acquire(block.size) {
                Some(code) => packed::LARGE.wrapping_add(u64::from(code)),
                None => return Placed::NoCode,
            }
        };
        let value = packed::value(hash.residue, block.site, birth, size);
        if let Some((distance, guard, slot)) = home.seek(hash) {
            let line: &Line = guard.as_ref().unwrap_or(&home.line);
            let old = line.value(slot);
            let removed = packed::decode(old, now, |code| self.sizes.get(code));
            line.kept().set_value(slot, value);
            if let Some(code) = packed::large(old) {
                self.sizes.release(code);
            }
            return Placed::At { distance, inserted: Inserted::Replaced(removed) };
        }
        let key = packed::key(hash.residue);
        if let Some(slot) = home.line.vacant().first() {
            home.line.put(slot, key, value);
            return Placed::At { distance: 0, inserted: Inserted::New };
        }
        match home.put_behind(key, value) {
            Some(distance) => Placed::At { distance, inserted: Inserted::New },
            None => {
                if let Some(code) = packed::large(value) {
                    self.sizes.release(code);
                }
                Placed::NoRoom
            }
        }
    }
}

/// What came of an attempt to insert.
enum Placed {
    At { distance: usize, inserted: Inserted },
    NoRoom,
    NoCode,
}

impl<'a> Home<'a> {
    /// The block's distance from home, the guard of its line unless that is the home, and its slot.
    #[inline]
    fn seek(&self, hash: Hash) -> Option<(usize, Option<LineGuard<'a>>, Slot)> {
        let key = packed::key(hash.residue);
        for slot in self.line.with_key(key) {
            if packed::matches(self.line.value(slot), hash.residue) {
                return Some((0, None, slot));
            }
        }
        if self.line.is_passed() { self.seek_behind(hash, key) } else { None }
    }

    /// As [`Home::seek`], in the lines behind. They are read without a lock: no block of this home comes, goes or moves
    /// meanwhile. What looks like it is looked at again under the lock of its line.
    fn seek_behind(&self, hash: Hash, key: u32) -> Option<(usize, Option<LineGuard<'a>>, Slot)> {
        let mut distance = 0usize;
        for line in self.lines.from(self.index.wrapping_add(1)) {
            distance = distance.wrapping_add(1);
            if line.with_key(key).first().is_some() {
                let line = line.lock();
                for slot in line.with_key(key) {
                    if packed::matches(line.value(slot), hash.residue) {
                        return Some((distance, Some(line), slot));
                    }
                }
            }
            if !line.is_passed() {
                break;
            }
        }
        None
    }

    /// Puts an entry into the first line behind that has room and answers its distance.
    fn put_behind(&self, key: u32, value: u64) -> Option<usize> {
        let mut distance = 0usize;
        for line in self.lines.from(self.index.wrapping_add(1)).take(MAX_DISTANCE) {
            distance = distance.wrapping_add(1);
            if line.peek_full() {
                continue;
            }
            let line = line.lock();
            if let Some(slot) = line.vacant().first() {
                line.put(slot, key, value);
                self.lines.from(self.index).take(distance).for_each(Line::pass);
                return Some(distance);
            }
        }
        None
    }
}
