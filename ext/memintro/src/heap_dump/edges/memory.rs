//! Words of Ruby's memory, and its tables by name.

use rb_sys::{ID, VALUE};

use crate::atlas::{Object, types};

/// Most places of a table: more are not believed.
const MOST_PLACES: usize = 1 << 24;

/// A word at so many words from an address.
///
/// # Safety
/// The word is mapped, because the layout of what is there was found in samples.
#[inline]
pub(super) unsafe fn word(address: usize, index: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).add(index).read() }
}

/// Whether it can be the address of an object. The lower three bits of those are zero.
#[inline]
pub(in crate::heap_dump) fn is_address(value: usize) -> bool {
    value > 0xff && value & 7 == 0
}

/// The head of a table by name (`struct rb_id_table`): places, those in use and used ever, then entries.
pub(super) struct IdTable {
    places: usize,
    entries: usize,
}

impl IdTable {
    /// Words of the head.
    pub(super) const WORDS: usize = 3;

    pub(super) fn from([places_and_count, used, entries]: [usize; Self::WORDS]) -> Option<Self> {
        let places = places_and_count & 0xffff_ffff;
        let (count, used) = (places_and_count >> 32, used & 0xffff_ffff);
        let fits = places.is_power_of_two() && places <= MOST_PLACES && count <= used && used <= places;
        (fits && is_address(entries)).then_some(Self { places, entries })
    }

    /// # Safety
    /// At the address is such a table, or it is 0.
    unsafe fn at(address: usize) -> Option<Self> {
        if !is_address(address) {
            return None;
        }
        // SAFETY: the caller's promise.
        Self::from(unsafe { [word(address, 0), word(address, 1), word(address, 2)] })
    }

    /// Where the entries are, and how many.
    pub(super) fn entries(&self) -> (usize, usize) {
        (self.entries, self.places)
    }
}

/// The serial number of a name and the value, of each entry of a table by name.
///
/// # Safety
/// At the address is such a table, or it is 0.
pub(super) unsafe fn each_entry(address: usize, mut visit: impl FnMut(usize, usize)) {
    // SAFETY: the caller's promise.
    let Some(table) = (unsafe { IdTable::at(address) }) else { return };
    for index in 0..table.places {
        // SAFETY: an entry has two words: a number of 32 bits, and the value.
        let (key, value) =
            unsafe { (word(table.entries, 2 * index) & 0xffff_ffff, word(table.entries, 2 * index + 1)) };
        if key != 0 {
            visit(key, value);
        }
    }
}

/// A number that Ruby takes for the name with this serial number. `first`: the least serial number of a name that is no operator.
pub(super) fn name_of_serial(serial: usize, first: usize) -> ID {
    const SCOPE_BITS: u32 = 4;
    if serial < first { serial as ID } else { (serial << SCOPE_BITS) as ID }
}

/// A string of Ruby; empty for what is none.
pub(super) fn text(value: VALUE) -> &'static [u8] {
    if !is_address(value as usize) {
        return b"";
    }
    // SAFETY: Ruby answered an object.
    let object = unsafe { Object::read(value as usize) };
    if object.kind() == types::T_STRING { object.string() } else { b"" }
}
