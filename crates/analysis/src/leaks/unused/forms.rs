//! Hash tables, regular expressions, instruction sequences and native threads: what of their blocks is out of use, or has numbers only.
//!
//! The structures are those of Ruby 3.1 to 3.4. Each is taken for one only if all of its lengths and addresses fit the blocks that
//! they speak of; otherwise nothing of it is out of use.

use std::ops::Range;

use super::{Blocks, HASH, MATCH, REGEXP, Read, SLOT, T_IMEMO, USER};
use crate::account::PAGE;
use crate::leaks::nodes::Node;

/// Bytes of a hash table, and of one of its entries: hash, key, value.
const TABLE: usize = 56;
const ENTRY: usize = 24;
/// The hash of an entry that was deleted. Its key and its value stay.
const DELETED: usize = usize::MAX;
/// Entries, as a power of two.
const POWERS: Range<usize> = 2..40;
/// Up to so many, a table has no bins.
const POWER_WITHOUT_BINS: usize = 4;
/// Bytes of a compiled regular expression, and its map of 256 characters.
const PATTERN: Range<usize> = 440..521;
const MAP: Range<usize> = 152..408;
/// The number of instruction sequences among internal objects.
const ISEQ: usize = 7;

impl<M: Read> Blocks<'_, M> {
    fn number(&self, at: usize) -> usize {
        self.memory.known(at).unwrap_or(0)
    }

    /// The block that begins at an address, if so many bytes may have been asked for.
    fn fitting(&self, start: usize, bytes: usize) -> Option<&Node> {
        // malloc rounds up, and gives away what is too little for a block of its own.
        let most = bytes + if bytes < 16 * PAGE { 32 } else { 2 * PAGE };
        self.at(start).filter(|block| (bytes..most).contains(&block.bytes))
    }

    /// For hash tables that are blocks: their entries before the first one, after the last one, and those that were deleted.
    pub(super) fn tables(&self, mut visit: impl FnMut(usize, usize)) {
        for node in self.each(TABLE..TABLE + 1) {
            self.table(node.start, &mut visit);
        }
    }

    /// For what an object has by address: the entries of a hash table in its slot, the parts of a regular expression, those of an
    /// instruction sequence.
    pub(super) fn parts(
        &self,
        (slot, kind, stride): (usize, u8, usize),
        visit: &mut impl FnMut(usize, usize),
    ) {
        let flags = self.number(slot);
        match kind {
            HASH if stride >= 24 + TABLE && flags >> (USER + 3) & 1 != 0 => self.table(slot + 24, visit),
            REGEXP => {
                self.regexp(self.number(slot + 16), visit);
            }
            MATCH => {
                // Since Ruby 3.3 the numbers are in the slot.
                self.positions(if stride > SLOT { slot + 32 } else { self.number(slot + 24) }, visit);
            }
            T_IMEMO if flags >> USER & 0xf == ISEQ => {
                self.iseq(self.number(slot + 16), visit);
            }
            _ => {}
        }
    }

    /// Powers of two, the functions of its type, how many entries, bins, the first entry, the one after the last, all entries.
    fn table(&self, table: usize, visit: &mut impl FnMut(usize, usize)) {
        let [sizes, functions, count, bins, first, bound, entries] =
            [0, 8, 16, 24, 32, 40, 48].map(|distance| self.number(table + distance));
        let power = sizes & 0xff;
        let looks = POWERS.contains(&power)
            && bound <= 1 << power
            && bound.checked_sub(first).is_some_and(|most| count <= most)
            && (bins == 0) == (power <= POWER_WITHOUT_BINS)
            && functions != 0
            && functions.is_multiple_of(8);
        if !looks || bins != 0 && self.at(bins).is_none() || self.block_of(functions).is_some() {
            return;
        }
        let Some(block) = self.fitting(entries, ENTRY << power) else { return };
        visit(entries, entries + first * ENTRY);
        visit(entries + bound * ENTRY, block.end());
        if count == bound - first {
            return;
        }
        let mut gone = 0;
        for entry in (entries + first * ENTRY..entries + bound * ENTRY).step_by(ENTRY) {
            if self.number(entry) == DELETED {
                gone += ENTRY;
            } else if gone > 0 {
                visit(entry - gone, entry);
                gone = 0;
            }
        }
    }

    /// Its code, bytes of it in use and of all; the syntax, a constant; a text that it must contain, as its beginning and end; a map of characters.
    fn regexp(&self, pattern: usize, visit: &mut impl FnMut(usize, usize)) -> Option<()> {
        self.at(pattern).filter(|block| PATTERN.contains(&block.bytes))?;
        let [code, sizes, syntax, text, end] =
            [0, 8, 80, 136, 144].map(|distance| self.number(pattern + distance));
        let (used, all) = (sizes & 0xffff_ffff, sizes >> 32);
        let code = self.fitting(code, all).filter(|_| used <= all)?;
        let text = if text == 0 { None } else { Some(self.at(text)?) };
        let is_one = syntax != 0
            && self.block_of(syntax).is_none()
            && text.map_or(end == 0, |text| text.start <= end && end <= text.end());
        if is_one {
            visit(pattern + MAP.start, pattern + MAP.end);
            visit(code.start + (used & !7), code.end());
            text.inspect(|text| visit(text.start, text.end()));
        }
        Some(())
    }

    /// For a match: places of groups in its text, for how many there is room and how many there are, and where they begin and end.
    fn positions(&self, at: usize, visit: &mut impl FnMut(usize, usize)) -> Option<()> {
        let counts = self.memory.pointer(at)?;
        let (first, last) = (self.memory.pointer(at + 8)?, self.memory.pointer(at + 16)?);
        let (room, count) = (counts & 0xffff_ffff, counts >> 32);
        let both = [self.fitting(first, room * 8)?, self.fitting(last, room * 8)?];
        if (1..=room).contains(&count) {
            both.iter().for_each(|block| visit(block.start, block.end()));
        }
        Some(())
    }

    /// For threads since Ruby 3.3: the stack of each for its handlers of signals, as long as nothing runs on it.
    pub(super) fn signal_stacks(
        &self,
        is_running: impl Fn(usize, usize) -> bool,
        mut visit: impl FnMut(usize, usize),
    ) {
        const THREAD: Range<usize> = 120..152;
        const STACK: Range<usize> = 8 << 10..1 << 20;
        for node in self.each(THREAD) {
            let [pthread, number, stack] = [16, 24, 88].map(|distance| self.number(node.start + distance));
            let Some(block) = self.at(stack).filter(|block| STACK.contains(&block.bytes)) else { continue };
            // The first words of a thread's control block say where it is.
            let is_one = (1..1 << 22).contains(&(number & 0xffff_ffff))
                && pthread != 0
                && [0, 16].iter().all(|at| self.memory.pointer(pthread.saturating_add(*at)) == Some(pthread));
            if is_one && !is_running(block.start, block.end()) {
                visit(block.start, block.end());
            }
        }
    }

    /// For caches of constants since Ruby 3.2, each two words: names that lead to a constant, which end with a zero.
    fn names_of_constants(&self, caches: &Node, visit: &mut impl FnMut(usize, usize)) {
        const MOST_NAMES: usize = 32;
        for at in (caches.start + 8..caches.end() - 7).step_by(16) {
            let Some(names) = self.at(self.number(at)).filter(|names| names.bytes / 8 <= MOST_NAMES) else {
                continue;
            };
            let end = (names.start..names.end() - 7)
                .step_by(8)
                .find(|name| !(1..1 << 32).contains(&self.number(*name)));
            if let Some(end) = end.filter(|end| *end > names.start && self.number(*end) == 0) {
                visit(end, names.end());
            }
        }
    }

    /// Its type, how many words of code, the code. Somewhere behind these: lines, their positions, how many they are, another form
    /// of positions, and names of local variables, which are numbers; later, caches.
    fn iseq(&self, body: usize, visit: &mut impl FnMut(usize, usize)) -> Option<()> {
        const MOST_TYPES: usize = 16;
        let block = self.at(body).filter(|block| block.bytes >= 200)?;
        let (kind, words) = (self.number(body) & 0xffff_ffff, self.number(body) >> 32);
        let code =
            self.fitting(self.number(body + 8), words * 8).filter(|_| kind < MOST_TYPES && words > 0)?;
        visit(code.start + words * 8, code.end());
        let numbers = (body + 16..block.end() - 72).step_by(8).find_map(|at| {
            let [lines, positions, count, others, names] =
                [0, 8, 16, 24, 32].map(|distance| self.number(at + distance));
            let count = count & 0xffff_ffff;
            if count == 0 || count > words || (positions == 0) == (others == 0) {
                return None;
            }
            let lines = [12, 8].iter().find_map(|bytes| self.fitting(lines, count * bytes))?;
            let positions =
                if positions == 0 { self.at(others)? } else { self.fitting(positions, count * 4)? };
            let names = if names == 0 { None } else { Some(self.at(names)?) };
            Some(([Some(lines), Some(positions), names], self.at(self.number(at + 64))))
        });
        let (numbers, caches) = numbers?;
        numbers.iter().flatten().for_each(|block| visit(block.start, block.end()));
        if let Some(caches) = caches {
            self.names_of_constants(caches, visit);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Words, blocks, found};
    use super::*;

    /// A pointer to constants of a library, beyond all blocks.
    const STATIC: u64 = 0x70_0000;

    #[test]
    fn entries_that_are_no_more_are_out_of_use() {
        let mut memory = Words::default();
        let (table, bins, entries) = (0x2000, 0x3000, 0x4000);
        let whole = [5 | 1 << 32, STATIC, 2, bins, 1, 5, entries];
        memory.put(table, &whole);
        // The first one is before the beginning, the third and the fourth were deleted.
        for (entry, hash) in [u64::MAX, 7, u64::MAX, u64::MAX, 8].into_iter().enumerate() {
            memory.put(entries as usize + entry * ENTRY, &[hash, 0xaaaa, 0xbbbb]);
        }
        let (bins, entries) = (bins as usize, entries as usize);
        let list = [Node::new(table, TABLE), Node::new(bins, 72), Node::new(entries, 32 * ENTRY + 8)];
        let gone = |memory: &Words, list: &[Node]| found(|visit| blocks(memory, list).tables(visit));
        let expected = [(0x4000, 0x4018), (0x4078, 0x4308), (0x4030, 0x4060)];
        assert_eq!(gone(&memory, &list), expected);
        // None is deleted: none is looked for.
        memory.put(table + 16, &[4]);
        assert_eq!(gone(&memory, &list), expected[..2]);
        // The same in the slot of a hash, with the flag that says so, and without.
        memory.put(0x8000, &[u64::from(HASH) | 8 << USER]);
        memory.put(0x8000 + 24, &whole);
        let of_slot = |memory: &Words, stride| {
            found(|visit| {
                blocks(memory, &list).parts((0x8000, HASH, stride), &mut |from, to| visit(from, to))
            })
        };
        assert_eq!((of_slot(&memory, 160), of_slot(&memory, 40)), (expected.to_vec(), vec![]));
        memory.put(0x8000, &[u64::from(HASH)]);
        assert_eq!(of_slot(&memory, 160), []);
        // What does not fit is no table: more entries than there is room for or than lie between both ends, another size of the
        // block, functions in a block, no bins.
        for (word, wrong) in [(0, 6), (2, 5), (4, 6), (5, 33), (6, 0x3000), (1, 0x4000), (3, 0)] {
            memory.put(table, &whole);
            memory.put(table + word * 8, &[wrong]);
            assert_eq!(gone(&memory, &list), [], "{word}");
        }
    }

    #[test]
    fn a_regular_expression_has_a_map_and_room() {
        let mut memory = Words::default();
        let (slot, pattern) = (0x8000, 0x2000);
        memory.put(slot, &[u64::from(REGEXP), 0, pattern]);
        let pattern = pattern as usize;
        memory.put(pattern, &[0x3000, 0x2e | 0x40 << 32]);
        memory.put(pattern + 80, &[STATIC]);
        memory.put(pattern + 136, &[0x4000, 0x400b]);
        let list = [Node::new(pattern, 456), Node::new(0x3000, 72), Node::new(0x4000, 24)];
        let gone = |memory: &Words| {
            found(|visit| blocks(memory, &list).parts((slot, REGEXP, 40), &mut |from, to| visit(from, to)))
        };
        assert_eq!(gone(&memory), [(0x2098, 0x2198), (0x3028, 0x3048), (0x4000, 0x4018)]);
        // It may contain no text.
        memory.put(pattern + 136, &[0, 0]);
        assert_eq!(gone(&memory), [(0x2098, 0x2198), (0x3028, 0x3048)]);
        // More in use than there is; a syntax in a block; a text that ends elsewhere.
        for (place, wrong) in [(8, 0x41_u64 | 0x40 << 32), (80, 0x4000), (144, 0x4019)] {
            let before = memory.word(pattern + place).unwrap_or(0);
            memory.put(pattern + place, &[wrong]);
            assert_eq!(gone(&memory), [], "{place}");
            memory.put(pattern + place, &[before]);
        }
    }

    #[test]
    fn an_instruction_sequence_has_numbers() {
        let mut memory = Words::default();
        let (slot, body) = (0x8000, 0x2000_u64);
        memory.put(slot, &[u64::from(T_IMEMO) | (ISEQ as u64) << USER, 0, body]);
        // Eight words of code, three lines.
        let body = body as usize;
        memory.put(body, &[1 | 8 << 32, 0x3000]);
        memory.put(body + 112, &[0x4000, 0x5000, 3, 0, 0x6000, 0, 0, 0, 0x7000]);
        // Two caches: names of a constant, and something else.
        memory.put(0x7000, &[0, 0x9000, 0, 0xa000]);
        memory.put(0x9000, &[0x47bb, 0, 0x1234]);
        memory.put(0xa000, &[1 << 40, 0, 0x1234]);
        let list = [
            (body, 312),
            (0x3000, 72),
            (0x4000, 40),
            (0x5000, 24),
            (0x6000, 24),
            (0x7000, 40),
            (0x9000, 24),
            (0xa000, 24),
        ];
        let list = list.map(|(start, bytes)| Node::new(start, bytes));
        let gone = |memory: &Words| {
            found(|visit| blocks(memory, &list).parts((slot, T_IMEMO, 40), &mut |from, to| visit(from, to)))
        };
        let code = (0x3040, 0x3048);
        let numbers = [code, (0x4000, 0x4028), (0x5000, 0x5018), (0x6000, 0x6018), (0x9008, 0x9018)];
        assert_eq!(gone(&memory), numbers);
        // More lines than words, or than there is room for: nothing is known of them.
        for count in [9, 6] {
            memory.put(body + 128, &[count]);
            assert_eq!(gone(&memory), [code], "{count}");
        }
        // More code than the block has; another internal object.
        memory.put(body, &[1 | 10 << 32]);
        assert_eq!(gone(&memory), []);
        memory.put(body, &[1 | 8 << 32]);
        memory.put(slot, &[u64::from(T_IMEMO) | 6 << USER]);
        assert_eq!(gone(&memory), []);
    }

    #[test]
    fn a_match_has_numbers() {
        let mut memory = Words::default();
        // In a structure of its own, and in the slot.
        memory.put(0x8000, &[u64::from(MATCH), 0, 0, 0x2000, 0]);
        memory.put(0x2000, &[4 | 2 << 32, 0x3000, 0x4000]);
        memory.put(0x8100, &[u64::from(MATCH), 0, 0, 0, 4 | 2 << 32, 0x3000, 0x4000]);
        let list = [Node::new(0x2000, 40), Node::new(0x3000, 40), Node::new(0x4000, 40)];
        let gone = |memory: &Words, slot, stride| {
            found(|visit| blocks(memory, &list).parts((slot, MATCH, stride), &mut |from, to| visit(from, to)))
        };
        let both = [(0x3000, 0x3028), (0x4000, 0x4028)];
        assert_eq!(gone(&memory, 0x8000, 40), both);
        assert_eq!(gone(&memory, 0x8100, 80), both);
        // More than there is room for, none, another size.
        for counts in [4 | 5 << 32, 4, 9 | 2 << 32] {
            memory.put(0x2000, &[counts]);
            assert_eq!(gone(&memory, 0x8000, 40), [], "{counts:#x}");
        }
    }

    #[test]
    fn nothing_runs_on_a_stack_for_signals() {
        let mut memory = Words::default();
        let (thread, pthread, stack) = (0x2000, 0x50_0000, 0x10_0000);
        memory.put(thread + 16, &[pthread, 4711]);
        memory.put(thread + 88, &[stack]);
        memory.put(pthread as usize, &[pthread, 0, pthread]);
        let list = [Node::new(thread, 120), Node::new(stack as usize, 0x4008)];
        let gone = |memory: &Words, runs: bool| {
            found(|visit| blocks(memory, &list).signal_stacks(|_, _| runs, visit))
        };
        assert_eq!((gone(&memory, false), gone(&memory, true)), (vec![(0x10_0000, 0x10_4008)], vec![]));
        // Another thread's control block, no number, a small block.
        for (place, wrong) in
            [(pthread as usize + 16, 0x1234), (thread + 24, 0), (thread + 88, thread as u64)]
        {
            let before = memory.word(place).unwrap_or(0);
            memory.put(place, &[wrong]);
            assert_eq!(gone(&memory, false), [], "{place:#x}");
            memory.put(place, &[before]);
        }
    }
}
