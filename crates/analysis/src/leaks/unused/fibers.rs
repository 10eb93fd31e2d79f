//! Stacks of fibers. Ruby maps them itself; the structure of a fiber says where its own is: where it begins, from where it
//! grows down, its bytes, and how many of them are left below that.

use super::{Blocks, Read, WITH_CONTEXT};
use crate::account::PAGE;

/// More bytes than the stack of a fiber has.
const LARGEST: usize = 1 << 30;

impl<M: Read> Blocks<'_, M> {
    /// Visits where each stack of a fiber begins and ends. `mapped`: where the mapping ends that begins at an address. A fiber
    /// that has ended has none.
    pub fn fiber_stacks(&self, mapped: impl Fn(usize) -> Option<usize>, mut visit: impl FnMut(usize, usize)) {
        let places = self.each(WITH_CONTEXT).flat_map(|node| (node.start..node.end() - 31).step_by(8));
        for at in places {
            let word = |distance| self.memory.known(at + distance).unwrap_or(0);
            let start = word(0);
            if start == 0 || !start.is_multiple_of(PAGE) {
                continue;
            }
            let (top, bytes, left) = (word(8), word(16), word(24));
            let end = start.saturating_add(bytes);
            let is_one = bytes.is_multiple_of(PAGE)
                && (PAGE..LARGEST).contains(&bytes)
                && left > 0
                && start.checked_add(left) == Some(top)
                && top <= end;
            if is_one && mapped(start).is_some_and(|mapped| mapped >= end) {
                visit(start, end);
            }
        }
    }
}

/// Where the stack of a fiber ends that begins here, if one does. `stacks`: in the order of their addresses.
#[must_use]
pub fn end_of_fiber(stacks: &[(usize, usize)], start: usize) -> Option<usize> {
    let index = stacks.binary_search_by_key(&start, |stack| stack.0).ok()?;
    stacks.get(index).map(|stack| stack.1)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Words, blocks, found};
    use crate::leaks::nodes::Node;

    #[test]
    fn a_stack_is_known_by_its_fiber_and_its_mapping() {
        const START: u64 = 0x40_0000;
        let list = [Node::new(0x2000, 600)];
        let stacks = |words: &[u64; 4], mapped: Option<usize>| {
            let mut memory = Words::default();
            memory.put(0x2000 + 96, words);
            found(|visit| {
                blocks(&memory, &list).fiber_stacks(|start| mapped.filter(|_| start == 0x40_0000), visit);
            })
        };
        let whole = [START, START + 0x8_1000, 0xa_1000, 0x8_1000];
        assert_eq!(stacks(&whole, Some(0x4a_1000)), [(0x40_0000, 0x4a_1000)]);
        assert_eq!(stacks(&whole, Some(0x50_0000)), [(0x40_0000, 0x4a_1000)]);
        // No mapping begins there, or a shorter one; the numbers are others.
        assert_eq!((stacks(&whole, None), stacks(&whole, Some(0x4a_0000))), (vec![], vec![]));
        for (place, word) in [(0, START + 8), (1, START + 0x8_0000), (2, 0x8_0000), (2, 0xa_1008), (3, 0)] {
            let mut words = whole;
            words[place] = word;
            assert_eq!(stacks(&words, Some(0x50_0000)), [], "{place} {word:#x}");
        }
    }
}
