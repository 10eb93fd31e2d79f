//! Keeps ages correct although an entry stores the generation of its birth modulo 2^18 only.
//!
//! Every 256 generations one operation visits one shard of the buckets and every 256th heap page. It gives each block
//! that is older than [`MAX_AGE`] a birth that makes its age exactly [`MAX_AGE`]. After 65,536 generations all blocks
//! have been visited; a block that moves from a bucket to a cell is checked as well. So no entry is older than
//! 131,071 + 65,536 generations and a few more when it is visited again, and 18 bits can represent that age.
//!
//! Rule for neighbours: each operation calls [`Clock::tick`] with the present generation, before it takes a lock.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::shards::Overflows;
use super::{MAX_AGE, SHARDS, Table, packed};
use crate::lock::Patience;

/// Generations between two visits.
const STEP: u32 = 256;

/// Number of visits that may be overdue before other threads wait for them. Births and the clock are then still
/// within [`packed::EARLY`] of each other.
const PATIENCE: u32 = packed::EARLY / STEP / 2;

/// The value before the first step. It is not a multiple of [`STEP`], and it works like 0 except where the present
/// generation is half the range of a `u32` away.
const UNSET: u32 = 1;

#[derive(Debug)]
pub(super) struct Clock {
    /// Generation of the last step, a multiple of [`STEP`], or [`UNSET`].
    stepped: AtomicU32,
    stepping: AtomicBool,
}

impl Clock {
    pub(super) const fn new() -> Self {
        Self { stepped: AtomicU32::new(UNSET), stepping: AtomicBool::new(false) }
    }

    /// Whether [`Clock::tick`] has something to do.
    #[inline(always)]
    pub(super) fn is_due(&self, now: u32) -> bool {
        // Acquire: a thread that sees the new step also sees the births that the step changed.
        now.wrapping_sub(self.stepped.load(Ordering::Acquire)) >= STEP
    }

    /// Records the present generation, and visits blocks if a step is due.
    #[inline]
    pub(super) fn tick(&self, table: &Table, now: u32) {
        if self.is_due(now) {
            self.tick_slow(table, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn tick_slow(&self, table: &Table, now: u32) {
        let mut patience = Patience::new();
        loop {
            let stepped = self.stepped.load(Ordering::Acquire);
            let passed = now.wrapping_sub(stepped);
            // The generation that a thread passes may be older than the last step, if another thread stepped in
            // between.
            if !(STEP..=u32::MAX / 2).contains(&passed) && stepped != UNSET {
                return;
            }
            if !self.stepping.swap(true, Ordering::Acquire) {
                if self.stepped.load(Ordering::Acquire) == stepped {
                    step(table, stepped, now);
                    self.stepped.store(now & !(STEP - 1), Ordering::Release);
                }
                self.stepping.store(false, Ordering::Release);
                return;
            }
            if passed / STEP < PATIENCE || !patience.wait() {
                return;
            }
        }
    }
}

/// Visits the shards whose turn has come since `stepped`.
fn step(table: &Table, stepped: u32, now: u32) {
    // No block was born after this, except those of threads that did not wait.
    let latest = stepped.wrapping_add(STEP - 1);
    let steps = (now / STEP).wrapping_sub(stepped / STEP).min(SHARDS as u32);
    for turn in 1..=steps {
        let shard = (stepped / STEP).wrapping_add(turn) as usize % SHARDS;
        let Some(span) = table.spans.get(shard) else { return };
        let aged = |value| {
            let age = packed::age(value, latest).saturating_add(now.wrapping_sub(latest));
            (age > MAX_AGE).then(|| packed::reborn(value, now.wrapping_sub(MAX_AGE)))
        };
        table.dense.age(shard, &aged);
        let mut index = 0;
        // A shard that grows meanwhile moves blocks forward only, so no block is missed.
        while let Some(bucket) = span.load(shard).bucket(index) {
            index = index.wrapping_add(1);
            if bucket.peek_empty() {
                continue;
            }
            // If the bucket's lock is not released in time, the next round visits the bucket.
            let Some(bucket) = bucket.lock_in_time() else { continue };
            for slot in bucket.occupied() {
                if let Some(value) = aged(bucket.value(slot)) {
                    bucket.set_value(slot, value);
                }
            }
            for (_, overflow) in Overflows::new(table, shard).chain(bucket.chain()) {
                if let Some(value) = aged(overflow.value()) {
                    overflow.set_value(value);
                }
            }
        }
    }
}
