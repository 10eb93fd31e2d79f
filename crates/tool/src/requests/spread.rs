//! Quantiles of figures: exact while there are few figures, later within a known error, in bounded memory.

/// Number of figures that are kept exactly: 16 KiB.
const MOST_EXACT: usize = 2_048;
/// Number of buckets of each power of two, itself a power of two.
const PARTS: u32 = 7;
/// The error of a quantile is at most half a bucket.
pub const RELATIVE_ERROR: f64 = 1.0 / (1 << (PARTS + 1)) as f64;

/// Quantiles of figures that arrive one by one.
#[derive(Debug, Default)]
pub struct Spread {
    count: u64,
    greatest: u64,
    exact: Vec<u64>,
    buckets: Vec<u32>,
}

impl Spread {
    /// Adds one figure.
    pub fn add(&mut self, figure: u64) {
        self.count += 1;
        self.greatest = self.greatest.max(figure);
        if !self.buckets.is_empty() {
            return self.put(figure);
        }
        self.exact.push(figure);
        if self.exact.len() > MOST_EXACT {
            for figure in std::mem::take(&mut self.exact) {
                self.put(figure);
            }
        }
    }

    fn put(&mut self, figure: u64) {
        let at = bucket(figure);
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] = self.buckets[at].saturating_add(1);
    }

    /// Number of figures.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The greatest, exactly; 0 without any.
    pub fn greatest(&self) -> u64 {
        self.greatest
    }

    /// Whether quantiles are exact; otherwise their error is at most [`RELATIVE_ERROR`].
    pub fn is_exact(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The least figure such that at least `percent` percent of all are not above it (the nearest rank); 0 if there
    /// are none.
    pub fn percentile(&mut self, percent: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1) as u64;
        if self.is_exact() {
            self.exact.sort_unstable();
            return self.exact.get(rank as usize - 1).copied().unwrap_or(0);
        }
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return middle(at).min(self.greatest);
            }
        }
        self.greatest
    }
}

/// Each figure below 2^PARTS has a bucket of its own. For larger figures, the highest bits are the bucket.
fn bucket(figure: u64) -> usize {
    let Some(power) = figure.checked_ilog2().filter(|power| *power >= PARTS) else { return figure as usize };
    let shift = power - PARTS;
    ((shift as usize) << PARTS) + (figure >> shift) as usize
}

/// The value that represents a bucket.
fn middle(bucket: usize) -> u64 {
    let Some(shift) = (bucket >> PARTS).checked_sub(1) else { return bucket as u64 };
    let highest = (bucket - (shift << PARTS)) as u64;
    (highest << shift) + ((1_u64 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A slow and simple version to compare with.
    fn twin(figures: &[u64], percent: u64) -> u64 {
        let mut sorted = figures.to_vec();
        sorted.sort_unstable();
        sorted[((sorted.len() as u64 * percent).div_ceil(100).max(1) - 1) as usize]
    }

    fn spread(figures: &[u64]) -> Spread {
        let mut spread = Spread::default();
        figures.iter().for_each(|figure| spread.add(*figure));
        spread
    }

    #[test]
    fn few_figures_are_exact() {
        let figures: Vec<u64> = (1..=MOST_EXACT as u64).rev().map(|figure| figure * 1_000).collect();
        let mut all = spread(&figures);
        assert!(all.is_exact());
        for percent in [0, 1, 50, 95, 99, 100] {
            assert_eq!(all.percentile(percent), twin(&figures, percent), "{percent}");
        }
        assert_eq!((all.greatest(), Spread::default().percentile(95)), (2_048_000, 0));
    }

    #[test]
    fn each_figure_is_in_the_bucket_that_stands_for_it() {
        for figure in (0..2_000).chain((7..64).flat_map(|power| {
            let figure = 1_u64 << power;
            [figure - 1, figure, figure + 1, figure + figure / 3]
        })) {
            let told = middle(bucket(figure));
            assert!(told.abs_diff(figure) as f64 <= figure as f64 * RELATIVE_ERROR, "{figure} {told}");
        }
        // The greatest possible number of buckets, of four bytes each.
        assert_eq!(bucket(u64::MAX), 7_423);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn many_figures_are_within_the_error(
            figures in proptest::collection::vec(prop_oneof![0_u64..100, 0_u64..10_000_000, any::<u64>()], MOST_EXACT + 1..6_000),
        ) {
            let mut all = spread(&figures);
            prop_assert!(!all.is_exact());
            prop_assert_eq!(all.greatest(), *figures.iter().max().unwrap());
            for percent in [1, 50, 95, 100] {
                let (told, truth) = (all.percentile(percent), twin(&figures, percent));
                prop_assert!(told.abs_diff(truth) as f64 <= truth as f64 * RELATIVE_ERROR + 1.0, "{} {} {}", percent, told, truth);
            }
        }
    }
}
