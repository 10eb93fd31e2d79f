//! Sums of what was counted and what was estimated, as they are handed out.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use memintro_abi::{BlockFigures, Estimated, Figures, SiteKind, ThreadFigures};
use memintro_tracker::chance;
use memintro_tracker::estimate::EstimatedYoung;
use memintro_tracker::sites::{Kind, Site};
use memintro_tracker::threads::{ThreadState, Traffic};

use crate::lost;
use crate::object_samples;
use crate::sampling::{self, SAMPLES};
use crate::shared::{self, IN_BAND_RECORDS, SITES, THREADS};
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
    let more = |sum: &mut Estimated, part: &AtomicU64| {
        sum.value = sum.value.wrapping_add(part.load(Ordering::Relaxed));
    };
    for part in THREADS.states().map(|state| &state.traffic) {
        more(&mut sum.freed_bytes, &part.freed_bytes);
        more(&mut sum.frees, &part.frees);
    }
    let [blocks, bytes] = lost::taken_out();
    sum.frees.add(&Estimated::exact(blocks));
    sum.freed_bytes.add(&Estimated::exact(bytes));
    fence(Ordering::SeqCst);
    for part in THREADS.states().map(|state| &state.traffic) {
        more(&mut sum.allocated_bytes, &part.allocated_bytes);
        more(&mut sum.allocations, &part.allocations);
        sum.missed_frees = sum.missed_frees.wrapping_add(part.missed_frees.load(Ordering::Relaxed));
        sum.dropped = sum.dropped.wrapping_add(part.dropped.load(Ordering::Relaxed));
    }
    sum.dropped = sum.dropped.wrapping_add(IN_BAND_RECORDS.damaged());
    if sampling::has_estimates() {
        let sampled = SAMPLES.totals.figures();
        sum.estimated = 1;
        sum.allocated_bytes.add(&sampled.total_bytes);
        sum.freed_bytes.add(&sampled.freed_bytes);
        sum.allocations.add(&sampled.allocations);
        sum.frees.add(&sampled.frees);
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
        freed_bytes: Estimated::exact(part(|traffic| &traffic.freed_bytes)),
        allocations: Estimated::exact(part(|traffic| &traffic.allocations)),
        frees: Estimated::exact(part(|traffic| &traffic.frees)),
        dropped: part(|traffic| &traffic.dropped),
        ..ThreadFigures::default()
    };
    if sampling::has_estimates() {
        let sampled = own.estimate.figures();
        let all = SAMPLES.totals.figures();
        figures.estimated = 1;
        figures.allocated_bytes = figures.allocated_bytes.wrapping_add(sampling::bytes_of(own));
        figures.freed_bytes.add(&sampled.freed_bytes);
        figures.allocations.add(&sampled.allocations);
        figures.frees.add(&sampled.frees);
        let mean = sampling::mean();
        figures.bytes_per_sample = all.total_bytes.per_sample().unwrap_or(mean as f64);
        // If nothing was sampled, the weight of a block of the least size that allocators hand out.
        figures.blocks_per_sample = all.allocations.per_sample().unwrap_or(chance::weight(16, mean));
    }
    figures
}

/// Adds the figures of a call site.
#[inline(never)]
pub(crate) fn add_site(sum: &mut BlockFigures, id: u32, site: Site<'_>) {
    site.counters.add_to(sum);
    sum.marked_bytes.value = sum.marked_bytes.value.wrapping_add(site.marked_bytes().load(Ordering::Relaxed));
    if let Some(estimate) = SAMPLES.site(id) {
        estimate.add_to(sum);
    }
}

/// The live blocks of a call site that were born in the current generation.
pub(crate) fn young(id: u32, site: Site<'_>, now: u32) -> EstimatedYoung {
    let mut young = SAMPLES.site(id).map(|estimate| estimate.young(now)).unwrap_or_default();
    let (blocks, bytes) = site.counters.young(now);
    young.blocks.value = young.blocks.value.wrapping_add_signed(blocks);
    young.bytes.value = young.bytes.value.wrapping_add_signed(bytes);
    young
}

/// Whether a site has any event.
pub(crate) fn is_used(id: u32, site: Site<'_>) -> bool {
    site.counters.is_any()
        || SITES.objects(id).is_some_and(|objects| objects.counters.is_any())
        || SAMPLES.site(id).is_some()
        || object_samples::has(id)
}
