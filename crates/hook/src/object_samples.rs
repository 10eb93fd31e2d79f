//! A random sample of the VM's objects, instead of the table of all of them ([`crate::objects`]).
//!
//! The extension counts objects down and reports one in so many. Each object has the same probability,
//! whatever the size of its slot: the number of objects to the next draw is a distance of
//! [`memintro_tracker::chance`] in which each object costs the same. The hook does no work for an object that
//! is not drawn, at its birth or its end.

use core::sync::atomic::{AtomicU64, Ordering};

use memintro_abi::{BlockRecord, ObjectFigures};
use memintro_tracker::chance::{self, Generator};
use memintro_tracker::estimate;
use memintro_tracker::samples::{Drawn, Put, Sample, Samples};
use memintro_tracker::threads::{ThreadState, bump};

use crate::sampling;
use crate::shared::SITES;

/// The sampled objects, by slot.
pub(crate) static OBJECT_SAMPLES: Samples = Samples::new();
/// One object in so many is sampled; 0: all objects are followed, or none.
static MEAN: AtomicU64 = AtomicU64::new(0);
/// The state of the generator. The VM's lock is held wherever it is used.
static GENERATOR: AtomicU64 = AtomicU64::new(0);

/// Whether objects are sampled.
pub(crate) fn is_on() -> bool {
    MEAN.load(Ordering::Relaxed) != 0
}

/// Samples one object in so many from now on; 0: none. The world is paused.
pub(crate) fn set_mean(mean: u64) {
    MEAN.store(mean.min(chance::MOST_MEAN), Ordering::Relaxed);
    reseed(0);
}

/// Also called in a forked child, which must not draw the same objects as its parent.
pub(crate) fn reseed(stream: u64) {
    GENERATOR.store(Generator::seeded(sampling::clock(), stream).bits(), Ordering::Relaxed);
}

/// How many objects are passed over before the next one that is sampled.
pub(crate) fn distance() -> u64 {
    let mut generator = Generator(GENERATOR.load(Ordering::Relaxed));
    let distance = generator.distance() / chance::rate(MEAN.load(Ordering::Relaxed));
    GENERATOR.store(generator.0, Ordering::Relaxed);
    distance
}

/// A sampled object was made.
pub(crate) fn born(own: &ThreadState, slot: usize, bytes: u64, site: u32, birth: u32) {
    let (mean, mark) = (MEAN.load(Ordering::Relaxed), OBJECT_SAMPLES.marks());
    let sample = Sample { size: bytes, mean, site, birth, mark, drawn: Drawn::Alike };
    match OBJECT_SAMPLES.put(slot, sample) {
        Put::New => {}
        Put::Replaced(stale) => OBJECT_SAMPLES.count_death(&stale, birth, None),
        Put::Full => {
            bump(&own.traffic.dropped, sample.share().blocks());
            return;
        }
    }
    OBJECT_SAMPLES.count_birth(&sample, None);
}

/// The object in this slot, if it was sampled, was freed.
pub(crate) fn died(slot: usize, now: u32) {
    if let Some(sample) = OBJECT_SAMPLES.take(slot) {
        OBJECT_SAMPLES.count_death(&sample, now, None);
    }
}

/// A sampled object has moved to another slot.
pub(crate) fn moved(own: &ThreadState, from: usize, to: usize, now: u32) {
    let Some(sample) = OBJECT_SAMPLES.take(from) else { return };
    match OBJECT_SAMPLES.put(to, sample) {
        Put::New => {}
        Put::Replaced(stale) => OBJECT_SAMPLES.count_death(&stale, now, None),
        Put::Full => {
            bump(&own.traffic.dropped, sample.share().blocks());
            OBJECT_SAMPLES.count_death(&sample, now, None);
        }
    }
}

/// Visits the sampled objects that live. The world is paused.
pub(crate) fn each(now: u32, visit: &mut dyn FnMut(&BlockRecord)) {
    OBJECT_SAMPLES.for_each(&mut |slot, sample| {
        visit(&BlockRecord {
            address: slot as u64,
            size: sample.size,
            site: SITES.leaf_of(sample.site),
            age: sample.age(now),
            weight: sample.share().weight(),
        });
    });
}

/// Whether objects of this site were sampled.
pub(crate) fn has(id: u32) -> bool {
    OBJECT_SAMPLES.site(id).is_some()
}

/// Adds a site's sampled objects to its figures.
pub(crate) fn add(id: u32, figures: &mut ObjectFigures, now: u32) {
    let Some(estimate) = OBJECT_SAMPLES.site(id) else { return };
    let (young, sampled) = (estimate.young(now), estimate.figures());
    figures.allocations.add(&sampled.allocations);
    figures.frees.add(&sampled.frees);
    figures.total_bytes.add(&sampled.total_bytes);
    figures.freed_bytes.add(&sampled.freed_bytes);
    figures.marked_bytes = figures.marked_bytes.wrapping_add(sampled.marked_bytes.value);
    figures.old_objects.add(&estimate::old(&sampled.allocations, &sampled.frees, &young.blocks));
    figures.old_bytes.add(&estimate::old(&sampled.total_bytes, &sampled.freed_bytes, &young.bytes));
    figures.estimated = 1;
}
