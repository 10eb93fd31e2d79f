//! The sampled blocks (address → call site, size, birth, mean when it was sampled) and their sums.
//!
//! There are few of them: some thousand for each gigabyte of heap, with some hundred changes a second. So this is one
//! small hash table behind one lock, with the sums of each call site beside it. Only the check that a block is *not*
//! here must be fast, and [`Filter`] does that.
//!
//! Rules for neighbours: functions that take the lock are called only by a busy thread (see [`crate::threads`]) or by
//! the thread that has paused the world, because a signal handler of the same thread may allocate. Reading sums takes
//! no lock.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::estimate::{Estimate, Share};
use crate::filter::Filter;
use crate::key_map::KeyMap;
use crate::lock::SpinLock;
use crate::mmap;

const CHUNK_SHIFT: u32 = 10;
const SITES_PER_CHUNK: usize = 1 << CHUNK_SHIFT;
const CHUNKS: usize = (crate::sites::MOST_SITES as usize) >> CHUNK_SHIFT;

/// A sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sample {
    /// Bytes asked for.
    pub size: u64,
    /// Mean distance of the draws when it was sampled.
    pub mean: u64,
    /// Number of its call site.
    pub site: u32,
    /// GC generation of its birth.
    pub birth: u32,
    /// Number of marks before its birth.
    pub mark: u32,
    /// What the draw counted.
    pub drawn: Drawn,
}

/// The unit in which draws are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Drawn {
    /// The bytes of all blocks: a large one is drawn more often.
    Bytes,
    /// All alike, whatever their size.
    Alike,
}

impl Sample {
    /// Its weight.
    #[must_use]
    pub fn share(&self) -> Share {
        match self.drawn {
            Drawn::Bytes => Share::by_size(self.size, self.mean),
            Drawn::Alike => Share::alike(self.size, self.mean),
        }
    }

    /// GC generations since its birth; 0 if the birth seems to be in the future.
    #[must_use]
    pub fn age(&self, now: u32) -> u32 {
        let age = now.wrapping_sub(self.birth);
        if age > u32::MAX / 2 { 0 } else { age.min(crate::table::MAX_AGE) }
    }
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The block was inserted.
    New,
    /// The block was inserted and replaced one whose free was never seen.
    Replaced(Sample),
    /// Nothing has changed: the budget or the kernel's memory is used up, or the lock was not released in time.
    Full,
}

/// The sampled blocks and their sums. One lives in the hook.
#[derive(Debug)]
pub struct Samples {
    /// Pages on which a followed block may begin, of this table or of the table of all blocks.
    pub filter: Filter,
    /// Sums of the process.
    pub totals: Estimate,
    chunks: [AtomicPtr<Estimate>; CHUNKS],
    /// How many of them, from the first one on, may have memory. Reading the others would bring in 63 pages.
    chunks_made: AtomicUsize,
    blocks: SpinLock<KeyMap<Sample>>,
    /// Number of blocks, which is read without the lock.
    count: AtomicUsize,
    marks: AtomicU32,
    max_bytes: AtomicUsize,
}

impl Samples {
    /// Empty, without memory, and without room before [`Samples::init`]. It is all zeroes, because such statics take
    /// memory only where they are used.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "made to be a static")]
    pub const fn new() -> Self {
        Self {
            filter: Filter::new(),
            // SAFETY: it is made of integers, for which zero is a valid value.
            totals: unsafe { core::mem::zeroed() },
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            chunks_made: AtomicUsize::new(0),
            blocks: SpinLock::new(KeyMap::new()),
            count: AtomicUsize::new(0),
            marks: AtomicU32::new(0),
            max_bytes: AtomicUsize::new(0),
        }
    }

    /// Prepares it with this budget for blocks. `false` when there is no memory.
    pub fn init(&self, max_bytes: usize) -> bool {
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
        self.filter.init()
    }

    /// Whether there is no sampled block.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Number of marks so far, for [`Sample::mark`].
    pub fn marks(&self) -> u32 {
        self.marks.load(Ordering::Relaxed)
    }

    /// Inserts a block, without adding to the sums.
    pub fn put(&self, address: usize, sample: Sample) -> Put {
        let Some(mut blocks) = self.blocks.lock_in_time() else { return Put::Full };
        let put = match blocks.put(address, sample, self.max_bytes.load(Ordering::Relaxed)) {
            Some(None) => Put::New,
            Some(Some(stale)) => Put::Replaced(stale),
            None => Put::Full,
        };
        if put == Put::New {
            self.filter.add(address);
            self.count.store(blocks.len(), Ordering::Relaxed);
        }
        put
    }

    /// Removes a block, without adding to the sums.
    pub fn take(&self, address: usize) -> Option<Sample> {
        if !self.filter.may_hold(address) {
            return None;
        }
        let mut blocks = self.blocks.lock_in_time()?;
        let sample = blocks.take(address)?;
        self.filter.remove(address);
        self.count.store(blocks.len(), Ordering::Relaxed);
        Some(sample)
    }

    /// Adds a birth to the sums, those of the thread included if it has some.
    pub fn count_birth(&self, sample: &Sample, own: Option<&Estimate>) {
        let share = sample.share();
        if let Some(own) = own {
            own.born(&share, sample.birth);
        }
        let Some(_blocks) = self.blocks.lock_in_time() else { return };
        self.totals.born(&share, sample.birth);
        if let Some(site) = self.site_for_writing(sample.site) {
            site.born(&share, sample.birth);
        }
    }

    /// Adds a free to the sums.
    pub fn count_death(&self, sample: &Sample, now: u32, own: Option<&Estimate>) {
        let share = sample.share();
        let (age, since_mark) = (sample.age(now), sample.mark == self.marks());
        if let Some(own) = own {
            own.died(&share, age, since_mark, now);
        }
        let Some(_blocks) = self.blocks.lock_in_time() else { return };
        self.totals.died(&share, age, since_mark, now);
        if let Some(site) = self.site_for_writing(sample.site) {
            site.died(&share, age, since_mark, now);
        }
    }

    /// Moves a block to another site, as if that site had allocated it, if its site is `from`. `false`: no
    /// block is known there. The world is paused.
    pub fn give(&self, address: usize, from: u32, to: u32, now: u32) -> bool {
        if !self.filter.may_hold(address) {
            return false;
        }
        let Some(mut blocks) = self.blocks.lock_in_time() else { return false };
        let Some(sample) = blocks.get(address) else { return false };
        if sample.site != from {
            return true;
        }
        let given = Sample { site: to, ..sample };
        let (Some(from), Some(to)) = (self.site(from), self.site_for_writing(to)) else { return false };
        if blocks.put(address, given, self.max_bytes.load(Ordering::Relaxed)).is_some() {
            let young = (sample.age(now) == 0).then_some(now);
            from.give(to, &sample.share(), sample.mark == self.marks(), young);
        }
        true
    }

    /// The sums of a call site; `None` if it never had a sampled block.
    pub fn site(&self, id: u32) -> Option<&Estimate> {
        let chunk = self.chunks.get((id >> CHUNK_SHIFT) as usize)?.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a chunk has SITES_PER_CHUNK zeroed (valid) sums, and the mask stays below that.
        let sums = unsafe { &*chunk.add(id as usize & (SITES_PER_CHUNK - 1)) };
        (!sums.is_empty()).then_some(sums)
    }

    fn site_for_writing(&self, id: u32) -> Option<&Estimate> {
        let place = (id >> CHUNK_SHIFT) as usize;
        let chunk = self.chunks.get(place)?;
        if chunk.load(Ordering::Relaxed).is_null() {
            let memory = mmap::map(SITES_PER_CHUNK * size_of::<Estimate>())?;
            // Release: a thread that sees the chunk sees zeroes.
            chunk.store(memory.as_ptr().cast(), Ordering::Release);
            self.chunks_made.fetch_max(place + 1, Ordering::Release);
        }
        let chunk = chunk.load(Ordering::Relaxed);
        // SAFETY: as in `site`.
        Some(unsafe { &*chunk.add(id as usize & (SITES_PER_CHUNK - 1)) })
    }

    fn made_chunks(&self) -> impl Iterator<Item = &AtomicPtr<Estimate>> {
        self.chunks.iter().take(self.chunks_made.load(Ordering::Acquire))
    }

    fn all_sites(&self) -> impl Iterator<Item = &Estimate> {
        self.made_chunks()
            .map(|chunk| chunk.load(Ordering::Acquire))
            .filter(|chunk| !chunk.is_null())
            .flat_map(|chunk| {
                // SAFETY: a chunk has so many zeroed (valid) sums and is unmapped only by `clear`.
                unsafe { core::slice::from_raw_parts(chunk, SITES_PER_CHUNK) }
            })
    }

    /// Makes the present live bytes the baseline of growth. The world is paused.
    pub fn mark(&self) {
        self.marks.fetch_add(1, Ordering::Relaxed);
        self.totals.mark();
        self.all_sites().for_each(Estimate::mark);
    }

    /// Sets all sums to zero; the blocks stay. The world is paused.
    pub fn reset_sums(&self) {
        self.totals.reset();
        self.all_sites().for_each(Estimate::reset);
    }

    /// Forgets the blocks; the sums stay. The world is paused.
    pub fn forget(&self) {
        self.blocks.lock().clear();
        self.count.store(0, Ordering::Relaxed);
        self.filter.clear();
    }

    /// Forgets everything and unmaps the memory. The world is paused.
    pub fn clear(&self) {
        self.totals.reset();
        self.forget();
        for chunk in self.made_chunks() {
            if let Some(memory) = NonNull::new(chunk.load(Ordering::Relaxed)) {
                // Only where there is one, because writing to the array takes memory.
                chunk.store(ptr::null_mut(), Ordering::Relaxed);
                // SAFETY: mapped in `site_for_writing` with this length; the world is paused, so no thread reads it.
                unsafe { mmap::unmap(memory.cast(), SITES_PER_CHUNK * size_of::<Estimate>()) };
            }
        }
    }

    /// Counts again which pages may hold a followed block: the sampled ones, and those that `others` visits. The
    /// world is paused.
    pub fn recount(&self, others: impl FnOnce(&mut dyn FnMut(usize))) {
        self.filter.clear();
        self.blocks.lock().for_each(&mut |address, _| self.filter.add(address));
        others(&mut |address| self.filter.add(address));
    }

    /// A block was freed that is not sampled, but was counted by [`Samples::recount`].
    pub fn uncount(&self, address: usize) {
        let Some(_blocks) = self.blocks.lock_in_time() else { return };
        self.filter.remove(address);
    }

    /// The block still exists after all.
    pub fn count_again(&self, address: usize) {
        let Some(_blocks) = self.blocks.lock_in_time() else { return };
        self.filter.add(address);
    }

    /// Visits each sampled block. The world is paused.
    pub fn for_each(&self, visit: &mut dyn FnMut(usize, &Sample)) {
        self.blocks.lock().for_each(visit);
    }

    /// Opens the lock, any holder's; `false` if it was open. For the only user of memory that was another process'.
    pub fn force_open(&self) -> bool {
        self.blocks.force_open()
    }

    /// Bytes that blocks take.
    pub fn block_bytes(&self) -> usize {
        self.blocks.lock().bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn sample(size: u64) -> Sample {
        Sample { size, mean: 4096, site: 5, birth: 1, mark: 0, drawn: Drawn::Bytes }
    }

    fn samples() -> Box<Samples> {
        // SAFETY: zeroes are an empty one.
        let samples: Box<Samples> = unsafe { Box::new_zeroed().assume_init() };
        assert!(samples.init(1 << 20));
        samples
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((1usize..600, any::<bool>(), 0u64..1 << 47), 0..3000)) {
            let samples = samples();
            let mut twin: HashMap<usize, Sample> = HashMap::new();
            for (number, put, size) in steps {
                // Some of them share a page, some a count.
                let address = (number % 40) << 4 | (number / 40) << 30;
                if address == 0 {
                    continue;
                }
                if put {
                    let expected = twin.insert(address, sample(size)).map_or(Put::New, Put::Replaced);
                    prop_assert_eq!(samples.put(address, sample(size)), expected);
                } else {
                    prop_assert_eq!(samples.take(address), twin.remove(&address));
                }
                prop_assert_eq!(samples.is_empty(), twin.is_empty());
            }
            let mut seen = HashMap::new();
            samples.for_each(&mut |address, sample| {
                seen.insert(address, *sample);
            });
            prop_assert_eq!(seen, twin);
        }
    }

    #[test]
    fn a_budget_is_kept_and_a_clear_gives_everything_back() {
        let samples = samples();
        let put = (1..100_000).take_while(|i| samples.put(i << 4, sample(1)) != Put::Full).count();
        assert!(samples.block_bytes() <= 1 << 20 && put > 10_000, "{put}");
        let own = Estimate::default();
        samples.count_birth(&sample(100), Some(&own));
        assert_eq!(samples.site(5).map(|site| site.figures()), Some(own.figures()));
        assert_eq!(samples.site(4).map(|site| site.figures()), None);
        samples.clear();
        assert!(samples.is_empty() && samples.site(5).is_none() && samples.totals.is_empty());
        assert_eq!(samples.block_bytes(), 0);
        assert_eq!(samples.take(16), None);
    }

    #[test]
    fn pages_of_others_are_counted_with_its_own() {
        let samples = samples();
        samples.put(0x1000, sample(1));
        samples.recount(|add| add(0x7000));
        assert!(samples.filter.may_hold(0x1ff0) && samples.filter.may_hold(0x7010));
        samples.uncount(0x7000);
        assert!(!samples.filter.may_hold(0x7000));
        assert_eq!(samples.take(0x1000), Some(sample(1)));
        assert!(!samples.filter.may_hold(0x1000));
    }

    #[test]
    fn what_is_given_is_counted_as_if_the_other_site_had_allocated_it() {
        let (samples, twin) = (samples(), samples());
        let of = |site: u32, birth: u32| Sample { site, birth, ..sample(100 + u64::from(birth)) };
        for (address, birth) in [(0x1000, 1), (0x2000, 3), (0x3000, 3)] {
            for (samples, site) in [(&samples, 5), (&twin, 9)] {
                assert_eq!(samples.put(address, of(site, birth)), Put::New);
                samples.count_birth(&of(site, birth), None);
            }
        }
        assert!(!samples.give(0x4000, 5, 9, 3));
        // Of another site, so it stays.
        assert!(samples.give(0x1000, 4, 9, 3));
        assert_eq!(samples.site(9).map(|site| site.figures()), None);
        // In the order of their birth, as the twin has them.
        [0x1000, 0x2000, 0x3000].into_iter().for_each(|address| assert!(samples.give(address, 5, 9, 3)));
        let [given, expected] = [&samples, &twin]
            .map(|samples| samples.site(9).map(|site| (site.figures(), site.young(3))).expect("a site"));
        assert_eq!(given, expected);
        assert_eq!(samples.totals.figures(), twin.totals.figures());
        assert!(samples.site(5).is_none());
        assert_eq!((samples.take(0x1000), samples.take(0x2000)), (Some(of(9, 1)), Some(of(9, 3))));
    }

    #[test]
    fn a_death_after_a_mark_knows_whether_the_birth_was_before() {
        let samples = samples();
        let own = Estimate::default();
        samples.count_birth(&sample(100), Some(&own));
        samples.mark();
        own.mark();
        samples.count_death(&sample(100), 4, Some(&own));
        let figures = samples.site(5).map(|site| site.figures()).expect("a site");
        assert_eq!(figures.marked_bytes.variance, figures.total_bytes.variance);
        assert_eq!((figures.max_lifespan, figures.allocations.value), (3, figures.frees.value));
        samples.reset_sums();
        assert!(samples.site(5).is_none());
    }
}
