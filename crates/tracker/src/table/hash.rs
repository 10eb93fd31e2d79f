//! A permutation of addresses: different addresses have different hashes, and the address can be computed from the
//! hash.
//!
//! Addresses that are multiples of 16 are scattered in units of 4 KiB. The blocks of a unit stay neighbours, so that
//! all of them can be found. (Blocks in dense parts are not stored by their hash at all.) Other multiples of 8 are
//! scattered one by one.
//!
//! Rule for neighbours: addresses are counted in granules of 8 bytes (some allocators align small blocks no better)
//! and have at most 48 bits. Because the hash loses nothing, the table need not store the part of an address that the
//! place of the block determines.

/// Bits of an address that matter.
const ADDRESS_BITS: u32 = 48;
const GRANULE_SHIFT: u32 = 3;
const GRANULE_BITS: u32 = ADDRESS_BITS - GRANULE_SHIFT;
const GRANULE_MASK: u64 = (1 << GRANULE_BITS) - 1;

/// Blocks whose bits above this are equal stay together.
pub(super) const UNIT_SHIFT: u32 = 12;
/// Number of bits that distinguish the granules of 16 bytes in a unit.
const PLACE_BITS: u32 = UNIT_SHIFT - GRANULE_SHIFT - 1;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// Bits of the hash that choose the shard.
pub(super) const SHARD_BITS: u32 = 8;
/// Bits that remain within a shard.
pub(super) const RESIDUE_BITS: u32 = GRANULE_BITS - SHARD_BITS;
const RESIDUE_MASK: u64 = (1 << RESIDUE_BITS) - 1;

/// Scatters numbers of a given number of bits.
struct Scatter {
    bits: u32,
}

const UNITS: Scatter = Scatter { bits: ADDRESS_BITS - UNIT_SHIFT };
const SINGLES: Scatter = Scatter { bits: GRANULE_BITS - 1 };

const FIRST: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND: u64 = 0xD6E8_FEB8_6659_FD93;
const FIRST_INVERSE: u64 = inverse(FIRST);
const SECOND_INVERSE: u64 = inverse(SECOND);

impl Scatter {
    #[inline]
    fn fold(&self, number: u64) -> u64 {
        // The shift is at least half of the bits, so that this step is its own inverse.
        number ^ (number >> self.bits.div_ceil(2))
    }

    #[inline]
    fn scatter(&self, number: u64) -> u64 {
        let mask = (1 << self.bits) - 1;
        self.fold(number.wrapping_mul(FIRST) & mask).wrapping_mul(SECOND) & mask
    }

    fn gather(&self, number: u64) -> u64 {
        let mask = (1 << self.bits) - 1;
        self.fold(number.wrapping_mul(SECOND_INVERSE) & mask).wrapping_mul(FIRST_INVERSE) & mask
    }
}

/// The place that an address has in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash {
    /// Index of the shard.
    pub(super) shard: usize,
    /// Identity within the shard, [`RESIDUE_BITS`] wide.
    pub(super) residue: u64,
}

impl Hash {
    /// The hash of an address, or `None` if the table cannot hold it.
    #[inline]
    pub(super) fn of_address(address: usize) -> Option<Self> {
        let address = address as u64;
        // One comparison tests both ends: the rotation moves low bits to the top.
        if address.rotate_right(GRANULE_SHIFT) > GRANULE_MASK {
            return None;
        }
        let granule = address >> GRANULE_SHIFT;
        let number = granule >> 1;
        let mixed = if granule & 1 == 0 {
            (UNITS.scatter(number >> PLACE_BITS) << PLACE_BITS) | (number & PLACE_MASK)
        } else {
            SINGLES.scatter(number)
        };
        Some(Self::new((mixed << 1) | (granule & 1)))
    }

    #[inline]
    fn new(mixed: u64) -> Self {
        Self { shard: (mixed >> RESIDUE_BITS) as usize, residue: mixed & RESIDUE_MASK }
    }

    /// The hashes of the first and the last multiple of 16 in a unit; those of all others lie between. A unit is an
    /// address without its lower bits.
    pub(super) fn of_unit(unit: usize) -> (Self, Self) {
        let first = UNITS.scatter(unit as u64) << PLACE_BITS;
        (Self::new(first << 1), Self::new((first | PLACE_MASK) << 1))
    }

    /// The least residue whose home is behind that of `residue`.
    pub(super) fn next_home(residue: u64, buckets: usize) -> u64 {
        let home = Self { shard: 0, residue }.home(buckets) as u64;
        ((home + 1) << RESIDUE_BITS).div_ceil(buckets.max(1) as u64)
    }

    /// The bucket in which the search for a block of this hash begins. Monotone in the residue.
    #[inline]
    pub(super) fn home(self, buckets: usize) -> usize {
        (self.residue.wrapping_mul(buckets as u64) >> RESIDUE_BITS) as usize
    }
}

/// The address with this hash.
pub(super) fn address(shard: usize, residue: u64) -> usize {
    let mixed = ((shard as u64) << RESIDUE_BITS) | residue;
    let number = if mixed & 1 == 0 {
        (UNITS.gather(mixed >> 1 >> PLACE_BITS) << PLACE_BITS) | ((mixed >> 1) & PLACE_MASK)
    } else {
        SINGLES.gather(mixed >> 1)
    };
    (((number << 1) | (mixed & 1)) << GRANULE_SHIFT) as usize
}

/// Inverse of an odd number modulo 2^64, hence modulo any smaller power of two.
const fn inverse(odd: u64) -> u64 {
    // Newton's iteration doubles the number of correct bits each time, starting from three.
    let mut x = odd;
    let mut round = 0;
    while round < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        round += 1;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::{Hash, UNIT_SHIFT, address};

    #[test]
    fn every_address_comes_back() {
        for i in 0..1_000_000u64 {
            let original = (i.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) as usize & !7;
            let hash = Hash::of_address(original).expect("48 bits, aligned");
            assert_eq!(address(hash.shard, hash.residue), original);
        }
        for original in [0, 8, (1 << 48) - 8] {
            let hash = Hash::of_address(original).expect("48 bits, aligned");
            assert_eq!(address(hash.shard, hash.residue), original);
        }
    }

    #[test]
    fn a_unit_stays_together() {
        for unit in [0, 1, 0x7_F123_4567, (1 << 36) - 1] {
            let (first, last) = Hash::of_unit(unit);
            assert_eq!(address(first.shard, first.residue), unit << UNIT_SHIFT);
            assert_eq!(address(last.shard, last.residue), (unit << UNIT_SHIFT) + 4080);
            for place in 0..256 {
                let hash = Hash::of_address((unit << UNIT_SHIFT) + place * 16).expect("aligned");
                assert_eq!(hash.shard, first.shard);
                assert!((first.residue..=last.residue).contains(&hash.residue));
            }
            for buckets in [1, 8, 1000, 100_000] {
                let next = Hash::next_home(first.residue, buckets);
                assert_eq!(Hash { shard: 0, residue: next - 1 }.home(buckets), first.home(buckets));
                assert_eq!(Hash { shard: 0, residue: next }.home(buckets), first.home(buckets) + 1);
            }
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for address in [1, 4, 7, 0x1001, 1 << 48, (1 << 48) + 8, usize::MAX, usize::MAX & !7] {
            assert_eq!(Hash::of_address(address), None, "{address:#x}");
        }
    }

    #[test]
    fn usual_spacings_of_sparse_blocks_fill_shards_evenly() {
        for spacing in [4096, 4112, 8208, 65_552, 1 << 20, 1 << 21] {
            let mut shards = [0u32; 256];
            for i in 0..256_000 {
                shards[Hash::of_address(0x7f12_3456_0010 + i * spacing).expect("aligned").shard] += 1;
            }
            let (least, most) = (shards.iter().min().unwrap(), shards.iter().max().unwrap());
            assert!(*least > 850 && *most < 1150, "{spacing}: {least}..{most}");
        }
    }
}
