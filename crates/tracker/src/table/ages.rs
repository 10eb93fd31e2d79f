//! Ages stay right although an entry knows the generation of its birth modulo 2^18 only.
//!
//! Every 256 generations the operation that notices visits one shard of the buckets and every 256th heap page, and gives each
//! block that is older than [`MAX_AGE`] a birth that makes it exactly so old. All have had their turn after 65,536
//! generations (and a block that moves from a bucket to a cell is looked at as well), so no
//! entry's true age passes 131,071 + 65,536 and a bit before it is seen again, which 18 bits tell apart.
//!
//! Rule for neighbours: each operation calls [`Clock::tick`] with the present generation, before it takes a lock.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::shards::Overflows;
use super::{MAX_AGE, SHARDS, Table, packed};
use crate::lock::Patience;

/// Generations between two visits.
const STEP: u32 = 256;

/// Visits that may be overdue while other threads go on: births and the clock then still are within
/// [`packed::EARLY`] of each other.
const PATIENCE: u32 = packed::EARLY / STEP / 2;

/// Before the first step: no multiple of [`STEP`], and as good as 0 but where the present is half a turn away.
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

    /// Takes notice of the present generation.
    #[inline]
    pub(super) fn tick(&self, table: &Table, now: u32) {
        // Acquire: who sees the new step sees the births that it changed, too.
        if now.wrapping_sub(self.stepped.load(Ordering::Acquire)) >= STEP {
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
            // A thread that read the generation before another one stepped seems to live in the past.
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
    // No block was born after this, but for those of threads that did not wait.
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
        // A shard that grows meanwhile moves blocks forward only: none is missed.
        while let Some(bucket) = span.load(shard).bucket(index) {
            index = index.wrapping_add(1);
            if bucket.peek_empty() {
                continue;
            }
            // Whoever holds a bucket that does not come free will be seen the next time round.
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
