//! Decides when the native caller of an allocation is due to be sampled.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::chance::Generator;

/// When an allocation is due: the first eight of a site, then about one in two, eight times, then about one
/// in four, and so on. So a site that allocates a million blocks has about 140 due ones. The distances are
/// random, because a fixed distance could always hit the same step of code that allocates in a pattern.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Allocations until the next due one, as far as threads have added theirs; 0: the next one.
    left: AtomicU32,
    /// How many were due.
    count: AtomicU32,
}

/// After this number of due allocations, distances double.
const DUE_PER_STEP: u32 = 8;
/// The greatest mean distance, as a power of two.
const MOST_STEPS: u32 = 16;

impl Schedule {
    /// Draws the next distance. Returns the mean distance that led to the present one: what it stands for.
    #[cold]
    pub(super) fn next(&self, seed: u64) -> u32 {
        // Relaxed, and read apart from the write: threads that draw at once only sample one allocation more.
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.saturating_add(1), Ordering::Relaxed);
        let next = Self::mean(count.saturating_add(1));
        let drawn = below(&mut Generator::seeded(seed, u64::from(count)), u64::from(next) * 2 - 1);
        self.left.store(drawn, Ordering::Relaxed);
        Self::mean(count)
    }

    /// How many were due.
    pub(super) fn due(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Allocations until the next one that is due; 0: the next one.
    pub(super) fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }

    /// One was due elsewhere.
    pub(super) fn count_one(&self) {
        // Relaxed: as in `next`.
        self.count.store(self.due().saturating_add(1), Ordering::Relaxed);
    }

    /// Makes none due before this number of allocations.
    pub(super) fn put_off(&self, left: u32) {
        self.left.store(left, Ordering::Relaxed);
    }

    /// The mean distance when so many were due.
    fn mean(count: u32) -> u32 {
        1 << (count / DUE_PER_STEP).min(MOST_STEPS)
    }

    /// Begins as if so many had been due already, at a random moment between two of them: the number of
    /// allocations before the next due one is the lesser of two different random numbers up to the greatest
    /// distance.
    pub(super) fn begin_at(&self, count: u32, seed: u64) {
        let mean = Self::mean(count);
        // Not the numbers that `next` draws.
        let mut generator = Generator::seeded(!seed, u64::from(count));
        let one = below(&mut generator, u64::from(mean) * 2);
        let other = below(&mut generator, u64::from(mean) * 2 - 1);
        let other = if other >= one { other.saturating_add(1) } else { other };
        self.count.store(count, Ordering::Relaxed);
        self.left.store(one.min(other), Ordering::Relaxed);
    }

    /// So many allocations came since a thread took up the distance.
    pub(super) fn passed(&self, allocations: u32) {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(allocations), Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        self.left.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }
}

/// Any number below this one.
fn below(generator: &mut Generator, bound: u64) -> u32 {
    ((u128::from(generator.bits()) * u128::from(bound)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocations of a line are spread over stacks, each of which makes so many.
    fn due_of_stacks(stacks: u32, each: u32, round: u64) -> (u32, u64) {
        let line = Schedule::default();
        let (mut due, mut weights) = (0, 0);
        for number in 0..stacks {
            let stack = Schedule::default();
            let seed = round << 32 | u64::from(number);
            stack.begin_at(line.due(), seed);
            for _ in 0..each {
                if stack.left() == 0 {
                    due += 1;
                    weights += u64::from(stack.next(seed));
                    line.count_one();
                } else {
                    stack.passed(1);
                }
            }
        }
        (due, weights)
    }

    #[test]
    fn allocations_of_many_stacks_are_due_as_those_of_a_line_and_stand_for_all() {
        for (stacks, each) in [(50_000, 1), (20_000, 3), (500, 200)] {
            let all = f64::from(stacks) * f64::from(each);
            let rounds = 60;
            let (due, weights) = (0..rounds)
                .map(|round| due_of_stacks(stacks, each, round))
                .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            // A line alone of 50,000 has some 98 that are due.
            assert!((60..260).contains(&(due / rounds as u32)), "{stacks} of {each}: {due} were due");
            let mean = weights as f64 / rounds as f64 / all;
            assert!((0.85..1.15).contains(&mean), "{stacks} of {each}: they stand for {mean} of all");
        }
    }
}
