//! Against a slow twin that knows no tables, in small memories full of pointers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::groups::each_run;
use super::mark::{Marking, Memory, Root, ranks};
use super::nodes::{NO_HOLDER, Node, Nodes, State, TOP, leaf_entries};

/// Words from this address on.
struct Words(usize, Vec<usize>);

impl Memory for Words {
    fn words(&self, from: usize, to: usize, mut visit: impl FnMut(usize, usize)) {
        for at in (from.next_multiple_of(8)..to & !7).step_by(8) {
            if let Some(word) = at.checked_sub(self.0).and_then(|at| self.1.get(at / 8)) {
                visit(at, *word);
            }
        }
    }
}

const BASE: usize = 0x7f00_0010_0000;
const ROOTS: usize = 8;
/// The kind of roots of the searcher's own.
const OWN: u8 = 9;
/// Blocks of 64 bytes, with a gap of 16 after each.
const STEP: usize = 80;

struct Process {
    memory: Words,
    list: Vec<Node>,
}

/// Pointers are numbers of blocks; those of no block are other words.
fn process(roots: &[usize], contents: &[Vec<usize>], odd: bool) -> Process {
    let start = |block: usize| BASE + ROOTS * 8 + block * STEP;
    let word = |block: usize| match (block < contents.len(), odd) {
        (false, _) => 0x7f00_0000_0000,
        (true, false) => start(block) + block % 64,
        (true, true) => start(block) << 1 | 1,
    };
    let mut words = vec![0; ROOTS + contents.len() * STEP / 8];
    for (place, root) in roots.iter().enumerate().take(ROOTS) {
        words[place] = word(*root);
    }
    for (block, pointers) in contents.iter().enumerate() {
        for (place, to) in pointers.iter().enumerate().take(8) {
            words[(start(block) - BASE) / 8 + place] = word(*to);
        }
    }
    let list = (0..contents.len()).map(|block| Node::new(start(block), 64)).collect();
    Process { memory: Words(BASE, words), list }
}

fn solve(process: &mut Process) {
    let mut top = vec![0; TOP];
    let mut leaves = vec![0; leaf_entries(&process.list)];
    let count = process.list.len();
    let mut nodes = Nodes::new(&mut process.list, &mut top, &mut leaves);
    let (mut waiting, mut candidates) = (vec![0; count * ranks::COUNT], vec![0; count]);
    let mut marking = Marking::new(&mut nodes, &process.memory, &mut waiting, Some(OWN));
    marking.from_root(BASE, BASE + ROOTS * 8, Root::new(3, 0, ranks::OWNER));
    marking.follow();
    marking.sort_unreached(&mut candidates);
}

fn reach(from: &[usize], contents: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<usize> = from.to_vec();
    while let Some(block) = waiting.pop() {
        if block < contents.len() && found.insert(block) {
            waiting.extend(contents[block].iter().take(8));
        }
    }
    found
}

#[test]
fn the_smallest_blocks_are_found_wherever_they_are() {
    for step in [8, 16, 24] {
        let mut list: Vec<Node> = (0..1000).map(|block| Node::new(BASE + block * step, block % 9)).collect();
        let mut leaves = vec![0; leaf_entries(&list)];
        let mut top = vec![0; TOP];
        let nodes = Nodes::new(&mut list, &mut top, &mut leaves);
        for address in BASE - 8..BASE + 1000 * step + 8 {
            assert_eq!(nodes.find(address), nodes.anywhere(address), "{address:#x}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn marking_says_what_a_slow_search_says(
        roots in prop::collection::vec(0_usize..60, 0..4),
        contents in prop::collection::vec(prop::collection::vec(0_usize..60, 0..4), 1..40),
        odd: bool,
    ) {
        let mut process = process(&roots, &contents, odd);
        solve(&mut process);
        let reached = reach(&roots, &contents);
        let leaked: Vec<usize> =
            (0..contents.len()).filter(|block| process.list[*block].state == State::Leaked).collect();
        for block in 0..contents.len() {
            let node = process.list[block];
            prop_assert_eq!(node.state == State::Reached, reached.contains(&block), "block {}", block);
            prop_assert!(!matches!(node.state, State::Unreached | State::Visited));
            if node.state == State::Indirect {
                let holder = node.holder as usize;
                prop_assert_eq!(process.list[holder].state, State::Leaked);
                prop_assert!(reach(&[holder], &contents).contains(&block));
            }
        }
        // Leaked ones hold all that is lost, and none of them holds another one.
        for one in &leaked {
            let held = reach(&[*one], &contents);
            prop_assert!(leaked.iter().all(|other| other == one || !held.contains(other)));
        }
        let lost = reach(&leaked, &contents).difference(&reached).count();
        prop_assert_eq!(lost, contents.len() - reached.len());
    }

    #[test]
    fn the_tables_find_what_a_search_of_the_list_finds(
        gaps in prop::collection::vec((0_usize..3_000_000, 1_usize..70_000), 1..60),
        looks in prop::collection::vec(0_usize..100_000_000, 50),
    ) {
        let mut at = BASE;
        let mut list: Vec<Node> = gaps.iter().map(|(gap, bytes)| {
            let start = (at + gap).next_multiple_of(16);
            at = start + bytes;
            Node::new(start, *bytes)
        }).collect();
        let (starts, ends): (Vec<_>, Vec<_>) = list.iter().map(|node| (node.start, node.end())).unzip();
        let mut top = vec![0; TOP];
        let mut leaves = vec![0; leaf_entries(&list)];
        let nodes = Nodes::new(&mut list, &mut top, &mut leaves);
        let edges = starts.iter().chain(&ends).flat_map(|edge| [edge - 1, *edge]);
        for address in looks.iter().map(|look| BASE + look).chain(edges) {
            prop_assert_eq!(nodes.find(address), nodes.anywhere(address), "{:#x}", address);
        }
    }
}

#[test]
fn a_list_of_which_nothing_holds_the_first_is_one_leak() {
    // 0 → 1 → 2 → 1, and 3 → 0; the root holds 4.
    let mut process = process(&[4], &[vec![1], vec![2], vec![1], vec![0], vec![]], false);
    solve(&mut process);
    let states: Vec<State> = process.list.iter().map(|node| node.state).collect();
    assert_eq!(states, [State::Indirect, State::Indirect, State::Indirect, State::Leaked, State::Reached]);
    assert_eq!(
        process.list.iter().map(|node| node.holder).collect::<Vec<_>>(),
        [3, 3, 3, NO_HOLDER, NO_HOLDER]
    );
    assert_eq!((process.list[4].kind, process.list[4].root), (3, BASE));
}

/// Searches the first roots, one by one, of these ranks. Returns what names each block: the number of a root, and its rank.
fn named(process: &mut Process, order: &[usize], ranks_of: &[u8]) -> Vec<(usize, u8)> {
    let mut top = vec![0; TOP];
    let mut leaves = vec![0; leaf_entries(&process.list)];
    let count = process.list.len();
    let mut nodes = Nodes::new(&mut process.list, &mut top, &mut leaves);
    let mut waiting = vec![0; count * ranks::COUNT];
    let mut marking = Marking::new(&mut nodes, &process.memory, &mut waiting, None);
    for number in order {
        let at = BASE + number * 8;
        marking.from_root(at, at + 8, Root::new(1, number + 1, ranks_of[*number]));
    }
    marking.follow();
    process.list.iter().map(|node| (node.root, node.rank)).collect()
}

#[test]
fn the_surest_root_names_a_block_whatever_the_order_is() {
    // A stack has the addresses of 0 to 2, an object that of 3, which has 0, which has 2, and a static that of 1.
    let ranks_of = [ranks::STACK, ranks::STACK, ranks::STACK, ranks::OWNER, ranks::STATIC];
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [3, 0, 4, 1, 2]] {
        let contents = [vec![2], vec![2], vec![], vec![0]];
        let mut process = process(&[0, 1, 2, 3, 1], &contents, false);
        // Exact addresses.
        for (place, block) in [0, 1, 2, 3, 1].into_iter().enumerate() {
            process.memory.1[place] = process.list[block].start;
        }
        for (block, to) in [(0, 2), (1, 2), (3, 0)] {
            let at = (process.list[block].start - BASE) / 8;
            process.memory.1[at] = process.list[to].start;
        }
        let found = named(&mut process, &order, &ranks_of);
        let owned = (4, ranks::OWNER);
        assert_eq!(found, [owned, (5, ranks::STATIC), owned, owned], "{order:?}");
    }
}

#[test]
fn the_middle_of_a_block_and_an_integer_rank_behind_its_beginning() {
    for word in [|start: usize| start + 24, |start: usize| start << 1 | 1] {
        let mut process = process(&[0, 0], &[vec![]], false);
        process.memory.1[0] = word(process.list[0].start);
        process.memory.1[1] = process.list[0].start + 8;
        let found = named(&mut process, &[0, 1], &[ranks::OWNER, ranks::STATIC]);
        assert_eq!(found, [(2, ranks::STATIC)]);
        let found = named_anew(&mut process, &[0], &[ranks::OWNER]);
        assert_eq!(found, [(1, ranks::LOOSE)]);
    }
}

fn named_anew(process: &mut Process, order: &[usize], ranks_of: &[u8]) -> Vec<(usize, u8)> {
    for node in &mut process.list {
        *node = Node::new(node.start, node.bytes);
    }
    named(process, order, ranks_of)
}

#[test]
fn roots_of_the_searchers_own_reach_no_block_that_was_followed() {
    // The root holds 0, which holds 1, which holds 2.
    let mut process = process(&[0], &[vec![1], vec![2], vec![]], false);
    process.list[1].site = 7;
    let mut top = vec![0; TOP];
    let mut leaves = vec![0; leaf_entries(&process.list)];
    let mut nodes = Nodes::new(&mut process.list, &mut top, &mut leaves);
    let (mut waiting, mut candidates) = (vec![0; 3 * ranks::COUNT], vec![0; 3]);
    let mut marking = Marking::new(&mut nodes, &process.memory, &mut waiting, Some(OWN));
    marking.from_root(BASE, BASE + ROOTS * 8, Root::new(OWN, 0, ranks::LAST));
    marking.follow();
    marking.sort_unreached(&mut candidates);
    let states: Vec<State> = process.list.iter().map(|node| node.state).collect();
    assert_eq!(states, [State::Reached, State::Leaked, State::Indirect]);
}

#[test]
fn a_block_of_a_gibibyte_and_one_of_no_bytes_are_found() {
    let mut list = vec![Node::new(BASE, 0), Node::new(BASE + 4096, 1 << 31)];
    let mut top = vec![0; TOP];
    let mut leaves = vec![0; leaf_entries(&list)];
    let nodes = Nodes::new(&mut list, &mut top, &mut leaves);
    assert_eq!((nodes.find(BASE), nodes.find(BASE + 1)), (Some(0), None));
    assert_eq!((nodes.find(BASE + 4096 + (1 << 30)), nodes.find(BASE + 4096 + (1 << 31))), (Some(1), None));
}

#[test]
fn runs_of_one_key() {
    let mut list: Vec<Node> = (0..6).map(|number| Node::new(number * 64, 32 + number % 2 * 32)).collect();
    list[4].bytes = 64;
    let mut runs = Vec::new();
    each_run(&mut [5, 4, 3, 2, 1, 0], &list, |node| node.bytes, |key, run| runs.push((key, run.to_vec())));
    assert_eq!(runs, [(32, vec![0, 2]), (64, vec![1, 3, 4, 5])]);
}
