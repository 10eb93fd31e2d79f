//! Standard errors and intervals of sampled figures: of a call site, and of the process.

use memintro_abi::{Adds, Estimated, Figures, Unit};

use crate::figures::{self, Reader, computed};
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
    /// A figure with its variance, its skew, and how much of it one block stands for of those that it is a part of. The
    /// variance is never below zero, although the difference of two large numbers may be.
    #[must_use]
    pub fn new(value: f64, variance: f64, skew: f64, others: f64) -> Self {
        let own = per_sample(&Estimated { value: 0, variance, skew });
        Self {
            value,
            variance: variance.max(0.0),
            own_per_sample: own,
            per_sample: own.max(others),
            even: false,
        }
    }

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

impl Estimate {
    /// Of a figure that adds up by its sum. `one`: how much of it one sampled block of the site stands for, if it counts
    /// blocks or bytes.
    pub(crate) fn of_sum(of: &Estimated, one: Option<f64>) -> Self {
        match one {
            Some(one) => Self::new(of.value.cast_signed() as f64, of.variance, of.skew, one),
            None => even(of.value as f64, of.variance),
        }
    }
}

/// A figure of blocks or objects, each of which stands for as many as it weighs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weighed {
    /// What was counted, with the doubts of all.
    counted: Estimated,
    /// What samples stand for.
    sampled: f64,
}

impl Weighed {
    /// Adds a block that has so much of the figure. A sample of weight 1 is as certain as a counted block.
    pub fn add(&mut self, weight: f64, each: u64) {
        if weight <= 1.0 {
            self.counted.value = self.counted.value.wrapping_add(each);
            return;
        }
        let (of, variance) = (each as f64, weight * (weight - 1.0));
        self.sampled += weight * of;
        self.counted.variance += variance * of * of;
        self.counted.skew += variance * (weight - 1.0) * of * of * of;
    }

    /// Adds what others have.
    pub fn add_all(&mut self, others: &Self) {
        self.counted.add(&others.counted);
        self.sampled += others.sampled;
    }

    /// All of them.
    #[must_use]
    pub fn sum(&self) -> Estimated {
        self.counted.with(self.counted.value.wrapping_add(self.sampled.round() as u64))
    }

    /// Whether any of them is a sample.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        self.sampled > 0.0
    }

    /// As [`Estimate::standard_error`].
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        Estimate::of_sum(&self.sum(), Some(0.0)).standard_error()
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
        let (record, aged) = (&site.record, site.aged.as_ref());
        let of = &record.objects;
        let (one, byte) = (per_sample(&of.allocations), per_sample(&of.total_bytes));
        let live = aged.map_or_else(|| left(&of.allocations, &of.frees), |aged| aged.objects);
        let slots = aged.map_or_else(|| left(&of.total_bytes, &of.freed_bytes), |aged| aged.object_bytes);
        let retained = Estimated {
            value: 0,
            variance: live_bytes.variance + slots.variance.max(0.0),
            skew: (live_bytes.own_per_sample * live_bytes.variance) + slots.skew.max(0.0),
        };
        let estimate =
            |value: i64, of: &Estimated, one: f64| Estimate::new(value as f64, of.variance, of.skew, one);
        Self {
            live_objects: estimate(computed::live_objects(record, aged), &live, one),
            object_bytes: estimate(computed::object_bytes(record, aged), &slots, byte),
            object_allocations: Estimate::of_sum(&of.allocations, Some(one)),
            retained_bytes: estimate(
                computed::retained_bytes(record, aged),
                &retained,
                byte.max(live_bytes.per_sample),
            ),
        }
    }
}

impl Estimates {
    /// Of a site with sampled blocks.
    #[must_use]
    pub fn of(site: &Site) -> Self {
        let (record, aged, of) = (&site.record, site.aged.as_ref(), &site.record.blocks);
        let (block, byte) = (per_sample(&of.allocations), per_sample(&of.total_bytes));
        let bytes = aged.map_or_else(|| left(&of.total_bytes, &of.freed_bytes), |aged| aged.bytes);
        let blocks = aged.map_or_else(|| left(&of.allocations, &of.frees), |aged| aged.blocks);
        let live_bytes =
            Estimate::new(computed::live_bytes(record, aged) as f64, bytes.variance, bytes.skew, byte);
        let live_blocks =
            Estimate::new(computed::live_blocks(record, aged) as f64, blocks.variance, blocks.skew, block);
        let growth = computed::growth(record, aged) as f64;
        let growth = Estimate { even: true, ..Estimate::new(growth, of.marked_bytes.variance, 0.0, byte) };
        // Without a mark all live bytes are growth.
        let unmarked = aged.is_none() && of.marked_bytes.value == 0;
        Self {
            live_bytes,
            live_blocks,
            mean_lifespan: even(computed::mean_lifespan(record, aged), mean_lifespan_variance(site)),
            growth,
            growth_interval: if unmarked { live_bytes } else { growth }.interval(),
            old_bytes: Estimate::of_sum(&record.old_bytes, Some(byte)),
            old_blocks: Estimate::of_sum(&record.old_blocks, Some(block)),
            objects: OfObjects::of(site, &live_bytes),
            ..figures::estimates(of, block, byte)
        }
    }
}

impl Estimates {
    /// The estimate of one figure of a site, and its interval; none if it has no standard error.
    #[must_use]
    pub fn of_figure(site: &Site, figure: &Reader) -> Option<(Estimate, (f64, f64))> {
        let all = Self::of(site);
        let found = *figure.estimate(&all)?;
        let interval = match (figure.figure.adds, figure.figure.unit) {
            (Adds::Derived, Unit::Change) => all.growth_interval,
            _ => found.interval(),
        };
        Some((found, interval))
    }
}

/// Blocks are not smaller: so many more can be where none was sampled.
const LEAST_BLOCK: f64 = 16.0;

/// The totals of a process; their variances are 0 unless they are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Bytes allocated.
    pub allocated_bytes: Estimate,
    /// Bytes freed.
    pub freed_bytes: Estimate,
    /// Bytes that are live.
    pub live_bytes: Estimate,
    /// Allocations.
    pub allocations: Estimate,
    /// Frees.
    pub frees: Estimate,
    /// Blocks that are live.
    pub live_blocks: Estimate,
}

impl Totals {
    /// Of a process whose samples have this mean distance; 0: it is not known.
    #[must_use]
    pub fn of(figures: &Figures, sample_bytes: u64) -> Self {
        Self::with(figures, Self::nothing_sampled(figures, sample_bytes), false)
    }

    /// How many bytes and blocks one sample would have stood for, if there is none.
    #[must_use]
    pub fn nothing_sampled(figures: &Figures, sample_bytes: u64) -> (f64, f64) {
        let mean = if figures.allocated_bytes.variance <= 0.0 { sample_bytes as f64 } else { 0.0 };
        (mean, mean / LEAST_BLOCK)
    }

    /// Of figures of which one sample stands for at least so many bytes and blocks. `is_flow`: they are differences of
    /// totals. A block whose allocation and free are both in a sum adds no uncertainty; in a difference this is not known.
    #[must_use]
    pub fn with(figures: &Figures, (byte, block): (f64, f64), is_flow: bool) -> Self {
        let byte = byte.max(per_sample(&figures.allocated_bytes));
        let block = block.max(per_sample(&figures.allocations));
        let all = |of: &Estimated, one: f64| Estimate::of_sum(of, Some(one));
        let live = |came: &Estimated, went: &Estimated, one: f64| {
            let value = came.value.wrapping_sub(went.value).cast_signed() as f64;
            if is_flow {
                let sum = Estimate::new(value, came.variance + went.variance, 0.0, one);
                return Estimate { even: true, ..sum };
            }
            let of = left(came, went);
            Estimate::new(value, of.variance, of.skew, one)
        };
        Self {
            allocated_bytes: all(&figures.allocated_bytes, byte),
            freed_bytes: all(&figures.freed_bytes, byte),
            live_bytes: live(&figures.allocated_bytes, &figures.freed_bytes, byte),
            allocations: all(&figures.allocations, block),
            frees: all(&figures.frees, block),
            live_blocks: live(&figures.allocations, &figures.frees, block),
        }
    }

    /// By its name in the list of figures.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Estimate> {
        match name {
            "allocated_bytes" => Some(&self.allocated_bytes),
            "freed_bytes" => Some(&self.freed_bytes),
            "live_bytes" => Some(&self.live_bytes),
            "allocations" => Some(&self.allocations),
            "frees" => Some(&self.frees),
            "live_blocks" => Some(&self.live_blocks),
            _ => None,
        }
    }
}

fn even(value: f64, variance: f64) -> Estimate {
    Estimate { even: true, ..Estimate::new(value, variance, 0.0, 0.0) }
}

pub(crate) fn per_sample(of: &Estimated) -> f64 {
    of.per_sample().map_or(0.0, |one| one.max(0.0))
}

/// The doubts of what is left; none where that is no more than rounding.
pub(crate) fn left(came: &Estimated, went: &Estimated) -> Estimated {
    let left = |came: f64, went: f64| if came - went < ROUNDING * came { 0.0 } else { came - went };
    Estimated { value: 0, variance: left(came.variance, went.variance), skew: left(came.skew, went.skew) }
}

/// Of a quotient of two sums over the same blocks.
fn mean_lifespan_variance(site: &Site) -> f64 {
    let of = &site.record.blocks;
    if of.frees.value == 0 {
        return 0.0;
    }
    let (mean, frees) = (computed::mean_lifespan(&site.record, None), of.frees.value as f64);
    (of.age_total.variance - (2.0 * mean * of.age_covariance) + (mean * mean * of.frees.variance))
        / (frees * frees)
}
