//! Which chunks are in use, and whose each is.
//!
//! Four bits for each 32 bytes, which is the least size of a chunk: so no two chunks begin there. One of the bits says in
//! which half the chunk begins.

use super::PAGE;
use super::space::{Area, Space};

const GRAIN: usize = 32;
const HALF: usize = 16;
/// A chunk's head, before what malloc's caller has.
const HEAD: usize = 16;
/// Bytes of the map for each page.
const PER_PAGE: usize = PAGE / GRAIN / 2;

/// Whose a chunk is. In use and nobody's: native.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Owner {
    /// Here begins no chunk.
    Nothing = 0,
    /// In use, and no owner is known.
    Native = 1,
    /// Ruby's objects'.
    Objects = 2,
    /// Compiled code's.
    Iseqs = 3,
    /// Internal objects' of the VM.
    Internal = 4,
    /// Free, in a cache.
    Cached = 5,
    /// A page of Ruby's heap.
    Heap = 6,
}

impl Owner {
    /// All, by their numbers.
    pub const ALL: [Self; 7] =
        [Self::Nothing, Self::Native, Self::Objects, Self::Iseqs, Self::Internal, Self::Cached, Self::Heap];
}

/// The map.
#[derive(Debug)]
pub struct Owners<'a> {
    areas: &'a [Area],
    /// The area of the last look-up: most follow one another.
    last: core::cell::Cell<Area>,
    map: &'a mut [u8],
}

impl<'a> Owners<'a> {
    /// The map is zero at first.
    pub fn new(areas: &'a [Area], map: &'a mut [u8]) -> Self {
        Self { areas, last: core::cell::Cell::new(Area::default()), map }
    }

    /// Bytes that the map of so many pages needs.
    #[must_use]
    pub fn bytes(pages: usize) -> usize {
        pages.saturating_mul(PER_PAGE)
    }

    /// Whose the chunk is that begins here.
    #[must_use]
    #[inline]
    pub fn of(&self, chunk: usize) -> Owner {
        let Some((byte, shift)) = self.place(chunk) else { return Owner::Nothing };
        let bits = self.map.get(byte).map_or(0, |byte| byte >> shift & 0xf);
        let half = u8::from(chunk & HALF != 0);
        match Owner::ALL.get(usize::from(bits >> 1)) {
            Some(owner) if bits & 1 == half => *owner,
            _ => Owner::Nothing,
        }
    }

    /// Whose the block is that malloc's caller has at this address.
    #[must_use]
    #[inline]
    pub fn of_block(&self, block: usize) -> Owner {
        if block.is_multiple_of(HALF) && block > HEAD { self.of(block - HEAD) } else { Owner::Nothing }
    }

    /// Notes a chunk, or whose it is.
    pub fn set(&mut self, chunk: usize, owner: Owner) {
        let Some((byte, shift)) = self.place(chunk) else { return };
        let bits = (owner as u8) << 1 | u8::from(chunk & HALF != 0);
        if let Some(byte) = self.map.get_mut(byte) {
            *byte = *byte & !(0xf << shift) | bits << shift;
        }
    }

    /// Here begin no chunks. The range lies in one area.
    pub fn forget(&mut self, from: usize, to: usize) {
        // Half of a byte may be that of a chunk before.
        let first = from.next_multiple_of(2 * GRAIN).min(to);
        for at in (from..first).step_by(HALF) {
            if self.of(at) != Owner::Nothing {
                self.set(at, Owner::Nothing);
            }
        }
        let Some((begin, _)) = self.place(first) else { return };
        let bytes = (to - first).div_ceil(2 * GRAIN);
        if let Some(range) = self.map.get_mut(begin..begin.saturating_add(bytes)) {
            range.fill(0);
        }
    }

    /// Visits all chunks that begin in pages of this space, in the order of their addresses. In a mapping of terabytes,
    /// pages that are not there cost next to nothing.
    pub fn each(&self, pages: &Space<'_>, mut visit: impl FnMut(usize, Owner)) {
        for area in self.areas {
            let mut at = area.start;
            while let Some(page) = pages.next_resident(area, at) {
                self.each_of_page(area, page, &mut visit);
                at = page + PAGE;
            }
        }
    }

    fn each_of_page(&self, area: &Area, page: usize, visit: &mut impl FnMut(usize, Owner)) {
        let from = (area.first_bit + (page - area.start) / PAGE) * PER_PAGE;
        for (index, byte) in self.map.get(from..from + PER_PAGE).unwrap_or_default().iter().enumerate() {
            if *byte == 0 {
                continue;
            }
            for half in 0..2 {
                let bits = byte >> (4 * half) & 0xf;
                let chunk = page + (index * 2 + half) * GRAIN + usize::from(bits & 1) * HALF;
                match Owner::ALL.get(usize::from(bits >> 1)) {
                    None | Some(Owner::Nothing) => {}
                    Some(owner) => visit(chunk, *owner),
                }
            }
        }
    }

    #[inline]
    fn place(&self, chunk: usize) -> Option<(usize, u32)> {
        let mut area = self.last.get();
        if !(area.start <= chunk && chunk < area.end) {
            let next = self.areas.partition_point(|area| area.end <= chunk);
            area = *self.areas.get(next).filter(|area| area.start <= chunk)?;
            self.last.set(area);
        }
        let grain = (chunk - area.start) / GRAIN;
        Some((area.first_bit * PER_PAGE + grain / 2, if grain.is_multiple_of(2) { 0 } else { 4 }))
    }
}

/// The least that somebody may have asked for who got a chunk of this size: it is rounded up, and 16 bytes that were
/// left over are not cut off.
#[must_use]
pub fn least_asked(size: usize, has_mapping: bool) -> usize {
    if has_mapping { size.saturating_sub(PAGE + HEAD) } else { size.saturating_sub(8 + 15 + 16) }
}

/// What a search for the blocks of one object reads and writes.
#[derive(Debug)]
pub struct Search<'a, 'b> {
    /// Whose each chunk is.
    pub owners: &'a mut Owners<'b>,
    /// Resident pages of malloc.
    pub pages: &'a Space<'b>,
}

/// What was found of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Blocks.
    pub blocks: u64,
    /// Resident bytes of their chunks.
    pub resident: u64,
}

/// Blocks within blocks that are followed for one object.
const MOST_WAITING: usize = 32;
/// Bytes of each that are searched.
const MOST_SEARCHED: usize = 2048;

impl Search<'_, '_> {
    /// Finds the blocks of an object that owns so many bytes: those to which its slot's words point, and, if its type
    /// has blocks within blocks, those to which these point. No more than it owns is taken, so that a pointer to what
    /// belongs to others ends the search of one object and not more. A block to which the slot itself points is looked
    /// into also where another object has got it before, by an old pointer: what it points to may be large.
    pub fn claim(
        &mut self,
        slot: (usize, usize),
        owned: u64,
        nested: bool,
        owner: Owner,
        word: impl Fn(usize) -> Option<u64>,
    ) -> Found {
        let mut left = usize::try_from(owned).unwrap_or(usize::MAX);
        let mut found = Found::default();
        let mut waiting = [(0, 0); MOST_WAITING];
        waiting[0] = slot;
        let (mut next, mut last) = (0, 1);
        while let Some((start, end)) = waiting.get(next..last).and_then(|rest| rest.first()).copied() {
            next += 1;
            for at in (start..end).step_by(8) {
                let Some(block) = word(at).and_then(|block| usize::try_from(block).ok()) else { break };
                let taken = match self.owners.of_block(block) {
                    Owner::Native => false,
                    Owner::Objects | Owner::Iseqs | Owner::Internal if nested && next == 1 => true,
                    _ => continue,
                };
                let chunk = block - HEAD;
                let Some(head) = word(block - 8) else { continue };
                let size = (head & !super::chunks::FLAGS) as usize;
                let least = least_asked(size, head & super::chunks::MAPPED != 0);
                if least > left {
                    continue;
                }
                left -= least;
                if !taken {
                    self.owners.set(chunk, owner);
                    found.blocks += 1;
                    found.resident += self.pages.resident(chunk, chunk.saturating_add(size));
                }
                if nested && let Some(place) = waiting.get_mut(last) {
                    // A block reaches into the next chunk, by the word that says how long a free one before it is.
                    *place = (block, block + size.saturating_sub(8).min(MOST_SEARCHED));
                    last += 1;
                }
                if left == 0 {
                    return found;
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: usize = 0x10_000;
    const AREAS: [Area; 2] = [
        Area { start: START, end: START + 4 * PAGE, first_bit: 0 },
        Area { start: 0x80_000, end: 0x80_000 + 2 * PAGE, first_bit: 4 },
    ];

    #[test]
    fn each_chunk_has_its_owner_and_no_other_address_has_one() {
        let mut map = vec![0; Owners::bytes(6)];
        let mut owners = Owners::new(&AREAS, &mut map);
        let chunks = [(START, Owner::Native), (START + 48, Owner::Objects), (START + 64, Owner::Cached)];
        let more =
            [(START + 4 * PAGE - 16, Owner::Heap), (0x80_000, Owner::Internal), (0x81_ff0, Owner::Iseqs)];
        let all: Vec<_> = chunks.into_iter().chain(more).collect();
        for (chunk, owner) in &all {
            owners.set(*chunk, *owner);
        }
        for at in (START - 64..0x82_040).step_by(16) {
            let expected = all.iter().find(|(chunk, _)| *chunk == at).map_or(Owner::Nothing, |one| one.1);
            assert_eq!(owners.of(at), expected, "{at:#x}");
            assert_eq!(owners.of_block(at + 16), expected, "{at:#x}");
        }
        let (mut listed, mut bits) = (Vec::new(), vec![0; 1]);
        let mut pages = Space::new(&AREAS, &mut bits);
        pages.set_range(START, START + 4 * PAGE);
        pages.set_range(0x80_000, 0x82_000);
        owners.each(&pages, |chunk, owner| listed.push((chunk, owner)));
        assert_eq!(listed, all);
        assert_eq!((owners.of_block(0), owners.of_block(START + 17)), (Owner::Nothing, Owner::Nothing));
        owners.set(START + 48, Owner::Native);
        assert_eq!((owners.of(START + 48), owners.of(START + 64)), (Owner::Native, Owner::Cached));
    }

    /// A slot at the beginning of the first area, and chunks of 64 bytes from its second page on.
    struct Memory(Vec<u64>);

    impl Memory {
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
        let (mut map, mut bits) = (vec![0; Owners::bytes(6)], vec![0; 1]);
        let mut owners = Owners::new(&AREAS, &mut map);
        let mut pages = Space::new(&AREAS, &mut bits);
        pages.set_range(START, START + 4 * PAGE);
        before.iter().enumerate().for_each(|(number, owner)| owners.set(chunk(number), *owner));
        let word = |at: usize| memory.0.get(at.checked_sub(START)? / 8).copied();
        let mut search = Search { owners: &mut owners, pages: &pages };
        let found = search.claim((START, START + 40), owned, nested, Owner::Objects, word);
        (found, (0..4).map(|number| owners.of(chunk(number))).collect())
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
}
