//! Visits the free chunks of one arena by its lists, without a walk over all chunks.
//!
//! A free chunk that is in no cache ([`super::caches`]) and is not the topmost one is in one of 127 lists, its bin. Each
//! list is a circle in both directions, through a head in the arena. All are followed by turns, from both ends, so that
//! they wait for memory together.
//!
//! A thread that was in the middle of malloc may have left a list torn. So each chunk must point back to where it was
//! found, have its size a second time at its end, and be marked as free in the next chunk: no two lists can have such a
//! chunk, and no circle can leave out the head. What is not so ends the visit.

use super::arenas::Layout;
use super::chunks::{FLAGS, GRAIN, MAPPED, PREVIOUS_IN_USE};
use super::strands::Memory;

/// Number of lists in each arena.
const LISTS: usize = 127;
const LEAST_CHUNK: usize = 32;
const FORWARD: usize = 16;
const BACKWARD: usize = 24;

/// One end of a list that is followed.
#[derive(Clone, Copy, Default)]
struct End {
    /// The chunk that was visited last, or the head.
    last: usize,
    /// The one that comes next.
    next: usize,
    /// Where the last one's end is still to be checked.
    unchecked: usize,
}

/// A list that is followed from both ends.
#[derive(Clone, Copy, Default)]
struct List {
    is_open: bool,
    ends: [End; 2],
}

/// Visits each chunk in the lists of the arena at this address, as long as `visit` wants more. Returns whether all lists
/// were whole. `memory` reads the arena and its heaps, and nothing else.
pub fn each_free(
    arena: usize,
    layout: Layout,
    memory: &impl Memory,
    mut visit: impl FnMut(usize, usize) -> bool,
) -> bool {
    let mut lists = [List::default(); LISTS];
    for (number, list) in lists.iter_mut().enumerate() {
        let head = arena + layout.first_list() + number * 16 - FORWARD;
        let (Some(first), Some(last)) = (pointer(memory, head + FORWARD), pointer(memory, head + BACKWARD))
        else {
            return false;
        };
        if (first == head) != (last == head) {
            return false;
        }
        let end = |next| End { last: head, next, unchecked: 0 };
        *list = List { is_open: first != head, ends: [end(first), end(last)] };
        memory.soon(first);
        memory.soon(last);
    }
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for list in lists.iter_mut().filter(|list| list.is_open) {
            goes_on = true;
            match list.step(memory, &mut visit) {
                Some(is_open) => list.is_open = is_open,
                None => return false,
            }
        }
    }
    true
}

impl List {
    /// Visits one more chunk at each end. Returns whether there are more; `None` if the list is torn.
    fn step(&mut self, memory: &impl Memory, visit: &mut impl FnMut(usize, usize) -> bool) -> Option<bool> {
        for (side, there, back) in [(0, FORWARD, BACKWARD), (1, BACKWARD, FORWARD)] {
            let [front, rear] = self.ends;
            let (mut end, other) = if side == 0 { (front, rear) } else { (rear, front) };
            check_end(end, memory)?;
            let chunk = end.next;
            let is_chunk =
                chunk.is_multiple_of(GRAIN) && pointer(memory, chunk.checked_add(back)?)? == end.last;
            let head = memory.word(chunk + 8)?;
            let size = usize::try_from(head & !FLAGS).ok()?;
            if !is_chunk
                || size < LEAST_CHUNK
                || !size.is_multiple_of(GRAIN)
                || head & (PREVIOUS_IN_USE | MAPPED) != PREVIOUS_IN_USE
                || !visit(chunk, size)
            {
                return None;
            }
            end = End { last: chunk, next: pointer(memory, chunk + there)?, unchecked: size };
            memory.soon(chunk.checked_add(size)?);
            memory.soon(end.next);
            if let Some(place) = self.ends.get_mut(side) {
                *place = end;
            }
            // The last one visited from the other end, or the head, where that has not begun.
            if end.next == other.last {
                if pointer(memory, other.last + back)? != chunk {
                    return None;
                }
                return self.ends.iter().try_for_each(|end| check_end(*end, memory)).map(|()| false);
            }
        }
        Some(true)
    }
}

/// Whether the chunk that was visited last ends as a free one does.
fn check_end(end: End, memory: &impl Memory) -> Option<()> {
    if end.unchecked == 0 {
        return Some(());
    }
    let next = end.last.checked_add(end.unchecked)?;
    let is_free = memory.word(next)? == end.unchecked as u64 && memory.word(next + 8)? & PREVIOUS_IN_USE == 0;
    is_free.then_some(())
}

fn pointer(memory: &impl Memory, at: usize) -> Option<usize> {
    usize::try_from(memory.word(at)?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::arenas::LAYOUTS;
    use super::super::chunks::{self, State};
    use super::*;

    const ARENA: usize = 1 << 30;
    const BYTES: usize = 1 << 18;

    struct Process {
        heap: Vec<u64>,
        arena: BTreeMap<usize, u64>,
        top: usize,
    }

    impl Memory for Process {
        fn word(&self, at: usize) -> Option<u64> {
            if at >= ARENA {
                return self.arena.get(&at).copied();
            }
            at.is_multiple_of(8).then(|| self.heap.get(at / 8).copied()).flatten()
        }

        fn soon(&self, _at: usize) {}
    }

    impl Process {
        fn set(&mut self, at: usize, value: usize) {
            if at >= ARENA {
                self.arena.insert(at, value as u64);
            } else {
                self.heap[at / 8] = value as u64;
            }
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as usize % most
        }
    }

    /// A heap of used and free chunks, the free ones in lists, in any order.
    fn process(layout: Layout, random: &mut Random, one_list: bool) -> Process {
        let heads: Vec<usize> =
            (0..LISTS).map(|number| ARENA + layout.first_list() + number * 16 - FORWARD).collect();
        let mut process = Process { heap: vec![0; BYTES / 8], arena: BTreeMap::new(), top: 0 };
        let mut lists: Vec<Vec<usize>> = heads.iter().map(|head| vec![*head]).collect();
        let (mut at, mut before_used) = (0, true);
        while at < BYTES - 20_000 {
            let size = 32 + 16 * random.below(60);
            let used = !before_used || random.below(3) > 0;
            process.set(at + 8, size | usize::from(before_used));
            if !used {
                process.set(at + size, size);
                let number = if one_list { 5 } else { random.below(LISTS) };
                let place = 1 + random.below(lists[number].len());
                lists[number].insert(place, at);
            }
            (at, before_used) = (at + size, used);
        }
        process.set(at + 8, (BYTES - at) | usize::from(before_used));
        process.top = at;
        for list in &lists {
            for (place, chunk) in list.iter().enumerate() {
                let next = list[(place + 1) % list.len()];
                process.set(chunk + FORWARD, next);
                process.set(next + BACKWARD, *chunk);
            }
        }
        process
    }

    fn by_lists(process: &Process, layout: Layout) -> Option<Vec<(usize, usize)>> {
        let mut found = Vec::new();
        let whole = each_free(ARENA, layout, process, |at, size| {
            found.push((at, size));
            true
        });
        found.sort_unstable();
        whole.then_some(found)
    }

    fn by_walk(process: &Process) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        chunks::walk(
            0,
            BYTES,
            process.top,
            |at| process.word(at),
            |at, size, state| {
                if state == State::Free {
                    found.push((at, size));
                }
            },
        );
        found
    }

    #[test]
    fn finds_what_a_walk_over_all_chunks_finds() {
        let mut random = Random(1);
        let mut most = 0;
        for round in 0..60 {
            let layout = LAYOUTS[round % 2];
            let process = process(layout, &mut random, round % 3 == 0);
            let walked = by_walk(&process);
            most = most.max(walked.len());
            assert_eq!(by_lists(&process, layout), Some(walked));
        }
        assert!(most > 80, "{most}");
    }

    /// A word that is not as malloc left it: the lists are torn, or say what the walk says.
    #[test]
    fn what_is_torn_is_noticed() {
        let mut random = Random(2);
        let mut torn = 0;
        for round in 0..300 {
            let layout = LAYOUTS[0];
            let mut process = process(layout, &mut random, round % 2 == 0);
            let walked = by_walk(&process);
            let (chunk, size) = walked[random.below(walked.len())];
            let place = [chunk + 8, chunk + FORWARD, chunk + BACKWARD, chunk + size, chunk + size + 8];
            let place = place[random.below(5)];
            let value = match random.below(5) {
                0 => 0,
                1 => walked[random.below(walked.len())].0,
                2 => chunk,
                3 => ARENA + layout.first_list() - FORWARD,
                _ => 16 * random.below(BYTES / 16),
            };
            let before = process.word(place);
            process.set(place, value);
            match by_lists(&process, layout) {
                None => torn += 1,
                // What is free is the same, though the size of the used chunk after it may be wrong now.
                Some(found) => assert!(found == walked, "{place:#x} was {before:x?}, is {value:#x}"),
            }
        }
        assert!(torn > 200, "{torn}");
    }

    /// As a thread leaves it that is in the middle of taking a chunk out of a list, or of putting one in.
    #[test]
    fn a_half_made_change_is_noticed() {
        let mut random = Random(3);
        let layout = LAYOUTS[0];
        let before = process(layout, &mut random, true);
        let walked = by_walk(&before);
        for (chunk, _) in &walked {
            let mut process = process(layout, &mut Random(3), true);
            let next = pointer(&process, chunk + FORWARD).unwrap();
            let previous = pointer(&process, chunk + BACKWARD).unwrap();
            process.set(previous + FORWARD, next);
            assert_eq!(by_lists(&process, layout), None);
            process.set(next + BACKWARD, previous);
            // Taken out, and not yet marked as in use: only the sum of the heap tells.
            assert_eq!(by_lists(&process, layout).map(|found| found.len()), Some(walked.len() - 1));
        }
    }
}
