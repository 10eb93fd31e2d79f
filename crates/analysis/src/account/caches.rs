//! Chunks that are free, although a walk takes them for used: those in the caches of threads and in fast bins.
//!
//! A thread's cache is a chunk of 0x290 bytes with 64 counts and 64 lists (glibc 2.30 to 2.41). It is told from
//! others by its contents: each list has as many chunks as its count says, all of the size that belongs to the list.

use super::chunks::{FLAGS, GRAIN};

/// Bytes of the chunk that holds a thread's cache.
pub const CACHE: usize = 0x290;
/// Lists of a cache.
pub const LISTS: usize = 64;
const COUNTS_AT: usize = 16;
const LISTS_AT: usize = COUNTS_AT + 2 * LISTS;
/// Lists of an arena's fast bins.
pub const FAST_LISTS: usize = 10;
const LEAST_CHUNK: usize = 32;
/// Far more than glibc puts into a list by default.
const MOST: usize = 1 << 12;

/// Bytes of the chunks of a list, in caches and in fast bins.
#[must_use]
pub fn size_of(list: usize) -> usize {
    LEAST_CHUNK + list * GRAIN
}

/// The list of chunks of this size.
#[must_use]
pub fn list_of(size: usize) -> usize {
    size.saturating_sub(LEAST_CHUNK) / GRAIN
}

/// Where the counts are of the cache in this chunk, which are read first.
#[must_use]
pub fn counts_of(chunk: usize) -> usize {
    chunk.wrapping_add(COUNTS_AT)
}

/// Visits each cached chunk, if the chunk at `chunk` is a thread's cache. Returns how many there were.
pub fn each_cached(
    chunk: usize,
    word: impl Fn(usize) -> Option<u64>,
    mut visit: impl FnMut(usize, usize),
) -> Option<usize> {
    // Since glibc 2.32, what points to the next chunk is mixed with its own address.
    let mixed = [true, false].into_iter().find(|mixed| lists(chunk, *mixed, &word, |_, _| {}).is_some())?;
    lists(chunk, mixed, &word, &mut visit)
}

fn lists(
    cache: usize,
    mixed: bool,
    word: impl Fn(usize) -> Option<u64>,
    mut visit: impl FnMut(usize, usize),
) -> Option<usize> {
    let mut found = 0;
    for list in 0..LISTS {
        let counts = word(cache + COUNTS_AT + list / 4 * 8)?;
        let count = (counts >> (list % 4 * 16) & 0xffff) as usize;
        let mut block = usize::try_from(word(cache + LISTS_AT + list * 8)?).ok()?;
        if count > MOST || (count == 0) != (block == 0) {
            return None;
        }
        for _ in 0..count {
            let size = size_of(list);
            block = following(block, size, mixed, &word).inspect(|_| visit(block - 16, size))?;
        }
        if block != 0 {
            return None;
        }
        found += count;
    }
    Some(found)
}

/// Visits each chunk in an arena's fast bins, which begin at this address.
pub fn each_fast(
    bins: usize,
    mixed: bool,
    word: impl Fn(usize) -> Option<u64>,
    mut visit: impl FnMut(usize, usize),
) {
    for list in 0..FAST_LISTS {
        let size = size_of(list);
        let mut chunk = word(bins + list * 8).and_then(|chunk| usize::try_from(chunk).ok()).unwrap_or(0);
        let mut left = 1_usize << 24;
        while chunk != 0 && left > 0 {
            let Some(next) = following(chunk.wrapping_add(16), size, mixed, &word) else { break };
            visit(chunk, size);
            chunk = next;
            left -= 1;
        }
    }
}

/// What the block points to; nothing if it is no free block of a chunk of this size.
fn following(block: usize, size: usize, mixed: bool, word: impl Fn(usize) -> Option<u64>) -> Option<usize> {
    if !block.is_multiple_of(16) || block < 16 || word(block - 8)? & !FLAGS != size as u64 {
        return None;
    }
    let next = usize::try_from(word(block)?).ok()?;
    Some(if mixed { next ^ (block >> 12) } else { next })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache at 0 with two chunks of 48 bytes.
    fn memory(mixed: bool) -> Vec<u64> {
        let mut memory = vec![0; 256];
        let (first, second) = (0x400, 0x500);
        memory[2] = 2 << 16;
        memory[LISTS_AT / 8 + 1] = first;
        memory[first as usize / 8 - 1] = 48 | 1;
        memory[second as usize / 8 - 1] = 48 | 1;
        let pointer = |at: u64, next: u64| if mixed { next ^ (at >> 12) } else { next };
        memory[first as usize / 8] = pointer(first, second);
        memory[second as usize / 8] = pointer(second, 0);
        memory
    }

    #[test]
    fn cached_chunks_of_old_and_new_glibcs() {
        for mixed in [true, false] {
            let memory = memory(mixed);
            let mut found = Vec::new();
            let count =
                each_cached(0, |address| memory.get(address / 8).copied(), |at, size| found.push((at, size)));
            assert_eq!((count, found), (Some(2), vec![(0x3f0, 48), (0x4f0, 48)]));
        }
    }

    #[test]
    fn what_is_no_cache_is_none() {
        for (place, value) in [(2, 3 << 16), (2, 1 << 16), (0x400 / 8 - 1, 64), (LISTS_AT / 8 + 1, 0x408)] {
            let mut memory = memory(true);
            memory[place] = value;
            let found = each_cached(0, |address| memory.get(address / 8).copied(), |_, _| {});
            assert_eq!(found, None, "word {place}");
        }
    }

    #[test]
    fn a_circle_of_fast_chunks_ends() {
        let mut memory = vec![0; 64];
        memory[0] = 0x100;
        memory[0x108 / 8] = 32;
        memory[0x110 / 8] = 0x100;
        let mut count = 0;
        each_fast(0, false, |address| memory.get(address / 8).copied(), |_, _| count += 1);
        assert_eq!(count, 1 << 24);
    }
}
