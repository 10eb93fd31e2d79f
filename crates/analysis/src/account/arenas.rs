//! Finds glibc's arenas, and the heaps of each.
//!
//! The main arena is a variable of libc that has no symbol. It is known by its form: the last of its lists is always
//! empty and so points at itself, and following `next` from arena to arena leads back to it. All others are at the
//! beginning of their first heap, which is at a multiple of 64 MiB.

/// Heaps of arenas begin at multiples of this.
pub const HEAP: usize = 64 << 20;
/// More arenas than any process has.
const MOST: usize = 1 << 16;

/// Where an arena keeps what: from malloc/malloc.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The topmost chunk.
    pub top: usize,
    last_list: usize,
    next: usize,
    /// Bytes that the arena got from the kernel.
    pub system_bytes: usize,
    /// Bytes of the structure.
    pub size: usize,
    /// The first of the fast bins, where there are any.
    pub fast_bins: Option<usize>,
}

/// Layouts of glibc 2.27 to 2.42, and of later ones, which have no fast bins.
pub const LAYOUTS: [Layout; 2] = [
    Layout {
        top: 96,
        last_list: 112 + 252 * 8,
        next: 2160,
        system_bytes: 2184,
        size: 2200,
        fast_bins: Some(16),
    },
    Layout { top: 8, last_list: 24 + 252 * 8, next: 2072, system_bytes: 2096, size: 2112, fast_bins: None },
];

/// Where the main arena is, if it is at this address.
pub fn main_arena(at: usize, word: impl Fn(usize) -> Option<u64>) -> Option<Layout> {
    LAYOUTS.into_iter().find(|layout| {
        let list = at + layout.last_list;
        let own = Some((list - 16) as u64);
        word(list) == own
            && word(list + 8) == own
            && word(at + layout.top).is_some_and(|top| top != 0)
            && next(at, *layout, &word)
                .is_some_and(|next| next == at || arena_of_heap(next & !(HEAP - 1), &word) == Some(next))
    })
}

/// The arena after this one; the main arena comes after the last.
pub fn next(at: usize, layout: Layout, word: impl Fn(usize) -> Option<u64>) -> Option<usize> {
    usize::try_from(word(at.checked_add(layout.next)?)?)
        .ok()
        .filter(|next| *next != 0 && next.is_multiple_of(8))
}

/// What glibc has counted of blocks with a mapping of their own: how many there are, and their bytes. `None` unless this is
/// the place where it has written down that the main arena's memory begins at `start`.
pub fn counted_mapped(at: usize, start: usize, word: impl Fn(usize) -> Option<u64>) -> Option<(u64, u64)> {
    // How many there may be, unless somebody has changed that.
    const MOST: u64 = 1 << 16;
    const LOW: u64 = 0xffff_ffff;
    if word(at)? != start as u64 {
        return None;
    }
    let before = |back: usize| word(at.checked_sub(back)?);
    // Two versions of the record: what is before may fill the first half of a word, or not.
    let count = match before(32)? {
        both if both & LOW == MOST => before(40)? >> 32,
        both if both >> 32 == MOST => both & LOW,
        _ => return None,
    };
    Some((count, before(16)?))
}

/// The arenas of threads, in the order of the list. Returns whether the list led back to the main arena.
pub fn each_other(
    main: usize,
    layout: Layout,
    word: impl Fn(usize) -> Option<u64>,
    mut visit: impl FnMut(usize),
) -> bool {
    let mut at = main;
    for _ in 0..MOST {
        match next(at, layout, &word) {
            Some(found) if found == main => return true,
            Some(found) if arena_of_heap(found & !(HEAP - 1), &word) == Some(found) => {
                visit(found);
                at = found;
            }
            _ => return false,
        }
    }
    false
}

/// One heap of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Where it begins.
    pub start: usize,
    /// Its first chunk.
    pub first: usize,
    /// The end of what is in use of its address space.
    pub end: usize,
}

/// Visits the heaps of an arena, the newest first. Returns whether all were as they should be.
pub fn each_heap(
    arena: usize,
    layout: Layout,
    word: impl Fn(usize) -> Option<u64>,
    mut visit: impl FnMut(Heap),
) -> bool {
    let Some(top) = word(arena + layout.top).and_then(|top| usize::try_from(top).ok()) else { return false };
    let first_heap = arena & !(HEAP - 1);
    let head = arena - first_heap;
    let mut start = top & !(HEAP - 1);
    for _ in 0..MOST {
        if arena_of_heap(start, &word) != Some(arena) {
            return false;
        }
        let Some(size) = word(start + 16).and_then(|size| usize::try_from(size).ok()) else { return false };
        let first = if start == first_heap { (arena + layout.size + 15) & !15 } else { start + head };
        if size > HEAP || first >= start + size {
            return false;
        }
        visit(Heap { start, first, end: start + size });
        match word(start + 8).and_then(|before| usize::try_from(before).ok()) {
            Some(0) => return start == first_heap,
            Some(before) if before.is_multiple_of(HEAP) => start = before,
            _ => return false,
        }
    }
    false
}

/// What the heap at this address says its arena is.
fn arena_of_heap(start: usize, word: impl Fn(usize) -> Option<u64>) -> Option<usize> {
    usize::try_from(word(start)?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const MAIN: usize = 0x7000_0000;
    const OTHER: usize = HEAP * 40 + 48;

    fn process(layout: Layout) -> HashMap<usize, u64> {
        let list = MAIN + layout.last_list;
        HashMap::from([
            (list, (list - 16) as u64),
            (list + 8, (list - 16) as u64),
            (MAIN + layout.top, 0x1000),
            (MAIN + layout.next, OTHER as u64),
            (OTHER + layout.next, MAIN as u64),
            (OTHER + layout.top, (HEAP * 41 + 4096) as u64),
            (HEAP * 40, OTHER as u64),
            (HEAP * 40 + 8, 0),
            (HEAP * 40 + 16, HEAP as u64),
            (HEAP * 41, OTHER as u64),
            (HEAP * 41 + 8, (HEAP * 40) as u64),
            (HEAP * 41 + 16, 0x21000),
        ])
    }

    #[test]
    fn arenas_and_heaps_of_both_layouts() {
        for layout in LAYOUTS {
            let memory = process(layout);
            let word = |address: usize| memory.get(&address).copied();
            assert_eq!(main_arena(MAIN, word), Some(layout));
            assert_eq!(main_arena(MAIN + 8, word), None);
            let mut arenas = Vec::new();
            assert!(each_other(MAIN, layout, word, |arena| arenas.push(arena)));
            assert_eq!(arenas, [OTHER]);
            let mut heaps = Vec::new();
            assert!(each_heap(OTHER, layout, word, |heap| heaps.push((heap.first, heap.end))));
            let first = (OTHER + layout.size + 15) & !15;
            assert_eq!(heaps, [(HEAP * 41 + 48, HEAP * 41 + 0x21000), (first, HEAP * 41)]);
        }
    }

    #[test]
    fn mapped_blocks_as_glibc_counts_them() {
        let data = |last: u64, most: u64, start: u64| {
            let words = [last, most, 1, 5_000_000, 9_000_000, start];
            move |at: usize| {
                (at >= 8 && at.is_multiple_of(8)).then(|| words.get(at / 8 - 1).copied()).flatten()
            }
        };
        let (old, new) = (data(0, 7 | 1 << 48, 4096), data(7 << 32 | 3, 1 << 16 | 9 << 32, 4096));
        assert_eq!(counted_mapped(48, 4096, old), Some((7, 5_000_000)));
        assert_eq!(counted_mapped(48, 4096, new), Some((7, 5_000_000)));
        assert_eq!(counted_mapped(48, 8192, old), None);
        assert_eq!(counted_mapped(40, 9_000_000, old), None);
        assert_eq!(counted_mapped(48, 4096, data(0, 7, 4096)), None);
        assert_eq!(counted_mapped(8, 0, data(0, 0, 0)), None);
    }

    #[test]
    fn circles_and_wrong_pointers_end() {
        let mut memory = process(LAYOUTS[0]);
        memory.insert(OTHER + LAYOUTS[0].next, OTHER as u64);
        let word = |address: usize| memory.get(&address).copied();
        assert!(!each_other(MAIN, LAYOUTS[0], word, |_| {}));
        let mut memory = process(LAYOUTS[0]);
        memory.insert(HEAP * 41 + 8, (HEAP * 41) as u64);
        let word = |address: usize| memory.get(&address).copied();
        assert!(!each_heap(OTHER, LAYOUTS[0], word, |_| {}));
        memory.insert(HEAP * 41 + 16, u64::MAX);
        assert!(!each_heap(OTHER, LAYOUTS[0], |address| memory.get(&address).copied(), |_| {}));
    }
}
