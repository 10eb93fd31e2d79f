//! What a record is: 8 bytes at the end of a block of glibc's, and the word in front of the block that says where that is.
//!
//! | bits of a record | what |
//! |---|---|
//! | 0–23 | call site |
//! | 24–41 | generation of birth, modulo 2^18, as in [`crate::table`] |
//! | 42–47 | slack: the block's usable size, less the record, less the size that was asked for |
//! | 48–63 | check: a hash of the address and of the bits above |

use core::ptr;

use crate::table::{Block, MAX_AGE, Removed, packed};

/// Greatest size of a block with a record. A larger one often ends in a page that its owner never touches.
const MOST_BYTES: u64 = 32 << 10;

const SLACK_SHIFT: u32 = 42;
const MOST_SLACK: u64 = 63;
const CHECK_SHIFT: u32 = 48;

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
    (body ^ salt ^ (address as u64) << 17).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> CHECK_SHIFT
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
    let usable = (header & !FLAGS).wrapping_sub(8);
    (header & IS_MAPPED == 0 && usable <= MOST_BYTES).then_some(usable)
}

/// The record of a block with so many usable bytes; `None`: it cannot have one.
#[inline(always)]
pub(super) fn encode(address: usize, usable: u64, block: &Block, salt: u64) -> Option<u64> {
    let slack = usable.wrapping_sub(8).wrapping_sub(block.size);
    if slack > MOST_SLACK {
        return None;
    }
    let birth = u64::from(block.generation & packed::BIRTH_MASK) << packed::BIRTH_SHIFT;
    let body = u64::from(block.site) | birth | slack << SLACK_SHIFT;
    Some(body | check(address, body, salt) << CHECK_SHIFT)
}

/// What a record says; `None` if it is none, or is another block's.
#[inline(always)]
pub(super) fn decode(address: usize, usable: u64, record: u64, now: u32, salt: u64) -> Option<Removed> {
    let body = record & ((1 << CHECK_SHIFT) - 1);
    let size = usable.wrapping_sub(8).wrapping_sub(body >> SLACK_SHIFT);
    if check(address, body, salt) != record >> CHECK_SHIFT || size > MOST_BYTES {
        return None;
    }
    let age = if packed::is_of(body, now) { 0 } else { packed::age(body, now).min(MAX_AGE) };
    Some(Removed { site: (body & packed::SITE_MASK) as u32, size, age })
}

/// Where the record of a block is.
#[inline(always)]
pub(super) fn tail(address: usize, usable: u64) -> *mut u64 {
    ptr::with_exposed_provenance_mut(address.wrapping_add(usable as usize).wrapping_sub(8))
}

/// Bytes of a block with a record.
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

/// Whether `usable` bytes are what the word in front of this block says: for a test of an allocator.
///
/// # Safety
/// The block is the caller's.
#[must_use]
pub unsafe fn is_told(block: usize, usable: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { self::usable(block) == Some(usable as u64) }
}
