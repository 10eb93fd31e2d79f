//! Data of measurements: which live blocks were born since one began, and what each call site of a thread
//! allocated.
//!
//! While a measurement is under way, each block that is born is noted beside the table of live blocks, with
//! the thread and the *moment* of its birth, and each free removes the note. Moments are numbers that grow by
//! one whenever a measurement begins or ends, so a block was born in a measurement if its moment is at or
//! after the beginning and before the end. A block that another thread frees, and whose address is handed out
//! again, cannot be mistaken for the first one, as it could if a thread kept a list of its own.
//!
//! Without a measurement an event costs one read of [`Births::is_on`].
//!
//! Rules for neighbours: only a busy thread (see [`crate::threads`]), or the one that has paused the world,
//! calls functions that take a lock.

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::key_map::KeyMap;
use crate::lock::SpinLock;

/// Parts of the notes, each with a lock of its own. A part that grows is copied under its lock.
const SHARDS: usize = 64;
/// Most nested measurements of one thread.
pub const MOST_NESTED: usize = 64;
const SITE_BITS: u32 = 24;

/// The note of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Birth {
    /// Bytes asked for.
    pub size: u64,
    /// Number of its call site.
    pub site: u32,
    /// Number of the thread during a measurement; else 0.
    pub owner: u32,
    /// Moment of its birth.
    pub moment: u32,
}

/// The notes. One lives in the hook.
#[derive(Debug)]
pub struct Births {
    shards: [SpinLock<KeyMap<Birth>>; SHARDS],
    /// Measurements that need the notes.
    open: AtomicU32,
    moment: AtomicU32,
    /// Numbers of threads that were handed out.
    owners: AtomicU32,
    /// Blocks that could not be noted since the process began.
    lost: AtomicU64,
    /// Most bytes of a shard.
    shard_bytes: AtomicUsize,
}

impl Births {
    /// Without notes.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "made to be a static")]
    pub const fn new() -> Self {
        Self {
            shards: [const { SpinLock::new(KeyMap::new()) }; SHARDS],
            open: AtomicU32::new(0),
            moment: AtomicU32::new(0),
            owners: AtomicU32::new(0),
            lost: AtomicU64::new(0),
            shard_bytes: AtomicUsize::new(0),
        }
    }

    /// Whether births and frees are to be noted.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    fn shard(&self, address: usize) -> &SpinLock<KeyMap<Birth>> {
        let hash = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The mask keeps the index inside the array.
        &self.shards[(hash >> 58) as usize & (SHARDS - 1)]
    }

    /// Notes a birth at this moment. A stale note of the address is replaced.
    pub fn born(&self, address: usize, size: u64, site: u32, own: &Measuring) {
        let owner = own.count(site, size, self);
        self.put(address, Birth { size, site, owner, moment: self.moment.load(Ordering::Relaxed) });
    }

    /// Puts a note back.
    pub fn put(&self, address: usize, birth: Birth) {
        let put = self
            .shard(address)
            .lock_in_time()
            .and_then(|mut notes| notes.put(address, birth, self.shard_bytes.load(Ordering::Relaxed)));
        if put.is_none() {
            self.lose();
        }
    }

    /// The block is freed, or about to move.
    pub fn take(&self, address: usize) -> Option<Birth> {
        let Some(mut notes) = self.shard(address).lock_in_time() else {
            self.lose();
            return None;
        };
        notes.take(address)
    }

    fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Blocks that could not be noted since the process began.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Begins a measurement of the thread of `own`, and returns the moment; `None` if too many are nested.
    /// The world is paused.
    pub fn begin(&self, own: &Measuring, max_bytes: usize) -> Option<u32> {
        let depth = own.depth.get();
        let level = own.levels.get(depth as usize)?;
        if own.owner.get() == 0 {
            own.owner.set(self.owners.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        }
        self.shard_bytes.store(max_bytes / SHARDS, Ordering::Relaxed);
        let moment = self.next_moment();
        level.set(moment);
        own.depth.set(depth.wrapping_add(1));
        own.open.set(own.open.get().wrapping_add(1));
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(moment)
    }

    /// Ends the measurement that began at this moment. Visits what the thread allocated in it, by call site; and
    /// returns the moment. The notes stay until [`Births::close`]. The world is paused.
    pub fn end(&self, own: &Measuring, begun: u32, visit: &mut dyn FnMut(u32, SiteSum)) -> u32 {
        own.end(begun, visit, self);
        self.next_moment()
    }

    fn next_moment(&self) -> u32 {
        self.moment.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// A measurement of the thread of `own` no longer needs the notes. The world is paused.
    pub fn close(&self, own: &Measuring) {
        own.open.set(own.open.get().saturating_sub(1));
        self.close_of(1);
    }

    /// The thread of `own` ends, with measurements that will not be ended.
    pub fn abandon(&self, own: &Measuring) {
        let open = own.open.take();
        if open > 0 {
            self.close_of(open);
        }
    }

    fn close_of(&self, count: u32) {
        let before = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| Some(open.saturating_sub(count)));
        if before.is_ok_and(|before| before <= count) {
            self.forget();
        }
    }

    /// Only the thread of `own` is left, in a forked child.
    pub fn in_child(&self, own: Option<&Measuring>) {
        let open = own.map_or(0, |own| own.open.get());
        self.open.store(open, Ordering::Relaxed);
        for shard in &self.shards {
            shard.force_open();
        }
        if open == 0 {
            self.forget();
        }
    }

    /// Forgets all notes.
    pub fn forget(&self) {
        for shard in &self.shards {
            if let Some(mut notes) = shard.lock_in_time() {
                notes.clear();
            }
        }
    }

    /// Visits each live block that was born from the first moment on and before the second. The world is paused.
    pub fn for_each(&self, from: u32, until: u32, visit: &mut dyn FnMut(usize, &Birth)) {
        for shard in &self.shards {
            shard.lock().for_each(&mut |address, birth| {
                if birth.moment.wrapping_sub(from) < until.wrapping_sub(from) {
                    visit(address, birth);
                }
            });
        }
    }
}

/// What a thread allocated at a call site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SiteSum {
    /// Allocations.
    pub allocations: u64,
    /// Bytes asked for.
    pub total_bytes: u64,
}

/// A thread's part. All-zero memory is that of a thread that measures nothing.
///
/// Allocations are summed up by call site and *level*, which is the moment of the last measurement that began and has
/// not ended. So each counts once, however many measurements it belongs to.
#[derive(Debug)]
pub struct Measuring {
    owner: Cell<u32>,
    /// Measurements that have begun and not ended.
    depth: Cell<u32>,
    /// Those, and others whose notes are still to be read.
    open: Cell<u32>,
    levels: [Cell<u32>; MOST_NESTED],
    sums: UnsafeCell<KeyMap<SiteSum>>,
}

impl Measuring {
    /// The thread's number, 0 before its first measurement.
    pub fn owner(&self) -> u32 {
        self.owner.get()
    }

    fn levels(&self) -> &[Cell<u32>] {
        self.levels.get(..self.depth.get() as usize).unwrap_or(&[])
    }

    /// Adds an allocation to its level. Returns the thread's number, if it measures. Called by the thread, or by the
    /// one that has paused the world.
    fn count(&self, site: u32, size: u64, births: &Births) -> u32 {
        let Some(level) = self.levels().last() else { return 0 };
        self.add(key(level.get(), site), SiteSum { allocations: 1, total_bytes: size }, births);
        self.owner.get()
    }

    fn add(&self, key: usize, more: SiteSum, births: &Births) {
        // SAFETY: the caller is the only user, and the reference ends here.
        let sums = unsafe { &mut *self.sums.get() };
        let now = sums.get(key).unwrap_or_default();
        let sum = SiteSum {
            allocations: now.allocations.wrapping_add(more.allocations),
            total_bytes: now.total_bytes.wrapping_add(more.total_bytes),
        };
        if sums.put(key, sum, usize::MAX).is_none() {
            births.lose();
        }
    }

    fn end(&self, begun: u32, visit: &mut dyn FnMut(u32, SiteSum), births: &Births) {
        let Some(at) = self.levels().iter().position(|level| level.get() == begun) else { return };
        // SAFETY: the world is paused, so this thread is the only user. The replaced value is dropped as a
        // value of its own.
        let mut sums = unsafe { self.sums.get().replace(KeyMap::new()) };
        let outer = at.checked_sub(1).and_then(|at| self.levels.get(at)).map(Cell::get);
        for (one, next) in self.levels().iter().zip(self.levels().iter().skip(1)).skip(at) {
            one.set(next.get());
        }
        self.depth.set(self.depth.get().saturating_sub(1));
        sums.for_each(&mut |key, sum| {
            let (level, site) = of_key(key);
            // A level is not before this measurement if it is that of this or of a later one.
            if level.wrapping_sub(begun) <= u32::MAX / 2 {
                visit(site, *sum);
            }
            match outer {
                _ if level != begun => self.add(key, *sum, births),
                Some(outer) => self.add(self::key(outer, site), *sum, births),
                None => {}
            }
        });
        sums.clear();
    }

    /// Forgets the sums, because call sites get other numbers. The world is paused.
    pub fn discard(&self) {
        // SAFETY: as in `end`.
        unsafe { (*self.sums.get()).clear() };
    }

    /// The state gets another owner.
    pub fn forget_owner(&self) {
        self.discard();
        self.owner.set(0);
        self.depth.set(0);
        self.open.set(0);
    }
}

fn key(level: u32, site: u32) -> usize {
    (level as usize) << SITE_BITS | site as usize
}

fn of_key(key: usize) -> (u32, u32) {
    ((key >> SITE_BITS) as u32, key as u32 & ((1 << SITE_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn measuring() -> Box<Measuring> {
        // SAFETY: zeroes are that of a thread that measures nothing.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn sum(sums: &[(u32, u64)]) -> HashMap<u32, SiteSum> {
        let mut all: HashMap<u32, SiteSum> = HashMap::new();
        for (site, size) in sums {
            let sum = all.entry(*site).or_default();
            sum.allocations += 1;
            sum.total_bytes += size;
        }
        all
    }

    #[derive(Clone, Debug)]
    struct Under {
        begun: u32,
        thread: usize,
        allocated: Vec<(u32, u64)>,
        live: HashMap<usize, (usize, u64)>,
    }

    proptest! {
        /// Compares with plain lists: two threads, measurements that overlap in any way, frees by either thread.
        #[test]
        fn each_measurement_has_what_was_born_in_it(
            steps in proptest::collection::vec((0u8..12, 0usize..2, 1usize..50, 0u32..5, 1u64..1 << 40), 1..400),
        ) {
            let births = Births::new();
            let threads = [measuring(), measuring()];
            let mut under: Vec<Under> = Vec::new();
            for (step, thread, number, site, size) in steps {
                let address = number << 4;
                match step {
                    0 if under.len() < 6 => {
                        let begun = births.begin(&threads[thread], 1 << 30).expect("not too deep");
                        under.push(Under { begun, thread, allocated: Vec::new(), live: HashMap::new() });
                    }
                    1 if !under.is_empty() => {
                        let one = under.swap_remove(number % under.len());
                        let own = &threads[one.thread];
                        let mut sums = HashMap::new();
                        let ended = births.end(own, one.begun, &mut |site, sum| {
                            let all: &mut SiteSum = sums.entry(site).or_default();
                            all.allocations += sum.allocations;
                            all.total_bytes += sum.total_bytes;
                        });
                        prop_assert_eq!(sums, sum(&one.allocated));
                        let mut live = HashMap::new();
                        births.for_each(one.begun, ended, &mut |address, birth| {
                            live.insert(address, (birth.owner == own.owner(), birth.size));
                        });
                        let expected: HashMap<_, _> =
                            one.live.iter().map(|(at, (by, size))| (*at, (*by == one.thread, *size))).collect();
                        prop_assert_eq!(live, expected);
                        births.close(own);
                        prop_assert_eq!(births.is_on(), !under.is_empty());
                    }
                    2..8 if births.is_on() => {
                        births.born(address, size, site, &threads[thread]);
                        for one in &mut under {
                            if one.thread == thread {
                                one.allocated.push((site, size));
                            }
                            one.live.insert(address, (thread, size));
                        }
                    }
                    8..12 if births.is_on() => {
                        births.take(address);
                        under.iter_mut().for_each(|one| { one.live.remove(&address); });
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(births.lost(), 0);
        }
    }

    #[test]
    fn so_many_may_be_within_each_other_and_no_more() {
        let (births, own) = (Births::new(), measuring());
        let begun: Vec<u32> = (0..MOST_NESTED).filter_map(|_| births.begin(&own, 1 << 20)).collect();
        assert_eq!((begun.len(), births.begin(&own, 1 << 20)), (MOST_NESTED, None));
        births.born(16, 100, 7, &own);
        for begun in begun.into_iter().rev() {
            let mut seen = Vec::new();
            births.end(&own, begun, &mut |site, sum| seen.push((site, sum)));
            assert_eq!(seen, [(7, SiteSum { allocations: 1, total_bytes: 100 })]);
            births.close(&own);
        }
        assert!(!births.is_on() && births.take(16).is_none());
    }

    #[test]
    fn a_budget_is_kept_and_what_is_beyond_it_counts_as_lost() {
        let (births, own) = (Births::new(), measuring());
        births.begin(&own, 1 << 20);
        (1..100_000).for_each(|i| births.born(i << 4, 1, 3, &own));
        assert!(births.lost() > 50_000, "{}", births.lost());
        births.abandon(&own);
        assert!(!births.is_on());
    }
}
