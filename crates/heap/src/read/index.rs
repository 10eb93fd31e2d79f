//! Where the quotes and line ends of a block are. Reading by this index is several times faster than byte by byte.

/// Positions of all quotes and line ends, in order, and whether a backslash is there: then a quote may be part of a
/// text, and lines with one are read byte by byte.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) marks: Vec<u32>,
    pub(crate) backslashes: Vec<u32>,
}

impl Index {
    /// Looks through the block.
    pub(crate) fn fill(&mut self, block: &[u8]) {
        self.marks.clear();
        self.backslashes.clear();
        let mut chunks = block.chunks_exact(64);
        let mut base = 0;
        for chunk in &mut chunks {
            if let Ok(chunk) = chunk.try_into() {
                self.note(base, masks(chunk));
            }
            base += 64;
        }
        let mut last = [0; 64];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.note(base, masks(&last));
    }

    #[inline]
    fn note(&mut self, base: u32, (mut marks, mut backslashes): (u64, u64)) {
        while marks != 0 {
            self.marks.push(base + marks.trailing_zeros());
            marks &= marks - 1;
        }
        while backslashes != 0 {
            self.backslashes.push(base + backslashes.trailing_zeros());
            backslashes &= backslashes - 1;
        }
    }
}

/// One bit for each byte: quotes and line ends; backslashes.
#[cfg(target_arch = "x86_64")]
#[inline]
fn masks(chunk: &[u8; 64]) -> (u64, u64) {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8};
    let word = |at: usize| i64::from_le_bytes(chunk[at..at + 8].try_into().unwrap_or_default());
    let (mut marks, mut backslashes) = (0, 0);
    for part in 0..4 {
        // SAFETY: SSE2 is part of x86-64.
        let (found, escapes) = unsafe {
            let bytes = _mm_set_epi64x(word(part * 16 + 8), word(part * 16));
            let is = |byte: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8));
            (_mm_movemask_epi8(_mm_or_si128(is(b'"'), is(b'\n'))), _mm_movemask_epi8(is(b'\\')))
        };
        marks |= u64::from(found as u32) << (part * 16);
        backslashes |= u64::from(escapes as u32) << (part * 16);
    }
    (marks, backslashes)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn masks(chunk: &[u8; 64]) -> (u64, u64) {
    plain_masks(chunk)
}

/// The same, byte by byte.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn plain_masks(chunk: &[u8; 64]) -> (u64, u64) {
    let (mut marks, mut backslashes) = (0, 0);
    for (at, byte) in chunk.iter().enumerate() {
        marks |= u64::from(matches!(byte, b'"' | b'\n')) << at;
        backslashes |= u64::from(*byte == b'\\') << at;
    }
    (marks, backslashes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_index_is_what_a_look_at_each_byte_finds(block in "[a\"\n\\\\]{0,300}") {
            let mut index = Index::default();
            index.fill(block.as_bytes());
            let at = |wanted: &[u8]| -> Vec<u32> {
                (0..).zip(block.bytes()).filter(|(_, byte)| wanted.contains(byte)).map(|(at, _)| at).collect()
            };
            prop_assert_eq!(&index.marks, &at(b"\"\n"));
            prop_assert_eq!(&index.backslashes, &at(b"\\"));
            let mut chunk = [0; 64];
            let length = block.len().min(64);
            chunk[..length].copy_from_slice(&block.as_bytes()[..length]);
            prop_assert_eq!(masks(&chunk), plain_masks(&chunk));
        }
    }
}
