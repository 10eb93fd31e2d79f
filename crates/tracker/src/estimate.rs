//! Estimates from sampled blocks for a call site, a thread and the process: sums of weights, and their variances.
//!
//! A sampled block of weight w stands for w blocks; the sums are unbiased (Horvitz and Thompson), and the sum of w(w
//! − 1)x² over the sampled blocks is an unbiased estimate of the variance of the sum of wx. Counts and bytes are kept
//! in fixed point, so that a block that is born and freed again leaves exactly 0. Variances are floating-point
//! numbers.
//!
//! If few blocks were drawn, a sum and its estimated variance tend to be too low together. The sum of w(w − 1)²x³
//! estimates their covariance. The covariance divided by the variance is how much of the figure one draw stands for.
//! Readers need only this for an interval that contains the truth as often as it says, after no draw and after a
//! thousand (`Memintro::Estimates`, and the twin in `tests/intervals.rs`).
//!
//! Rule for neighbours: one thread at a time writes (the one that holds the lock of [`crate::samples`], or owns the
//! state). Any thread may read at any time, freed figures before allocated ones.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::chance;

const COUNT_BITS: u32 = 16;
const BYTE_BITS: u32 = 8;

/// Sums over sampled blocks. All-zero memory is an empty one.
#[derive(Debug, Default)]
pub struct Estimate {
    allocations: AtomicU64,
    frees: AtomicU64,
    total_bytes: AtomicU64,
    freed_bytes: AtomicU64,
    marked_bytes: AtomicU64,
    max_lifespan: AtomicU64,
    age_total: AtomicU64,
    allocations_variance: AtomicU64,
    frees_variance: AtomicU64,
    total_bytes_variance: AtomicU64,
    freed_bytes_variance: AtomicU64,
    growth_variance: AtomicU64,
    age_variance: AtomicU64,
    age_covariance: AtomicU64,
    allocations_skew: AtomicU64,
    frees_skew: AtomicU64,
    total_bytes_skew: AtomicU64,
    freed_bytes_skew: AtomicU64,
    young: Young,
}

/// The same for live blocks that were born in one generation, the last one in which there were any.
#[derive(Debug, Default)]
struct Young {
    generation: AtomicU64,
    blocks: AtomicU64,
    bytes: AtomicU64,
    blocks_variance: AtomicU64,
    bytes_variance: AtomicU64,
    blocks_skew: AtomicU64,
    bytes_skew: AtomicU64,
}

impl Young {
    fn add(&self, share: &Share, generation: u32) {
        if self.generation.load(Ordering::Relaxed) != u64::from(generation) {
            self.reset();
            self.generation.store(u64::from(generation), Ordering::Relaxed);
        }
        bump(&self.blocks, share.count());
        bump(&self.bytes, share.bytes());
        self.grow(share, 1.0);
    }

    /// Sums of another generation are out of date, so nothing is subtracted.
    fn remove(&self, share: &Share, generation: u32) {
        if self.generation.load(Ordering::Relaxed) == u64::from(generation) {
            bump(&self.blocks, share.count().wrapping_neg());
            bump(&self.bytes, share.bytes().wrapping_neg());
            self.grow(share, -1.0);
        }
    }

    fn grow(&self, share: &Share, sign: f64) {
        grow(&self.blocks_variance, sign * share.variance);
        grow(&self.bytes_variance, sign * share.bytes_variance());
        grow(&self.blocks_skew, sign * share.skew);
        grow(&self.bytes_skew, sign * share.bytes_skew());
    }

    fn reset(&self) {
        for sum in [
            &self.generation,
            &self.blocks,
            &self.bytes,
            &self.blocks_variance,
            &self.bytes_variance,
            &self.blocks_skew,
            &self.bytes_skew,
        ] {
            sum.store(0, Ordering::Relaxed);
        }
    }

    fn of(&self, generation: u32) -> EstimatedYoung {
        if self.generation.load(Ordering::Relaxed) != u64::from(generation) {
            return EstimatedYoung::default();
        }
        EstimatedYoung {
            blocks: rounded(&self.blocks, COUNT_BITS),
            bytes: rounded(&self.bytes, BYTE_BITS),
            blocks_variance: sum(&self.blocks_variance),
            bytes_variance: sum(&self.bytes_variance),
            blocks_skew: sum(&self.blocks_skew),
            bytes_skew: sum(&self.bytes_skew),
        }
    }
}

/// Live blocks that were born in one generation. The figures are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EstimatedYoung {
    /// Number of blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Variance of `blocks`.
    pub blocks_variance: f64,
    /// Variance of `bytes`.
    pub bytes_variance: f64,
    /// Covariance of `blocks` with its estimated variance.
    pub blocks_skew: f64,
    /// The same of `bytes`.
    pub bytes_skew: f64,
}

/// The figures of an [`Estimate`], rounded, with the variances of their errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimated {
    /// Allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Bytes allocated.
    pub total_bytes: u64,
    /// Bytes freed.
    pub freed_bytes: u64,
    /// Live bytes at the last mark.
    pub marked_bytes: u64,
    /// Greatest age at free among sampled blocks.
    pub max_lifespan: u64,
    /// Sum of ages at free.
    pub age_total: u64,
    /// Variances of the above, and of the growth of live bytes.
    pub variances: Variances,
}

/// Estimated variances. Those of live figures are differences, because a freed block no longer adds to their error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Variances {
    /// Of allocations.
    pub allocations: f64,
    /// Of frees.
    pub frees: f64,
    /// Of bytes allocated.
    pub total_bytes: f64,
    /// Of bytes freed.
    pub freed_bytes: f64,
    /// Of the growth of live bytes since the mark.
    pub growth: f64,
    /// Of the sum of ages at free.
    pub age_total: f64,
    /// Covariance of that sum with frees.
    pub age_covariance: f64,
    /// Covariance of allocations with their estimated variance.
    pub allocations_skew: f64,
    /// The same of frees.
    pub frees_skew: f64,
    /// The same of bytes allocated.
    pub total_bytes_skew: f64,
    /// The same of bytes freed.
    pub freed_bytes_skew: f64,
}

/// The part of a sampled block that estimates need.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    size: u64,
    weight: f64,
    variance: f64,
    skew: f64,
}

impl Share {
    /// The weight of a block of this size that was sampled with this mean.
    #[must_use]
    pub fn of(size: u64, mean: u64) -> Self {
        Self::weighing(size, chance::weight(size, mean))
    }

    /// The weight of one of things of this size of which one in `mean` was sampled, whatever their sizes.
    #[must_use]
    pub fn alike(size: u64, mean: u64) -> Self {
        Self::weighing(size, chance::weight(1, mean))
    }

    fn weighing(size: u64, weight: f64) -> Self {
        Self { size, weight, variance: chance::variance(weight), skew: chance::skew(weight) }
    }

    /// Its weight, rounded.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        (self.weight + 0.5) as u64
    }

    /// Its weight: how many blocks it stands for.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.weight
    }

    fn count(&self) -> u64 {
        fixed(self.weight, COUNT_BITS)
    }

    fn bytes(&self) -> u64 {
        fixed(self.weight * self.size as f64, BYTE_BITS)
    }

    fn bytes_variance(&self) -> f64 {
        self.variance * self.size as f64 * self.size as f64
    }

    fn bytes_skew(&self) -> f64 {
        self.skew * (self.size as f64).powi(3)
    }
}

impl Estimate {
    /// Adds a sampled block that was born in this generation.
    pub fn born(&self, share: &Share, generation: u32) {
        self.young.add(share, generation);
        bump(&self.allocations, share.count());
        bump(&self.total_bytes, share.bytes());
        grow(&self.allocations_variance, share.variance);
        grow(&self.total_bytes_variance, share.bytes_variance());
        grow(&self.growth_variance, share.bytes_variance());
        grow(&self.allocations_skew, share.skew);
        grow(&self.total_bytes_skew, share.bytes_skew());
    }

    /// A sampled block was freed in this generation; `since_mark`: it was born after the last mark.
    pub fn died(&self, share: &Share, age: u32, since_mark: bool, generation: u32) {
        if age == 0 {
            self.young.remove(share, generation);
        }
        bump(&self.frees, share.count());
        bump(&self.freed_bytes, share.bytes());
        grow(&self.frees_variance, share.variance);
        grow(&self.freed_bytes_variance, share.bytes_variance());
        grow(&self.frees_skew, share.skew);
        grow(&self.freed_bytes_skew, share.bytes_skew());
        grow(
            &self.growth_variance,
            if since_mark { -share.bytes_variance() } else { share.bytes_variance() },
        );
        let age_ = f64::from(age);
        grow(&self.age_total, share.weight * age_);
        grow(&self.age_variance, share.variance * age_ * age_);
        grow(&self.age_covariance, share.variance * age_);
        let max = self.max_lifespan.load(Ordering::Relaxed).max(u64::from(age));
        self.max_lifespan.store(max, Ordering::Relaxed);
    }

    /// A live sampled block is another site's from here on, as if that had allocated it. `since_mark`: it was born after the last
    /// mark. `young`: the present generation, if it was born in that.
    pub fn give(&self, other: &Self, share: &Share, since_mark: bool, young: Option<u32>) {
        if let Some(generation) = young {
            self.young.remove(share, generation);
            other.young.add(share, generation);
        }
        for (estimate, sign) in [(self, -1.0), (other, 1.0)] {
            let amount = |sum: u64| if sign < 0.0 { sum.wrapping_neg() } else { sum };
            bump(&estimate.allocations, amount(share.count()));
            bump(&estimate.total_bytes, amount(share.bytes()));
            grow(&estimate.allocations_variance, sign * share.variance);
            grow(&estimate.total_bytes_variance, sign * share.bytes_variance());
            // What was there at the mark is gone, and so adds to the doubt.
            grow(&estimate.growth_variance, if since_mark { sign } else { 1.0 } * share.bytes_variance());
            grow(&estimate.allocations_skew, sign * share.skew);
            grow(&estimate.total_bytes_skew, sign * share.bytes_skew());
        }
    }

    /// Makes the present live figures the baseline of growth.
    pub fn mark(&self) {
        let freed = self.freed_bytes.load(Ordering::Relaxed);
        let live = self.total_bytes.load(Ordering::Relaxed).wrapping_sub(freed);
        self.marked_bytes.store(live, Ordering::Relaxed);
        self.growth_variance.store(0, Ordering::Relaxed);
    }

    /// All zero again.
    pub fn reset(&self) {
        for sum in [
            &self.allocations,
            &self.frees,
            &self.total_bytes,
            &self.freed_bytes,
            &self.marked_bytes,
            &self.max_lifespan,
            &self.age_total,
            &self.allocations_variance,
            &self.frees_variance,
            &self.total_bytes_variance,
            &self.freed_bytes_variance,
            &self.growth_variance,
            &self.age_variance,
            &self.age_covariance,
            &self.allocations_skew,
            &self.frees_skew,
            &self.total_bytes_skew,
            &self.freed_bytes_skew,
        ] {
            sum.store(0, Ordering::Relaxed);
        }
        self.young.reset();
    }

    /// The live blocks that were born in this generation.
    #[must_use]
    pub fn young(&self, generation: u32) -> EstimatedYoung {
        self.young.of(generation)
    }

    /// Whether nothing was ever added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allocations.load(Ordering::Relaxed) == 0 && self.frees.load(Ordering::Relaxed) == 0
    }

    /// The figures now. Freed figures are read before allocated ones, so that no sum shows more freed than allocated.
    #[must_use]
    pub fn figures(&self) -> Estimated {
        let frees = rounded(&self.frees, COUNT_BITS);
        let freed_bytes = rounded(&self.freed_bytes, BYTE_BITS);
        let (frees_variance, freed_bytes_variance) =
            (sum(&self.frees_variance), sum(&self.freed_bytes_variance));
        let (frees_skew, freed_bytes_skew) = (sum(&self.frees_skew), sum(&self.freed_bytes_skew));
        core::sync::atomic::fence(Ordering::SeqCst);
        Estimated {
            allocations: rounded(&self.allocations, COUNT_BITS),
            frees,
            total_bytes: rounded(&self.total_bytes, BYTE_BITS),
            freed_bytes,
            marked_bytes: rounded(&self.marked_bytes, BYTE_BITS),
            max_lifespan: self.max_lifespan.load(Ordering::Relaxed),
            age_total: (sum(&self.age_total) + 0.5) as u64,
            variances: Variances {
                allocations: sum(&self.allocations_variance),
                frees: frees_variance,
                total_bytes: sum(&self.total_bytes_variance),
                freed_bytes: freed_bytes_variance,
                growth: sum(&self.growth_variance).max(0.0),
                age_total: sum(&self.age_variance),
                age_covariance: sum(&self.age_covariance),
                allocations_skew: sum(&self.allocations_skew),
                frees_skew,
                total_bytes_skew: sum(&self.total_bytes_skew),
                freed_bytes_skew,
            },
        }
    }
}

fn fixed(value: f64, bits: u32) -> u64 {
    // Never negative; too large a value saturates.
    (value * (1u64 << bits) as f64 + 0.5) as u64
}

fn rounded(sum: &AtomicU64, bits: u32) -> u64 {
    sum.load(Ordering::Relaxed).wrapping_add(1 << (bits - 1)) >> bits
}

fn bump(sum: &AtomicU64, amount: u64) {
    sum.store(sum.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

fn sum(sum: &AtomicU64) -> f64 {
    f64::from_bits(sum.load(Ordering::Relaxed))
}

fn grow(sum: &AtomicU64, amount: f64) {
    sum.store((f64::from_bits(sum.load(Ordering::Relaxed)) + amount).to_bits(), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_comes_and_goes_leaves_nothing(
            blocks in proptest::collection::vec((0u64..1 << 40, 1u64..=chance::MOST_MEAN, 0u32..9), 1..50),
        ) {
            let estimate = Estimate::default();
            blocks.iter().for_each(|(size, mean, _)| estimate.born(&Share::of(*size, *mean), 9));
            blocks.iter().rev().for_each(|(size, mean, age)| {
                estimate.died(&Share::of(*size, *mean), *age, true, 9);
            });
            let figures = estimate.figures();
            prop_assert_eq!(figures.allocations, figures.frees);
            prop_assert_eq!(figures.total_bytes, figures.freed_bytes);
            let scale = figures.variances.total_bytes.max(1.0);
            prop_assert!(figures.variances.growth / scale < 1e-12);
        }
    }

    #[test]
    fn growth_is_unsure_by_what_came_and_what_went_since_the_mark() {
        let estimate = Estimate::default();
        let (old, young) = (Share::of(1000, 4000), Share::of(64, 4000));
        estimate.born(&old, 1);
        estimate.born(&old, 1);
        estimate.mark();
        assert_eq!(estimate.figures().variances.growth, 0.0);
        estimate.died(&old, 3, false, 4);
        estimate.born(&young, 4);
        let figures = estimate.figures();
        assert_eq!(figures.variances.growth, old.bytes_variance() + young.bytes_variance());
        assert_eq!(
            (figures.max_lifespan, figures.marked_bytes),
            (3, rounded_bytes(2.0 * 1000.0 * old.weight))
        );
        estimate.died(&young, 0, true, 4);
        assert_eq!(estimate.figures().variances.growth, old.bytes_variance());
    }

    #[test]
    fn what_is_young_is_live_and_of_this_generation() {
        let estimate = Estimate::default();
        let (old, young) = (Share::of(1000, 4000), Share::of(64, 4000));
        estimate.born(&old, 3);
        assert_eq!(estimate.young(3).bytes, rounded_bytes(1000.0 * old.weight));
        estimate.born(&young, 4);
        estimate.born(&young, 4);
        estimate.died(&old, 1, true, 4);
        estimate.died(&young, 0, true, 4);
        let found = estimate.young(4);
        assert_eq!((found.blocks, found.bytes), (young.blocks(), rounded_bytes(64.0 * young.weight)));
        assert_eq!((found.bytes_variance, found.blocks_skew), (young.bytes_variance(), young.skew));
        assert_eq!(estimate.young(5), EstimatedYoung::default());
        // The block was young when it was taken out, and is counted when that generation is over.
        estimate.born(&young, 5);
        estimate.died(&young, 0, true, 4);
        assert_eq!(estimate.young(5).blocks, young.blocks());
    }

    fn rounded_bytes(bytes: f64) -> u64 {
        (bytes + 0.5) as u64
    }

    #[test]
    fn exact_blocks_have_no_error() {
        let estimate = Estimate::default();
        estimate.born(&Share::of(77, 0), 0);
        let figures = estimate.figures();
        assert_eq!((figures.allocations, figures.total_bytes), (1, 77));
        assert_eq!(figures.variances, Variances::default());
        assert!(!estimate.is_empty());
        estimate.reset();
        assert!(estimate.is_empty());
    }
}
