//! One block in 12 bytes: a key of 32 bits and a value of 64.
//!
//! | bits of the value | what |
//! |---|---|
//! | 0–23 | call site |
//! | 24–41 | generation of birth, modulo 2^18 |
//! | 42–58 | size below 65,536, or 65,536 + its code in the dictionary of large sizes |
//! | 59–63 | the bits of the residue that do not fit into the key |
//!
//! Rule for neighbours: a birth is at most 2^18 - [`EARLY`] generations ago; [`super::ages`] ensures that.

use super::{MAX_AGE, Removed, hash};

const SITE_BITS: u32 = 24;
const BIRTH_BITS: u32 = 18;
const SIZE_BITS: u32 = 17;
pub(crate) const BIRTH_SHIFT: u32 = SITE_BITS;
const SIZE_SHIFT: u32 = BIRTH_SHIFT + BIRTH_BITS;
const REST_SHIFT: u32 = SIZE_SHIFT + SIZE_BITS;

const KEY_BITS: u32 = 32;
const _: () = assert!(hash::RESIDUE_BITS - KEY_BITS == u64::BITS - REST_SHIFT);

pub(crate) const SITE_MASK: u64 = (1 << SITE_BITS) - 1;
pub(crate) const BIRTH_MASK: u32 = (1 << BIRTH_BITS) - 1;
const SIZE_MASK: u64 = (1 << SIZE_BITS) - 1;

/// Sizes below are stored as they are.
pub(super) const LARGE: u64 = 1 << 16;

/// How far a birth may be ahead of the generation that another thread still takes for the present one.
pub(super) const EARLY: u32 = 4096;

/// The key of a residue.
#[inline]
pub(super) fn key(residue: u64) -> u32 {
    residue as u32
}

/// The value of a block; `size` is a size below [`LARGE`], or [`LARGE`] plus a code of the dictionary.
#[inline]
pub(super) fn value(residue: u64, site: u32, birth: u32, size: u64) -> u64 {
    ((residue >> KEY_BITS) << REST_SHIFT)
        | ((size & SIZE_MASK) << SIZE_SHIFT)
        | (u64::from(birth & BIRTH_MASK) << BIRTH_SHIFT)
        | (u64::from(site) & SITE_MASK)
}

/// Whether a value whose key matches belongs to this residue.
#[inline]
pub(super) fn matches(value: u64, residue: u64) -> bool {
    value >> REST_SHIFT == residue >> KEY_BITS
}

/// The residue of an entry.
pub(super) fn residue(value: u64, key: u32) -> u64 {
    ((value >> REST_SHIFT) << KEY_BITS) | u64::from(key)
}

/// The size's code in the dictionary, if it is large.
#[inline]
pub(super) fn large(value: u64) -> Option<u32> {
    let size = (value >> SIZE_SHIFT) & SIZE_MASK;
    if size < LARGE { None } else { Some((size - LARGE) as u32) }
}

/// Decodes an entry; `large_size` returns the size of a code.
#[inline]
pub(super) fn decode(value: u64, now: u32, large_size: impl FnOnce(u32) -> u64) -> Removed {
    let size = match large(value) {
        None => (value >> SIZE_SHIFT) & SIZE_MASK,
        Some(code) => large_size(code),
    };
    Removed { site: (value & SITE_MASK) as u32, size, age: age(value, now).min(MAX_AGE) }
}

/// Age at `now`, not limited. A block whose birth seems to be slightly in the future has age 0.
#[inline]
pub(crate) fn age(value: u64, now: u32) -> u32 {
    let age = now.wrapping_sub((value >> BIRTH_SHIFT) as u32) & BIRTH_MASK;
    if age > BIRTH_MASK - EARLY { 0 } else { age }
}

/// Whether the birth was in this generation, or so many before it that an entry cannot tell.
#[inline(always)]
pub(crate) fn is_of(value: u64, now: u32) -> bool {
    ((value >> BIRTH_SHIFT) as u32 ^ now) & BIRTH_MASK == 0
}

/// The same entry with another birth.
pub(super) fn reborn(value: u64, birth: u32) -> u64 {
    (value & !(u64::from(BIRTH_MASK) << BIRTH_SHIFT)) | (u64::from(birth & BIRTH_MASK) << BIRTH_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch() {
        let residue = (1 << hash::RESIDUE_BITS) - 1;
        for (site, birth, size) in
            [(0, 0, 0), (0xFF_FFFF, 0, 0), (0, BIRTH_MASK, 0), (0, 0, LARGE - 1), (5, 6, 7)]
        {
            for residue in [0, residue, 0x15_1234_5678] {
                let value = value(residue, site, birth, size);
                assert_eq!(super::residue(value, key(residue)), residue);
                assert!(matches(value, residue));
                let decoded = decode(value, birth.wrapping_add(3), |_| unreachable!());
                assert_eq!(decoded, Removed { site, size, age: 3 });
            }
        }
        assert_eq!(large(value(0, 0, 0, LARGE)), Some(0));
        assert_eq!(large(value(0, 0, 0, LARGE + 65_535)), Some(65_535));
    }

    #[test]
    fn ages_saturate_and_never_go_below_zero() {
        let entry = value(0, 0, 1000, 1);
        assert_eq!(age(entry, 999), 0);
        assert_eq!(age(entry, 1000 + MAX_AGE + 5), MAX_AGE + 5);
        assert_eq!(decode(entry, 1000 + MAX_AGE + 5, |_| 0).age, MAX_AGE);
        assert_eq!(age(reborn(entry, 2000), 2001), 1);
    }
}
