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

use memintro_abi::{BlockFigures, Estimated, Unit};

use crate::chance;

const COUNT_BITS: u32 = 16;
const BYTE_BITS: u32 = 8;

/// The sum of a figure over sampled blocks, with its variance and skew.
#[derive(Debug, Default)]
struct Sum {
    value: AtomicU64,
    variance: AtomicU64,
    skew: AtomicU64,
}

impl Sum {
    fn count(&self, share: &Share, sign: i64) {
        bump(&self.value, share.count().wrapping_mul(sign.cast_unsigned()));
        grow(&self.variance, sign as f64 * share.variance);
        grow(&self.skew, sign as f64 * share.skew);
    }

    fn measure(&self, share: &Share, sign: i64) {
        bump(&self.value, share.bytes().wrapping_mul(sign.cast_unsigned()));
        grow(&self.variance, sign as f64 * share.bytes_variance());
        grow(&self.skew, sign as f64 * share.bytes_skew());
    }

    fn read(&self, unit: Unit) -> Estimated {
        let value = match unit {
            Unit::Count | Unit::Age | Unit::MeanAge => rounded(&self.value, COUNT_BITS),
            Unit::Bytes | Unit::Change => rounded(&self.value, BYTE_BITS),
            Unit::Ages => (float(&self.value) + 0.5) as u64,
        };
        Estimated { value, variance: float(&self.variance), skew: float(&self.skew) }
    }

    fn add_to(&self, sum: &mut Estimated, unit: Unit) {
        sum.add(&self.read(unit));
    }

    fn reset(&self) {
        for sum in [&self.value, &self.variance, &self.skew] {
            sum.store(0, Ordering::Relaxed);
        }
    }
}

macro_rules! define_estimate {
    (
        sums { $($(#[doc = $sum_doc:literal])+ $sum:ident: $sum_unit:ident;)+ }
        exact {}
        maxima { $($(#[doc = $max_doc:literal])+ $max:ident: $max_unit:ident;)+ }
        $($rest:tt)*
    ) => {
        /// Sums over sampled blocks. All-zero memory is an empty one.
        #[derive(Debug, Default)]
        pub struct Estimate {
            $($sum: Sum,)+
            $($max: AtomicU64,)+
            /// The variance is that of the growth.
            marked_bytes: Sum,
            age_covariance: AtomicU64,
            young: Young,
        }

        impl Estimate {
            /// Adds the figures now. Freed figures are read before allocated ones, so that no sum shows more freed than
            /// allocated.
            pub fn add_to(&self, sum: &mut BlockFigures) {
                for is_freed in [true, false] {
                    $(if matches!(stringify!($sum), "frees" | "freed_bytes") == is_freed {
                        self.$sum.add_to(&mut sum.$sum, Unit::$sum_unit);
                    })+
                    core::sync::atomic::fence(Ordering::SeqCst);
                }
                $(sum.$max = sum.$max.max(self.$max.load(Ordering::Relaxed));)+
                let marked = self.marked_bytes.read(Unit::Bytes);
                sum.marked_bytes.add(&Estimated { variance: marked.variance.max(0.0), ..marked });
                sum.age_covariance += float(&self.age_covariance);
                sum.estimated = 1;
            }

            /// All zero again.
            pub fn reset(&self) {
                $(self.$sum.reset();)+
                for sum in [$(&self.$max,)+ &self.age_covariance] {
                    sum.store(0, Ordering::Relaxed);
                }
                self.marked_bytes.reset();
                self.young.reset();
            }
        }
    };
}
memintro_abi::site_figures!(define_estimate);

/// The same for live blocks that were born in one generation, the last one in which there were any.
#[derive(Debug, Default)]
struct Young {
    generation: AtomicU64,
    blocks: Sum,
    bytes: Sum,
}

impl Young {
    fn add(&self, share: &Share, generation: u32) {
        if self.generation.load(Ordering::Relaxed) != u64::from(generation) {
            self.reset();
            self.generation.store(u64::from(generation), Ordering::Relaxed);
        }
        self.blocks.count(share, 1);
        self.bytes.measure(share, 1);
    }

    /// Sums of another generation are out of date, so nothing is subtracted.
    fn remove(&self, share: &Share, generation: u32) {
        if self.generation.load(Ordering::Relaxed) == u64::from(generation) {
            self.blocks.count(share, -1);
            self.bytes.measure(share, -1);
        }
    }

    fn reset(&self) {
        self.generation.store(0, Ordering::Relaxed);
        self.blocks.reset();
        self.bytes.reset();
    }

    fn in_generation(&self, generation: u32) -> EstimatedYoung {
        if self.generation.load(Ordering::Relaxed) != u64::from(generation) {
            return EstimatedYoung::default();
        }
        EstimatedYoung { blocks: self.blocks.read(Unit::Count), bytes: self.bytes.read(Unit::Bytes) }
    }
}

/// Live blocks that were born in one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EstimatedYoung {
    /// Number of blocks.
    pub blocks: Estimated,
    /// Their bytes.
    pub bytes: Estimated,
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
    pub fn by_size(size: u64, mean: u64) -> Self {
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
        self.allocations.count(share, 1);
        self.total_bytes.measure(share, 1);
        grow(&self.marked_bytes.variance, share.bytes_variance());
    }

    /// A sampled block was freed in this generation; `since_mark`: it was born after the last mark.
    pub fn died(&self, share: &Share, age: u32, since_mark: bool, generation: u32) {
        if age == 0 {
            self.young.remove(share, generation);
        }
        self.frees.count(share, 1);
        self.freed_bytes.measure(share, 1);
        grow(
            &self.marked_bytes.variance,
            if since_mark { -share.bytes_variance() } else { share.bytes_variance() },
        );
        let age_ = f64::from(age);
        grow(&self.age_total.value, share.weight * age_);
        grow(&self.age_total.variance, share.variance * age_ * age_);
        grow(&self.age_covariance, share.variance * age_);
        let max = self.max_lifespan.load(Ordering::Relaxed).max(u64::from(age));
        self.max_lifespan.store(max, Ordering::Relaxed);
    }

    /// Moves a live sampled block to another site, as if that site had allocated it. `since_mark`: it was
    /// born after the last mark. `young`: the present generation, if it was born in it.
    pub fn give(&self, other: &Self, share: &Share, since_mark: bool, young: Option<u32>) {
        if let Some(generation) = young {
            self.young.remove(share, generation);
            other.young.add(share, generation);
        }
        for (estimate, sign) in [(self, -1), (other, 1)] {
            estimate.allocations.count(share, sign);
            estimate.total_bytes.measure(share, sign);
            // A block from before the mark is gone, which adds to the variance of growth.
            let doubt = if since_mark { sign as f64 } else { 1.0 };
            grow(&estimate.marked_bytes.variance, doubt * share.bytes_variance());
        }
    }

    /// Makes the present live figures the baseline of growth.
    pub fn mark(&self) {
        let freed = self.freed_bytes.value.load(Ordering::Relaxed);
        let live = self.total_bytes.value.load(Ordering::Relaxed).wrapping_sub(freed);
        self.marked_bytes.value.store(live, Ordering::Relaxed);
        self.marked_bytes.variance.store(0, Ordering::Relaxed);
    }

    /// The live blocks that were born in this generation.
    #[must_use]
    pub fn young(&self, generation: u32) -> EstimatedYoung {
        self.young.in_generation(generation)
    }

    /// Whether nothing was ever added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allocations.value.load(Ordering::Relaxed) == 0 && self.frees.value.load(Ordering::Relaxed) == 0
    }

    /// The figures now.
    #[must_use]
    pub fn figures(&self) -> BlockFigures {
        let mut sum = BlockFigures::default();
        self.add_to(&mut sum);
        sum
    }
}

/// Old blocks: allocations less frees less young blocks. After a reset, frees can outweigh allocations. A
/// remainder of a variance that is very small compared with the subtracted values is only rounding.
#[must_use]
pub fn old(came: &Estimated, went: &Estimated, young: &Estimated) -> Estimated {
    let left = |came: f64, went: f64, young: f64| {
        let left = came - went - young;
        if left < 1e-9 * came { 0.0 } else { left }
    };
    let value = came.value.wrapping_sub(went.value).wrapping_sub(young.value);
    Estimated {
        value: value.cast_signed().max(0).cast_unsigned(),
        variance: left(came.variance, went.variance, young.variance),
        skew: left(came.skew, went.skew, young.skew),
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

fn float(sum: &AtomicU64) -> f64 {
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
            blocks.iter().for_each(|(size, mean, _)| estimate.born(&Share::by_size(*size, *mean), 9));
            blocks.iter().rev().for_each(|(size, mean, age)| {
                estimate.died(&Share::by_size(*size, *mean), *age, true, 9);
            });
            let figures = estimate.figures();
            prop_assert_eq!(figures.allocations.value, figures.frees.value);
            prop_assert_eq!(figures.total_bytes.value, figures.freed_bytes.value);
            let scale = figures.total_bytes.variance.max(1.0);
            prop_assert!(figures.marked_bytes.variance / scale < 1e-12);
        }
    }

    #[test]
    fn growth_is_unsure_by_what_came_and_what_went_since_the_mark() {
        let estimate = Estimate::default();
        let (old, young) = (Share::by_size(1000, 4000), Share::by_size(64, 4000));
        estimate.born(&old, 1);
        estimate.born(&old, 1);
        estimate.mark();
        assert_eq!(estimate.figures().marked_bytes.variance, 0.0);
        estimate.died(&old, 3, false, 4);
        estimate.born(&young, 4);
        let figures = estimate.figures();
        assert_eq!(figures.marked_bytes.variance, old.bytes_variance() + young.bytes_variance());
        assert_eq!(
            (figures.max_lifespan, figures.marked_bytes.value),
            (3, rounded_bytes(2.0 * 1000.0 * old.weight))
        );
        estimate.died(&young, 0, true, 4);
        assert_eq!(estimate.figures().marked_bytes.variance, old.bytes_variance());
    }

    #[test]
    fn what_is_young_is_live_and_of_this_generation() {
        let estimate = Estimate::default();
        let (old, young) = (Share::by_size(1000, 4000), Share::by_size(64, 4000));
        estimate.born(&old, 3);
        assert_eq!(estimate.young(3).bytes.value, rounded_bytes(1000.0 * old.weight));
        estimate.born(&young, 4);
        estimate.born(&young, 4);
        estimate.died(&old, 1, true, 4);
        estimate.died(&young, 0, true, 4);
        let found = estimate.young(4);
        assert_eq!(
            (found.blocks.value, found.bytes.value),
            (young.blocks(), rounded_bytes(64.0 * young.weight))
        );
        assert_eq!((found.bytes.variance, found.blocks.skew), (young.bytes_variance(), young.skew));
        assert_eq!(estimate.young(5), EstimatedYoung::default());
        // The block was young when it was taken out, and is counted when that generation is over.
        estimate.born(&young, 5);
        estimate.died(&young, 0, true, 4);
        assert_eq!(estimate.young(5).blocks.value, young.blocks());
    }

    fn rounded_bytes(bytes: f64) -> u64 {
        (bytes + 0.5) as u64
    }

    #[test]
    fn exact_blocks_have_no_error() {
        let estimate = Estimate::default();
        estimate.born(&Share::by_size(77, 0), 0);
        let figures = estimate.figures();
        assert_eq!((figures.allocations, figures.total_bytes), (Estimated::exact(1), Estimated::exact(77)));
        assert!(!estimate.is_empty());
        estimate.reset();
        assert!(estimate.is_empty());
    }
}
