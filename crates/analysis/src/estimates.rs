//! Standard errors and intervals of a call site's sampled figures, as `Memintro::Estimates` and `Memintro::CallSite`
//! compute them in Ruby. A spec compares the two.

use crate::sites::Site;

/// The factor for one draw: blocks that are rare and stand for much are missing from most samples.
const UNSEEN: f64 = 1.2;
/// A variance that is this small beside those whose difference it is, is only rounding.
const ROUNDING: f64 = 1e-9;

/// One figure from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Its variance.
    pub variance: f64,
    /// How much of the figure one sampled block stands for; 0 if none was sampled.
    pub own_per_sample: f64,
    /// The greater of that and of what a block stands for of those that the figure is a part of.
    pub per_sample: f64,
    /// Whether both allocations and frees add to its error, so that it errs to both sides alike.
    pub even: bool,
}

impl Estimate {
    /// The error as if one more block had been sampled, because the spread of few samples is too small.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        self.per_sample.mul_add(self.per_sample, self.variance).sqrt()
    }

    /// The least and the most that the truth is likely to be: right in 93 to 97 of 100 cases.
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        if self.even {
            let reach = 2.0 * self.standard_error();
            return (self.value - reach, self.value + reach);
        }
        let most = UNSEEN * self.per_sample;
        let least = if self.value > 0.0 { (self.variance / self.value).min(most) } else { 0.0 };
        let low = self.value + (2.0 * least) - (2.0 * (self.variance + least * least).sqrt());
        let high = self.value + (2.0 * most) + (2.0 * (self.variance + most * most).sqrt());
        (low.max(0.0), high)
    }
}

/// The figures of a site that have a standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimates {
    /// Allocations.
    pub allocations: Estimate,
    /// Frees.
    pub frees: Estimate,
    /// Bytes allocated.
    pub total_bytes: Estimate,
    /// Bytes freed.
    pub freed_bytes: Estimate,
    /// Bytes that are live.
    pub live_bytes: Estimate,
    /// Blocks that are live.
    pub live_blocks: Estimate,
    /// Mean age at free.
    pub mean_lifespan: Estimate,
    /// Sum of these ages.
    pub age_total: Estimate,
    /// Growth of the live bytes.
    pub growth: Estimate,
    /// Least and most of it.
    pub growth_interval: (f64, f64),
    /// Bytes that have outlived a collection.
    pub old_bytes: Estimate,
    /// Blocks that have.
    pub old_blocks: Estimate,
    /// The VM's objects.
    pub objects: OfObjects,
}

/// The figures of a site's objects that have a standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfObjects {
    /// Objects that are live.
    pub live_objects: Estimate,
    /// Bytes of their slots.
    pub object_bytes: Estimate,
    /// Objects made.
    pub object_allocations: Estimate,
    /// Live bytes of blocks and of slots.
    pub retained_bytes: Estimate,
}

impl OfObjects {
    fn of(site: &Site, live_bytes: &Estimate) -> Self {
        let of = &site.record.objects;
        let one = per_sample(of.allocations_variance, of.allocations_skew);
        let bytes = per_sample(of.total_bytes_variance, of.total_bytes_skew);
        let (live, slots) = match site.aged {
            Some(aged) => (
                (aged.objects_variance, aged.objects_skew),
                (aged.object_bytes_variance, aged.object_bytes_skew),
            ),
            None => (
                (left(of.allocations_variance, of.frees_variance), left(of.allocations_skew, of.frees_skew)),
                (
                    left(of.total_bytes_variance, of.freed_bytes_variance),
                    left(of.total_bytes_skew, of.freed_bytes_skew),
                ),
            ),
        };
        let live_skew = live_bytes.own_per_sample * live_bytes.variance;
        Self {
            live_objects: estimate(site.live_objects() as f64, live.0, live.1, one),
            object_bytes: estimate(site.object_bytes() as f64, slots.0, slots.1, bytes),
            object_allocations: estimate(
                of.allocations as f64,
                of.allocations_variance,
                of.allocations_skew,
                one,
            ),
            retained_bytes: estimate(
                site.retained_bytes() as f64,
                live_bytes.variance + slots.0.max(0.0),
                live_skew + slots.1.max(0.0),
                bytes.max(live_bytes.per_sample),
            ),
        }
    }
}

impl Estimates {
    /// Of a site with sampled blocks.
    #[must_use]
    pub fn of(site: &Site) -> Self {
        let (record, of) = (&site.record, &site.record.variances);
        let blocks = per_sample(of.allocations, of.allocations_skew);
        let bytes = per_sample(of.total_bytes, of.total_bytes_skew);
        let counted = |value: f64, variance: f64, skew: f64| estimate(value, variance, skew, blocks);
        let measured = |value: f64, variance: f64, skew: f64| estimate(value, variance, skew, bytes);
        let (live_bytes, live_blocks) = (site.live_bytes() as f64, site.live_blocks() as f64);
        let (live_bytes, live_blocks) = match site.aged {
            Some(aged) => (
                measured(live_bytes, aged.bytes_variance, aged.bytes_skew),
                counted(live_blocks, aged.blocks_variance, aged.blocks_skew),
            ),
            None => (
                measured(
                    live_bytes,
                    left(of.total_bytes, of.freed_bytes),
                    left(of.total_bytes_skew, of.freed_bytes_skew),
                ),
                counted(
                    live_blocks,
                    left(of.allocations, of.frees),
                    left(of.allocations_skew, of.frees_skew),
                ),
            ),
        };
        let even = |value: f64, variance: f64| Estimate { even: true, ..estimate(value, variance, 0.0, 0.0) };
        let growth = Estimate { even: true, ..measured(site.growth() as f64, of.growth, 0.0) };
        // Without a mark all live bytes are growth.
        let unmarked = site.aged.is_none() && record.marked_bytes == 0;
        Self {
            allocations: counted(record.allocations as f64, of.allocations, of.allocations_skew),
            frees: counted(record.frees as f64, of.frees, of.frees_skew),
            total_bytes: measured(record.total_bytes as f64, of.total_bytes, of.total_bytes_skew),
            freed_bytes: measured(record.freed_bytes as f64, of.freed_bytes, of.freed_bytes_skew),
            live_bytes,
            live_blocks,
            mean_lifespan: even(site.mean_lifespan(), mean_lifespan_variance(site)),
            age_total: even(record.age_total as f64, of.age_total),
            growth,
            growth_interval: if unmarked { live_bytes } else { growth }.interval(),
            old_bytes: measured(record.old_bytes as f64, record.old_bytes_variance, record.old_bytes_skew),
            old_blocks: counted(record.old_blocks as f64, record.old_blocks_variance, record.old_blocks_skew),
            objects: OfObjects::of(site, &live_bytes),
        }
    }
}

/// Never below zero, although the difference of two large numbers may be.
pub(crate) fn estimate(value: f64, variance: f64, skew: f64, others: f64) -> Estimate {
    let own = per_sample(variance, skew);
    Estimate {
        value,
        variance: variance.max(0.0),
        own_per_sample: own,
        per_sample: own.max(others),
        even: false,
    }
}

fn per_sample(variance: f64, skew: f64) -> f64 {
    if variance > 0.0 { skew.max(0.0) / variance } else { 0.0 }
}

/// Of what is left; nothing where that is no more than rounding.
pub(crate) fn left(came: f64, went: f64) -> f64 {
    let left = came - went;
    if left < ROUNDING * came { 0.0 } else { left }
}

/// Of a quotient of two sums over the same blocks.
fn mean_lifespan_variance(site: &Site) -> f64 {
    if site.record.frees == 0 {
        return 0.0;
    }
    let (of, mean, frees) = (&site.record.variances, site.mean_lifespan(), site.record.frees as f64);
    (of.age_total - (2.0 * mean * of.age_covariance) + (mean * mean * of.frees)) / (frees * frees)
}
