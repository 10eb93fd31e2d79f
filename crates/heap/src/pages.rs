//! Addresses as numbers of 32 bits. Objects are close together in pages, so the number of a page and a place in it
//! are shorter than an address, and no table of all objects is needed to find one by its address.

use crate::intern::Map;

const PAGE_BITS: u32 = 16;
const PLACE_BITS: u32 = 13;
/// Places in a page: one for each 8 bytes.
pub const PLACES: usize = 1 << PLACE_BITS;
const MOST_PAGES: usize = 1 << (32 - PLACE_BITS);
const WORDS: usize = PLACES / 64;
const ODD: u64 = u64::MAX;

/// A page number and a place in the page.
pub type Slot = u32;
/// No object.
pub const NONE: u32 = u32::MAX;

/// Which places of a page have an object, and the object's numbers.
#[derive(Debug)]
struct Page {
    /// Address of the page divided by its size, or [`ODD`] with the index of its addresses.
    number: u64,
    odd: u32,
    /// One bit for each place that has an object; empty if none has.
    bits: Vec<u64>,
    /// Objects in all words before each word, once the page is complete.
    ranks: Vec<u16>,
    first: u32,
    last: u32,
    last_place: u32,
    count: u32,
    in_order: bool,
    /// The number of each place's object, if they are in no order.
    numbers: Vec<u32>,
}

/// All pages of a dump.
#[derive(Debug, Default)]
pub struct Pages {
    pages: Vec<Page>,
    known: Map<u64, u32>,
    recent: [(u64, u32); 32],
    /// Addresses that no object of Ruby's has: those of dumps that were written by hand.
    odd: Vec<u64>,
    odd_slots: Map<u64, Slot>,
}

impl Pages {
    /// The slot of an address, or nothing if the dump has too many pages.
    #[inline]
    pub fn slot(&mut self, address: u64) -> Option<Slot> {
        if address & 7 != 0 {
            return self.odd_slot(address);
        }
        let number = address >> PAGE_BITS;
        let place = (address as u32 & ((1 << PAGE_BITS) - 1)) >> 3;
        let cached = self.recent[number as usize % 32];
        if cached.0 == number + 1 {
            return Some(cached.1 << PLACE_BITS | place);
        }
        let page = self.page(number)?;
        self.recent[number as usize % 32] = (number + 1, page);
        Some(page << PLACE_BITS | place)
    }

    fn page(&mut self, number: u64) -> Option<u32> {
        if let Some(page) = self.known.get(&number) {
            return Some(*page);
        }
        let page = self.add(number, 0)?;
        self.known.insert(number, page);
        Some(page)
    }

    fn add(&mut self, number: u64, odd: u32) -> Option<u32> {
        // The last page is left out, so that no slot is NONE.
        if self.pages.len() + 1 >= MOST_PAGES {
            return None;
        }
        self.pages.push(Page {
            number,
            odd,
            bits: Vec::new(),
            ranks: Vec::new(),
            first: NONE,
            last: NONE,
            last_place: 0,
            count: 0,
            in_order: true,
            numbers: Vec::new(),
        });
        Some(self.pages.len() as u32 - 1)
    }

    fn odd_slot(&mut self, address: u64) -> Option<Slot> {
        if let Some(slot) = self.odd_slots.get(&address) {
            return Some(*slot);
        }
        let place = self.odd.len() % PLACES;
        let page = if place == 0 {
            self.add(ODD, self.odd.len() as u32)?
        } else {
            // The page of the address before this one.
            let before = *self.odd.last()?;
            self.odd_slots.get(&before)? >> PLACE_BITS
        };
        let slot = page << PLACE_BITS | place as u32;
        self.odd.push(address);
        self.odd_slots.insert(address, slot);
        Some(slot)
    }

    /// Notes that the next object is at the slot. Returns false if there is one already.
    #[inline]
    pub fn occupy(&mut self, slot: Slot, object: u32) -> bool {
        let (at, place) = ((slot >> PLACE_BITS) as usize, slot & (PLACES as u32 - 1));
        let page = &mut self.pages[at];
        if page.bits.is_empty() {
            page.bits = vec![0; WORDS];
            page.first = object;
        }
        let (word, bit) = (place as usize / 64, 1 << (place % 64));
        if page.bits[word] & bit != 0 {
            return false;
        }
        page.bits[word] |= bit;
        page.in_order &= page.count == 0 || (page.last_place < place && page.last + 1 == object);
        page.last_place = place;
        page.last = object;
        page.count += 1;
        true
    }

    /// Makes [`object`](Self::object) work, when all objects are known.
    pub fn complete(&mut self, slots: &[Slot]) {
        let mut out_of_order = false;
        for page in &mut self.pages {
            if page.bits.is_empty() {
                continue;
            }
            if page.in_order {
                let mut before = 0;
                page.ranks.reserve_exact(WORDS);
                for word in &page.bits {
                    page.ranks.push(before);
                    before += word.count_ones() as u16;
                }
            } else {
                page.numbers = vec![NONE; PLACES];
                page.bits = vec![0];
                out_of_order = true;
            }
        }
        if out_of_order {
            for (object, slot) in slots.iter().enumerate() {
                let page = &mut self.pages[(slot >> PLACE_BITS) as usize];
                if !page.in_order {
                    page.numbers[*slot as usize & (PLACES - 1)] = object as u32;
                }
            }
        }
    }

    /// The number of the object at a slot, or [`NONE`].
    #[inline]
    pub fn object(&self, slot: Slot) -> u32 {
        let Some(page) = self.pages.get((slot >> PLACE_BITS) as usize) else { return NONE };
        let place = slot as usize & (PLACES - 1);
        if !page.in_order {
            return page.numbers.get(place).copied().unwrap_or(NONE);
        }
        let Some(word) = page.bits.get(place / 64) else { return NONE };
        let bit = 1_u64 << (place % 64);
        if word & bit == 0 {
            return NONE;
        }
        page.first + u32::from(page.ranks[place / 64]) + (word & (bit - 1)).count_ones()
    }

    /// The number of the object at an address, or [`NONE`].
    pub fn object_at(&self, address: u64) -> u32 {
        if address & 7 != 0 {
            return self.odd_slots.get(&address).map_or(NONE, |slot| self.object(*slot));
        }
        let Some(page) = self.known.get(&(address >> PAGE_BITS)) else { return NONE };
        self.object(page << PLACE_BITS | (address as u32 & ((1 << PAGE_BITS) - 1)) >> 3)
    }

    /// The address of a slot.
    pub fn address(&self, slot: Slot) -> u64 {
        let Some(page) = self.pages.get((slot >> PLACE_BITS) as usize) else { return 0 };
        let place = slot as usize & (PLACES - 1);
        if page.number == ODD {
            return self.odd.get(page.odd as usize + place).copied().unwrap_or(0);
        }
        page.number << PAGE_BITS | (place as u64) << 3
    }

    /// Forgets the data of [`object`](Self::object).
    pub fn drop_ranks(&mut self) {
        for page in &mut self.pages {
            page.bits = Vec::new();
            page.ranks = Vec::new();
            page.numbers = Vec::new();
        }
    }

    /// Its approximate bytes, for a budget.
    pub fn memory_bytes(&self) -> usize {
        self.pages.len() * (std::mem::size_of::<Page>() + 24) + self.odd.len() * 40
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Agrees with a plain map, in any order, on any pages, with repeated addresses.
        #[test]
        fn objects_are_found_by_address(mut addresses in proptest::collection::vec(0_u64..400_000, 1..300), sorted: bool) {
            if sorted {
                addresses.sort_unstable();
            }
            let (mut pages, mut slots, mut truth) = (Pages::default(), Vec::new(), std::collections::HashMap::new());
            for address in addresses {
                let address = 0x7f00_0000_0000 + address;
                let slot = pages.slot(address).unwrap();
                prop_assert_eq!(pages.address(slot), address);
                let is_new = pages.occupy(slot, slots.len() as u32);
                prop_assert_eq!(is_new, !truth.contains_key(&address));
                if is_new {
                    truth.insert(address, slots.len() as u32);
                    slots.push(slot);
                }
            }
            pages.complete(&slots);
            for (address, object) in &truth {
                prop_assert_eq!(pages.object_at(*address), *object);
            }
            for address in 0x7f00_0000_0000..0x7f00_0000_0100_u64 {
                prop_assert_eq!(pages.object_at(address), truth.get(&address).copied().unwrap_or(NONE));
            }
        }
    }

    #[test]
    fn there_are_no_more_pages_than_numbers() {
        let mut pages = Pages::default();
        let taken = (0..1_u64 << 20).filter(|page| pages.slot(page << 16).is_some()).count();
        assert_eq!(taken, MOST_PAGES - 1);
    }
}
