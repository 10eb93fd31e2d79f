//! Tests that intervals contain the truth as often as documented. The test does what the hook does: every block pays
//! by its size, a block that cannot pay is sampled, and a call site's figures are computed from the samples.
//!
//! [`interval`] is the twin of the computation in `lib/memintro/support/estimates.rb`.

use memintro_abi::Estimated;
use memintro_tracker::chance::{self, Generator};
use memintro_tracker::estimate::{Estimate, Share};
use memintro_tracker::sampler::Sampler;

const MEAN: u64 = 4096;

/// A figure, its variance, its skew, and how much of it one sampled block of the same site stands for.
#[derive(Clone, Copy)]
struct Figure(f64, f64, f64, f64);

fn interval(Figure(value, variance, skew, base): Figure) -> (f64, f64) {
    let own = if variance > 0.0 { skew / variance } else { 0.0 };
    let most = own.max(base) * 1.2;
    let least = if value > 0.0 { (variance / value).min(most) } else { 0.0 };
    let low = value + 2.0 * least - 2.0 * (variance + least * least).sqrt();
    (low.max(0.0), value + 2.0 * most + 2.0 * (variance + most * most).sqrt())
}

/// How often the intervals contained the truth, by figure.
#[derive(Debug, Default)]
struct Held([u32; 6]);

impl Held {
    const NAMES: [&str; 6] =
        ["allocations", "frees", "live blocks", "total bytes", "freed bytes", "live bytes"];

    fn judge(&mut self, estimate: &Estimate, truth: [u64; 4]) {
        let figures = estimate.figures();
        let ratio = |of: &Estimated, none: f64| if of.variance > 0.0 { of.skew / of.variance } else { none };
        // A site without samples is not shown; the interval of all such sites together is used instead.
        let blocks = ratio(&figures.allocations, chance::weight(128, MEAN));
        let bytes = ratio(&figures.total_bytes, MEAN as f64);
        let whole = |of: &Estimated, one: f64| Figure(of.value as f64, of.variance, of.skew, one);
        let live = |came: &Estimated, went: &Estimated, one: f64| {
            let variance = (came.variance - went.variance).max(0.0);
            Figure(came.value as f64 - went.value as f64, variance, (came.skew - went.skew).max(0.0), one)
        };
        let shown = [
            whole(&figures.allocations, blocks),
            whole(&figures.frees, blocks),
            live(&figures.allocations, &figures.frees, blocks),
            whole(&figures.total_bytes, bytes),
            whole(&figures.freed_bytes, bytes),
            live(&figures.total_bytes, &figures.freed_bytes, bytes),
        ];
        let truth = truth.map(|x| x as f64);
        let truth = [truth[0], truth[1], truth[0] - truth[1], truth[2], truth[3], truth[2] - truth[3]];
        for ((held, shown), truth) in self.0.iter_mut().zip(shown).zip(truth) {
            let (low, high) = interval(shown);
            *held += u32::from(low <= truth && truth <= high);
        }
    }
}

/// Simulates sites of which `samples` blocks are sampled on average. Only whole blocks are drawn, so with one
/// expected number for all sites the share of correct intervals could only take certain values. Therefore each site
/// expects between half and twice as many.
fn play(samples: f64, sites: u32, seed: u64, size: impl Fn(&mut Generator) -> u64) -> Held {
    let mut random = Generator::seeded(seed, 1);
    let mut sizes = Generator::seeded(seed, 2);
    let sampler = Sampler::default();
    let rate = chance::rate(MEAN);
    let fresh = || sampler.draw(1, || Generator::seeded(seed, 3));
    let mut word = fresh();
    let mut held = Held::default();
    for _ in 0..sites {
        let uniform = |random: &mut Generator| (random.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = samples * (2.0 * uniform(&mut random) - 1.0).exp2();
        let (estimate, mut truth) = (Estimate::default(), [0; 4]);
        while left > 0.0 {
            let size = size(&mut sizes);
            left -= 1.0 / chance::weight(size, MEAN);
            let is_freed = random.bits() >> 63 == 0;
            truth[0] += 1;
            truth[2] += size;
            truth[1] += u64::from(is_freed);
            truth[3] += if is_freed { size } else { 0 };
            if let Some(rest) = word.checked_sub(size * rate) {
                word = rest;
                continue;
            }
            word = fresh();
            estimate.born(&Share::by_size(size, MEAN), 0);
            if is_freed {
                estimate.died(&Share::by_size(size, MEAN), 0, true, 0);
            }
        }
        held.judge(&estimate, truth);
    }
    held
}

/// `most_of_few` is the greatest share of intervals that may be correct if fewer than ten blocks are sampled.
fn holds_in_93_to_97_of_100(most_of_few: f64, size: impl Fn(&mut Generator) -> u64 + Copy) {
    let mut table = Vec::new();
    for (samples, sites) in [(1.0, 40_000), (3.0, 20_000), (10.0, 10_000), (100.0, 4_000), (1_000.0, 2_000)] {
        let held = play(samples, sites, 7, size);
        for (name, held) in Held::NAMES.iter().zip(held.0) {
            table.push((samples, *name, f64::from(held) / f64::from(sites)));
        }
    }
    let most = |samples: f64| if samples < 10.0 { most_of_few } else { 0.97 };
    let wrong: Vec<_> =
        table.iter().filter(|(samples, _, share)| !(0.93..=most(*samples)).contains(share)).collect();
    assert!(wrong.is_empty(), "{wrong:?} of {table:?}");
}

#[test]
fn of_equal_sizes() {
    holds_in_93_to_97_of_100(0.97, |_| 64);
}

#[test]
fn of_sizes_that_differ_by_half_up_and_down() {
    holds_in_93_to_97_of_100(0.97, |sizes| 64 + sizes.bits() % 129);
}

#[test]
fn of_sizes_up_to_sixteen_times_the_least() {
    holds_in_93_to_97_of_100(0.97, |sizes| 16 + sizes.bits() % 241);
}

/// Blocks that stand for little more than themselves. Because only whole blocks are drawn, every possible interval is
/// wider than necessary here.
#[test]
fn of_sizes_around_the_mean() {
    holds_in_93_to_97_of_100(1.0, |sizes| MEAN / 4 + sizes.bits() % MEAN);
}

#[test]
fn an_interval_is_that_of_the_readers() {
    // The same values as in spec/unit/estimates_spec.rb.
    for (figure, low, high) in [
        (Figure(0.0, 0.0, 0.0, 10.0), 0, 48),
        (Figure(10.0, 100.0, 1_000.0, 10.0), 1, 66),
        (Figure(100.0, 1_000.0, 10_000.0, 10.0), 53, 192),
        (Figure(10_000.0, 100_000.0, 1_000_000.0, 10.0), 9_387, 10_657),
        (Figure(77.0, 0.0, 0.0, 0.0), 77, 77),
    ] {
        let (lowest, highest) = interval(figure);
        assert_eq!((lowest.floor() as u64, highest.ceil() as u64), (low, high));
    }
}
