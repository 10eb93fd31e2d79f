//! A cache of stacks that were followed to their end. The next allocation with the same stack compares words
//! instead of looking up each frame.
//!
//! For each frame it keeps the return address and its distance from the first stack pointer. If the caller of
//! each frame is found by the stack pointer alone, each return address determines the place of the next one,
//! so a stack with the same words there is the same stack. Stacks with a frame that needs the frame pointer
//! are not kept.
//!
//! Any thread reads and writes this inside malloc, without a lock. An entry's turn is odd while a thread
//! writes it, and a reader discards its result if the turn has changed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::flat::Walked;
use crate::frame::Registers;

/// Stacks that are kept for each hash of a stack pointer.
const WAYS: usize = 2;
/// Hashes, a power of two.
const SETS: usize = 64;
/// Most frames of a stack that is kept.
const MOST: usize = 24;
/// Bits of an address of code. Above them is the distance, in words.
const ADDRESS_BITS: u32 = 47;

/// Return addresses of a stack that is being followed, and their distances.
pub(crate) struct Places {
    words: [u64; MOST],
    /// Greater than the room for frames, once a frame cannot be kept.
    count: usize,
}

impl Places {
    pub(crate) fn new() -> Self {
        Self { words: [0; MOST], count: 0 }
    }

    /// Notes that the stack pointer alone has led from a frame to this caller.
    #[inline]
    pub(crate) fn add(&mut self, first: &Registers, caller: &Registers) {
        let distance = caller.sp.wrapping_sub(first.sp).wrapping_sub(8);
        let place = self.words.get_mut(self.count);
        match (place, packed(distance, caller.ip)) {
            (Some(place), Some(word)) => {
                *place = word;
                self.count += 1;
            }
            _ => self.give_up(),
        }
    }

    /// Marks the stack as not to be kept.
    pub(crate) fn give_up(&mut self) {
        self.count = usize::MAX;
    }
}

fn packed(distance: u64, address: u64) -> Option<u64> {
    let is_fit =
        distance.is_multiple_of(8) && distance / 8 < 1 << (64 - ADDRESS_BITS) && address < 1 << ADDRESS_BITS;
    is_fit.then_some(((distance / 8) << ADDRESS_BITS) | address)
}

#[derive(Debug, Default)]
struct Entry {
    /// 0: nothing has been written yet.
    turn: AtomicU32,
    count: AtomicU32,
    /// The first address.
    ip: AtomicU64,
    hash: AtomicU64,
    is_watched: AtomicU32,
    words: [AtomicU64; MOST],
}

/// The stacks.
#[derive(Debug)]
pub(crate) struct Recent {
    entries: Box<[[Entry; WAYS]]>,
    /// The entry of each hash that is written next.
    next: AtomicU32,
}

impl Default for Recent {
    fn default() -> Self {
        Self { entries: (0..SETS).map(|_| <[Entry; WAYS]>::default()).collect(), next: AtomicU32::new(0) }
    }
}

impl Recent {
    #[inline]
    fn set(&self, sp: u64) -> Option<&[Entry; WAYS]> {
        let hash = sp.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SETS.trailing_zeros());
        self.entries.get(hash as usize)
    }

    /// The earlier result for this stack.
    #[inline]
    pub(crate) fn recall(&self, of: &Registers, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Walked> {
        self.set(of.sp)?.iter().find_map(|entry| entry.recall(of, read))
    }

    /// Keeps a stack that was followed to its end.
    pub(crate) fn keep(&self, of: &Registers, places: &Places, walked: &Walked) {
        let Some(words) = places.words.get(..places.count).filter(|words| !words.is_empty()) else { return };
        let way = self.next.fetch_add(1, Ordering::Relaxed) as usize % WAYS;
        if let Some(entry) = self.set(of.sp).and_then(|set| set.get(way)) {
            entry.write(of.ip, words, walked);
        }
    }
}

impl Entry {
    #[inline]
    fn recall(&self, of: &Registers, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Walked> {
        let turn = self.turn.load(Ordering::Acquire);
        if turn == 0 || turn % 2 == 1 || self.ip.load(Ordering::Relaxed) != of.ip {
            return None;
        }
        let words = self.words.get(..self.count.load(Ordering::Relaxed) as usize)?;
        let is_same = words.iter().all(|word| {
            let word = word.load(Ordering::Relaxed);
            let place = of.sp.wrapping_add((word >> ADDRESS_BITS) * 8);
            read(place) == Some(word & ((1 << ADDRESS_BITS) - 1))
        });
        let walked = Walked {
            hash: self.hash.load(Ordering::Relaxed),
            is_watched: self.is_watched.load(Ordering::Relaxed) != 0,
            is_whole: true,
            unknown: None,
        };
        fence(Ordering::Acquire);
        (is_same && self.turn.load(Ordering::Relaxed) == turn).then_some(walked)
    }

    fn write(&self, ip: u64, words: &[u64], walked: &Walked) {
        let turn = self.turn.load(Ordering::Relaxed);
        let is_mine = turn.is_multiple_of(2)
            && self
                .turn
                .compare_exchange(turn, turn.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            return;
        }
        fence(Ordering::Release);
        self.ip.store(ip, Ordering::Relaxed);
        self.hash.store(walked.hash, Ordering::Relaxed);
        self.is_watched.store(u32::from(walked.is_watched), Ordering::Relaxed);
        self.count.store(words.len() as u32, Ordering::Relaxed);
        for (place, word) in self.words.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        // A turn of 0 marks an entry that was never written.
        self.turn.store(turn.wrapping_add(2).max(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const FIRST: Registers = Registers { ip: 0x5000, sp: 0x7f00_0000, bp: 1 };

    fn walked(hash: u64) -> Walked {
        Walked { hash, is_watched: hash.is_multiple_of(2), is_whole: true, unknown: None }
    }

    fn places(callers: &[(u64, u64)]) -> Places {
        let mut places = Places::new();
        callers
            .iter()
            .for_each(|(ip, sp)| places.add(&FIRST, &Registers { ip: *ip, sp: FIRST.sp + sp, bp: 9 }));
        places
    }

    /// The word at a distance from the first stack pointer.
    fn stack(words: &[(u64, u64)]) -> impl FnMut(u64) -> Option<u64> {
        move |at| words.iter().find(|(distance, _)| FIRST.sp + distance == at).map(|(_, word)| *word)
    }

    #[test]
    fn a_stack_is_known_again_by_each_of_its_return_addresses() {
        let recent = Recent::default();
        let words = [(8, 0x6000), (56, 0x7000)];
        assert_eq!(recent.recall(&FIRST, &mut stack(&words)), None);
        recent.keep(&FIRST, &places(&[(0x6000, 16), (0x7000, 64)]), &walked(4));
        assert_eq!(recent.recall(&FIRST, &mut stack(&words)), Some(walked(4)));
        // Each difference: another beginning, another address, an unreadable word.
        for other in [Registers { ip: 0x5001, ..FIRST }, Registers { sp: FIRST.sp + 16, ..FIRST }] {
            assert_eq!(recent.recall(&other, &mut stack(&words)), None);
        }
        for other in [&[(8, 0x6000), (56, 0x7001)][..], &[(8, 0x6001), (56, 0x7000)], &words[..1]] {
            assert_eq!(recent.recall(&FIRST, &mut stack(other)), None);
        }
        // The frame pointer leads nowhere here.
        assert_eq!(recent.recall(&Registers { bp: 7, ..FIRST }, &mut stack(&words)), Some(walked(4)));
    }

    #[test]
    fn what_cannot_be_told_by_its_words_is_not_kept() {
        let recent = Recent::default();
        let mut given_up = places(&[(0x6000, 16)]);
        given_up.give_up();
        given_up.add(&FIRST, &Registers { ip: 0x7000, sp: FIRST.sp + 32, bp: 0 });
        let too_many: Vec<_> = (0..=MOST as u64).map(|frame| (0x6000 + frame, 16 + frame * 8)).collect();
        let far = places(&[(0x6000, 16 + (8 << (64 - ADDRESS_BITS)))]);
        for places in
            [given_up, places(&too_many), far, places(&[(1 << 47, 16)]), places(&[(1, 13)]), places(&[])]
        {
            recent.keep(&FIRST, &places, &walked(4));
        }
        assert!(recent.entries.iter().flatten().all(|entry| entry.turn.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn threads_that_keep_and_recall_never_mix_stacks() {
        let recent = Recent::default();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 1..=2 {
                let (recent, is_over) = (&recent, &is_over);
                scope.spawn(move || {
                    for round in 0..200_000_u64 {
                        let hash = 2 * round + thread;
                        recent.keep(&FIRST, &places(&[(hash, 16), (hash + 1, 24)]), &walked(hash));
                    }
                    is_over.store(true, Ordering::Relaxed);
                });
            }
            let mut seen = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                // Stacks whose second address is the first one plus 1: a recalled result must belong to the
                // same stack.
                let first = std::cell::Cell::new(0);
                for hash in [seen, seen + 1, seen + 2] {
                    let mut read = |at: u64| {
                        first.set(at);
                        Some(if at == FIRST.sp + 8 { hash } else { hash + 1 })
                    };
                    if let Some(found) = recent.recall(&FIRST, &mut read) {
                        assert_eq!(found, walked(hash));
                    }
                }
                let newest = recent.set(FIRST.sp).map_or(0, |set| {
                    set.iter().map(|entry| entry.hash.load(Ordering::Relaxed)).max().unwrap_or(0)
                });
                seen = newest;
            }
        });
        assert!(recent.entries.iter().flatten().any(|entry| entry.turn.load(Ordering::Relaxed) > 2));
    }
}
