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

/// Whose a chunk is. In use and without an owner: native.
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
    /// In use, and an object leads to it whose extension does not count it.
    Reached = 7,
}

impl Owner {
    /// All, by their numbers.
    pub const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Native,
        Self::Objects,
        Self::Iseqs,
        Self::Internal,
        Self::Cached,
        Self::Heap,
        Self::Reached,
    ];
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
    pub fn owner_of(&self, chunk: usize) -> Owner {
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
        if block.is_multiple_of(HALF) && block > HEAD { self.owner_of(block - HEAD) } else { Owner::Nothing }
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
            if self.owner_of(at) != Owner::Nothing {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const START: usize = 0x10_000;
    pub(in super::super) const AREAS: [Area; 2] = [
        Area { start: START, end: START + 4 * PAGE, first_bit: 0 },
        Area { start: 0x80_000, end: 0x80_000 + 2 * PAGE, first_bit: 4 },
    ];

    #[test]
    fn each_chunk_has_its_owner_and_no_other_address_has_one() {
        let mut map = vec![0; Owners::bytes(6)];
        let mut owners = Owners::new(&AREAS, &mut map);
        let chunks = [(START, Owner::Reached), (START + 48, Owner::Objects), (START + 64, Owner::Cached)];
        let more =
            [(START + 4 * PAGE - 16, Owner::Heap), (0x80_000, Owner::Internal), (0x81_ff0, Owner::Iseqs)];
        let all: Vec<_> = chunks.into_iter().chain(more).collect();
        for (chunk, owner) in &all {
            owners.set(*chunk, *owner);
        }
        for at in (START - 64..0x82_040).step_by(16) {
            let expected = all.iter().find(|(chunk, _)| *chunk == at).map_or(Owner::Nothing, |one| one.1);
            assert_eq!(owners.owner_of(at), expected, "{at:#x}");
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
        assert_eq!(
            (owners.owner_of(START + 48), owners.owner_of(START + 64)),
            (Owner::Native, Owner::Cached)
        );
    }
}
