//! Sums of what was counted and what was estimated, as they are handed out.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use memintro_abi::{Figures, SiteKind, ThreadFigures, Variances};
use memintro_tracker::chance;
use memintro_tracker::estimate::{Estimated, EstimatedYoung};
use memintro_tracker::sites::{Kind, Site};
use memintro_tracker::threads::{ThreadState, Traffic};

use crate::lost;
use crate::object_samples;
use crate::sampling::{self, SAMPLES};
use crate::shared::{self, SITES, TAILS, THREADS};
use crate::state;

/// What readers call the kind of a site.
pub(crate) fn kind(site: Site<'_>) -> SiteKind {
    match site.kind() {
        Kind::Ruby => SiteKind::RUBY,
        Kind::Native => SiteKind::NATIVE,
        Kind::Pseudo => SiteKind::PSEUDO,
    }
}

/// Sums over all threads. Recording threads need not wait: each thread's figures only grow until they are reset, and
/// freed figures are read before allocated ones, so no sum shows more freed than allocated. Events that are being
/// recorded at this instant are not included yet.
pub(crate) fn of_process() -> Figures {
    THREADS.between_resets(sums)
}

fn sums() -> Figures {
    let mut sum = Figures::default();
    for part in THREADS.states().map(|state| &state.traffic) {
        sum.freed_bytes = sum.freed_bytes.wrapping_add(part.freed_bytes.load(Ordering::Relaxed));
        sum.frees = sum.frees.wrapping_add(part.frees.load(Ordering::Relaxed));
    }
    let [blocks, bytes] = lost::taken_out();
    sum.frees = sum.frees.wrapping_add(blocks);
    sum.freed_bytes = sum.freed_bytes.wrapping_add(bytes);
    fence(Ordering::SeqCst);
    for part in THREADS.states().map(|state| &state.traffic) {
        sum.allocated_bytes = sum.allocated_bytes.wrapping_add(part.allocated_bytes.load(Ordering::Relaxed));
        sum.allocations = sum.allocations.wrapping_add(part.allocations.load(Ordering::Relaxed));
        sum.missed_frees = sum.missed_frees.wrapping_add(part.missed_frees.load(Ordering::Relaxed));
        sum.dropped = sum.dropped.wrapping_add(part.dropped.load(Ordering::Relaxed));
    }
    sum.dropped = sum.dropped.wrapping_add(TAILS.damaged());
    if sampling::has_estimates() {
        let sampled = SAMPLES.totals.figures();
        sum.estimated = 1;
        sum.allocated_bytes = sum.allocated_bytes.wrapping_add(sampled.total_bytes);
        sum.freed_bytes = sum.freed_bytes.wrapping_add(sampled.freed_bytes);
        sum.allocations = sum.allocations.wrapping_add(sampled.allocations);
        sum.frees = sum.frees.wrapping_add(sampled.frees);
        sum.allocated_bytes_variance = sampled.variances.total_bytes;
        sum.freed_bytes_variance = sampled.variances.freed_bytes;
        sum.allocations_variance = sampled.variances.allocations;
        sum.frees_variance = sampled.variances.frees;
        sum.allocated_bytes_skew = sampled.variances.total_bytes_skew;
        sum.freed_bytes_skew = sampled.variances.freed_bytes_skew;
        sum.allocations_skew = sampled.variances.allocations_skew;
        sum.frees_skew = sampled.variances.frees_skew;
    }
    sum.tracker_bytes = state::tracker_bytes();
    sum.sites = u64::from(SITES.count());
    sum.generation = u64::from(shared::generation());
    sum
}

/// The figures of the calling thread.
pub(crate) fn of_thread(own: &ThreadState) -> ThreadFigures {
    let part = |all: fn(&Traffic) -> &AtomicU64| {
        all(&own.traffic).load(Ordering::Relaxed).wrapping_sub(all(&own.inherited).load(Ordering::Relaxed))
    };
    let mut figures = ThreadFigures {
        allocated_bytes: part(|traffic| &traffic.allocated_bytes),
        freed_bytes: part(|traffic| &traffic.freed_bytes),
        allocations: part(|traffic| &traffic.allocations),
        frees: part(|traffic| &traffic.frees),
        dropped: part(|traffic| &traffic.dropped),
        ..ThreadFigures::default()
    };
    if sampling::has_estimates() {
        let sampled = own.estimate.figures();
        let (mine, all) = (sampled.variances, SAMPLES.totals.figures().variances);
        figures.estimated = 1;
        figures.allocated_bytes = figures.allocated_bytes.wrapping_add(sampling::bytes_of(own));
        figures.freed_bytes = figures.freed_bytes.wrapping_add(sampled.freed_bytes);
        figures.allocations = figures.allocations.wrapping_add(sampled.allocations);
        figures.frees = figures.frees.wrapping_add(sampled.frees);
        figures.freed_bytes_variance = sampled.variances.freed_bytes;
        figures.allocations_variance = sampled.variances.allocations;
        figures.frees_variance = sampled.variances.frees;
        let bytes = per_sample(all.total_bytes_skew, all.total_bytes, sampling::mean() as f64);
        // If nothing was sampled, the weight of a block of the least size that allocators hand out.
        let blocks = per_sample(all.allocations_skew, all.allocations, chance::weight(16, sampling::mean()));
        figures.freed_bytes_per_sample = per_sample(mine.freed_bytes_skew, mine.freed_bytes, bytes);
        let blocks = per_sample(mine.allocations_skew, mine.allocations, blocks);
        figures.allocations_per_sample = blocks;
        figures.frees_per_sample = per_sample(mine.frees_skew, mine.frees, blocks);
    }
    figures
}

/// How much of a figure one sampled block stands for. A site without samples uses the mean of the others.
fn per_sample(skew: f64, variance: f64, others: f64) -> f64 {
    if variance > 0.0 { skew / variance } else { others }
}

/// The figures of a call site.
pub(crate) struct SiteFigures {
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
    pub(crate) total_bytes: u64,
    pub(crate) freed_bytes: u64,
    pub(crate) age_total: u64,
    pub(crate) max_lifespan: u64,
    pub(crate) marked_bytes: u64,
    pub(crate) estimated: bool,
    pub(crate) variances: Variances,
    /// The part of the live blocks that was born in the current generation.
    pub(crate) young: EstimatedYoung,
}

impl SiteFigures {
    /// For a line with all its stacks. What is young is left out.
    pub(crate) fn of_line(id: u32, site: Site<'_>, now: u32) -> Self {
        let mut sum = Self::of(id, site, now);
        for (id, site) in SITES.with_stacks(id).skip(1) {
            let part = Self::of(id, site, now);
            for (sum, part) in [
                (&mut sum.allocations, part.allocations),
                (&mut sum.frees, part.frees),
                (&mut sum.total_bytes, part.total_bytes),
                (&mut sum.freed_bytes, part.freed_bytes),
                (&mut sum.age_total, part.age_total),
                (&mut sum.marked_bytes, part.marked_bytes),
            ] {
                *sum = sum.wrapping_add(part);
            }
            sum.max_lifespan = sum.max_lifespan.max(part.max_lifespan);
            sum.estimated |= part.estimated;
            add_variances(&mut sum.variances, &part.variances);
        }
        sum
    }

    pub(crate) fn of(id: u32, site: Site<'_>, now: u32) -> Self {
        let young = SAMPLES.site(id).map(|estimate| estimate.young(now)).unwrap_or_default();
        let sampled = SAMPLES.site(id).map(|estimate| estimate.figures());
        let estimated = sampled.is_some();
        let sampled = sampled.unwrap_or_default();
        let sum = |counted: &AtomicU64, sampled: u64| counted.load(Ordering::Relaxed).wrapping_add(sampled);
        let counters = &site.counters;
        Self {
            allocations: sum(&counters.allocations, sampled.allocations),
            frees: sum(&counters.frees, sampled.frees),
            total_bytes: sum(&counters.total_bytes, sampled.total_bytes),
            freed_bytes: sum(&counters.freed_bytes, sampled.freed_bytes),
            age_total: sum(&counters.age_total, sampled.age_total),
            max_lifespan: counters.max_lifespan.load(Ordering::Relaxed).max(sampled.max_lifespan),
            marked_bytes: sum(site.marked_bytes(), sampled.marked_bytes),
            estimated,
            variances: variances(&sampled),
            young: {
                let (blocks, bytes) = counters.young(now);
                EstimatedYoung {
                    blocks: young.blocks.wrapping_add_signed(blocks),
                    bytes: young.bytes.wrapping_add_signed(bytes),
                    ..young
                }
            },
        }
    }
}

/// Samples of stacks are drawn independently, so their variances add up.
pub(crate) fn add_variances(sum: &mut Variances, part: &Variances) {
    macro_rules! add {
        ($($name:ident),*) => { $(sum.$name += part.$name;)* };
    }
    add!(allocations, frees, total_bytes, freed_bytes, growth, age_total, age_covariance);
    add!(allocations_skew, frees_skew, total_bytes_skew, freed_bytes_skew);
}

fn variances(sampled: &Estimated) -> Variances {
    let all = sampled.variances;
    Variances {
        allocations: all.allocations,
        frees: all.frees,
        total_bytes: all.total_bytes,
        freed_bytes: all.freed_bytes,
        growth: all.growth,
        age_total: all.age_total,
        age_covariance: all.age_covariance,
        allocations_skew: all.allocations_skew,
        frees_skew: all.frees_skew,
        total_bytes_skew: all.total_bytes_skew,
        freed_bytes_skew: all.freed_bytes_skew,
    }
}

/// Whether a site has any event.
pub(crate) fn is_used(id: u32, site: Site<'_>) -> bool {
    site.counters.is_any()
        || SITES.objects(id).is_some_and(|objects| objects.counters.is_any())
        || SAMPLES.site(id).is_some()
        || object_samples::has(id)
}
