//! What of Ruby's own blocks is out of use: no function has written it since, so what is there belonged to a former user, and
//! old addresses in it hold nothing.
//!
//! | block | what is out of use |
//! |---|---|
//! | the stack of values of a thread or fiber | between its values and its frames, which grow towards one another |
//! | a string's or array's, a small hash's | what comes after its length |
//! | the list of the heap's pages | what comes after the last one |
//! | the collector's stack of objects to be marked | what is above its top, and the pieces that it keeps |
//! | the buffers of an IO | what comes after the bytes that wait in it |
//! | a hash table | entries that were deleted, and those behind the last one |
//! | a regular expression, an instruction sequence, a match | what comes after its code; parts that have numbers only |
//! | the stack of a thread for its handlers of signals | all, unless one runs |
//!
//! The buffer from which an IO reads is pointed to at an odd place, because Ruby packs its structure ([`io_buffers`]).
//! Ruby has no function that tells. Each is known by its form, and by what it points to.

mod fibers;
mod forms;

use std::ops::Range;

pub use fibers::end_of_fiber;

use super::nodes::{Node, State};
use crate::account::PAGE;

/// Bytes of structures of which a context of execution is a part.
const WITH_CONTEXT: Range<usize> = 256..4097;
/// Bytes of the collector's own structure.
const COLLECTOR: Range<usize> = 1024..16 << 10;
/// Types of objects.
const STRING: u8 = 0x05;
const REGEXP: u8 = 0x06;
const ARRAY: u8 = 0x07;
const HASH: u8 = 0x08;
const FILE: u8 = 0x0b;
const MATCH: u8 = 0x0d;
const T_IMEMO: u8 = 0x1a;
/// Flags of objects that types have for themselves.
const USER: u32 = 12;
/// The least slot; larger ones are there since Ruby 3.2.
const SLOT: usize = 40;
/// Words in a stack of values.
const VALUES: Range<usize> = 1 << 10..1 << 24;

/// Memory that is read word by word.
pub trait Read {
    /// Eight bytes at a multiple of eight, if they are there.
    fn word(&self, at: usize) -> Option<u64>;

    /// The same as an address.
    fn pointer(&self, at: usize) -> Option<usize> {
        usize::try_from(self.word(at)?).ok()
    }

    /// The same where memory is known to be: in blocks and slots.
    fn known(&self, at: usize) -> Option<usize> {
        self.pointer(at)
    }
}

/// The blocks in which it is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a, M> {
    /// The memory in which they are.
    pub memory: &'a M,
    /// In the order of their addresses.
    pub list: &'a [Node],
    /// Which of them are malloc's.
    pub is_malloc: fn(&Node) -> bool,
}

impl<M: Read> Blocks<'_, M> {
    /// The block that begins at an address.
    fn at(&self, start: usize) -> Option<&Node> {
        let index = self.list.binary_search_by_key(&start, |node| node.start).ok()?;
        self.list.get(index).filter(|node| self.is_one(node))
    }

    /// The block that an address is in.
    fn block_of(&self, address: usize) -> Option<&Node> {
        self.list
            .get(self.list.partition_point(|node| node.end() <= address))
            .filter(|node| node.start <= address)
    }

    fn is_one(&self, node: &Node) -> bool {
        node.state != State::Free && (self.is_malloc)(node)
    }

    fn each(&self, bytes: Range<usize>) -> impl Iterator<Item = &Node> {
        self.list.iter().filter(move |node| bytes.contains(&node.bytes) && self.is_one(node))
    }

    /// For the VM's own blocks. `pages`: descriptions of the heap's pages, in the order of their addresses. `is_mapped`: whether
    /// a range was mapped past malloc. `is_running`: whether a stack pointer is in it.
    pub fn of_vm(
        &self,
        pages: &[usize],
        is_mapped: impl Fn(usize, usize) -> bool,
        is_running: impl Fn(usize, usize) -> bool,
        mut visit: impl FnMut(usize, usize),
    ) {
        self.values(is_mapped, &mut visit);
        self.page_list(pages, &mut visit);
        self.marks(&mut visit);
        self.tables(&mut visit);
        self.signal_stacks(is_running, &mut visit);
    }

    /// For what an object (its slot, type, size of slots) has by address. Notes for [`Self::room`] how much of a block is in use.
    /// `find`: the place of the block that an address is in. `used`: an entry for each block, zero at first.
    pub fn of_object(
        &self,
        object: (usize, u8, usize),
        find: impl Fn(usize) -> Option<usize>,
        used: &mut [usize],
        visit: &mut impl FnMut(usize, usize),
    ) {
        self.note_room(object, find, used);
        self.parts(object, visit);
    }

    /// For stacks of values: a context of execution begins with its stack, the stack's size in words, and its innermost frame,
    /// which lies at the other end and says how far values are in use.
    fn values(&self, is_mapped: impl Fn(usize, usize) -> bool, mut visit: impl FnMut(usize, usize)) {
        let places = self.each(WITH_CONTEXT).flat_map(|node| (node.start..node.end() - 23).step_by(8));
        for at in places {
            let Some(words) = self.memory.known(at + 8).filter(|words| VALUES.contains(words)) else {
                continue;
            };
            let (Some(stack), Some(innermost)) = (self.memory.pointer(at), self.memory.pointer(at + 16))
            else {
                continue;
            };
            let bytes = words * 8;
            let is_inside = stack != 0
                && stack.is_multiple_of(8)
                && innermost.is_multiple_of(8)
                && stack < innermost
                && stack.checked_add(bytes).is_some_and(|end| innermost < end);
            let used = if is_inside { self.memory.pointer(innermost + 8) } else { None };
            let Some(used) = used else { continue };
            let is_stack = || match self.list.get(self.list.partition_point(|node| node.end() <= stack)) {
                Some(block) if block.start == stack && self.is_one(block) => {
                    (bytes..bytes + 2 * PAGE).contains(&block.bytes)
                }
                // Something else lies there.
                Some(other) if other.start < stack + bytes => false,
                _ => is_mapped(stack, stack + bytes),
            };
            if stack <= used
                && used < innermost
                && is_stack()
                && self.are_frames(stack, innermost, stack + bytes)
            {
                visit(used, innermost);
            }
        }
    }

    /// Whether frames fill the end of a stack of values: each says how far values were in use when it called the next one.
    fn are_frames(&self, stack: usize, innermost: usize, end: usize) -> bool {
        /// Words of a frame, in one Ruby or another.
        const STRIDES: Range<usize> = 6..11;
        const MOST_FRAMES: usize = 64;
        STRIDES.map(|words| words * 8).any(|stride| {
            let mut used = innermost;
            (end - innermost).is_multiple_of(stride)
                && (innermost..end).step_by(stride).take(MOST_FRAMES).all(|frame| {
                    let inner = used;
                    used = self.memory.pointer(frame + 8).unwrap_or(0);
                    (stack..=inner).contains(&used)
                })
        })
    }

    /// For the list of the heap's pages, which has the descriptions of all.
    fn page_list(&self, pages: &[usize], mut visit: impl FnMut(usize, usize)) {
        // Since Ruby 3.4 two numbers come before them.
        const BEGINNINGS: [usize; 2] = [0, 16];
        let is_page =
            |at: usize| self.memory.pointer(at).is_some_and(|word| pages.binary_search(&word).is_ok());
        for node in self.each(pages.len() * 8..usize::MAX) {
            if pages.is_empty() || !BEGINNINGS.iter().any(|beginning| is_page(node.start + beginning)) {
                continue;
            }
            let listed = (node.start..node.end().saturating_sub(7)).step_by(8).filter(|at| is_page(*at));
            let (count, last) = listed.fold((0, 0), |(count, _), at| (count + 1, at));
            if count == pages.len() {
                visit(last + 8, node.end());
                return;
            }
        }
    }

    /// For the collector's stack of objects to be marked: pieces of so many words and the address of the next one, a list of
    /// those in use and a list of others, and how far the first one is in use. What was there in the last collection still is.
    fn marks(&self, mut visit: impl FnMut(usize, usize)) {
        const WORDS: usize = 500;
        const MOST_PIECES: usize = 1 << 16;
        let is_piece = |at: usize| self.at(at).is_some_and(|node| node.bytes == (WORDS + 1) * 8);
        for at in self.each(COLLECTOR).flat_map(|node| (node.start..node.end() - 23).step_by(8)) {
            let both = self.memory.known(at + 16).filter(|both| both >> 32 == WORDS);
            let Some(both) = both else { continue };
            let index = both & 0xffff_ffff;
            let (Some(used), Some(others)) = (self.memory.pointer(at), self.memory.pointer(at + 8)) else {
                continue;
            };
            let is_one = index <= WORDS && [used, others].iter().all(|piece| *piece == 0 || is_piece(*piece));
            if !is_one || used == others {
                continue;
            }
            if used != 0 {
                visit(used + index * 8, used + WORDS * 8);
            }
            let mut piece = others;
            for _ in 0..MOST_PIECES {
                if !is_piece(piece) {
                    break;
                }
                visit(piece, piece + WORDS * 8);
                piece = self.memory.pointer(piece + WORDS * 8).unwrap_or(0);
            }
        }
    }

    /// Notes how much of its block a string, array or hash has in use.
    fn note_room(
        &self,
        (slot, kind, stride): (usize, u8, usize),
        find: impl Fn(usize) -> Option<usize>,
        used: &mut [usize],
    ) {
        let mut note = |start: usize, end: usize| {
            let Some(index) = find(start) else { return };
            let block = self.list.get(index).filter(|node| self.is_one(node) && node.start <= start);
            let (Some(block), Some(known)) = (block, used.get_mut(index)) else { return };
            // What is longer than its block is not what it looks like.
            *known = (if end <= block.end() { end } else { usize::MAX }).max(*known);
        };
        if let Some((start, end)) = owned(self.memory, slot, kind, stride) {
            note(start, end);
        }
        io_buffers(self.memory, slot, kind, |start, used, capacity| {
            if self.at(start).is_some_and(|block| capacity <= block.bytes) {
                note(start, start + used);
            }
        });
    }

    /// For blocks of strings and arrays, once [`Self::of_object`] has seen all: also a string's last word, if it ends there.
    pub fn room(&self, used: &[usize], mut visit: impl FnMut(usize, usize)) {
        for (node, used) in self.list.iter().zip(used).filter(|(_, used)| **used != 0) {
            let end = used & !7;
            if end < node.end() {
                visit(end, node.end());
            }
        }
    }
}

/// For a string, array or hash whose content is not in its slot: where it begins, and where what is in use of it ends.
#[must_use]
pub fn owned(memory: &impl Read, slot: usize, kind: u8, stride: usize) -> Option<(usize, usize)> {
    let at = match kind {
        STRING => 24,
        ARRAY => 32,
        HASH if stride == SLOT => 16,
        _ => return None,
    };
    let flags = memory.known(slot)?;
    let is_set = |number: u32| flags >> (USER + number) & 1 != 0;
    let start = memory.known(slot + at)?;
    let length = || memory.known(slot + 16);
    let bytes = match kind {
        STRING if is_set(1) => length()?,
        ARRAY if !is_set(1) => length()?.checked_mul(8)?,
        HASH if !is_set(3) => small_hash(flags),
        _ => return None,
    };
    (start != 0).then_some((start, start.checked_add(bytes)?))
}

/// The buffers of an IO: where each begins, bytes in use, and bytes of all. Each is an address and three numbers of 32 bits: the
/// first byte that waits, how many wait, and how many there is room for.
pub fn io_buffers(memory: &impl Read, slot: usize, kind: u8, mut visit: impl FnMut(usize, usize, usize)) {
    /// Bytes of the structure, which has the buffers near its beginning.
    const BYTES: usize = 200;
    if kind != FILE {
        return;
    }
    let Some(structure) = memory.known(slot + 16).filter(|at| *at != 0 && at.is_multiple_of(8)) else {
        return;
    };
    let half = |at: usize| memory.word(at & !7).map(|word| (word >> (8 * (at % 8))) & 0xffff_ffff);
    for at in (structure..structure.saturating_add(BYTES)).step_by(4) {
        let numbers =
            [0, 4, 8, 12, 16].map(|distance| half(at + distance).and_then(|half| usize::try_from(half).ok()));
        let [Some(low), Some(high), Some(first), Some(waiting), Some(capacity)] = numbers else { return };
        let start = high << 32 | low;
        let is_one = start != 0 && start.is_multiple_of(8) && capacity >= 8 && first + waiting <= capacity;
        if is_one && capacity < 1 << 31 {
            visit(start, first + waiting, capacity);
        }
    }
}

/// Bytes before what an object has in Ruby's own short-lived memory.
pub const TRANSIENT_HEAD: usize = 16;

/// Ruby 3.1 and 3.2 have short arrays and the like in memory of their own, without malloc, where each has a head of two words: a
/// mark, its length with the head, and its object. How many bytes this object has behind such a head.
#[must_use]
pub fn transient_bytes(head: usize, owner: usize, slot: usize) -> Option<usize> {
    const MARK: usize = 0xfeab;
    let bytes = (head >> 16 & 0xffff).saturating_sub(TRANSIENT_HEAD);
    (owner == slot && head & 0xffff == MARK && bytes > 0).then_some(bytes)
}

/// Where what is in use of a slot ends.
#[must_use]
pub fn end_of_slot(memory: &impl Read, slot: usize, kind: u8, stride: usize) -> usize {
    let flags = memory.known(slot).unwrap_or(0);
    let is_set = |number: u32| flags >> (USER + number) & 1 != 0;
    let bytes = match kind {
        STRING if stride > SLOT && !is_set(1) => {
            memory.known(slot + 16).map_or(stride, |length| length.saturating_add(24))
        }
        ARRAY if is_set(1) => {
            let bits = if stride > SLOT { 0x7f } else { 3 };
            16 + 8 * (flags >> (USER + 3) & bits)
        }
        HASH if stride > SLOT && !is_set(3) => 24 + small_hash(flags),
        _ => stride,
    };
    slot + bytes.min(stride)
}

/// Bytes in use of the table of a small hash: a word, and pairs.
fn small_hash(flags: usize) -> usize {
    8 + 16 * (flags >> (USER + 8) & 0xf)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn short_lived_memory_is_known_by_its_head() {
        // An array of 40 values in Ruby 3.1.
        let head = 0xfffe_0150_feab;
        assert_eq!(transient_bytes(head, 0x7f01, 0x7f01), Some(320));
        assert_eq!(transient_bytes(head, 0x7f01, 0x7f02), None);
        assert_eq!(transient_bytes(head ^ 1, 0x7f01, 0x7f01), None);
        assert_eq!(transient_bytes(0x0010_feab, 0x7f01, 0x7f01), None);
    }

    /// Words that are there; others of the same range are zero.
    #[derive(Default)]
    pub(super) struct Words(HashMap<usize, u64>);

    impl Read for Words {
        fn word(&self, at: usize) -> Option<u64> {
            (0x1000..0x100_0000).contains(&at).then(|| self.0.get(&at).copied().unwrap_or(0))
        }
    }

    impl Words {
        pub(super) fn put(&mut self, at: usize, words: &[u64]) {
            self.0.extend(words.iter().enumerate().map(|(index, word)| (at + index * 8, *word)));
        }
    }

    pub(super) fn found(look: impl FnOnce(&mut dyn FnMut(usize, usize))) -> Vec<(usize, usize)> {
        let mut ranges = Vec::new();
        look(&mut |from, to| ranges.push((from, to)));
        ranges
    }

    pub(super) fn blocks<'a>(memory: &'a Words, list: &'a [Node]) -> Blocks<'a, Words> {
        Blocks { memory, list, is_malloc: |_| true }
    }

    #[test]
    fn stacks_of_values_are_known_by_their_contexts() {
        let mut memory = Words::default();
        let (context, stack) = (0x2000, 0x10_0000);
        memory.put(context + 64, &[stack, 2048, stack + 0x3f00]);
        // Four frames of eight words.
        for (frame, used) in [0x400, 0x300, 0x300, 0x18].into_iter().enumerate() {
            memory.put(stack as usize + 0x3f00 + frame * 64, &[0, stack + used]);
        }
        let list = [Node::new(context, 600), Node::new(stack as usize, 0x4008)];
        let ranges = found(|visit| blocks(&memory, &list).values(|_, _| false, visit));
        assert_eq!(ranges, [(0x10_0400, 0x10_3f00)]);
        // In no block: where it may be mapped, and where not.
        let ranges = |is_mapped| found(|visit| blocks(&memory, &list[..1]).values(|_, _| is_mapped, visit));
        assert_eq!((ranges(true), ranges(false)), (vec![(0x10_0400, 0x10_3f00)], vec![]));
        // The block is another size than the context says.
        let list = [list[0], Node::new(stack as usize, 0x2000)];
        assert_eq!(found(|visit| blocks(&memory, &list).values(|_, _| false, visit)), []);
        // Something else lies there, as an object of Ruby would; a frame says that more was in use than in one that it called.
        let other = [list[0], Node::new(stack as usize, 40)];
        assert_eq!(found(|visit| blocks(&memory, &other).values(|_, _| true, visit)), []);
        memory.put(stack as usize + 0x3f88, &[stack + 0x500]);
        assert_eq!(found(|visit| blocks(&memory, &list[..1]).values(|_, _| true, visit)), []);
    }

    #[test]
    fn the_list_of_pages_and_the_stack_of_marks_have_ends() {
        let mut memory = Words::default();
        let pages = [0x5000, 0x6000];
        memory.put(0x8000, &[0x6000, 0x5000, 0xdead]);
        let piece = 501 * 8;
        memory.put(0x3000 + 512, &[0x20_0000, 0x21_0000, 500 << 32 | 7]);
        let sizes = [(0x3000, 2000), (0x8000, 64), (0x20_0000, piece), (0x21_0000, piece)];
        let list = sizes.map(|(start, bytes)| Node::new(start, bytes));
        let ranges = found(|visit| {
            blocks(&memory, &list).page_list(&pages, &mut *visit);
            blocks(&memory, &list).marks(visit);
        });
        let unused = [(0x8010, 0x8040), (0x20_0038, 0x20_0fa0), (0x21_0000, 0x21_0fa0)];
        assert_eq!(ranges, unused);
    }

    #[test]
    fn strings_arrays_hashes_and_buffers_have_room() {
        let mut memory = Words::default();
        let flags = |kind: u8, user: u64| u64::from(kind) | user << USER;
        memory.put(0x2000, &[flags(STRING, 2), 0, 21, 0x10_0000, 0]);
        memory.put(0x2028, &[flags(ARRAY, 0), 0, 3, 0, 0x11_0000]);
        // Two pairs.
        memory.put(0x2050, &[flags(HASH, 2 << 8), 0, 0x12_0000]);
        memory.put(0x2078, &[flags(FILE, 0), 0, 0x13_0000]);
        // The second buffer begins in the middle of a word, behind the 20 bytes of the first.
        let (first, second) = (0x14_0000_u64, 0x15_0000_u64);
        memory.put(
            0x13_0000 + 48,
            &[first, 16 << 32, 8192 | second << 32, second >> 32 | 8 << 32, 4 | 8192 << 32],
        );
        let sizes = [
            (0x10_0000, 64),
            (0x11_0000, 128),
            (0x12_0000, 136),
            (0x13_0000, 200),
            (0x14_0000, 8192),
            (0x15_0000, 8192),
        ];
        let list = sizes.map(|(start, bytes)| Node::new(start, bytes));
        let mut used = [0; 6];
        let all = blocks(&memory, &list);
        for (slot, kind) in [(0x2000, STRING), (0x2028, ARRAY), (0x2050, HASH), (0x2078, FILE)] {
            all.note_room((slot, kind, SLOT), |at| list.iter().position(|node| node.start == at), &mut used);
        }
        let ranges = found(|visit| all.room(&used, visit));
        let unused = [
            (0x10_0010, 0x10_0040),
            (0x11_0018, 0x11_0080),
            (0x12_0028, 0x12_0088),
            (0x14_0010, 0x14_2000),
            (0x15_0008, 0x15_2000),
        ];
        assert_eq!(ranges, unused);
        // In larger slots: 30 bytes of text, five values, one pair.
        memory.put(0x3000, &[flags(STRING, 0), 0, 30]);
        memory.put(0x3100, &[flags(ARRAY, 2 | 5 << 3)]);
        memory.put(0x3200, &[flags(HASH, 1 << 8)]);
        let ends = [(0x3000, STRING), (0x3100, ARRAY), (0x3200, HASH), (0x3200, 0x01)];
        let ends = ends.map(|(slot, kind)| end_of_slot(&memory, slot, kind, 160) - slot);
        assert_eq!(ends, [54, 56, 48, 160]);
    }
}
