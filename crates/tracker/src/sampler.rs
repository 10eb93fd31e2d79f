//! The state of a thread's sampling, without the distance itself, which is a thread-local word.
//!
//! Each byte that the thread asks for is subtracted from that word. So the difference between its value when it was
//! last set and its value now also gives the exact number of these bytes.

use core::cell::Cell;

use crate::chance::Generator;

/// All-zero memory is the state of a thread that has not drawn yet.
#[derive(Debug, Default)]
pub struct Sampler {
    generator: Cell<u64>,
    /// The epoch of the generator's seed; 0: no seed yet.
    epoch: Cell<u32>,
    /// The word's value from which bytes are counted, and the price of a byte.
    base: Cell<u64>,
    rate: Cell<u64>,
    /// Bytes counted before.
    settled: Cell<u64>,
    /// The word's value when the thread stopped being tracked, to be restored.
    set_aside: Cell<u64>,
    is_suspended: Cell<bool>,
}

impl Sampler {
    /// Draws a distance. `seed` is called once for each epoch.
    pub fn draw(&self, epoch: u32, seed: impl FnOnce() -> Generator) -> u64 {
        let mut generator = if self.epoch.get() == epoch { Generator(self.generator.get()) } else { seed() };
        let distance = generator.distance();
        self.generator.set(generator.0);
        self.epoch.set(epoch);
        distance
    }

    /// Bytes asked for until the word had the value `now`.
    pub fn bytes(&self, now: u64) -> u64 {
        let rate = self.rate.get();
        if rate == 0 {
            return self.settled.get();
        }
        self.settled.get().wrapping_add(self.base.get().saturating_sub(now) / rate)
    }

    /// Adds the bytes that were asked for until the word had the value `now`, and `more` bytes. From here on the word
    /// has the value `next`.
    pub fn settle(&self, now: u64, more: u64, next: u64, rate: u64) {
        self.settled.set(self.bytes(now).wrapping_add(more));
        self.begin(next, rate);
    }

    /// The allocator has refused so many bytes that were added as `more`.
    pub fn take_back(&self, more: u64) {
        self.settled.set(self.settled.get().wrapping_sub(more));
    }

    /// Begins to count at `now`, from 0.
    pub fn restart(&self, now: u64, rate: u64) {
        self.settled.set(0);
        self.begin(now, rate);
    }

    fn begin(&self, now: u64, rate: u64) {
        self.base.set(now);
        self.rate.set(rate);
    }

    /// Stores the word's value while the thread is not tracked.
    pub fn suspend(&self, word: u64) {
        self.set_aside.set(word);
        self.is_suspended.set(true);
    }

    /// Returns the stored value, once.
    pub fn resume(&self) -> Option<u64> {
        let word = self.suspended();
        self.is_suspended.set(false);
        word
    }

    /// The stored value, if there is one.
    pub fn suspended(&self) -> Option<u64> {
        self.is_suspended.get().then(|| self.set_aside.get())
    }

    /// Whether there is a stored value.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended.get()
    }

    /// The thread has ended, or is another one in a forked child.
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

    /// Samples as the hook does: each block pays by its size, and one that cannot pay is sampled.
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
