//! The stacks in the raw dump of a program without Ruby: for each call site the first one, as registers and words.
//!
//! A stack holds whatever the program has in its variables. So only those words are written from which its frames are
//! found: what points into code or into the stack itself.

use core::ops::Range;

use memintro_abi::{CallerSample, DumpStack, DumpStacks, STACKS_MAGIC};

use crate::callers;

/// Most ranges of code; programs that load more have shorter stacks.
const MOST_RANGES: usize = 256;

/// Where code is. All zero is a valid, empty list.
pub(crate) struct Code {
    ranges: [(u64, u64); MOST_RANGES],
    count: usize,
}

impl Code {
    pub(crate) const fn new() -> Self {
        Self { ranges: [(0, 0); MOST_RANGES], count: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    pub(crate) fn add(&mut self, range: Range<u64>) {
        if let Some(place) = self.ranges.get_mut(self.count) {
            *place = (range.start, range.end);
            self.count += 1;
        }
    }

    fn holds(&self, address: u64) -> bool {
        self.ranges.iter().take(self.count).any(|(start, end)| *start <= address && address < *end)
    }
}

/// Writes all of them.
pub(crate) fn write(code: &Code, maps: &[u8], mut out: impl FnMut(&[u8])) {
    let mut count = 0;
    callers::each_kept(|_| count += 1);
    if count == 0 {
        return;
    }
    out(bytes_of(&DumpStacks { magic: STACKS_MAGIC, count, maps_len: maps.len() as u64 }));
    // What is kept only grows, so there are at least so many.
    let mut left = count;
    callers::each_kept(|sample| {
        if left > 0 {
            left -= 1;
            write_one(code, sample, &mut out);
        }
    });
    out(maps);
}

fn write_one(code: &Code, sample: &CallerSample, out: &mut impl FnMut(&[u8])) {
    let end = sample.sp.saturating_add(sample.len);
    let words = || {
        let len = usize::try_from(sample.len).unwrap_or(0);
        let (words, _) = sample.stack.get(..len).unwrap_or_default().as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word)).zip(0_u64..);
        words.filter(|(word, _)| (sample.sp..end).contains(word) || code.holds(*word))
    };
    let (site, ip, sp, bp) = (sample.site.into(), sample.ip, sample.sp, sample.bp);
    out(bytes_of(&DumpStack { site, ip, sp, bp, words: words().count() as u64 }));
    for (word, at) in words() {
        out(bytes_of(&[at * 8, word]));
    }
}

/// `T` is a record of numbers without padding.
fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: all its bytes are initialised.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}
