//! Tests well-formed dumps of Ruby, and malformed ones.

use memintro_heap::answer::Read;
use memintro_heap::graph::Graph;
use memintro_heap::holders::holders;
use memintro_heap::options::Options;
use memintro_heap::pages::NONE;
use memintro_heap::paths::{path, referrers};
use memintro_heap::read::Wants;
use memintro_heap::read::source::Source;
use std::io::{Cursor, Write};

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

/// Ruby 4.0: the class Store has its variable in fields, and so has a string.
const FIELDS: &str = r#"{"type":"ROOT", "root":"vm", "references":["0x7f0000000000", "0x7f0000000050"]}
{"address":"0x7f0000000000", "type":"CLASS", "shape_id":2, "name":"Store", "references":["0x7f0000000028"], "memsize":512}
{"address":"0x7f0000000028", "type":"IMEMO", "shape_id":2, "class":"0x7f0000000000", "imemo_type":"fields", "references":["0x7f0000000078"], "edges":["@cache"], "memsize":40}
{"address":"0x7f0000000050", "type":"STRING", "shape_id":3, "bytesize":1, "references":["0x7f00000000a0"], "memsize":40}
{"address":"0x7f0000000078", "type":"ARRAY", "length":0, "memsize":40}
{"address":"0x7f00000000a0", "type":"IMEMO", "shape_id":3, "class":"0x7f0000000050", "imemo_type":"fields", "references":["0x7f0000000078", "0x7f00000000c8"], "edges":["@one", "@two"], "memsize":40}
{"address":"0x7f00000000c8", "type":"OBJECT", "memsize":40}
"#;

#[test]
fn variables_in_fields_are_those_of_their_owner() {
    let graph = graph(FIELDS);
    let edges = |address: u64| -> Vec<_> {
        let object = graph.find(address).unwrap();
        graph.edges(object).map(|edge| (graph.address(edge.to), graph.edge_names.text(edge.name))).collect()
    };
    let (cache, two) = (0x7f00_0000_0078, 0x7f00_0000_00c8);
    let named = |address: u64, name: &str| (address, name.to_string());
    assert_eq!(edges(0x7f00_0000_0000), [named(0x7f00_0000_0028, ""), named(cache, "@cache")]);
    let expected = [named(0x7f00_0000_00a0, ""), named(cache, "@one"), named(two, "@two")];
    assert_eq!(edges(0x7f00_0000_0050), expected);
    assert_eq!(edges(0x7f00_0000_0028), []);
    // Fields of many objects are of one kind.
    let kind = |address: u64| graph.kind_of[graph.find(address).unwrap() as usize];
    assert_eq!(kind(0x7f00_0000_0028), kind(0x7f00_0000_00a0));
}

#[test]
fn a_way_as_long_as_a_list_is_told_in_part() {
    // Of nine classes, so that no chain of a few holders comes again and again.
    let class =
        |at: u64| format!("{{\"address\":\"{:#x}\", \"type\":\"CLASS\", \"name\":\"K{at}\"}}\n", 16 + 8 * at);
    let item = |at: u64| {
        format!(
            "{{\"address\":\"{:#x}\", \"type\":\"OBJECT\", \"class\":\"{:#x}\", \"references\":[\"{:#x}\"], \
             \"edges\":[\"@next\"], \"memsize\":40}}\n",
            0x10000 + 40 * at,
            16 + 8 * (at % 9),
            0x10000 + 40 * (at + 1)
        )
    };
    let root = "{\"type\":\"ROOT\", \"root\":\"vm\", \"references\":[\"0x10000\"]}\n";
    let dump: String = (0..9).map(class).chain([root.to_string()]).chain((0..30_000).map(item)).collect();
    let options = Options { addresses: vec![0x10000 + 40 * 29_999], top: 5, paths: 1, ..Options::default() };
    for answer in [path(&graph(&dump), &options), holders(&mut graph(&dump), &options)] {
        let answer = answer.unwrap();
        assert!(answer.sentence.len() < 2_000, "{}", answer.sentence.len());
        assert!(answer.sentence.contains(" ← … K") && answer.sentence.ends_with("K0#@next ← root vm"));
        let rows = answer.fields.get("paths").or(answer.fields.get("groups")).unwrap();
        assert_eq!(rows[0].get("path").unwrap().as_array().unwrap().len(), 100);
    }
    let lines = path(&graph(&dump), &options).unwrap().lines;
    assert!(lines.contains("path 1, 29,999 holders:") && lines.contains("    … 29,899 more\n"), "{lines}");
}

#[test]
fn where_finalizers_are_not_told_nothing_is_said_to_hold_nothing() {
    let lonely = "{\"address\":\"0x7f00000000a0\", \"type\":\"OBJECT\", \"class\":\"0x7f0000000000\", \"memsize\":40}\n";
    let root = |name: &str| format!("{{\"type\":\"ROOT\", \"root\":\"{name}\", \"references\":[]}}\n");
    let said = |roots: &[&str]| {
        let roots: String = roots.iter().map(|name| root(name)).collect();
        let mut graph = graph(&format!(
            "{}{}{lonely}",
            roots,
            SMALL.replace(
                "\"root\":\"vm\", \"references\":[\"0x7f0000000028\", \"0x7f0000000050\"]",
                "\"root\":\"vm\""
            )
        ));
        let options = Options { class: Some("Message".into()), top: 5, ..Options::default() };
        let path = path(&graph, &Options { addresses: vec![0x7f00_0000_00a0], paths: 1, ..options.clone() })
            .unwrap();
        [holders(&mut graph, &options).unwrap().sentence, path.sentence]
    };
    let unknown = "but a finalizer may, and the dump has no finalizers.";
    // A dump of Ruby that has no finalizers; of one that has; of memintro, which has found their place, or has not.
    for (roots, known) in [
        (&[][..], false),
        (&["finalizers"], true),
        (&["memintro"], true),
        (&["memintro", "finalizers unknown"], false),
    ] {
        for sentence in said(roots) {
            assert!(sentence.starts_with(if known { "Nothing holds" } else { "Nothing in the dump holds" }));
            assert_eq!(sentence.ends_with(unknown), !known, "{roots:?}: {sentence}");
        }
    }
}

#[test]
fn of_references_to_the_same_object_one_that_tells_something_is_told() {
    // Words of a stack come before the local variable and after it, as do those of a root before a global variable.
    let holder = |name: &str, references: &str, edges: &str| {
        format!("{name}, \"references\":[{references}], \"edges\":[{edges}]}}\n")
    };
    let (fiber, thing) = ("\"0x10000\"", "\"0x10028\"");
    let dump = holder(
        r#"{"type":"ROOT", "root":"global_tbl""#,
        &[fiber, fiber].join(", "),
        r#""(internal)", "$fiber""#,
    ) + &holder(
        r#"{"address":"0x10000", "type":"DATA", "struct":"fiber", "memsize":40"#,
        &[thing; 4].join(", "),
        r#""(internal)", "", "local other at a.rb:3", "(internal)""#,
    ) + "{\"address\":\"0x10028\", \"type\":\"STRING\", \"memsize\":40}\n";
    let options = Options { addresses: vec![0x10028], top: 5, paths: 1, ..Options::default() };
    let answer = referrers(&graph(&dump), &options).unwrap();
    assert_eq!(answer.fields["referrers"][0]["edge"], "local other at a.rb:3");
    assert_eq!(answer.fields["groups"][0]["edge"], "local other at a.rb:3");
    for answer in [path(&graph(&dump), &options), holders(&mut graph(&dump), &options)] {
        let sentence = answer.unwrap().sentence;
        assert!(
            sentence.contains("local other at a.rb:3 of ") && sentence.ends_with(" ← $fiber"),
            "{sentence}"
        );
    }
}

/// As memintro writes it: the first line and the last one make it whole.
fn whole() -> String {
    format!(
        "{{\"type\":\"ROOT\", \"root\":\"memintro\", \"format\":1, \"references\":[]}}\n{SMALL}\
         {{\"type\":\"ROOT\", \"root\":\"end\", \"objects\":4, \"references\":[]}}\n"
    )
}

fn error(graph: &Graph) -> Option<String> {
    let counts = (graph.len() as u64, graph.total_bytes(), graph.edge_count());
    Read { about: &graph.about, reading: &graph.reading, counts }.error("x")
}

/// Objects whose lines are whole within so many bytes.
fn objects_within(text: &str, length: usize) -> usize {
    text[..length].matches('\n').count()
        - text[..length]
            .split_inclusive('\n')
            .filter(|line| line.contains("ROOT") && line.ends_with('\n'))
            .count()
}

/// The place that the message names.
fn place(message: &str) -> usize {
    let digits = message.strip_prefix("x: byte ").and_then(|rest| rest.split(':').next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no place in {message:?}"))
}

#[test]
fn a_dump_that_is_cut_anywhere_tells_the_place_and_keeps_the_lines_before() {
    let text = whole();
    for length in 0..text.len() {
        let graph = graph(&text[..length]);
        let line = text[..length].rfind('\n').map_or(0, |at| at + 1);
        // Without its line end, a line may be whole all the same.
        let all_there = text[line..].find('\n').is_some_and(|end| line + end == length);
        let told = error(&graph);
        let ended = all_there && text[line..length].contains("\"end\"");
        if ended || (length == 0) {
            assert_eq!(told, None, "{length}");
            continue;
        }
        let told = told.unwrap_or_else(|| panic!("nothing is told of a dump cut at {length}"));
        let least = if all_there || length == line { length } else { line };
        assert!((least..=length).contains(&place(&told)), "cut at {length}: {told}");
        let whole_lines = objects_within(&text, if all_there { length + 1 } else { length });
        assert_eq!(graph.len(), whole_lines, "cut at {length}: {told}");
    }
    assert_eq!(error(&graph(&text)), None);
}

#[test]
fn a_compressed_dump_that_is_cut_anywhere_tells_the_place_and_keeps_the_lines_before() {
    let text = whole();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for length in 3..gzip.len() {
        let input = Cursor::new(gzip[..length].to_vec());
        let graph = Graph::load(Source::new(input).unwrap(), ALL, None);
        let told = error(&graph).unwrap_or_else(|| panic!("nothing is told of a dump cut at {length}"));
        assert!(told.contains("cut short"), "{told}");
        // It may have been unpacked whole, while its checksum is missing.
        assert!(place(&told) <= text.len(), "{told}");
        assert_eq!(
            graph.len(),
            objects_within(&text, graph.reading.bytes as usize).max(graph.len()),
            "{told}"
        );
    }
}
