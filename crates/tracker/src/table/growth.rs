//! A shard grows by an eighth, in place, while the other shards go on.
//!
//! The home of a block is its hash scaled to the number of lines, so more lines move every block forward or leave it.
//! Working from the last line to the first, each line is emptied and its blocks are placed anew behind it or in it: what
//! is still to come is never overwritten, and what was placed stays. Room never runs out on the way: the blocks of the
//! last k old lines go to at least k new ones.

use core::sync::atomic::Ordering;

use super::Table;
use super::hash::Hash;
use super::line::{SLOTS, Slot};
use super::packed;
use super::shards::Lines;

/// Blocks for 100 slots at which a shard grows. 12.8 bytes a slot, between this load and 8/9 of it: 14.2 to 16 bytes a
/// block, 15.1 in the mean of shards that grow at different times.
const FULL_LOAD_PERCENT: usize = 90;

/// Lines that a measurement of the load looks at.
const SAMPLE: usize = 1024;

/// Crowded insertions to wait after the kernel or the budget refused to grow.
const REFUSED_PATIENCE: u32 = 1 << 16;

/// What came of the wish to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// The shard has other lines than the caller saw.
    Changed,
    /// No memory, or none within the budget.
    Refused,
}

impl Table {
    /// An insertion ended far from home: grow if that is because the shard is full, and not by chance.
    #[cold]
    #[inline(never)]
    pub(super) fn crowded(&self, shard: usize, seen: Lines<'_>) {
        let Some(state) = self.shards.get(shard) else { return };
        // Relaxed: a lost update makes a measurement early or late by one.
        let patience = state.patience.load(Ordering::Relaxed);
        if patience > 0 {
            state.patience.store(patience.wrapping_sub(1), Ordering::Relaxed);
            return;
        }
        let stride = (seen.count() / SAMPLE).max(1);
        let (mut slots, mut blocks) = (0usize, 0usize);
        for line in seen.from(0).take(seen.count()).step_by(stride) {
            slots = slots.wrapping_add(SLOTS);
            blocks = blocks.wrapping_add(line.peek_occupied());
        }
        let full = slots.wrapping_mul(FULL_LOAD_PERCENT) / 100;
        if blocks >= full {
            self.grow(shard, seen);
        } else {
            // One insertion in about 16 is crowded, so the load is looked at again before it can be full.
            let missing = full.wrapping_sub(blocks).wrapping_mul(stride);
            state.patience.store((missing / 16) as u32 & 0xFFFF, Ordering::Relaxed);
        }
    }

    /// Gives the shard an eighth more lines, unless somebody has done so since the caller looked. The caller holds no
    /// lock.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&self, shard: usize, seen: Lines<'_>) -> Growth {
        let (Some(span), Some(state)) = (self.spans.get(shard), self.shards.get(shard)) else {
            return Growth::Refused;
        };
        let _resizing = state.resizing.lock();
        let old = span.load();
        if old != seen {
            return Growth::Changed;
        }
        let new = old.with_count(old.count().wrapping_add(old.count() / 8));
        let more = new.home_bytes().wrapping_sub(old.home_bytes());
        if new.bytes() > state.slice_bytes.load(Ordering::Relaxed) || !self.take_budget(more) {
            state.patience.store(REFUSED_PATIENCE, Ordering::Relaxed);
            return Growth::Refused;
        }
        if !new.commit() {
            self.committed_bytes.fetch_sub(more, Ordering::Relaxed);
            state.patience.store(REFUSED_PATIENCE, Ordering::Relaxed);
            return Growth::Refused;
        }
        for line in old.from(0) {
            line.lock().keep();
            line.forget_passing();
        }
        spread(shard, old, new);
        span.store(new);
        for line in old.from(0) {
            line.unlock();
        }
        Growth::Changed
    }

    /// Accounts for `bytes` more, if the budget allows.
    fn take_budget(&self, bytes: usize) -> bool {
        let budget = self.budget_bytes.load(Ordering::Relaxed);
        let committed = self.committed_bytes.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        if committed > budget {
            self.committed_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        committed <= budget
    }
}

/// Places every block of `old` anew in `new`. All lines of `old` are locked, and nobody knows of the further ones yet.
fn spread(shard: usize, old: Lines<'_>, new: Lines<'_>) {
    let mut index = old.end();
    while index > 0 {
        index = index.wrapping_sub(1);
        let Some(line) = old.line(index) else { return };
        let line = line.kept();
        let mut taken = [(0u32, 0u64); SLOTS];
        let mut count = 0;
        for (slot, taken) in line.occupied().zip(&mut taken) {
            *taken = (line.key(slot), line.value(slot));
            line.vacate(slot);
            count += 1;
        }
        for (key, value) in taken.into_iter().take(count) {
            place(shard, new, index, key, value);
        }
    }
}

/// Puts an entry into the first free slot at or behind its home, and not before line `from`.
fn place(shard: usize, lines: Lines<'_>, from: usize, key: u32, value: u64) {
    let home = Hash { shard, residue: packed::residue(value, key) }.home(lines.count());
    let free = |index| -> Option<Slot> { lines.line(index)?.kept().vacant().first() };
    let mut index = home.max(from);
    while index < lines.end() {
        if let (Some(line), Some(slot)) = (lines.line(index), free(index)) {
            line.kept().put(slot, key, value);
            lines.from(home).take(index.saturating_sub(home)).for_each(|line| line.pass());
            return;
        }
        index = index.wrapping_add(1);
    }
}
