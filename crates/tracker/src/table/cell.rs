//! One block in a cell of 8 bytes; a large one in two.
//!
//! | bits | what |
//! |---|---|
//! | 0–23 | call site |
//! | 24–41 | generation of birth, modulo 2^18, as in [`super::packed`] |
//! | 42–54 | 1 + size below [`SHORT`]; from [`FIRST_LONG`] on, the upper bits of a longer size; 0 in an extension |
//! | 55–63 | tag: the granule of 16 bytes within the heap page, spread over the range ([`tag_at`]) |
//!
//! A longer size stores its lower 41 bits in an *extension*, a second cell with the same tag. Only an empty cell is
//! 0.

use super::packed::{self, SITE_MASK};
use super::{MAX_AGE, Removed};

/// Bits of a tag.
pub(super) const TAG_BITS: u32 = 9;

const BIRTH_SHIFT: u32 = 24;
const BIRTH_MASK: u64 = (1 << 18) - 1;
const CODE_SHIFT: u32 = 42;
const CODE_BITS: u32 = 13;
const CODES: u64 = 1 << CODE_BITS;
pub(super) const TAG_SHIFT: u32 = CODE_SHIFT + CODE_BITS;
const _: () = assert!(TAG_SHIFT + TAG_BITS == u64::BITS);

const FIRST_LONG: u64 = CODES - 128;
/// Sizes below this take one cell.
pub(super) const SHORT: u64 = FIRST_LONG - 1;
/// Bits of a longer size that are stored in its extension.
const EXTENSION_BITS: u32 = 41;
/// Keeps an extension from being 0, which would mean empty.
const EXTENSION: u64 = 1 << EXTENSION_BITS;

/// Greatest size that cells hold.
pub(super) const MAX_SIZE: u64 = (128 << EXTENSION_BITS) - 1;

const ADDRESS_BITS: u32 = 48;
pub(super) const GRANULE_SHIFT: u32 = 4;
const TAGS: usize = (1 << TAG_BITS) - 1;
/// The number of tags times the golden section, made odd so that it has an inverse.
const SPREAD: usize = 317;
const GATHER: usize = 21;
const _: () = assert!((SPREAD * GATHER) & TAGS == 1);

/// Whether a block at this address can be stored in cells.
#[inline(always)]
pub(super) fn is_granule(address: usize) -> bool {
    // One comparison tests both ends: the rotation moves low bits to the top.
    address.rotate_right(GRANULE_SHIFT) < 1 << (ADDRESS_BITS - GRANULE_SHIFT)
}

/// The tag of the block at an address: the number of its granule in the heap page times the golden section (Knuth,
/// The Art of Computer Programming 3, 6.4: its multiples divide a circle about evenly, however many there are). A
/// heap page is mostly not filled with blocks of one size: with plain numbers the cells of its dense part would form
/// one run, and each insertion there would have to pass it.
/// insertion there had to pass.
#[inline(always)]
pub(super) fn tag_at(address: usize) -> u64 {
    ((address >> GRANULE_SHIFT).wrapping_mul(SPREAD) & TAGS) as u64
}

/// The granule that has this tag. Inverse of [`tag_at`].
#[inline]
pub(super) fn granule(tag: u64) -> usize {
    (tag as usize).wrapping_mul(GATHER) & TAGS
}

/// The cell of a block, and its extension, or 0 if it has none.
#[inline(always)]
pub(super) fn cells(tag: u64, site: u32, birth: u32, size: u64) -> (u64, u64) {
    let body =
        (tag << TAG_SHIFT) | ((u64::from(birth) & BIRTH_MASK) << BIRTH_SHIFT) | (u64::from(site) & SITE_MASK);
    if size < SHORT {
        return (body | ((size + 1) << CODE_SHIFT), 0);
    }
    let high = (size >> EXTENSION_BITS) & 127;
    let low = size & (EXTENSION - 1);
    (body | ((FIRST_LONG + high) << CODE_SHIFT), (tag << TAG_SHIFT) | EXTENSION | low)
}

/// Whether this is the cell of the block with this tag, not its extension and not an empty cell.
#[inline(always)]
pub(super) fn is_block(cell: u64, tag: u64) -> bool {
    (cell >> CODE_SHIFT).wrapping_sub(tag << CODE_BITS).wrapping_sub(1) < CODES - 1
}

/// The same, without those that have an extension.
#[inline(always)]
pub(super) fn is_short_block(cell: u64, tag: u64) -> bool {
    (cell >> CODE_SHIFT).wrapping_sub(tag << CODE_BITS).wrapping_sub(1) < FIRST_LONG - 1
}

/// Whether this is the extension of the block with this tag.
pub(super) fn is_extension(cell: u64, tag: u64) -> bool {
    cell != 0 && cell >> CODE_SHIFT == tag << CODE_BITS
}

/// Whether this is the cell of any block.
pub(super) fn is_any_block(cell: u64) -> bool {
    code(cell) != 0
}

/// The tag of a cell that is not empty.
#[inline]
pub(super) fn tag(cell: u64) -> u64 {
    cell >> TAG_SHIFT
}

#[inline]
fn code(cell: u64) -> u64 {
    (cell >> CODE_SHIFT) & (CODES - 1)
}

/// Whether a block's cell has an extension.
#[inline]
pub(super) fn is_long(cell: u64) -> bool {
    code(cell) >= FIRST_LONG
}

/// Decodes a block's cell and its extension (if it is long) at generation `now`.
#[inline(always)]
pub(super) fn decode(cell: u64, extension: u64, now: u32) -> Removed {
    let code = code(cell);
    let size = if code < FIRST_LONG {
        code.wrapping_sub(1)
    } else {
        ((code - FIRST_LONG) << EXTENSION_BITS) | (extension & (EXTENSION - 1))
    };
    Removed { site: (cell & SITE_MASK) as u32, size, age: packed::age(cell, now).min(MAX_AGE) }
}

/// The same of one that has no extension. Mostly it is young.
#[inline(always)]
pub(super) fn decode_short(cell: u64, now: u32) -> Removed {
    let age = if packed::is_of(cell, now) { 0 } else { packed::age(cell, now).min(MAX_AGE) };
    Removed { site: (cell & SITE_MASK) as u32, size: code(cell).wrapping_sub(1), age }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_as_it_was() {
        for tag in [0, 1, 256, 511] {
            for size in [0, 1, SHORT - 1, SHORT, 65_536, 5 << 30, 1 << 41, 1 << 47, MAX_SIZE] {
                for (site, birth) in [(0, 0), (0xFF_FFFF, 0), (0, 0x3_FFFF), (7, 9)] {
                    let (cell, extension) = cells(tag, site, birth, size);
                    assert_eq!(is_long(cell), extension != 0);
                    assert_eq!(is_long(cell), size >= SHORT);
                    assert!(is_block(cell, tag) && is_any_block(cell) && !is_extension(cell, tag));
                    assert!(
                        !is_block(cell, tag ^ 1) && !is_block(extension, tag) && !is_any_block(extension)
                    );
                    assert_eq!(is_extension(extension, tag), extension != 0);
                    assert!(!is_block(0, tag) && !is_extension(0, tag));
                    assert_eq!(decode(cell, extension, birth + 3), Removed { site, size, age: 3 });
                    for now in [birth, birth + 3, birth + 200_000] {
                        let is_same = decode(cell, 0, now) == decode_short(cell, now);
                        assert!(is_same || is_long(cell));
                    }
                }
            }
        }
    }
}
