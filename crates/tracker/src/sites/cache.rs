//! A thread's cache from the VM's answer or the return address to the number of a call site.

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
    /// it. Native callers pass the line `u32::MAX`, and in place of the generation a number that changes when modules
    /// are loaded or unloaded.
    #[inline]
    pub fn get(&self, key: usize, line: u32, generation: u32, intern: impl FnOnce() -> (u32, bool)) -> u32 {
        let entry = &self.entries[Self::index(key, line)];
        if entry.is(key, line, generation) {
            return entry.site.get();
        }
        let (site, remember) = intern();
        if !remember {
            return site;
        }
        entry.key.set(key);
        entry.line.set(line);
        entry.generation.set(generation);
        entry.site.set(site);
        site
    }

    /// Forgets everything.
    pub fn discard(&self) {
        for entry in &self.entries {
            entry.key.set(0);
        }
    }
}
