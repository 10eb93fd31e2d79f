//! What a thread keeps in mind of its sampling, beside the distance itself, which is a thread-local word.
//!
//! That word counts down by every byte that the thread asks for. So it also tells, exactly, how many these were: what
//! it stood at when it was last set, less what it stands at now.

use core::cell::Cell;

use crate::chance::Generator;

/// All-zero memory is that of a thread that has not drawn yet.
#[derive(Debug, Default)]
pub struct Sampler {
    generator: Cell<u64>,
    /// Which seed the generator is of; 0: of none.
    epoch: Cell<u32>,
    /// The word's value from which bytes are counted, and at what rate.
    base: Cell<u64>,
    rate: Cell<u64>,
    /// Bytes counted before.
    settled: Cell<u64>,
    /// The word's value when the thread stopped being tracked, to be put back.
    set_aside: Cell<u64>,
    is_suspended: Cell<bool>,
}

impl Sampler {
    /// A fresh distance. `seed` is asked once for each epoch.
    pub fn draw(&self, epoch: u32, seed: impl FnOnce() -> Generator) -> u64 {
        let mut generator = if self.epoch.get() == epoch { Generator(self.generator.get()) } else { seed() };
        let distance = generator.distance();
        self.generator.set(generator.0);
        self.epoch.set(epoch);
        distance
    }

    /// Bytes asked for until the word stood at `now`.
    pub fn bytes(&self, now: u64) -> u64 {
        let rate = self.rate.get();
        if rate == 0 {
            return self.settled.get();
        }
        self.settled.get().wrapping_add(self.base.get().saturating_sub(now) / rate)
    }

    /// Notes what was asked for until the word stood at `now`, and `more` bytes; it stands at `next` from here on.
    pub fn settle(&self, now: u64, more: u64, next: u64, rate: u64) {
        self.settled.set(self.bytes(now).wrapping_add(more));
        self.begin(next, rate);
    }

    /// Begins to count at `now`, from nothing.
    pub fn restart(&self, now: u64, rate: u64) {
        self.settled.set(0);
        self.begin(now, rate);
    }

    fn begin(&self, now: u64, rate: u64) {
        self.base.set(now);
        self.rate.set(rate);
    }

    /// Keeps the word's value while the thread is not tracked.
    pub fn suspend(&self, word: u64) {
        self.set_aside.set(word);
        self.is_suspended.set(true);
    }

    /// The value to put back, once.
    pub fn resume(&self) -> Option<u64> {
        let word = self.suspended();
        self.is_suspended.set(false);
        word
    }

    /// The value that is kept, if one is.
    pub fn suspended(&self) -> Option<u64> {
        self.is_suspended.get().then(|| self.set_aside.get())
    }

    /// Whether one is.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended.get()
    }

    /// The thread is gone, or is another one in a forked child.
    pub fn forget(&self) {
        self.epoch.set(0);
        self.is_suspended.set(false);
        self.restart(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::{UNIT, rate};

    /// The whole game, as the hook plays it: every block pays by its size, and one that cannot pay is sampled.
    #[test]
    fn estimates_are_unbiased_and_the_bytes_exact() {
        const MEAN: u64 = 4096;
        let rate = rate(MEAN);
        let sampler = Sampler::default();
        let mut sizes = Generator::seeded(1, 1);
        let seed = || Generator::seeded(42, 7);
        let mut word = sampler.draw(1, seed);
        sampler.restart(word, rate);
        let (mut truth, mut blocks) = (0u64, 0u64);
        let (mut bytes, mut count, mut variance) = (0.0, 0.0, 0.0);
        for _ in 0..2_000_000 {
            // From a byte to many times the mean.
            let size = 1 + (sizes.bits() >> 44 >> (sizes.bits() % 20));
            truth += size;
            blocks += 1;
            match size.checked_mul(rate).and_then(|cost| word.checked_sub(cost)) {
                Some(left) => word = left,
                None => {
                    let next = sampler.draw(1, seed);
                    sampler.settle(word, size, next, rate);
                    word = next;
                    let weight = crate::chance::weight(size, MEAN);
                    bytes += weight * size as f64;
                    count += weight;
                    variance += crate::chance::variance(weight) * (size * size) as f64;
                }
            }
        }
        assert_eq!(sampler.bytes(word), truth);
        assert!(
            (bytes - truth as f64).abs() < 3.0 * variance.sqrt(),
            "{bytes} {truth} ± {}",
            variance.sqrt()
        );
        assert!((count / blocks as f64 - 1.0).abs() < 0.02, "{count} {blocks}");
    }

    #[test]
    fn a_distance_under_way_stays_right_when_the_mean_changes() {
        let sampler = Sampler::default();
        sampler.restart(UNIT, rate(1024));
        assert_eq!(sampler.bytes(UNIT - 100 * rate(1024)), 100);
        sampler.settle(UNIT - 100 * rate(1024), 0, UNIT / 2, rate(64));
        assert_eq!(sampler.bytes(UNIT / 2 - 7 * rate(64)), 107);
        sampler.forget();
        assert_eq!(sampler.bytes(0), 0);
    }

    #[test]
    fn a_new_epoch_seeds_anew() {
        let sampler = Sampler::default();
        let first = sampler.draw(1, || Generator(5));
        assert_ne!(sampler.draw(1, || unreachable!()), first);
        assert_eq!(sampler.draw(2, || Generator(5)), first);
    }
}
