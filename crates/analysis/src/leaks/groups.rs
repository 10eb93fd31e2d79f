//! Puts blocks of one kind into groups.

use super::mark::{Marking, Memory, Root};
use super::nodes::{Node, State};

/// Sorts the numbers of blocks by a key, and visits each run of one key: its numbers, in the order of addresses.
pub fn each_run<K: Ord + Copy>(
    numbers: &mut [u32],
    list: &[Node],
    key: impl Fn(&Node) -> K,
    mut visit: impl FnMut(K, &[u32]),
) {
    let key_of = |number: &u32| list.get(*number as usize).map(&key);
    numbers.sort_unstable_by_key(|number| (key_of(number), *number));
    let mut rest = &*numbers;
    while let Some(first) = rest.first().map(key_of) {
        let length = rest.iter().take_while(|number| key_of(number) == first).count();
        let (run, others) = rest.split_at(length);
        if let Some(key) = first {
            visit(key, run);
        }
        rest = others;
    }
}

/// Takes leaked blocks for undecided, with all that they hold, where no more of one call site and size are leaked than
/// `most`: so many may be held by what could not be read. Both lists have as many entries as there are blocks.
pub fn doubt_small_groups<M: Memory>(
    marking: &mut Marking<'_, '_, M>,
    most: u64,
    (numbers, doubtful): (&mut [u32], &mut [u32]),
    root: Root,
) {
    if most == 0 {
        return;
    }
    let list = &*marking.nodes.list;
    let leaked = list.iter().enumerate().filter(|(_, node)| node.state == State::Leaked);
    let mut used = 0;
    for (place, (index, _)) in numbers.iter_mut().zip(leaked) {
        *place = index as u32;
        used += 1;
    }
    let mut count = 0;
    let numbers = numbers.get_mut(..used).unwrap_or_default();
    each_run(
        numbers,
        list,
        |node| (node.site, node.bytes),
        |_, run| {
            if run.len() as u64 <= most {
                for (place, number) in doubtful.iter_mut().skip(count).zip(run) {
                    *place = *number;
                }
                count += run.len();
            }
        },
    );
    for number in doubtful.iter().take(count) {
        marking.doubt_leaked(*number as usize, root);
    }
}
