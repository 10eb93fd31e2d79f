//! A file may contain any bytes: there is no panic, each answer takes bounded time, and errors name their
//! position.

use memintro_heap::command;
use memintro_heap::command_line::Ended;
use memintro_heap::graph::Graph;
use memintro_heap::lists::{generations, histo, top};
use memintro_heap::options::Options;
use memintro_heap::read::Wants;
use memintro_heap::read::source::Source;
use memintro_heap::tally::Tally;
use proptest::prelude::*;
use std::io::{Cursor, Write};
use std::path::PathBuf;

#[path = "../fuzz/exercise/heap_file.rs"]
mod heap_file;

use heap_file::exercise;

fn source(dump: &[u8]) -> Source {
    Source::new(Cursor::new(dump.to_vec())).unwrap()
}

/// Pieces of lines in combinations that Ruby never writes.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\n".to_string()),
        Just("{\"type\":\"ROOT\", \"root\":\"vm\", \"references\":[\"0x10\", \"0x18\"]}\n".to_string()),
        Just("{\"type\":\"ROOT\",\"root\":\"memintro\",\"format\":1}\n{\"type\":\"ROOT\",\"root\":\"end\",\"objects\":9}\n".to_string()),
        Just("\"references\":[\"0x10\",\"0xffffffffffffffff\", \"0x0\"]".to_string()),
        Just("\"edges\":[\"[1]\",null,3,\"]\",[[\"".to_string()),
        Just("99999999999999999999999999999".to_string()),
        Just("{\"a\":{\"b\":[[[{".to_string()),
        "[ -~]{0,8}",
        (0_u64..8, 0_u64..8, 0_usize..7).prop_map(|(own, other, kind)| {
            let kind = ["STRING", "CLASS", "OBJECT", "ARRAY", "IMEMO", "SHAPE", "ICLASS"][kind];
            let (own, other) = (own * 8 + 16, other * 8 + 16);
            format!(
                "{{\"address\":\"{own:#x}\", \"type\":\"{kind}\", \"class\":\"{other:#x}\", \"superclass\":\"{other:#x}\", \
                 \"value\":\"a\\u0000\\\"\", \"references\":[\"{other:#x}\", \"{own:#x}\", \"0x7\"], \"edges\":[\"@a\"], \
                 \"memsize\":18446744073709551615, \"file\":\"\\u001b[31m\", \"line\":5, \"generation\":4294967296}}\n"
            )
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn lines_of_all_kinds_do_no_harm(pieces in proptest::collection::vec(piece(), 0..30)) {
        exercise(pieces.concat().as_bytes());
    }

    #[test]
    fn bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), magic in 0_usize..4) {
        let magic: &[u8] = [&b""[..], b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"][magic];
        exercise(&[magic, &bytes].concat());
    }
}

#[test]
fn the_fuzzers_corpus_does_no_harm_whole_and_cut() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/heap_file");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 8, "{} files", files.len());
    for path in files {
        let input = std::fs::read(&path).unwrap();
        for length in (0..input.len()).step_by(input.len() / 20 + 1).chain([input.len()]) {
            exercise(&input[..length]);
        }
    }
}

#[test]
fn a_cut_compressed_dump_keeps_what_it_had() {
    let line = |at: u64| {
        format!("{{\"address\":\"{:#x}\", \"type\":\"STRING\", \"memsize\":40}}\n", 0x1000 + at * 40)
    };
    let text: String = (0..100_000).map(line).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let whole = Tally::load(source(&gzip), None);
    assert_eq!((whole.total().objects, whole.reading.problems.len()), (100_000, 0));
    let cut = Tally::load(source(&gzip[..gzip.len() / 2]), None);
    assert!((20_000..80_000).contains(&cut.total().objects), "{:?}", cut.total());
    let problem = cut.reading.problems.iter().find(|problem| problem.ends).unwrap();
    assert_eq!(problem.message, "the compressed dump is cut short here");
    assert!(problem.offset > 1_000_000 && problem.offset < text.len() as u64, "{problem:?}");
}

#[test]
fn a_bomb_ends_at_the_budget() {
    // A line that unpacks to 1,000 times its size, again and again, each with another class.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for at in 0..300_000_u64 {
        writeln!(
            gzip,
            "{{\"address\":\"{:#x}\",\"type\":\"OBJECT\",\"class\":\"{:#x}\",\"memsize\":9}}",
            8 * at + 16,
            8 * at
        )
        .unwrap();
    }
    let gzip = gzip.finish().unwrap();
    let budget = 6_000_000;
    let graph = Graph::load(source(&gzip), Wants { references: true, ..Wants::default() }, Some(budget));
    assert!(graph.reading.problems[0].message.contains("--max-memory-bytes"), "{:?}", graph.reading.problems);
    assert!(
        graph.len() > 20_000 && graph.memory_bytes() < 2 * budget,
        "{} {}",
        graph.len(),
        graph.memory_bytes()
    );
}

#[test]
fn lines_that_are_all_the_same_take_no_longer_than_others() {
    // Of 4 MB each: objects at one address, no objects, and blank lines. Each in a stream of one member, and of many.
    for line in
        ["{\"address\":\"0x7f0000000010\", \"type\":\"CLASS\", \"name\":\"A\", \"memsize\":40}", "{", ""]
    {
        let count = 4_000_000 / (line.len() + 1);
        let text = format!("{line}\n").repeat(count);
        let packed = |text: &str| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(text.as_bytes()).unwrap();
            gzip.finish().unwrap()
        };
        let member = packed(&text[..(line.len() + 1) * count.min(100)]);
        for (name, gzip) in [("one", packed(&text)), ("many", member.repeat(1_000))] {
            let begun = std::time::Instant::now();
            let tally = Tally::load(source(&gzip), None);
            let graph = Graph::load(source(&gzip), Wants { references: true, ..Wants::default() }, None);
            assert!(tally.reading.bytes == graph.reading.bytes && tally.reading.bytes > 90_000, "{name}");
            assert!(graph.len() <= 1, "{name}");
            assert!(begun.elapsed().as_secs() < 20, "{name}, {line:?}: {:?}", begun.elapsed());
        }
    }
}

/// A dump of an object of class 0x10, which a named root holds, and of lists of the VM: of those that the root `vm` holds
/// with no name each is the head of a chain.
fn hidden_lists(heads: u64, length: u64) -> String {
    let address = |head: u64, at: u64| 0x1000 + 8 * (head * length + at);
    let held: Vec<String> = (0..heads).map(|head| format!("\"{:#x}\"", address(head, 0))).collect();
    let mut text = format!(
        "{{\"type\":\"ROOT\", \"root\":\"vm\", \"references\":[{}]}}\n\
         {{\"type\":\"ROOT\", \"root\":\"global_tbl\", \"references\":[\"0x20\"], \"edges\":[\"$cache\"]}}\n\
         {{\"address\":\"0x10\", \"type\":\"CLASS\", \"name\":\"Cache\", \"memsize\":8}}\n\
         {{\"address\":\"0x20\", \"type\":\"OBJECT\", \"class\":\"0x10\", \"memsize\":40}}\n",
        held.join(", ")
    );
    for head in 0..heads {
        for at in 0..length {
            let next =
                if at + 1 < length { format!("\"{:#x}\"", address(head, at + 1)) } else { String::new() };
            let own = address(head, at);
            text += &format!(
                "{{\"address\":\"{own:#x}\", \"type\":\"ARRAY\", \"references\":[{next}], \"memsize\":40}}\n"
            );
        }
    }
    text
}

#[test]
fn lists_of_the_vm_are_passed_over_however_long_or_many_they_are() {
    for (heads, length) in [(1, 300_000), (300_000, 1), (500, 600)] {
        let wants = Wants { references: true, edges: true, ..Wants::default() };
        let mut graph = Graph::load(source(hidden_lists(heads, length).as_bytes()), wants, None);
        let said = top(&mut graph, &Options { top: 5, ..Options::default() }).unwrap();
        assert!(said.sentence.starts_with("$cache (Cache) retains 48 B"), "{}", said.sentence);
        assert!(!said.lines.contains("hidden"), "{}", said.lines);
        let all = top(&mut graph, &Options { top: 5, all: true, ..Options::default() }).unwrap();
        assert!(all.lines.contains("(hidden T_ARRAY)"), "{}", all.lines);
    }
}

#[test]
fn numbers_that_no_ruby_writes_count_as_none() {
    let huge = "99999999999999999999";
    let dump = format!(
        "{{\"type\":\"ROOT\", \"root\":\"memintro\", \"generation\":{huge}}}\n{{\"address\":\"0x10\", \"type\":\"STRING\", \
         \"memsize\":40, \"file\":\"a.rb\", \"line\":{huge}, \"generation\":{huge}}}\n"
    );
    let tally = Tally::load(source(dump.as_bytes()), None);
    assert!(!tally.about.generations);
    assert_eq!(tally.kinds.site(0).unwrap(), "a.rb:0");
    let said = generations(&tally, &Options { top: 5, ..Options::default() }).unwrap();
    assert_eq!(said.sentence, "None of the 1 object tells its generation");
    let said = histo(&tally, &Options { top: 5, ..Options::default() }).unwrap();
    assert!(said.sentence.starts_with("1 object takes 40 B"), "{}", said.sentence);
}

#[test]
fn wrong_lines_are_told_with_their_offsets() {
    let good = "{\"address\":\"0x10\", \"type\":\"STRING\", \"memsize\":40}\n";
    let dump = format!(
        "{good}garbage\n{good}{{\"address\":\"0xzz\", \"type\":\"STRING\"}}\n{{\"type\":\"STRING\"}}\n"
    );
    let graph = Graph::load(source(dump.as_bytes()), Wants::default(), None);
    let told: Vec<_> =
        graph.reading.problems.iter().map(|problem| (problem.offset, problem.message.as_str())).collect();
    let length = good.len() as u64;
    assert_eq!(
        told,
        [
            (length, "a line does not begin with {"),
            (2 * length + 8 + 11, "an address is no hexadecimal number of 64 bits"),
            (2 * length + 8 + 36, "an object has no address"),
        ]
    );
    assert_eq!((graph.len(), graph.about.same_address, graph.reading.bad_lines), (1, 1, 3));
}

#[test]
fn what_is_asked_wrongly_is_said() {
    let run = |arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(std::ffi::OsString::from).collect();
        match Options::parse(&arguments).and_then(|options| command::run(&options)).unwrap_err() {
            Ended::Usage(message) | Ended::Failed(message) | Ended::Help(message) => message,
        }
    };
    assert!(run(&["hist", "-"]).contains("there is no memintro heap \"hist\"; there are histo, top"));
    assert_eq!(run(&["histo"]), "memintro heap histo takes one dump, none is given");
    assert_eq!(
        run(&["histo", "--top=x", "-"]),
        "--top is \"x\"; it must be a whole number of at least 1, or all"
    );
    assert!(
        run(&["histo", "--help"]).starts_with("Usage: memintro heap histo [options] FILE\n\nobjects and")
    );
    assert_eq!(
        run(&["--clas", "top", "histo", "-"]),
        "memintro heap histo has no --clas; memintro heap histo --help lists its options"
    );
    assert_eq!(
        run(&["holders", "--older-than-gcs=4294967296", "-"]),
        "--older-than-gcs is \"4294967296\"; it must be a whole number up to 4294967295"
    );
    assert!(run(&["path", "--generation=99999999999", "-"]).ends_with("whole numbers up to 4294967295"));
    assert_eq!(run(&["histo", "/no\nwhere\u{1b}"]), "/no\\x0Awhere\\x1B: No such file or directory");
    assert_eq!(run(&["histo", "/nowhere"]), "/nowhere: No such file or directory");
    assert_eq!(run(&["histo", "/tmp"]), "/tmp: is a folder; give a heap dump");
    assert_eq!(run(&["diff", "-", "-"]), "standard input (-) can be only one of the dumps");
    let file = std::env::temp_dir().join(format!("memintro-{}.ndjson", std::process::id()));
    std::fs::write(&file, "{\"address\":\"0x10\", \"type\":\"STRING\", \"memsize\":40}\n").unwrap();
    let name = file.to_string_lossy();
    let said = run(&["html", &format!("--output={name}"), &name]);
    assert_eq!(said, format!("{name} is the dump itself, which would be lost; give another file with -o"));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 50);
    std::fs::remove_file(&file).unwrap();
}
