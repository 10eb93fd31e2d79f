//! Insert, remove and find, inside malloc.
//!
//! Rule for neighbours: everything here holds the lock of one line, the block's home, from beginning to end.

use core::ops::ControlFlow;

use super::growth::{self, Growth};
use super::hash::Hash;
use super::line::{LineGuard, Slot};
use super::near;
use super::nodes::Node;
use super::packed;
use super::shards::{Lines, Nodes};
use super::{Block, Inserted, MAX_AGE, MAX_SITE, MAX_SIZE, Removed, Table};

/// Free slots of a line with a chain from which on a block of the chain comes home. Not one: the next block to come is
/// often the one that has just gone.
const ROOM_AT_HOME: usize = 2;

/// Traces of a chain from which on a removal finds out which are still true.
const STALE_TRACES: u32 = 4;

/// A block's locked home, and the lines that the shard has while the lock is held.
pub(super) struct Home<'a> {
    pub(super) lines: Lines<'a>,
    pub(super) line: LineGuard<'a>,
}

/// Why a block has no home in the lines.
enum Away {
    NoMemory,
    /// Its plot is open or being opened.
    Moved,
}

/// Which blocks have a home in the lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whither {
    /// Those of closed plots.
    WhereClosed,
    /// Any: who asks is closing the plot.
    Anyway,
}

/// Where a block is.
enum Place<'a> {
    Slot(Slot),
    Node { before: Option<&'a Node>, link: u32, node: &'a Node },
}

impl Table {
    /// Notes that `address` was allocated, at generation `now`. Never allocates, and waits for nobody but other
    /// operations on the same cache line or plot, a shard that grows or a plot that opens; for these not for ever
    /// ([`crate::lock`]).
    #[inline]
    pub fn insert(&self, address: usize, block: Block, now: u32) -> Inserted {
        self.clock.tick(self, now);
        if block.site > MAX_SITE || block.size > MAX_SIZE {
            return Inserted::Full;
        }
        self.insert_into_half(address, block, now)
    }

    /// Puts a block into the lines. `None`: its plot is not closed any more.
    pub(super) fn insert_into_lines(
        &self,
        address: usize,
        block: Block,
        now: u32,
        whither: Whither,
    ) -> Option<Inserted> {
        let Some(hash) = Hash::of(address) else { return Some(Inserted::Full) };
        let mut home = match self.home(address, hash, whither) {
            Ok(home) => home,
            Err(Away::NoMemory) => return Some(Inserted::Full),
            Err(Away::Moved) => return None,
        };
        let key = packed::key(hash.residue);
        if block.size < packed::LARGE
            && home.line.with_key(key).first().is_none()
            && !home.line.may_chain(key)
            && let Some(slot) = home.line.vacant().first()
        {
            let value = packed::value(hash.residue, block.site, birth(&block, now), block.size);
            home.line.put(slot, key, value);
            return Some(Inserted::New);
        }
        self.insert_slow(home, address, hash, block, now, whither)
    }

    /// Forgets the block at `address` and tells what it was; `None` if it is not known, which is normal.
    #[inline]
    pub fn remove(&self, address: usize, now: u32) -> Option<Removed> {
        self.clock.tick(self, now);
        self.remove_from_half(address, now).removed()
    }

    /// Takes a block out of the lines. `Continue`: its plot is not closed any more.
    pub(super) fn take_from_lines(&self, address: usize, now: u32) -> ControlFlow<Option<Removed>> {
        let Some(hash) = Hash::of(address) else { return ControlFlow::Break(None) };
        match self.home(address, hash, Whither::WhereClosed) {
            Ok(home) => ControlFlow::Break(self.take_at(home, hash, now)),
            Err(Away::NoMemory) => ControlFlow::Break(None),
            Err(Away::Moved) => ControlFlow::Continue(()),
        }
    }

    /// Takes a block out of its home.
    pub(super) fn take_at<'a>(&'a self, mut home: Home<'a>, hash: Hash, now: u32) -> Option<Removed> {
        let key = packed::key(hash.residue);
        for slot in home.line.with_key(key) {
            let value = home.line.value(slot);
            if packed::matches(value, hash.residue) {
                home.line.vacate(slot);
                if home.line.chain() != 0 && home.line.vacant().count() >= ROOM_AT_HOME {
                    self.bring_home(&mut home, hash.shard);
                }
                return Some(self.take_out(value, now));
            }
        }
        if home.line.may_chain(key) { self.remove_slow(home, hash, now) } else { None }
    }

    /// Fetches the cache line that a block at `address` may live in, for an operation that is soon to come.
    #[inline]
    pub fn prefetch(&self, address: usize) {
        if near::is_granule(address) && self.near.prefetch(address) {
            return;
        }
        let Some(hash) = Hash::of(address) else { return };
        let Some(span) = self.spans.get(hash.shard) else { return };
        let lines = span.load(hash.shard);
        if let Some(line) = lines.line(hash.home(lines.count())) {
            line.prefetch();
        }
    }

    /// Reads the value of the block's entry in the lines. `Continue`: its plot is not closed any more.
    pub(super) fn find<T>(&self, address: usize, read: impl FnOnce(u64) -> T) -> ControlFlow<Option<T>> {
        let Some(hash) = Hash::of(address) else { return ControlFlow::Break(None) };
        let home = match self.home(address, hash, Whither::WhereClosed) {
            Ok(home) => home,
            Err(Away::NoMemory) => return ControlFlow::Break(None),
            Err(Away::Moved) => return ControlFlow::Continue(()),
        };
        let value = self.seek(&home, hash).map(|place| match place {
            Place::Slot(slot) => home.line.value(slot),
            Place::Node { node, .. } => node.value(),
        });
        ControlFlow::Break(value.map(read))
    }

    /// Locks the home of a block.
    fn home(&self, address: usize, hash: Hash, whither: Whither) -> Result<Home<'_>, Away> {
        let home = self.home_unchecked(hash).ok_or(Away::NoMemory)?;
        let is_away =
            whither == Whither::WhereClosed && near::is_granule(address) && !self.near.is_closed(address);
        if is_away { Err(Away::Moved) } else { Ok(home) }
    }

    /// Locks the home of a hash, whatever its plot. `None` if the table has no memory, or the holder of the line does not
    /// get on.
    pub(super) fn home_unchecked(&self, hash: Hash) -> Option<Home<'_>> {
        let span = self.spans.get(hash.shard)?;
        loop {
            let lines = span.load(hash.shard);
            let line = lines.line(hash.home(lines.count()))?;
            if !self.is_shared() {
                return Some(Home { lines, line: line.held() });
            }
            let line = line.lock_in_time()?;
            if span.load(hash.shard) == lines {
                return Some(Home { lines, line });
            }
        }
    }

    fn seek<'a>(&'a self, home: &Home<'a>, hash: Hash) -> Option<Place<'a>> {
        let key = packed::key(hash.residue);
        for slot in home.line.with_key(key) {
            if packed::matches(home.line.value(slot), hash.residue) {
                return Some(Place::Slot(slot));
            }
        }
        if !home.line.may_chain(key) {
            return None;
        }
        let mut before = None;
        for (link, node) in Nodes::new(self, hash.shard).chain(home.line.chain()) {
            if node.key() == key && packed::matches(node.value(), hash.residue) {
                return Some(Place::Node { before, link, node });
            }
            before = Some(node);
        }
        None
    }

    /// Decodes the value of an entry that is no longer in the table.
    #[inline]
    fn take_out(&self, value: u64, now: u32) -> Removed {
        match packed::large(value) {
            None => packed::decode(value, now, |_| 0),
            Some(_) => self.take_out_large(value, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_out_large(&self, value: u64, now: u32) -> Removed {
        let removed = packed::decode(value, now, |code| self.sizes.get(code));
        if let Some(code) = packed::large(value) {
            self.sizes.release(code);
        }
        removed
    }

    /// Insertion of a large block, in place of another one, or where the home is full.
    #[inline(never)]
    fn insert_slow<'a>(
        &'a self,
        mut home: Home<'a>,
        address: usize,
        hash: Hash,
        block: Block,
        now: u32,
        whither: Whither,
    ) -> Option<Inserted> {
        let size = if block.size < packed::LARGE {
            block.size
        } else {
            match self.sizes.acquire(block.size) {
                Some(code) => packed::LARGE.wrapping_add(u64::from(code)),
                None => return Some(Inserted::Full),
            }
        };
        let value = packed::value(hash.residue, block.site, birth(&block, now), size);
        loop {
            let lines = home.lines;
            let placed = self.insert_at(&mut home, hash, value, now);
            drop(home);
            match placed {
                Placed::Done(inserted) => return Some(inserted),
                Placed::Crowded => {
                    self.grow(hash.shard, lines);
                    return Some(Inserted::New);
                }
                Placed::NoRoom => {}
            }
            let changed = self.grow(hash.shard, lines) == Growth::Changed;
            let again = self.home(address, hash, whither);
            match again {
                Ok(again) if changed => home = again,
                _ => {
                    if let Some(code) = packed::large(value) {
                        self.sizes.release(code);
                    }
                    return if let Err(Away::Moved) = again { None } else { Some(Inserted::Full) };
                }
            }
        }
    }

    fn insert_at<'a>(&'a self, home: &mut Home<'a>, hash: Hash, value: u64, now: u32) -> Placed {
        let key = packed::key(hash.residue);
        if let Some(place) = self.seek(home, hash) {
            let old = match place {
                Place::Slot(slot) => {
                    let old = home.line.value(slot);
                    home.line.set_value(slot, value);
                    old
                }
                Place::Node { node, .. } => {
                    let old = node.value();
                    node.set_value(value);
                    old
                }
            };
            return Placed::Done(Inserted::Replaced(self.take_out(old, now)));
        }
        if let Some(slot) = home.line.vacant().first() {
            home.line.put(slot, key, value);
            return Placed::Done(Inserted::New);
        }
        let nodes = Nodes::new(self, hash.shard);
        let Some(shard) = self.shards.get(hash.shard) else { return Placed::NoRoom };
        let (link, is_full) = {
            let Some(mut pool) = shard.pool.lock_in_time() else { return Placed::NoRoom };
            let link = pool.take(|link| nodes.node(link), |count| self.more_nodes(hash.shard, count, false));
            (link, growth::is_full(&mut pool, home.lines))
        };
        let Some((link, node)) = link.and_then(|link| Some((link, nodes.node(link)?))) else {
            return Placed::NoRoom;
        };
        node.set(key, value, home.line.chain());
        home.line.set_chain(link);
        home.line.leave_trace(key);
        if is_full { Placed::Crowded } else { Placed::Done(Inserted::New) }
    }

    /// Removal of a block that may be in the chain.
    #[inline(never)]
    fn remove_slow<'a>(&'a self, mut home: Home<'a>, hash: Hash, now: u32) -> Option<Removed> {
        let Place::Node { before, link, node } = self.seek(&home, hash)? else { return None };
        let value = node.value();
        match before {
            Some(before) => before.set_next(node.next()),
            None => home.line.set_chain(node.next()),
        }
        self.give(hash.shard, link, node);
        if home.line.traces() >= STALE_TRACES {
            home.line.forget_traces();
            for (_, node) in Nodes::new(self, hash.shard).chain(home.line.chain()) {
                home.line.leave_trace(node.key());
            }
        }
        Some(self.take_out(value, now))
    }

    /// Moves the first block of the chain into a free slot.
    #[inline(never)]
    fn bring_home(&self, home: &mut Home<'_>, shard: usize) {
        let link = home.line.chain();
        let (Some(node), Some(slot)) = (Nodes::new(self, shard).node(link), home.line.vacant().first())
        else {
            return;
        };
        home.line.put(slot, node.key(), node.value());
        home.line.set_chain(node.next());
        self.give(shard, link, node);
    }

    fn give(&self, shard: usize, link: u32, node: &Node) {
        // Without the pool, the node stays unused.
        if let Some(mut pool) = self.shards.get(shard).and_then(|shard| shard.pool.lock_in_time()) {
            pool.give(link, node);
        }
    }
}

/// What came of an attempt to insert.
enum Placed {
    Done(Inserted),
    /// It is in, and the shard is full.
    Crowded,
    NoRoom,
}

/// Generation of birth, at most [`MAX_AGE`] ago.
#[inline]
pub(super) fn birth(block: &Block, now: u32) -> u32 {
    let age = now.wrapping_sub(block.generation);
    // An age above half of the range is a generation in the future: as new as can be.
    if age > u32::MAX / 2 { now } else { now.wrapping_sub(age.min(MAX_AGE)) }
}
