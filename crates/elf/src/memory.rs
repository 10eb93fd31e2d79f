//! The source of a module's bytes.

/// Memory that checks each address before it returns bytes.
pub trait Memory {
    /// All readable bytes from `address` to the end of the range that contains it; `None` if the address may not be
    /// read.
    fn tail(&self, address: u64) -> Option<&[u8]>;

    /// Exactly `len` bytes at `address`.
    fn bytes(&self, address: u64, len: u64) -> Option<&[u8]> {
        self.tail(address)?.get(..usize::try_from(len).ok()?)
    }
}

/// A byte slice at a given address: for files, tests and fuzzing.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// Address of the first byte.
    pub base: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Memory for Slice<'_> {
    fn tail(&self, address: u64) -> Option<&[u8]> {
        self.bytes.get(usize::try_from(address.checked_sub(self.base)?).ok()?..)
    }
}

/// Little-endian words of a slice; `None` past its end.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// See [`u16_at`].
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// See [`u16_at`].
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
