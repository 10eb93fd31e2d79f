//! Which chunks the blocks of one object are: those to which its pointers lead, and no more of them than it owns.
//!
//! Any word may be a pointer, also an old one that was not overwritten. So a block may be claimed by an object that does
//! not own it. What is behind such a block must not be lost to the object that owns it.

use super::PAGE;
use super::chunks::{FLAGS, MAPPED};
use super::owners::{Owner, Owners};
use super::space::Space;

/// A chunk's head, before what malloc's caller has.
const HEAD: usize = 16;
/// Blocks within blocks that are followed for one object.
const MOST_WAITING: usize = 32;
/// Bytes of each that are searched.
const MOST_SEARCHED: usize = 2048;
/// An object of which so many bytes were not found is looked at a second time.
const MUCH: usize = 64 << 10;
/// For a second look, blocks that are followed, and bytes that are searched for all objects together.
const MOST_WAITING_AGAIN: usize = 256;
const MOST_SEARCHED_AGAIN: usize = 256 << 20;

/// The least that somebody may have asked for who got a chunk of this size: it is rounded up, and 16 bytes that were
/// left over are not cut off.
#[must_use]
pub fn least_asked(size: usize, has_mapping: bool) -> usize {
    if has_mapping { size.saturating_sub(PAGE + HEAD) } else { size.saturating_sub(8 + 15 + 16) }
}

/// What a search for the blocks of objects reads and writes.
#[derive(Debug)]
pub struct Search<'a, 'b> {
    /// Whose each chunk is.
    pub owners: &'a mut Owners<'b>,
    /// Resident pages of malloc.
    pub pages: &'a Space<'b>,
    /// Bytes that may still be searched by second looks.
    spare: usize,
}

/// What was found of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Blocks.
    pub blocks: u64,
    /// Resident bytes of their chunks.
    pub resident: u64,
}

/// One object.
#[derive(Clone, Copy, Debug)]
struct Object {
    slot: (usize, usize),
    is_nested: bool,
    owner: Owner,
    /// Bytes that were not found yet.
    left: usize,
    found: Found,
}

impl<'a, 'b> Search<'a, 'b> {
    /// Nothing is claimed at first.
    #[must_use]
    pub fn new(owners: &'a mut Owners<'b>, pages: &'a Space<'b>) -> Self {
        Self { owners, pages, spare: MOST_SEARCHED_AGAIN }
    }

    /// Finds the blocks of an object that owns so many bytes: those to which its slot's words point, and, if its type
    /// has blocks within blocks, those to which these point. No more than it owns is taken, so that a pointer to what
    /// belongs to others ends the search of one object and not more.
    pub fn claim(
        &mut self,
        slot: (usize, usize),
        owned: u64,
        is_nested: bool,
        owner: Owner,
        word: impl Fn(usize) -> Option<u64>,
    ) -> Found {
        let left = usize::try_from(owned).unwrap_or(usize::MAX);
        let mut object = Object { slot, is_nested, owner, left, found: Found::default() };
        self.look(&mut object, &word);
        if is_nested && object.left >= MUCH {
            self.look_again(&mut object, &word);
        }
        object.found
    }

    /// Finds blocks in use without an owner to which these words lead, directly and through each other. Of the first words,
    /// a block of this or another object is looked into as well, because an extension may tell the size of only its first
    /// block. `room`: for blocks that were found and not looked into yet; those for which there is none are left out.
    pub fn reach(
        &mut self,
        words: (usize, usize),
        room: &mut [(usize, usize)],
        word: impl Fn(usize) -> Option<u64>,
    ) -> Found {
        let mut found = Found::default();
        let (mut used, mut range, mut is_first) = (0_usize, Some(words), true);
        while let Some((start, end)) = range {
            for at in (start..end).step_by(8) {
                let Some(block) = word(at).and_then(|block| usize::try_from(block).ok()) else { break };
                let is_new = match self.owners.of_block(block) {
                    Owner::Native => true,
                    Owner::Objects if is_first => false,
                    _ => continue,
                };
                let Some((size, _)) = size_of_block(block, &word) else { continue };
                let Some(end) = end_of_block(block, &word) else { continue };
                if is_new {
                    let chunk = block - HEAD;
                    self.owners.set(chunk, Owner::Reached);
                    found.blocks += 1;
                    found.resident += self.pages.resident(chunk, chunk.saturating_add(size));
                }
                if let Some(place) = room.get_mut(used) {
                    *place = (block, end);
                    used += 1;
                }
            }
            is_first = false;
            range = used.checked_sub(1).and_then(|last| room.get(last)).copied();
            used = used.saturating_sub(1);
        }
        found
    }

    /// A block to which the slot itself points is looked into also where another object has got it before.
    fn look(&mut self, object: &mut Object, word: &impl Fn(usize) -> Option<u64>) {
        let mut waiting = [(0, 0); MOST_WAITING];
        waiting[0] = object.slot;
        let (mut next, mut last) = (0, 1);
        while let Some((start, end)) = waiting.get(next..last).and_then(|rest| rest.first()).copied() {
            next += 1;
            for at in (start..end).step_by(8) {
                let Some(block) = word(at).and_then(|block| usize::try_from(block).ok()) else { break };
                let is_taken = match self.owners.of_block(block) {
                    Owner::Native => false,
                    Owner::Objects | Owner::Iseqs | Owner::Internal if object.is_nested && next == 1 => true,
                    _ => continue,
                };
                let Some((size, least)) = size_of_block(block, word).filter(|size| size.1 <= object.left)
                else {
                    continue;
                };
                let Some(end) = end_of_block(block, word) else { continue };
                object.left -= least;
                if !is_taken {
                    self.take(object, block, size);
                }
                if object.is_nested
                    && let Some(place) = waiting.get_mut(last)
                {
                    *place = (block, end.min(block.saturating_add(MOST_SEARCHED)));
                    last += 1;
                }
                if object.left == 0 {
                    return;
                }
            }
        }
    }

    /// Looks into all of each block, and into those that others have got, wherever they are. These may be the object's own,
    /// and so count for nothing.
    fn look_again(&mut self, object: &mut Object, word: &impl Fn(usize) -> Option<u64>) {
        let mut waiting = [(0, 0); MOST_WAITING_AGAIN];
        waiting[0] = object.slot;
        let (mut next, mut last) = (0, 1);
        while let Some((start, end)) = waiting.get(next..last).and_then(|rest| rest.first()).copied() {
            next += 1;
            let end = end.min(start.saturating_add(self.spare));
            self.spare -= end - start;
            for at in (start..end).step_by(8) {
                let Some(block) = word(at).and_then(|block| usize::try_from(block).ok()) else { break };
                let is_taken = match self.owners.of_block(block) {
                    Owner::Native => false,
                    Owner::Objects | Owner::Iseqs | Owner::Internal => true,
                    _ => continue,
                };
                let Some((size, least)) = size_of_block(block, word) else { continue };
                let Some(end) = end_of_block(block, word) else { continue };
                if !is_taken {
                    if least > object.left {
                        continue;
                    }
                    object.left -= least;
                    self.take(object, block, size);
                }
                let range = (block, end);
                if !waiting.get(..last).is_some_and(|known| known.contains(&range))
                    && let Some(place) = waiting.get_mut(last)
                {
                    *place = range;
                    last += 1;
                }
                if object.left == 0 {
                    return;
                }
            }
        }
    }

    fn take(&mut self, object: &mut Object, block: usize, size: usize) {
        let chunk = block - HEAD;
        self.owners.set(chunk, object.owner);
        object.found.blocks += 1;
        object.found.resident += self.pages.resident(chunk, chunk.saturating_add(size));
    }
}

/// The size of a block's chunk, and the least that its caller may have asked for.
fn size_of_block(block: usize, word: &impl Fn(usize) -> Option<u64>) -> Option<(usize, usize)> {
    let head = word(block - 8)?;
    let size = usize::try_from(head & !FLAGS).ok()?;
    Some((size, least_asked(size, head & MAPPED != 0)))
}

/// Where what its caller may use ends. A block reaches into the next chunk, by the word that says how long a free one before it is;
/// one with a mapping of its own ends with that, and nothing can be read behind it.
fn end_of_block(block: usize, word: &impl Fn(usize) -> Option<u64>) -> Option<usize> {
    let head = word(block - 8)?;
    let end = (block - HEAD).checked_add(usize::try_from(head & !FLAGS).ok()?)?;
    Some(if head & MAPPED == 0 { end.checked_add(8)? } else { end }.max(block))
}

#[cfg(test)]
mod tests {
    use super::super::owners::tests::{AREAS, START};
    use super::super::space::Area;
    use super::*;

    /// A slot at the beginning of the first area, and chunks of 64 bytes from its second page on.
    struct Memory(Vec<u64>);

    impl Memory {
        fn word(&self, at: usize) -> Option<u64> {
            self.0.get(at.checked_sub(START)? / 8).copied()
        }

        fn new() -> Self {
            let mut memory = Self(vec![0; 4 * PAGE / 8]);
            for number in 0..4 {
                memory.put(chunk(number) + 8, 64 | 1);
            }
            memory
        }

        fn put(&mut self, at: usize, value: u64) {
            self.0[(at - START) / 8] = value;
        }
    }

    fn chunk(number: usize) -> usize {
        START + PAGE + number * 64
    }

    fn block(number: usize) -> u64 {
        chunk(number) as u64 + 16
    }

    fn search(memory: &Memory, owned: u64, nested: bool) -> (Found, Vec<Owner>) {
        search_where(memory, owned, nested, [Owner::Native; 4])
    }

    fn search_where(memory: &Memory, owned: u64, nested: bool, before: [Owner; 4]) -> (Found, Vec<Owner>) {
        searched(before, |search| {
            search.claim((START, START + 40), owned, nested, Owner::Objects, |at| memory.word(at))
        })
    }

    /// What a search finds in four pages of memory, and the owners of the chunks after it.
    fn searched(before: [Owner; 4], run: impl FnOnce(&mut Search<'_, '_>) -> Found) -> (Found, Vec<Owner>) {
        let (mut map, mut bits) = (vec![0; Owners::bytes(6)], vec![0; 1]);
        let mut owners = Owners::new(&AREAS, &mut map);
        let mut pages = Space::new(&AREAS, &mut bits);
        pages.set_range(START, START + 4 * PAGE);
        before.iter().enumerate().for_each(|(number, owner)| owners.set(chunk(number), *owner));
        let found = run(&mut Search::new(&mut owners, &pages));
        (found, (0..4).map(|number| owners.owner_of(chunk(number))).collect())
    }

    #[test]
    fn blocks_that_a_slot_points_to_and_blocks_within_them() {
        use Owner::{Native, Objects};
        let mut memory = Memory::new();
        memory.put(START + 16, block(1));
        memory.put(chunk(1) + 64, block(3));
        memory.put(START + 24, block(2) + 8);
        let one = Found { blocks: 1, resident: 64 };
        assert_eq!(search(&memory, 50, false), (one, vec![Native, Objects, Native, Native]));
        let both = Found { blocks: 2, resident: 128 };
        assert_eq!(search(&memory, 100, true), (both, vec![Native, Objects, Native, Objects]));
    }

    #[test]
    fn blocks_within_one_that_an_old_pointer_of_another_object_took() {
        use Owner::{Internal, Native, Objects};
        let mut memory = Memory::new();
        memory.put(START + 16, block(1));
        memory.put(chunk(1) + 64, block(3));
        let taken = [Native, Internal, Native, Native];
        let inner = Found { blocks: 1, resident: 64 };
        assert_eq!(search_where(&memory, 100, true, taken), (inner, vec![Native, Internal, Native, Objects]));
        assert_eq!(search_where(&memory, 100, false, taken).0.blocks, 0);
        assert_eq!(search_where(&memory, 20, true, taken).0.blocks, 0, "what it owns bounds that too");
        let free = [Native, Owner::Cached, Native, Native];
        assert_eq!(search_where(&memory, 100, true, free).0.blocks, 0, "a free block has old pointers");
    }

    #[test]
    fn no_more_is_taken_than_an_object_owns() {
        let mut memory = Memory::new();
        memory.put(START + 16, block(0));
        memory.put(START + 24, block(1));
        memory.put(START + 32, block(0));
        assert_eq!(search(&memory, 40, true).0.blocks, 1);
        assert_eq!(search(&memory, 20, true).0.blocks, 0);
        assert_eq!(search(&memory, 1000, true).0.blocks, 2, "a block counts once");
        assert_eq!(search(&memory, 0, true).0.blocks, 0);
    }

    #[test]
    fn what_an_object_leads_to_and_does_not_count() {
        let mut memory = Memory::new();
        memory.put(START + 16, block(0));
        memory.put(chunk(0) + 16, block(1));
        memory.put(chunk(1) + 16, block(2));
        memory.put(chunk(2) + 16, block(1));
        let reach = |before: [Owner; 4], room: usize| {
            let mut room = vec![(0, 0); room];
            let reached = |search: &mut Search<'_, '_>| {
                search.reach((START, START + 40), &mut room, |at| memory.word(at))
            };
            let (found, owners) = searched(before, reached);
            (found.blocks, owners)
        };
        use Owner::{Cached, Internal, Native, Objects, Reached};
        assert_eq!(reach([Native; 4], 9), (3, vec![Reached, Reached, Reached, Native]));
        assert_eq!(reach([Objects, Native, Native, Native], 9), (2, vec![Objects, Reached, Reached, Native]));
        assert_eq!(reach([Native, Objects, Native, Native], 9), (1, vec![Reached, Objects, Native, Native]));
        for other in [Internal, Cached] {
            assert_eq!(reach([other, Native, Native, Native], 9).0, 0);
        }
        assert_eq!(reach([Native; 4], 0).0, 1, "without room, what is behind is left out");
    }

    #[test]
    fn the_least_that_may_have_been_asked_for() {
        assert_eq!((least_asked(32, false), least_asked(1040, false)), (0, 1001));
        assert_eq!(least_asked(135_168, true), 131_056);
    }

    #[test]
    fn any_memory_ends_the_search() {
        let mut state = 7_u64;
        for _ in 0..500 {
            let mut memory = Memory::new();
            for word in &mut memory.0 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *word = (state >> 33) % 0x8000 * 16;
            }
            assert!(search(&memory, state >> 50, true).0.resident <= 4 * PAGE as u64 * 1024);
        }
    }

    /// A hash: its slot points to a table, this to a large block, and an object with less memory has claimed the table.
    fn large(stolen: bool, place: usize) -> (Found, Owner) {
        const BYTES: usize = 64 * PAGE;
        let areas = [Area { start: START, end: START + BYTES, first_bit: 0 }];
        let (mut map, mut bits) = (vec![0; Owners::bytes(64)], vec![0; 2]);
        let mut owners = Owners::new(&areas, &mut map);
        let mut pages = Space::new(&areas, &mut bits);
        pages.set_range(START, START + BYTES);
        let (outer, table, inner) = (START + PAGE, START + 2 * PAGE, START + 4 * PAGE);
        let mut memory = vec![0_u64; BYTES / 8];
        let mut put = |at: usize, value: usize| memory[(at - START) / 8] = value as u64;
        put(START + 16, outer + 16);
        put(outer + 8, 64 | 1);
        put(outer + 24, table + 16);
        put(table + 8, 8192 | 1);
        put(table + 16 + place, inner + 16);
        put(inner + 8, (40 * PAGE) | 1);
        for chunk in [outer, table, inner] {
            owners.set(chunk, Owner::Native);
        }
        if stolen {
            owners.set(table, Owner::Internal);
        }
        let word = |at: usize| memory.get(at.checked_sub(START)? / 8).copied();
        let mut search = Search::new(&mut owners, &pages);
        let owned = (40 * PAGE + 8192 + 64) as u64;
        let found = search.claim((START, START + 40), owned, true, Owner::Objects, word);
        (found, owners.owner_of(inner))
    }

    #[test]
    fn a_large_block_is_not_lost_behind_one_that_another_object_took() {
        let inner = 40 * PAGE as u64;
        let all = Found { blocks: 3, resident: inner + 8192 + 64 };
        assert_eq!(large(false, 0), (all, Owner::Objects));
        let without = Found { blocks: 2, resident: inner + 64 };
        assert_eq!(large(true, 0), (without, Owner::Objects));
    }

    /// No word behind a mapping is read: nothing may be there.
    #[test]
    fn a_block_with_a_mapping_of_its_own_ends_with_it() {
        let areas = [Area { start: START, end: START + 64 * PAGE, first_bit: 0 }];
        for (owned, size) in [(50 * PAGE, 34 * PAGE), (PAGE, PAGE / 4)] {
            let (mut map, mut bits) = (vec![0; Owners::bytes(64)], vec![0; 2]);
            let mut owners = Owners::new(&areas, &mut map);
            let mut pages = Space::new(&areas, &mut bits);
            pages.set_range(START, START + 64 * PAGE);
            let end = START + 40 * PAGE;
            let chunk = end - size;
            let mut memory = vec![0_u64; (end - START) / 8];
            memory[2] = chunk as u64 + 16;
            memory[(chunk + 8 - START) / 8] = size as u64 | MAPPED;
            owners.set(chunk, Owner::Native);
            let word = |at: usize| {
                assert!(at < end, "a word was read behind the mapping");
                memory.get(at.checked_sub(START)? / 8).copied()
            };
            let found = Search::new(&mut owners, &pages).claim(
                (START, START + 40),
                owned as u64,
                true,
                Owner::Objects,
                word,
            );
            assert_eq!(found.blocks, 1);
            owners.set(chunk, Owner::Native);
            let found = Search::new(&mut owners, &pages).reach((START, START + 40), &mut [(0, 0); 4], word);
            assert_eq!(found.blocks, 1);
        }
    }

    #[test]
    fn a_large_block_is_not_lost_behind_the_first_words_of_another() {
        assert_eq!(large(false, 2048).0.blocks, 3);
        assert_eq!(large(false, 8192 - 24), (large(false, 0).0, Owner::Objects));
        assert_eq!(large(true, 6000).0.blocks, 2);
    }
}
