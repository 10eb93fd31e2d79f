//! Dumps as Ruby writes them, and as nobody should.

use memintro_heap::graph::Graph;
use memintro_heap::pages::NONE;
use memintro_heap::read::Wants;
use memintro_heap::read::source::Source;
use std::io::Cursor;

const ALL: Wants = Wants { references: true, edges: true, values: true, sites: true };

fn graph(dump: &str) -> Graph {
    Graph::load(Source::new(Cursor::new(dump.as_bytes().to_vec())).unwrap(), ALL, None)
}

const SMALL: &str = r#"{"type":"ROOT", "root":"vm", "references":["0x7f0000000028", "0x7f0000000050"]}
{"address":"0x7f0000000000", "type":"CLASS", "class":"0x7f0000000000", "name":"Message", "references":[], "memsize":512, "flags":{"wb_protected":true, "old":true}}
{"address":"0x7f0000000028", "type":"ARRAY", "length":2, "references":["0x7f0000000050", "0x7f0000000078"], "edges":["[0]", "[1]"], "memsize":40}
{"address":"0x7f0000000050", "type":"OBJECT", "class":"0x7f0000000000", "ivars":3, "references":["0x7f0000000078"], "edges":["@next"], "file":"a.rb", "line":6, "method":"new", "generation":9, "memsize":40}
{"address":"0x7f0000000078", "type":"STRING", "class":"0xdead", "bytesize":10, "value":"x\"]}\\", "encoding":"UTF-8", "memsize":5000000000}
"#;

#[test]
fn objects_classes_edges_and_sizes_are_read() {
    let graph = graph(SMALL);
    assert_eq!(graph.reading.problems, []);
    assert_eq!((graph.len(), graph.edge_count(), graph.total_bytes()), (4, 5, 5_000_000_592));
    let object = graph.find(0x7f00_0000_0050).unwrap();
    assert_eq!(graph.kinds.class_of(graph.kind_of[object as usize]), "Message");
    assert_eq!(graph.kinds.site(graph.kind_of[object as usize]).unwrap(), "a.rb:6");
    assert_eq!(graph.class_object(object), 0);
    let edges: Vec<_> = graph.edges(1).map(|edge| (edge.to, graph.edge_names.text(edge.name))).collect();
    assert_eq!(edges, [(2, "[0]".to_string()), (3, "[1]".to_string())]);
    assert_eq!(graph.edges(2).map(|edge| graph.edge_names.text(edge.name)).collect::<Vec<_>>(), ["@next"]);
    assert_eq!(graph.class_object(3), NONE);
    assert_eq!(graph.root_edges(0).map(|edge| edge.to).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_cut_dump_says_where_and_keeps_what_was_read() {
    let graph = graph(&SMALL[..SMALL.len() - 30]);
    assert_eq!((graph.len(), graph.about.to_nowhere), (3, 2));
    let problem = &graph.reading.problems[0];
    assert_eq!(problem.message, "the last line is cut short");
    assert_eq!(problem.offset, SMALL.len() as u64 - 30);
}
