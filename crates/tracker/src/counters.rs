//! Counters of a call site, and the small per-thread cache in front of them.
//!
//! Five shared additions for each malloc/free pair would cost more than the table. So each thread sums up in a
//! direct-mapped cache of its own. An entry is added to the shared counters when another site needs its place, or
//! when a reader has paused the world ([`crate::threads`]). So sums are exact whenever they are read.
//!
//! The same cache decides when the native caller of an allocation is due to be sampled ([`Schedule`]). That
//! costs a comparison.

mod schedule;

use core::cell::Cell;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU64, Ordering};

use memintro_abi::BlockFigures;
use schedule::Schedule;

macro_rules! define_counters {
    (
        sums { $($(#[doc = $sum_doc:literal])+ $sum:ident: $sum_unit:ident;)+ }
        exact {}
        maxima { $($(#[doc = $max_doc:literal])+ $max:ident: $max_unit:ident;)+ }
        $($rest:tt)*
    ) => {
        /// The shared counters of one call site.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $sum_doc])+ pub $sum: AtomicU64,)+
            $($(#[doc = $max_doc])+ pub $max: AtomicU64,)+
            young: Young,
            schedule: Schedule,
        }

        impl Counters {
            /// Adds counted figures, none of which is an estimate.
            pub fn add_to(&self, sum: &mut BlockFigures) {
                $(sum.$sum.value = sum.$sum.value.wrapping_add(self.$sum.load(Ordering::Relaxed));)+
                $(sum.$max = sum.$max.max(self.$max.load(Ordering::Relaxed));)+
            }

            fn all(&self) -> [&AtomicU64; [$(stringify!($sum),)+ $(stringify!($max),)+].len()] {
                [$(&self.$sum,)+ $(&self.$max,)+]
            }
        }
    };
}
memintro_abi::site_figures!(define_counters);

/// Live blocks and bytes of one generation, the last one in which there were any. Each of the two words holds the
/// generation beside its sum, so a new generation begins at 0 without a lock. Sums of older generations are not
/// needed.
#[derive(Debug, Default)]
struct Young {
    blocks: AtomicU64,
    bytes: AtomicU64,
}

/// Bits of a word of [`Young`] that hold the sum. The bits above them hold the generation, or its lowest bits.
const BLOCK_BITS: u32 = 32;
const BYTE_BITS: u32 = 48;

impl Young {
    fn add(&self, generation: u32, blocks: i64, bytes: i64) {
        add_in_generation(&self.blocks, BLOCK_BITS, generation, blocks);
        add_in_generation(&self.bytes, BYTE_BITS, generation, bytes);
    }

    fn in_generation(&self, generation: u32) -> (i64, i64) {
        let (of_blocks, blocks) = split(self.blocks.load(Ordering::Relaxed), BLOCK_BITS);
        if of_blocks == u64::from(generation) {
            (blocks, split(self.bytes.load(Ordering::Relaxed), BYTE_BITS).1)
        } else {
            (0, 0)
        }
    }
}

/// A generation and a signed sum.
fn split(word: u64, bits: u32) -> (u64, i64) {
    (word >> bits, (word << (64 - bits)).cast_signed() >> (64 - bits))
}

fn add_in_generation(word: &AtomicU64, bits: u32, generation: u32, amount: i64) {
    let room = u64::MAX >> bits;
    let generation = u64::from(generation) & room;
    // Relaxed: as in `Counters::add`.
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
        let (of, sum) = split(before, bits);
        let ahead = generation.wrapping_sub(of) & room;
        let sum = match ahead {
            0 => sum.wrapping_add(amount),
            // Another thread has begun a later generation.
            _ if ahead > room / 2 => return None,
            _ => amount,
        };
        Some(generation << bits | (sum.cast_unsigned() & (u64::MAX >> (64 - bits))))
    });
}

impl Counters {
    /// How many allocations were due.
    #[must_use]
    pub fn due(&self) -> u32 {
        self.schedule.due()
    }

    /// These counters are those of a new whole stack of that line. All stacks of a line share its schedule: a
    /// program may have a hundred thousand stacks, and most of them allocate only a few times.
    pub fn begin_within(&self, line: &Self) {
        // The seed differs by stack and by process, which is all that is needed.
        self.schedule.begin_at(line.schedule.due(), core::ptr::from_ref(self).addr() as u64);
    }

    /// An allocation of a stack of this line was due.
    pub fn stack_was_due(&self) {
        self.schedule.count_one();
    }

    /// Makes the next due allocation a distant one.
    pub fn put_off(&self) {
        self.schedule.put_off(NEVER - 1);
    }

    /// Whether anything was counted.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.allocations.load(Ordering::Relaxed) != 0 || self.frees.load(Ordering::Relaxed) != 0
    }

    /// Bytes that were not freed.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed).wrapping_sub(self.freed_bytes.load(Ordering::Relaxed))
    }

    /// All zero again. The caller has paused the world.
    pub fn reset(&self) {
        for counter in self.all() {
            counter.store(0, Ordering::Relaxed);
        }
        self.young.blocks.store(0, Ordering::Relaxed);
        self.young.bytes.store(0, Ordering::Relaxed);
        self.schedule.reset();
    }

    /// Moves a live block of this size to another site, as if that site had allocated it. `young`: the
    /// present generation, if the block was born in it. The caller has paused the world.
    pub fn give(&self, other: &Self, size: u64, young: Option<u32>) {
        let bytes = size.cast_signed();
        for (counters, blocks, bytes) in [(self, -1, bytes.wrapping_neg()), (other, 1, bytes)] {
            counters.allocations.fetch_add(i64::cast_unsigned(blocks), Ordering::Relaxed);
            counters.total_bytes.fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
            if let Some(generation) = young {
                counters.young.add(generation, blocks, bytes);
            }
        }
    }

    /// Blocks and bytes that are live and were born in this generation. The caller has paused the world and flushed.
    pub fn young(&self, generation: u32) -> (i64, i64) {
        self.young.in_generation(generation)
    }

    fn add(&self, delta: &Delta) {
        // Relaxed: the counters are independent sums; readers pause the world, which orders everything.
        let allocations = delta.allocations.get();
        if allocations != 0 {
            self.allocations.fetch_add(allocations.into(), Ordering::Relaxed);
            self.schedule.passed(allocations);
        }
        add_unless_zero(&self.total_bytes, delta.total_bytes.get());
        if delta.frees.get() != 0 {
            self.frees.fetch_add(delta.frees.get(), Ordering::Relaxed);
            self.freed_bytes.fetch_add(delta.freed_bytes.get(), Ordering::Relaxed);
            add_unless_zero(&self.age_total, delta.age_total.get());
            if delta.max_lifespan.get() != 0 {
                self.max_lifespan.fetch_max(u64::from(delta.max_lifespan.get()), Ordering::Relaxed);
            }
        }
        let (blocks, bytes) = delta.young();
        if blocks != 0 || bytes != 0 {
            self.young.add(delta.generation.get(), blocks, bytes);
        }
    }
}

#[inline]
fn add_unless_zero(counter: &AtomicU64, amount: u64) {
    if amount != 0 {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

/// The part of a site's counters that one thread has not added yet.
#[derive(Debug)]
struct Delta {
    site: Cell<u32>,
    /// The generation in which blocks count as young.
    generation: Cell<u32>,
    max_lifespan: Cell<u32>,
    allocations: Cell<u32>,
    /// The allocation that is due, counted as `allocations` are.
    due: Cell<u32>,
    /// The part of `allocations` and `total_bytes` that is not live or not of this generation. With it, a
    /// birth need not count young blocks.
    other_blocks: Cell<u32>,
    other_bytes: Cell<u64>,
    frees: Cell<u64>,
    total_bytes: Cell<u64>,
    freed_bytes: Cell<u64>,
    age_total: Cell<u64>,
}

impl Delta {
    /// Live blocks of its generation, and their bytes, less those that other threads have allocated.
    fn young(&self) -> (i64, i64) {
        (
            i64::from(self.allocations.get().wrapping_sub(self.other_blocks.get()).cast_signed()),
            self.total_bytes.get().wrapping_sub(self.other_bytes.get()).cast_signed(),
        )
    }

    /// Begins a generation, in which nothing is young yet, unless it is the present one.
    #[inline(always)]
    fn turn_to(&self, generation: u32) {
        if self.generation.get() != generation {
            self.generation.set(generation);
            self.other_blocks.set(self.allocations.get());
            self.other_bytes.set(self.total_bytes.get());
        }
    }

    fn is_empty(&self) -> bool {
        self.allocations.get() == 0 && self.frees.get() == 0
    }

    /// Empties it, but for its generation.
    fn reset(&self, site: u32, due: u32) {
        self.site.set(site);
        self.due.set(due);
        self.max_lifespan.set(0);
        self.allocations.set(0);
        self.frees.set(0);
        self.total_bytes.set(0);
        self.freed_bytes.set(0);
        self.age_total.set(0);
        self.other_blocks.set(0);
        self.other_bytes.set(0);
    }

    #[inline(always)]
    fn born(&self, size: u64) {
        self.allocations.set(self.allocations.get().wrapping_add(1));
        self.total_bytes.set(self.total_bytes.get().wrapping_add(size));
    }

    #[inline(always)]
    fn died(&self, size: u64, count: u32, age: u32) {
        let (frees, bytes) = (u64::from(count), size.wrapping_mul(u64::from(count)));
        self.frees.set(self.frees.get().wrapping_add(frees));
        self.freed_bytes.set(self.freed_bytes.get().wrapping_add(bytes));
        if age == 0 {
            self.other_blocks.set(self.other_blocks.get().wrapping_add(count));
            self.other_bytes.set(self.other_bytes.get().wrapping_add(bytes));
            return;
        }
        self.age_total.set(self.age_total.get().wrapping_add(u64::from(age).wrapping_mul(frees)));
        if age > self.max_lifespan.get() {
            self.max_lifespan.set(age);
        }
    }
}

/// The counters of one site in one generation, in the thread's cache. Valid until the cache changes.
#[derive(Clone, Copy, Debug)]
pub struct AtHand<'a>(&'a Delta);

impl AtHand<'_> {
    /// Whether the next allocation is due.
    #[inline(always)]
    #[must_use]
    pub fn is_due(self) -> bool {
        // A distance is far less than the counter can hold, so it never overflows.
        self.0.allocations.get().wrapping_add(1) == self.0.due.get()
    }

    /// Counts an allocation, which must not be due.
    #[inline(always)]
    pub fn allocated(self, size: u64) {
        self.0.born(size);
    }

    /// Counts a free of a block of this age.
    #[inline(always)]
    pub fn freed(self, size: u64, age: u32) {
        self.0.died(size, 1, age);
    }
}

const ENTRIES: usize = 128;

/// One thread's cache of counters. All-zero memory is a valid, empty cache.
#[derive(Debug)]
pub struct CounterCache {
    entries: [Delta; ENTRIES],
}

impl CounterCache {
    #[inline(always)]
    fn place(&self, site: u32) -> &Delta {
        // The mask keeps the index inside the array, so that no bounds check (and no panic) is left.
        &self.entries[site as usize & (ENTRIES - 1)]
    }

    #[inline(always)]
    fn entry<'a>(&self, site: u32, shared: impl Fn(u32) -> Option<&'a Counters>) -> &Delta {
        let delta = self.place(site);
        if delta.site.get() != site {
            evict(delta, site, shared);
        }
        delta
    }

    /// The counters of `site` for a block of this age that is born or freed in this generation. `None` if the
    /// entry must first be flushed or started.
    #[inline(always)]
    #[must_use]
    pub fn at_hand(&self, site: u32, age: u32, generation: u32) -> Option<AtHand<'_>> {
        let delta = self.place(site);
        let is_at_hand = delta.site.get() == site && (age != 0 || delta.generation.get() == generation);
        is_at_hand.then_some(AtHand(delta))
    }

    /// Counts an allocation at `site`, in this generation. If it is due, returns how many it stands for, on average.
    #[inline(always)]
    pub fn allocated<'a>(
        &self,
        site: u32,
        size: u64,
        generation: u32,
        shared: impl Fn(u32) -> Option<&'a Counters>,
    ) -> Option<NonZeroU32> {
        let delta = self.entry(site, &shared);
        delta.turn_to(generation);
        let is_due = AtHand(delta).is_due();
        delta.born(size);
        if is_due { come_due(delta, site, shared) } else { None }
    }

    /// Counts a free of a block of `site`, of this age, in this generation.
    #[inline(always)]
    pub fn freed<'a>(
        &self,
        site: u32,
        size: u64,
        age: u32,
        generation: u32,
        shared: impl Fn(u32) -> Option<&'a Counters>,
    ) {
        self.freed_together(site, size, 1, age, generation, shared);
    }

    /// The same for a number of blocks, each of this size and age.
    #[inline(always)]
    pub fn freed_together<'a>(
        &self,
        site: u32,
        size: u64,
        count: u32,
        age: u32,
        generation: u32,
        shared: impl Fn(u32) -> Option<&'a Counters>,
    ) {
        let delta = self.entry(site, shared);
        if age == 0 {
            delta.turn_to(generation);
        }
        delta.died(size, count, age);
    }

    /// Adds everything to the shared counters. Called by the owner, or by the thread that has paused the world.
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
            delta.reset(0, NEVER);
        }
    }
}

/// If a site's counters are unknown, no allocation is due before its counter is half full; then it is
/// emptied.
const NEVER: u32 = 1 << 31;

#[cold]
fn evict<'a>(delta: &Delta, site: u32, shared: impl Fn(u32) -> Option<&'a Counters>) {
    if !delta.is_empty()
        && let Some(counters) = shared(delta.site.get())
    {
        counters.add(delta);
    }
    let left = shared(site).map(|counters| counters.schedule.left());
    delta.reset(site, left.map_or(NEVER, |left| left.saturating_add(1)));
}

#[cold]
fn come_due<'a>(
    delta: &Delta,
    site: u32,
    shared: impl Fn(u32) -> Option<&'a Counters>,
) -> Option<NonZeroU32> {
    let counters = shared(site);
    let mean = counters.and_then(|counters| {
        counters.add(delta);
        if delta.allocations.get() == 0 {
            // A free place has no mark, so its counter has wrapped around.
            counters.allocations.fetch_add(1 << 32, Ordering::Relaxed);
        }
        delta.reset(site, NEVER);
        // The seed differs by site and by process, which is all that is needed.
        let seed = core::ptr::from_ref(counters).addr() as u64;
        NonZeroU32::new(counters.schedule.next(seed))
    });
    evict(delta, site, shared);
    mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_fills_a_line_of_the_processor_s_cache() {
        assert_eq!(size_of::<Delta>(), 64);
    }

    proptest! {
        /// Compares with a list of live blocks: the caches of two threads, whose entries are evicted now and then.
        #[test]
        fn what_is_young_is_what_was_born_in_this_generation_and_lives(
            steps in proptest::collection::vec((0u8..20, 0usize..2, 0usize..40, 1u64..1 << 30), 1..300),
        ) {
            let shared = Counters::default();
            let find = |_: u32| Some(&shared);
            // SAFETY: all-zero memory is an empty cache.
            let caches: [CounterCache; 2] = unsafe { core::mem::zeroed() };
            // Some are given to another site, and are no longer this one's.
            let other = Counters::default();
            let mut given: Vec<(u32, u64)> = Vec::new();
            let (mut generation, mut live) = (7u32, Vec::new());
            for (step, thread, at, size) in steps {
                match step {
                    0..8 => {
                        caches[thread].allocated(3, size, generation, find);
                        live.push((generation, size));
                    }
                    8..15 if !live.is_empty() => {
                        let (birth, size) = live.swap_remove(at % live.len());
                        caches[thread].freed(3, size, generation - birth, generation, find);
                    }
                    15..17 => generation += 1,
                    17..18 => caches[thread].flush(find),
                    18..20 if !live.is_empty() => {
                        let (birth, size) = live.swap_remove(at % live.len());
                        shared.give(&other, size, (birth == generation).then_some(generation));
                        given.push((birth, size));
                    }
                    _ => {}
                }
            }
            caches.iter().for_each(|cache| cache.flush(find));
            let young: Vec<u64> = live.iter().filter(|(birth, _)| *birth == generation).map(|(_, size)| *size).collect();
            prop_assert_eq!(shared.young(generation), (young.len() as i64, young.iter().sum::<u64>() as i64));
            prop_assert_eq!(shared.young(generation + 1), (0, 0));
            let young: Vec<u64> = given.iter().filter(|(birth, _)| *birth == generation).map(|(_, size)| *size).collect();
            prop_assert_eq!(other.young(generation), (young.len() as i64, young.iter().sum::<u64>() as i64));
            for (counters, blocks) in [(&shared, &live), (&other, &given)] {
                let left = counters.allocations.load(Ordering::Relaxed) - counters.frees.load(Ordering::Relaxed);
                prop_assert_eq!(left, blocks.len() as u64);
                prop_assert_eq!(counters.live_bytes(), blocks.iter().map(|(_, size)| size).sum::<u64>());
            }
        }
    }
}
