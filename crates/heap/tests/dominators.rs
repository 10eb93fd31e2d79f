//! Tests the dominator tree against its definition: an object dominates all objects that are unreachable
//! without it.

use memintro_heap::dominators::Dominators;
use memintro_heap::graph::Graph;
use memintro_heap::reach::{Bits, Holder, reach};
use memintro_heap::read::Wants;
use memintro_heap::read::source::Source;
use proptest::prelude::*;
use std::fmt::Write;
use std::io::Cursor;

fn graph(dump: String) -> Graph {
    let wants = Wants { references: true, edges: true, ..Wants::default() };
    Graph::load(Source::new(Cursor::new(dump.into_bytes())).unwrap(), wants, None)
}

/// A dump whose objects have the references given; 1,000 and up is a root's. Object 0 is a class of some.
fn dump(objects: u64, edges: &[(u64, u64)]) -> String {
    let list = |from: u64| -> String {
        let targets: Vec<String> = edges
            .iter()
            .filter(|edge| edge.0 == from)
            .map(|edge| format!("\"{:#x}\"", 8 * edge.1 + 0x1000))
            .collect();
        targets.join(", ")
    };
    let mut text = format!("{{\"type\":\"ROOT\", \"root\":\"vm\", \"references\":[{}]}}\n", list(1000));
    for object in 0..objects {
        let (kind, class) = match object {
            0 => ("CLASS", 0),
            _ if object % 5 == 3 => ("OBJECT", 0x1000),
            _ => ("ARRAY", 0),
        };
        let address = 8 * object + 0x1000;
        writeln!(
            text,
            "{{\"address\":\"{address:#x}\", \"type\":\"{kind}\", \"class\":\"{class:#x}\", \"references\":[{}], \"memsize\":{}}}",
            list(object),
            1 << object
        )
        .unwrap();
    }
    text
}

proptest! {
    #[test]
    fn retained_bytes_are_what_becomes_unreachable(
        inner in proptest::collection::vec((0_u64..20, 0_u64..22), 0..60), roots in proptest::collection::vec(0_u64..20, 1..4)
    ) {
        let edges: Vec<_> = inner.into_iter().chain(roots.into_iter().map(|to| (1000, to))).collect();
        let mut graph = graph(dump(20, &edges));
        let whole = reach(&graph, None, &[]);
        let truth: Vec<u64> = (0..20).map(|object| {
            let mut without = Bits::none(20);
            without.add(object);
            let rest = reach(&graph, Some(&without), &[]);
            // As in the tree, a class is held by its objects only if nothing else holds it.
            (0..20).filter(|other| whole.reaches(*other) && !rest.reaches(*other)).map(|other| graph.size(other)).sum()
        }).collect();
        let late = memintro_heap::reach::late_classes(&graph, &whole).contains(&0);
        let tree = Dominators::compute(&mut graph);
        for number in 1..tree.len() {
            let object = tree.order[number] as usize;
            let expected = truth[object];
            // Without late classes both must agree; the slow way finds a class again through any object of it.
            if late || truth.iter().all(|bytes| bytes & 1 == 0) || whole_class_is_plain(&edges) {
                prop_assert_eq!(tree.retained[number], expected, "object {}", object);
            }
        }
        let reached: u64 = (0..20).filter(|object| whole.reaches(*object)).map(|object| graph.size(object)).sum();
        prop_assert_eq!(tree.retained[0], reached);
    }
}

/// Whether the class has holders other than its objects.
fn whole_class_is_plain(edges: &[(u64, u64)]) -> bool {
    edges.contains(&(1000, 0)) || !edges.iter().any(|edge| edge.1 == 0)
}

/// Objects of 1, 2, 4 and 8 bytes in a chain below the root `vm`, and words on the machine stack.
fn retained_beside_words(words: &str) -> Vec<u64> {
    let mut text = String::from("{\"type\":\"ROOT\", \"root\":\"vm\", \"references\":[\"0x1000\"]}\n");
    writeln!(text, "{{\"type\":\"ROOT\", \"root\":\"machine_context\", \"references\":[{words}]}}").unwrap();
    for at in 0..4 {
        let next = if at == 2 { String::new() } else { format!("\"{:#x}\"", 0x1000 + 8 * (at + 1)) };
        let (own, bytes) = (0x1000 + 8 * at, 1 << at);
        writeln!(
            text,
            "{{\"address\":\"{own:#x}\", \"type\":\"ARRAY\", \"references\":[{next}], \"memsize\":{bytes}}}"
        )
        .unwrap();
    }
    let tree = Dominators::compute(&mut graph(text));
    let mut retained = vec![0; 4];
    (1..tree.len()).for_each(|number| retained[tree.order[number] as usize] = tree.retained[number]);
    retained
}

#[test]
fn a_word_on_the_machine_stack_holds_only_what_no_other_root_leads_to() {
    assert_eq!(retained_beside_words(""), [7, 6, 4, 0]);
    assert_eq!(retained_beside_words("\"0x1010\""), [7, 6, 4, 0]);
    assert_eq!(retained_beside_words("\"0x1010\", \"0x1018\""), [7, 6, 4, 8]);
}

#[test]
fn what_a_call_has_on_the_stack_of_its_thread_is_held_by_others_even_on_longer_ways() {
    // The thread at 0x1000 has a word of its stack, 0x1020, and a variable, 0x1028. A chain leads to the first one, too.
    let text = r#"{"type":"ROOT", "root":"vm", "references":["0x1000", "0x1008"]}
{"address":"0x1000", "type":"DATA", "struct":"VM/thread", "references":["0x1020", "0x1028", "0x1030"], "edges":["(internal)", "local kept", "(internal)"]}
{"address":"0x1008", "type":"ARRAY", "references":["0x1010"]}
{"address":"0x1010", "type":"ARRAY", "references":["0x1020", "0x1028"]}
{"address":"0x1020", "type":"ARRAY"}
{"address":"0x1028", "type":"ARRAY"}
{"address":"0x1030", "type":"ARRAY"}
"#;
    let tree = reach(&graph(text.to_string()), None, &[]);
    let holders = [3, 4, 5].map(|object| tree.holder(object));
    assert_eq!(holders, [2, 0, 0].map(Holder::Object));
}

#[test]
fn a_chain_of_a_million_objects_is_no_trouble() {
    let count = 1_000_000_u64;
    let mut text = String::from("{\"type\":\"ROOT\", \"root\":\"vm\", \"references\":[\"0x10000\"]}\n");
    for at in 0..count {
        let (own, next) = (0x10000 + 8 * at, 0x10000 + 8 * (at + 1) % (8 * count + 0x10000));
        writeln!(text, "{{\"address\":\"{own:#x}\", \"type\":\"OBJECT\", \"references\":[\"{next:#x}\", \"0x10000\"], \"memsize\":2}}").unwrap();
    }
    let tree = Dominators::compute(&mut graph(text));
    assert_eq!((tree.len(), tree.retained[0], tree.retained[500_000]), (1_000_001, 2_000_000, 2 * 500_001));
    assert_eq!(tree.parents[777_777], 777_776);
}
