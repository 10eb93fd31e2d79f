//! A shard grows in place, while the other shards go on.
//!
//! The home of a block is its hash scaled to the number of lines, so more lines move every block forward or leave it.
//! Working from the last line to the first, each line and its chain are emptied and their blocks placed anew, in a line
//! behind or in the same one: what is still to come is never disturbed, and what was placed stays.

use core::sync::atomic::Ordering;

use super::Table;
use super::budget::PAGE;
use super::hash::Hash;
use super::line::{Line, LineGuard, SLOTS};
use super::nodes::Pool;
use super::packed;
use super::shards::{Lines, NODE_STRIPE, Nodes, Part, SHARDS_OF_PAGE, STRIPE, Shard};

/// Nodes for 100 lines at which a shard grows. That is 6 blocks a line, a quarter of them in nodes; see docs/table.md for how
/// this stays under 16 bytes a block.
const FULL_PERCENT: usize = 160;

/// The same for a shard with fewer than [`FEW`] lines: there a line more costs little, and a node takes longer.
const FULL_PERCENT_FEW: usize = 50;

/// A table of 2 MiB.
const FEW: usize = 128;

/// Insertions into full homes to wait after the kernel or the budget refused to grow.
const REFUSED_PATIENCE: u32 = 4096;

/// What came of the wish to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// The shard has other lines than the caller saw.
    Changed,
    /// No memory, or none within the budget.
    Refused,
}

/// Whether a shard has so many nodes that it should grow.
pub(super) fn is_full(pool: &mut Pool, lines: Lines<'_>) -> bool {
    let percent = if lines.count() < FEW { FULL_PERCENT_FEW } else { FULL_PERCENT };
    if (pool.used as usize).wrapping_mul(100) <= lines.count().wrapping_mul(percent) {
        return false;
    }
    pool.patience = pool.patience.saturating_sub(1);
    pool.patience == 0
}

impl Table {
    /// Gives the shard more lines, unless somebody has done so since the caller looked. The caller holds no lock.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&self, shard: usize, seen: Lines<'_>) -> Growth {
        let (Some(span), Some(state)) = (self.spans.get(shard), self.shards.get(shard)) else {
            return Growth::Refused;
        };
        let Some(_resizing) = state.resizing.lock_in_time() else { return Growth::Refused };
        let old = span.load(shard);
        if old != seen {
            return Growth::Changed;
        }
        let new = old.with_count(old.next_count());
        let more = new.bytes().wrapping_sub(old.bytes());
        let granted = self.budget.take(more);
        if !granted || !self.commit(Part::Lines, new.rows()) {
            if granted {
                self.budget.give(more);
            }
            if let Some(mut pool) = state.pool.lock_in_time() {
                pool.patience = REFUSED_PATIENCE;
            }
            return Growth::Refused;
        }
        let locked = old.all().take_while(|line| line.lock_in_time().map(LineGuard::keep).is_some()).count();
        let pool = if locked == old.count() { state.pool.lock_in_time() } else { None };
        let Some(mut pool) = pool else {
            // Somebody holds a line or the pool and does not get on.
            old.all().take(locked).for_each(|line| drop(line.held()));
            self.budget.give(more);
            return Growth::Refused;
        };
        self.spread(shard, &mut pool, old, new);
        drop(pool);
        span.store(new);
        new.all().for_each(|line| drop(line.held()));
        self.gather();
        Growth::Changed
    }

    /// Memory for the first `count` nodes of a shard. `free`: also beyond the budget.
    ///
    /// The first of the shards that share a page counts all of it. (Counted a stripe at a time the table seemed to grow
    /// for hours, whenever a shard had more nodes than ever before: by what had long been resident.)
    pub(super) fn more_nodes(&self, shard: usize, count: usize, free: bool) -> bool {
        let Some(rows) = self.node_rows.get(shard / SHARDS_OF_PAGE) else { return false };
        let wanted = count.div_ceil(NODE_STRIPE);
        let counted = rows.load(Ordering::Acquire);
        if wanted <= counted {
            return true;
        }
        if !self.commit(Part::Nodes, wanted) {
            return false;
        }
        if free {
            self.budget.take_anyway(PAGE);
        } else if !self.budget.take(PAGE) {
            return false;
        }
        // Nodes are taken one by one, so one row is missing, or none if another shard has just counted it.
        if rows.compare_exchange(counted, wanted, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.budget.give(PAGE);
        }
        true
    }

    fn commit(&self, part: Part, rows: usize) -> bool {
        self.region.lock_in_time().is_some_and(|mut region| region.commit(part, rows))
    }

    /// Rows that every shard fills may become huge pages.
    fn gather(&self) {
        let lines = self.spans.iter().enumerate().map(|(i, span)| span.load(i).count()).min().unwrap_or(0);
        let touched = |shard: &Shard| shard.pool.lock_in_time().map_or(0, |pool| pool.touched as usize);
        let nodes = self.shards.iter().map(touched).min().unwrap_or(0);
        let Some(mut region) = self.region.lock_in_time() else { return };
        region.gather(Part::Lines, lines / STRIPE);
        region.gather(Part::Nodes, nodes / NODE_STRIPE);
    }

    /// Places every block of `old` anew in `new`. All lines of `old` are locked, and nobody knows of the further ones yet.
    fn spread(&self, shard: usize, pool: &mut Pool, old: Lines<'_>, new: Lines<'_>) {
        let nodes = Nodes::new(self, shard);
        let mut index = old.count();
        while index > 0 {
            index = index.wrapping_sub(1);
            let Some(line) = old.line(index).map(Line::held) else { return };
            let mut slots = [(0u32, 0u64); SLOTS];
            for (slot, copy) in line.occupied().zip(&mut slots) {
                *copy = (line.key(slot), line.value(slot));
            }
            let (count, mut link) = (line.occupied().count(), line.chain());
            let mut line = line;
            line.empty();
            line.keep();
            // First the chain: its nodes are free by the time that slots run out.
            while let Some(node) = nodes.node(link) {
                let (key, value, next) = (node.key(), node.value(), node.next());
                pool.give(link, node);
                self.place(nodes, pool, new, key, value, shard);
                link = next;
            }
            for (key, value) in slots.into_iter().take(count) {
                self.place(nodes, pool, new, key, value, shard);
            }
        }
    }

    /// Puts an entry into its home line or the chain of that.
    fn place(&self, nodes: Nodes<'_>, pool: &mut Pool, lines: Lines<'_>, key: u32, value: u64, shard: usize) {
        let home = Hash { shard, residue: packed::residue(value, key) }.home(lines.count());
        let Some(mut line) = lines.line(home).map(Line::held) else { return };
        if let Some(slot) = line.vacant().first() {
            line.put(slot, key, value);
        } else if let Some(link) =
            pool.take(|link| nodes.node(link), |count| self.more_nodes(shard, count, true))
            && let Some(node) = nodes.node(link)
        {
            node.set(key, value, line.chain());
            line.set_chain(link);
            line.leave_trace(key);
        }
        line.keep();
    }
}
