//! Puts blocks of one kind into groups.

use super::nodes::Node;

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
