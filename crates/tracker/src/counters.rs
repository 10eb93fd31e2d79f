//! Counters of a call site, and the small per-thread cache in front of them.
//!
//! Five shared additions for each malloc/free pair would cost more than the table. So every thread adds up in a
//! direct-mapped cache of its own, and an entry goes to the shared counters when another site needs its place,
//! or when a reader has paused the world ([`crate::threads`]). Sums are therefore exact whenever they are read.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// The shared counters of one call site.
#[derive(Debug, Default)]
pub struct Counters {
    /// Allocations.
    pub allocations: AtomicU64,
    /// Frees of its blocks.
    pub frees: AtomicU64,
    /// Bytes asked for.
    pub total_bytes: AtomicU64,
    /// Bytes given back.
    pub freed_bytes: AtomicU64,
    /// Sum of ages at free.
    pub age_total: AtomicU64,
    /// Greatest age at free.
    pub max_lifespan: AtomicU64,
}

impl Counters {
    /// All zero again. The caller has paused the world.
    pub fn reset(&self) {
        for counter in [
            &self.allocations,
            &self.frees,
            &self.total_bytes,
            &self.freed_bytes,
            &self.age_total,
            &self.max_lifespan,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn add(&self, delta: &Delta) {
        // Relaxed: the counters are independent sums; readers pause the world, which orders everything.
        add_unless_zero(&self.allocations, delta.allocations.get());
        add_unless_zero(&self.total_bytes, delta.total_bytes.get());
        if delta.frees.get() != 0 {
            self.frees.fetch_add(delta.frees.get(), Ordering::Relaxed);
            self.freed_bytes.fetch_add(delta.freed_bytes.get(), Ordering::Relaxed);
            add_unless_zero(&self.age_total, delta.age_total.get());
            if delta.max_lifespan.get() != 0 {
                self.max_lifespan.fetch_max(u64::from(delta.max_lifespan.get()), Ordering::Relaxed);
            }
        }
    }
}

#[inline]
fn add_unless_zero(counter: &AtomicU64, amount: u64) {
    if amount != 0 {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

/// What one thread has not yet added to a site's counters.
#[derive(Debug)]
struct Delta {
    site: Cell<u32>,
    max_lifespan: Cell<u32>,
    allocations: Cell<u64>,
    frees: Cell<u64>,
    total_bytes: Cell<u64>,
    freed_bytes: Cell<u64>,
    age_total: Cell<u64>,
}

impl Delta {
    fn is_empty(&self) -> bool {
        self.allocations.get() == 0 && self.frees.get() == 0
    }

    fn reset(&self, site: u32) {
        self.site.set(site);
        self.max_lifespan.set(0);
        self.allocations.set(0);
        self.frees.set(0);
        self.total_bytes.set(0);
        self.freed_bytes.set(0);
        self.age_total.set(0);
    }
}

const ENTRIES: usize = 128;

/// One thread's cache of counters. All-zero memory is a valid, empty cache.
#[derive(Debug)]
pub struct CounterCache {
    entries: [Delta; ENTRIES],
}

impl CounterCache {
    #[inline]
    fn entry<'a>(&self, site: u32, shared: impl Fn(u32) -> Option<&'a Counters>) -> &Delta {
        // The mask keeps the index inside the array, so that no bounds check (and no panic) is left.
        let delta = &self.entries[site as usize & (ENTRIES - 1)];
        if delta.site.get() != site {
            evict(delta, site, shared);
        }
        delta
    }

    /// One allocation at `site`.
    #[inline]
    pub fn allocated<'a>(&self, site: u32, size: u64, shared: impl Fn(u32) -> Option<&'a Counters>) {
        let delta = self.entry(site, shared);
        delta.allocations.set(delta.allocations.get().wrapping_add(1));
        delta.total_bytes.set(delta.total_bytes.get().wrapping_add(size));
    }

    /// One free of a block of `site`.
    #[inline]
    pub fn freed<'a>(&self, site: u32, size: u64, age: u32, shared: impl Fn(u32) -> Option<&'a Counters>) {
        let delta = self.entry(site, shared);
        delta.frees.set(delta.frees.get().wrapping_add(1));
        delta.freed_bytes.set(delta.freed_bytes.get().wrapping_add(size));
        delta.age_total.set(delta.age_total.get().wrapping_add(u64::from(age)));
        if age > delta.max_lifespan.get() {
            delta.max_lifespan.set(age);
        }
    }

    /// Adds everything to the shared counters. The owner calls it, or whoever has paused the world.
    pub fn flush<'a>(&self, shared: impl Fn(u32) -> Option<&'a Counters>) {
        for delta in &self.entries {
            if !delta.is_empty() {
                evict(delta, delta.site.get(), &shared);
            }
        }
    }

    /// Forgets everything without adding it.
    pub fn discard(&self) {
        for delta in &self.entries {
            delta.reset(0);
        }
    }
}

#[cold]
fn evict<'a>(delta: &Delta, site: u32, shared: impl Fn(u32) -> Option<&'a Counters>) {
    if !delta.is_empty()
        && let Some(counters) = shared(delta.site.get())
    {
        counters.add(delta);
    }
    delta.reset(site);
}
