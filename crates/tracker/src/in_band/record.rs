//! The layout of a record: 8 bytes at the end of a block of glibc's. The word in front of the block gives
//! that end.
//!
//! | bits of a record | what |
//! |---|---|
//! | 0–7 | 0: a text that lacks its terminator ends here, as in the zeroes that glibc's calloc leaves behind a block |
//! | 8–27 | call site |
//! | 28–45 | generation of birth, modulo 2^18, as in [`crate::table`] |
//! | 46–50 | slack, plus 1: the block's usable size, less the record, less the size that was asked for |
//! | 51–63 | check: a hash of the address and of the bits above |
//!
//! So no record is 0. The check always detects a changed first byte and a change of any single byte: the
//! factor of the hash is chosen for that. Other damage passes in one of 8,192 cases.

use core::ptr;

use crate::table::{Block, MAX_AGE, Removed, packed};

/// Greatest size of a block with an in-band record. A larger one often ends in a page that its owner never touches.
const MOST_BYTES: u64 = 32 << 10;

/// Bits of a record, turned right by the first byte: so that byte is above the check.
const FIRST_BYTE: u32 = 8;
const SITE_BITS: u32 = 20;
const SLACK_SHIFT: u32 = 38;
const SLACK_BITS: u32 = 5;
const CHECK_SHIFT: u32 = SLACK_SHIFT + SLACK_BITS;
const CHECK_BITS: u32 = u64::BITS - FIRST_BYTE - CHECK_SHIFT;

const SITE_MASK: u64 = (1 << SITE_BITS) - 1;
/// The greatest slack. It shares bits with call sites that are too large: see [`encode`].
const MOST_SLACK: u64 = (1 << SLACK_BITS) - 2;
/// The shift from a birth in the table's entry to a birth in a record.
const BIRTH_UP: u32 = packed::BIRTH_SHIFT - SITE_BITS;

/// The least that glibc hands out.
const LEAST_USABLE: u64 = 24;

/// What glibc hands out for a block of this size.
#[inline(always)]
pub(super) fn usable_of(size: u64) -> u64 {
    (size.wrapping_add(8 + 15) & !15).wrapping_sub(8).max(LEAST_USABLE)
}

/// Bits of the word in front of a block of glibc's.
const IS_MAPPED: u64 = 2;
const FLAGS: u64 = 7;

#[inline(always)]
fn check(address: usize, body: u64, salt: u64) -> u64 {
    (body ^ salt ^ (address as u64) << 17).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - CHECK_BITS)
}

/// The usable bytes of a block of glibc's; `None` if it is not from the heap or too large.
///
/// # Safety
/// The block is the caller's.
#[inline(always)]
pub(super) unsafe fn usable(address: usize) -> Option<u64> {
    // SAFETY: glibc keeps a word in front of each block.
    usable_by(unsafe { *ptr::with_exposed_provenance::<u64>(address.wrapping_sub(8)) })
}

/// The same by the word in front of it.
#[inline(always)]
pub(super) fn usable_by(header: u64) -> Option<u64> {
    // One comparison: where the block is mapped, this is greater than any size.
    let quarter = (header & !(FLAGS ^ IS_MAPPED)).rotate_right(2);
    (quarter <= (MOST_BYTES + 8) / 4).then(|| (quarter << 2).wrapping_sub(8))
}

/// The record of a block with so many usable bytes; `None`: it cannot have one.
#[inline(always)]
pub(super) fn encode(address: usize, usable: u64, block: &Block, salt: u64) -> Option<u64> {
    let slack = usable.wrapping_sub(8).wrapping_sub(block.size);
    // Two comparisons in one: a site of more bits is above it, too. (A few others are refused as well.)
    if slack | u64::from(block.site >> (SITE_BITS - SLACK_BITS)) > MOST_SLACK {
        return None;
    }
    let birth = u64::from(block.generation & packed::BIRTH_MASK) << SITE_BITS;
    let body = u64::from(block.site) | birth | slack.wrapping_add(1) << SLACK_SHIFT;
    Some((body | check(address, body, salt) << CHECK_SHIFT) << FIRST_BYTE)
}

/// The contents of a record; `None` if it is no record, or is another block's.
#[inline(always)]
pub(super) fn decode(address: usize, usable: u64, record: u64, now: u32, salt: u64) -> Option<Removed> {
    let turned = record.rotate_right(FIRST_BYTE);
    let body = turned & ((1 << CHECK_SHIFT) - 1);
    let most = usable.wrapping_sub(8);
    // More than that without a slack, or with one that is greater than the block.
    let size = most.wrapping_add(1).wrapping_sub(body >> SLACK_SHIFT);
    if check(address, body, salt) != turned >> CHECK_SHIFT || size > most {
        return None;
    }
    let birth = body << BIRTH_UP;
    let age = if packed::is_of(birth, now) { 0 } else { packed::age(birth, now).min(MAX_AGE) };
    Some(Removed { site: (body & SITE_MASK) as u32, size, age })
}

/// Where the record of a block is.
#[inline(always)]
pub(super) fn tail(address: usize, usable: u64) -> *mut u64 {
    ptr::with_exposed_provenance_mut(address.wrapping_add(usable as usize).wrapping_sub(8))
}

/// Bytes of a block with an in-band record.
///
/// # Safety
/// The block is the caller's.
#[must_use]
pub unsafe fn bytes_of(block: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { usable(block) }.unwrap_or(0)
}

/// Whether glibc hands out so many usable bytes for a block of `asked`: it is in steps of 16, and 16 bytes that are left are part of
/// the block.
#[must_use]
pub fn is_glibcs(asked: usize, usable: usize) -> bool {
    let least = usable_of(asked as u64);
    usable as u64 == least || usable as u64 == least.wrapping_add(16)
}

/// Whether the word in front of this block gives `usable` bytes: for a test of an allocator.
///
/// # Safety
/// The block is the caller's.
#[must_use]
pub unsafe fn is_told(block: usize, usable: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { self::usable(block) == Some(usable as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SALT: u64 = 0x9E37_79B9_7F4A_7C15;

    fn records() -> impl Iterator<Item = (usize, u64, Block, u64)> {
        let mut state = 1_u64;
        (0..2_000).filter_map(move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let address = 0x5555_0000_0000 | (state >> 30) as usize & 0xFFFF_FFF0;
            let size = (state >> 12) % 2_000;
            let usable = usable_of(size + 8) + (state >> 60 & 1) * 16;
            let block =
                Block { site: (state >> 40) as u32 & 0x7_FFFF, size, generation: (state >> 7) as u32 };
            Some((address, usable, block, encode(address, usable, &block, SALT)?))
        })
    }

    #[test]
    fn a_record_begins_with_a_zero_and_says_what_was_put_in() {
        let mut slacks = HashSet::new();
        for (address, usable, block, record) in records() {
            assert_eq!(record.to_le_bytes().first(), Some(&0));
            let removed = decode(address, usable, record, block.generation.wrapping_add(9), SALT);
            assert_eq!(removed, Some(Removed { site: block.site, size: block.size, age: 9 }));
            slacks.insert(usable - 8 - block.size);
        }
        assert!(slacks.len() >= 31, "{slacks:?}");
    }

    #[test]
    fn fields_at_their_limits() {
        let usable = 104;
        for (site, size, generation) in
            [(0, 96, 0), (0xF_FFFF, 96, u32::MAX), (0, 66, 1), (0x7_FFFF, 81, 1 << 17)]
        {
            let block = Block { site, size, generation };
            let record = encode(4096, usable, &block, 0);
            let removed = record.and_then(|record| decode(4096, usable, record, generation, 0));
            let expected = Removed { site, size, age: 0 };
            // Blocks whose site and slack do not fit are in the table.
            if u64::from(site >> 15) | (96 - size) <= MOST_SLACK {
                assert_eq!(removed, Some(expected));
            } else {
                assert_eq!(record, None, "{block:?}");
            }
        }
        assert_eq!(encode(4096, usable, &Block { site: 1 << 20, size: 96, generation: 0 }, 0), None);
        assert_eq!(encode(4096, usable, &Block { site: 0, size: 65, generation: 0 }, 0), None);
        assert_eq!(encode(4096, usable, &Block { site: 0, size: 97, generation: 0 }, 0), None);
    }

    #[test]
    fn what_changes_one_byte_or_the_first_or_clears_all_is_found() {
        for (address, usable, block, record) in records() {
            let is_found = |damaged: u64| decode(address, usable, damaged, block.generation, SALT).is_none();
            assert!(is_found(0), "{address:#x}");
            for byte in 0..8 {
                for change in 1..=255_u64 {
                    assert!(is_found(record ^ change << (byte * 8)), "{record:#x} {byte} {change}");
                }
            }
            assert!((1..=255).all(|text: u64| is_found(text.wrapping_mul(0x0101_0101_0101_0101))));
        }
    }

    #[test]
    fn of_other_damage_few_pass() {
        let (mut tried, mut passed) = (0, 0);
        for (address, usable, block, record) in records() {
            // As a writer of numbers does: the first bytes are zeroes.
            for number in 1..=100_u64 {
                tried += 1;
                let damaged = number << 32 | record & 0xFFFF_FF00;
                passed += u32::from(decode(address, usable, damaged, block.generation, SALT).is_some());
            }
        }
        assert!(passed * 2_000 < tried, "{passed} of {tried}");
    }
}
