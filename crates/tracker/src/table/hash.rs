//! A permutation of addresses: every address has its own hash, and the hash gives the address back.
//!
//! Rule for neighbours: addresses are counted in granules of 8 bytes (some allocators align small blocks no better)
//! and have at most 48 bits. Because nothing is lost, the table need not store what the place of a block tells.

/// Bits of an address that matter.
const ADDRESS_BITS: u32 = 48;
const GRANULE_SHIFT: u32 = 3;
const GRANULE_BITS: u32 = ADDRESS_BITS - GRANULE_SHIFT;
const GRANULE_MASK: u64 = (1 << GRANULE_BITS) - 1;

/// Bits of the hash that choose the shard.
pub(super) const SHARD_BITS: u32 = 8;
/// Bits that remain within a shard.
pub(super) const RESIDUE_BITS: u32 = GRANULE_BITS - SHARD_BITS;
const RESIDUE_MASK: u64 = (1 << RESIDUE_BITS) - 1;

/// At least half of the bits, so that the shift undoes itself.
const FOLD: u32 = 23;
const FIRST: u64 = 0x9E37_79B9_7F4A_7C15 & GRANULE_MASK;
const SECOND: u64 = 0xD6E8_FEB8_6659_FD93 & GRANULE_MASK;
const FIRST_INVERSE: u64 = inverse(FIRST);
const SECOND_INVERSE: u64 = inverse(SECOND);

/// Where an address belongs.
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
    pub(super) fn of(address: usize) -> Option<Self> {
        let address = address as u64;
        // One test for both ends: low bits wander to the top.
        if address.rotate_right(GRANULE_SHIFT) > GRANULE_MASK {
            return None;
        }
        let mixed = (address >> GRANULE_SHIFT).wrapping_mul(FIRST) & GRANULE_MASK;
        let mixed = (mixed ^ (mixed >> FOLD)).wrapping_mul(SECOND) & GRANULE_MASK;
        Some(Self { shard: (mixed >> RESIDUE_BITS) as usize, residue: mixed & RESIDUE_MASK })
    }

    /// The line where blocks of this hash begin to look for a place. Monotone in the residue.
    #[inline]
    pub(super) fn home(self, lines: usize) -> usize {
        (self.residue.wrapping_mul(lines as u64) >> RESIDUE_BITS) as usize
    }
}

/// The address with this hash.
pub(super) fn address(shard: usize, residue: u64) -> usize {
    let mixed = ((shard as u64) << RESIDUE_BITS) | residue;
    let mixed = mixed.wrapping_mul(SECOND_INVERSE) & GRANULE_MASK;
    let granule = (mixed ^ (mixed >> FOLD)).wrapping_mul(FIRST_INVERSE) & GRANULE_MASK;
    (granule << GRANULE_SHIFT) as usize
}

/// Inverse of an odd number modulo 2^64, hence modulo any smaller power of two.
const fn inverse(odd: u64) -> u64 {
    // Newton's iteration doubles the right bits each time, from three.
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
    use super::{Hash, address};

    #[test]
    fn every_address_comes_back() {
        for i in 0..1_000_000u64 {
            let original = (i.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) as usize & !7;
            let hash = Hash::of(original).expect("48 bits, aligned");
            assert_eq!(address(hash.shard, hash.residue), original);
        }
        for original in [0, 8, (1 << 48) - 8] {
            let hash = Hash::of(original).expect("48 bits, aligned");
            assert_eq!(address(hash.shard, hash.residue), original);
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for address in [1, 4, 7, 0x1001, 1 << 48, (1 << 48) + 8, usize::MAX, usize::MAX & !7] {
            assert_eq!(Hash::of(address), None, "{address:#x}");
        }
    }

    #[test]
    fn usual_spacings_fill_shards_evenly() {
        for spacing in [8, 16, 32, 80, 96, 1040, 4096, 65_552, 1 << 20, 1 << 21] {
            let mut shards = [0u32; 256];
            for i in 0..256_000 {
                shards[Hash::of(0x7f12_3456_0010 + i * spacing).expect("aligned").shard] += 1;
            }
            let (least, most) = (shards.iter().min().unwrap(), shards.iter().max().unwrap());
            assert!(*least > 850 && *most < 1150, "{spacing}: {least}..{most}");
        }
    }
}
