//! A cache of the rows of addresses of code.
//!
//! A table with one place for each address's hash. Any thread reads and writes it inside malloc, without a lock: an entry
//! is two words, and the first is the address mixed with the second, so that halves of two entries do not fit.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::flat::{BaseKind, Kinds, Row, SavedKind};

/// Places, a power of two: allocations come from some hundred addresses.
const PLACES: usize = 1 << 12;
/// Bits of the two distances of a row.
const DISTANCE_BITS: u32 = 28;
const DISTANCES: std::ops::Range<i32> = -(1 << (DISTANCE_BITS - 1))..1 << (DISTANCE_BITS - 1);
/// A bit of the second word: an entry is there.
const IS_THERE: u64 = 1 << 7;

/// How to continue at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The stack ends here.
    pub(crate) is_end: bool,
    /// A frame of memintro's own.
    pub(crate) is_own: bool,
    /// A frame of a module that is watched.
    pub(crate) is_watched: bool,
    /// How to find the caller; where its table begins does not matter.
    pub(crate) row: Row,
}

impl Step {
    const KINDS: Kinds = Kinds { base: BaseKind::None, saved: SavedKind::Lost };
    /// The end of a stack.
    pub(crate) const END: Self = Self {
        is_end: true,
        is_own: false,
        is_watched: false,
        row: Row { at: 0, base: 0, saved: 0, kinds: Self::KINDS },
    };

    /// As a word; `None`: its distances are too great.
    fn packed(self) -> Option<u64> {
        let distance =
            |value: i32| DISTANCES.contains(&value).then(|| u64::from(value.cast_unsigned()) << 36 >> 36);
        let base = match self.row.kinds.base {
            BaseKind::None => 0,
            BaseKind::Stack => 1,
            BaseKind::Frame => 2,
            BaseKind::WordAtFrame => 3,
        };
        let saved = match self.row.kinds.saved {
            SavedKind::Same => 0,
            SavedKind::At => 1,
            SavedKind::AtFrame => 2,
            SavedKind::Lost => 3,
        };
        let flags = u64::from(self.is_end) | u64::from(self.is_own) << 1 | u64::from(self.is_watched) << 2;
        let distances = distance(self.row.base)? << 8 | distance(self.row.saved)? << (8 + DISTANCE_BITS);
        Some(distances | IS_THERE | flags | base << 3 | saved << 5)
    }

    #[inline]
    fn from_word(word: u64) -> Self {
        let distance = |at: u32| (((word >> at) as u32) << 4).cast_signed() >> 4;
        let base = match word >> 3 & 3 {
            0 => BaseKind::None,
            1 => BaseKind::Stack,
            2 => BaseKind::Frame,
            _ => BaseKind::WordAtFrame,
        };
        let saved = match word >> 5 & 3 {
            0 => SavedKind::Same,
            1 => SavedKind::At,
            2 => SavedKind::AtFrame,
            _ => SavedKind::Lost,
        };
        Self {
            is_end: word & 1 != 0,
            is_own: word & 2 != 0,
            is_watched: word & 4 != 0,
            row: Row {
                at: 0,
                base: distance(8),
                saved: distance(8 + DISTANCE_BITS),
                kinds: Kinds { base, saved },
            },
        }
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Steps(Box<[[AtomicU64; 2]]>);

impl Default for Steps {
    fn default() -> Self {
        Self((0..PLACES).map(|_| <[AtomicU64; 2]>::default()).collect())
    }
}

impl Steps {
    #[inline]
    fn place(&self, address: u64) -> Option<&[AtomicU64; 2]> {
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.trailing_zeros());
        self.0.get(hash as usize)
    }

    /// The cached step of an address, if no other entry has replaced it.
    #[inline]
    pub(crate) fn get(&self, address: u64) -> Option<Step> {
        let [key, word] = self.place(address)?;
        let word = word.load(Ordering::Relaxed);
        (word & IS_THERE != 0 && key.load(Ordering::Relaxed) ^ word == address).then(|| Step::from_word(word))
    }

    /// Remembers it.
    pub(crate) fn put(&self, address: u64, step: Step) {
        if let (Some([key, place]), Some(word)) = (self.place(address), step.packed()) {
            key.store(address ^ word, Ordering::Relaxed);
            place.store(word, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps() -> impl Strategy<Value = Step> {
        let base = prop::sample::select(vec![
            BaseKind::None,
            BaseKind::Stack,
            BaseKind::Frame,
            BaseKind::WordAtFrame,
        ]);
        let saved =
            prop::sample::select(vec![SavedKind::Same, SavedKind::At, SavedKind::AtFrame, SavedKind::Lost]);
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        (flags, base, saved, DISTANCES, DISTANCES).prop_map(|(flags, base, saved, one, other)| Step {
            is_end: flags.0,
            is_own: flags.1,
            is_watched: flags.2,
            row: Row { at: 0, base: one, saved: other, kinds: Kinds { base, saved } },
        })
    }

    proptest! {
        #[test]
        fn what_was_put_is_found_until_another_one_takes_its_place(
            all in prop::collection::vec((1_u64..1 << 47, steps()), 1..200),
        ) {
            let table = Steps::default();
            for (address, step) in &all {
                table.put(*address, *step);
                prop_assert_eq!(table.get(*address), Some(*step));
                prop_assert_eq!(table.get(*address + (1 << 50)), None);
            }
        }
    }

    #[test]
    fn distances_that_do_not_fit_and_halves_of_two_entries_are_not_found() {
        let table = Steps::default();
        table.put(77, Step { row: Row { base: 1 << 27, ..Row::nothing(0) }, ..Step::END });
        assert_eq!(table.get(77), None);
        table.put(77, Step::END);
        let [_, word] = table.place(77).unwrap();
        word.store(Step { is_own: true, ..Step::END }.packed().unwrap(), Ordering::Relaxed);
        assert_eq!(table.get(77), None);
    }
}
