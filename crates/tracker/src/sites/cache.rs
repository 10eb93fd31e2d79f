//! A thread's caches from the VM's answer or the return address to the number of a call site, of a line or of a whole stack.

use core::cell::Cell;

const CACHE_ENTRIES: usize = 512;

#[derive(Debug)]
struct CacheEntry {
    key: Cell<usize>,
    line: Cell<u32>,
    generation: Cell<u32>,
    site: Cell<u32>,
}

impl CacheEntry {
    #[inline(always)]
    fn is(&self, key: usize, line: u32, generation: u32) -> bool {
        self.key.get() == key && self.line.get() == line && self.generation.get() == generation
    }
}

/// One thread's cache from (address of a path or return address, line, generation) to a site's number. All-zero
/// memory is a valid, empty cache.
pub type SiteCache = Cache<CACHE_ENTRIES>;

/// A cache of so many entries, which is a power of two.
#[derive(Debug)]
pub struct Cache<const N: usize> {
    entries: [CacheEntry; N],
}

impl<const N: usize> Cache<N> {
    /// The site for this key, if the cache has it.
    #[inline(always)]
    pub fn known(&self, key: usize, line: u32, generation: u32) -> Option<u32> {
        let entry = &self.entries[Self::index(key, line)];
        entry.is(key, line, generation).then(|| entry.site.get())
    }

    #[inline(always)]
    fn index(key: usize, line: u32) -> usize {
        const { assert!(N.is_power_of_two() && N > 1) };
        // Knuth's multiplicative hash. The shift keeps the index inside the array, so that no bounds check (and no panic)
        // is left.
        (key ^ line as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - N.ilog2())
    }

    /// The site for this key. If the cache does not have it, `intern` is called, which also returns whether to cache
    /// it. Native callers pass the line `u32::MAX`, and instead of the generation a number that changes when modules
    /// are loaded or unloaded.
    #[inline]
    pub fn get(&self, key: usize, line: u32, generation: u32, intern: impl FnOnce() -> (u32, bool)) -> u32 {
        let entry = &self.entries[Self::index(key, line)];
        if entry.is(key, line, generation) {
            return entry.site.get();
        }
        let (site, remember) = intern();
        if remember {
            self.put(key, line, generation, site);
        }
        site
    }

    /// Remembers the site for this key.
    #[inline]
    pub fn put(&self, key: usize, line: u32, generation: u32, site: u32) {
        let entry = &self.entries[Self::index(key, line)];
        entry.key.set(key);
        entry.line.set(line);
        entry.generation.set(generation);
        entry.site.set(site);
    }

    /// Forgets everything.
    pub fn discard(&self) {
        for entry in &self.entries {
            entry.key.set(0);
        }
    }
}

/// A known stack.
#[derive(Debug)]
struct StackEntry {
    key: Cell<u64>,
    /// When the key was valid: it contains addresses of code, which are valid for one marking.
    stamp: Cell<u64>,
    /// A hash of the numbers of its frames, which always hold; 0: not known.
    numbers: Cell<u64>,
    detail: Cell<u32>,
    site: Cell<u32>,
}

/// One thread's cache from hashes of what runs in a stack's frames to its site. All-zero memory is a valid, empty one. The
/// key is never 0.
#[derive(Debug)]
pub struct StackSites<const N: usize> {
    entries: [StackEntry; N],
}

impl<const N: usize> StackSites<N> {
    #[inline(always)]
    fn entry(&self, key: u64) -> &StackEntry {
        const { assert!(N.is_power_of_two() && N > 1) };
        // The key is a hash already. The shift keeps the index inside the array.
        &self.entries[(key >> (u64::BITS - N.ilog2())) as usize]
    }

    /// The site of the stack with this key, as of this stamp.
    #[inline(always)]
    pub fn known(&self, key: u64, detail: u32, stamp: u64) -> Option<u32> {
        let entry = self.entry(key);
        let is_it = entry.key.get() == key && entry.stamp.get() == stamp && entry.detail.get() == detail;
        is_it.then(|| entry.site.get())
    }

    /// The same for an earlier stamp, if the frames have the same numbers. Then its stamp becomes this one.
    pub fn renewed(&self, key: u64, detail: u32, stamp: u64, numbers: u64) -> Option<u32> {
        let entry = self.entry(key);
        let is_it = entry.key.get() == key && entry.detail.get() == detail && entry.numbers.get() == numbers;
        if !is_it || numbers == 0 {
            return None;
        }
        entry.stamp.set(stamp);
        Some(entry.site.get())
    }

    /// Remembers a stack.
    pub fn put(&self, key: u64, detail: u32, stamp: u64, numbers: u64, site: u32) {
        let entry = self.entry(key);
        entry.key.set(key);
        entry.stamp.set(stamp);
        entry.numbers.set(numbers);
        entry.detail.set(detail);
        entry.site.set(site);
    }

    /// Forgets everything.
    pub fn discard(&self) {
        for entry in &self.entries {
            entry.key.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_known_as_of_its_stamp_and_again_by_the_numbers_of_its_frames() {
        // SAFETY: all-zero memory is an empty cache.
        let cache: Box<StackSites<16>> = unsafe { Box::new_zeroed().assume_init() };
        let key = 7 << 60;
        assert_eq!(cache.known(key, 5, 1), None);
        cache.put(key, 5, 1, 99, 3);
        assert_eq!(cache.known(key, 5, 1), Some(3));
        assert_eq!([cache.known(key | 1, 5, 1), cache.known(key, 6, 1), cache.known(key, 5, 2)], [None; 3]);
        assert_eq!([cache.renewed(key, 5, 2, 98), cache.renewed(key, 6, 2, 99)], [None; 2]);
        assert_eq!(cache.renewed(key, 5, 2, 99), Some(3));
        assert_eq!([cache.known(key, 5, 1), cache.known(key, 5, 2)], [None, Some(3)]);
        cache.put(key, 5, 3, 0, 4);
        assert_eq!(cache.renewed(key, 5, 4, 0), None, "frames without numbers prove nothing");
        cache.discard();
        assert_eq!(cache.known(key, 5, 3), None);
    }
}
