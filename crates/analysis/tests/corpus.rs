//! Replays the fuzzer's corpus on stable Rust. Its files are made here, because they change with every figure: whole dumps,
//! and dumps with one error each, which must be refused for exactly that error. `rake fuzz` has them written to a folder.

use std::mem::offset_of;
use std::path::PathBuf;

use memintro_abi::{BlockFigures, DUMP_MAGIC, DumpHeader, DumpSite, VERSION};
use memintro_analysis::raw_dump::Error;
use memintro_analysis::raw_dump::parse;

#[path = "support/exercise.rs"]
mod exercise;

use exercise::exercise;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/raw_dump")
}

/// A dump of these sites, given by kind, whether estimated, and name.
fn dump(sites: &[(u32, bool, &[u8])]) -> Vec<u8> {
    let mut file = DUMP_MAGIC.to_vec();
    file.extend(VERSION.to_ne_bytes());
    file.extend(4242u32.to_ne_bytes());
    file.extend(1_700_000_000u64.to_ne_bytes());
    file.extend(11u32.to_ne_bytes());
    file.extend(0i32.to_ne_bytes());
    file.extend((sites.len() as u64).to_ne_bytes());
    file.resize(COUNTS + 4 * 8, 0);
    file.resize(size_of::<DumpHeader>(), 1);
    for (number, (kind, estimated, name)) in sites.iter().enumerate() {
        site(&mut file, [*kind, u32::from(*estimated), number as u32, 0], name);
    }
    file
}

/// Where the header has the numbers of texts, frames, nodes and stacks.
const COUNTS: usize = 40;

fn site(file: &mut Vec<u8>, [kind, estimated, id, node]: [u32; 4], name: &[u8]) {
    let end = file.len() + size_of::<DumpSite>();
    let start = file.len();
    [kind, 12, name.len() as u32, 0, id, node].iter().for_each(|word| file.extend(word.to_ne_bytes()));
    file.resize(end, 2);
    let at = start + offset_of!(DumpSite, blocks) + offset_of!(BlockFigures, estimated);
    file[at..at + 8].copy_from_slice(&u64::from(estimated).to_ne_bytes());
    file.extend_from_slice(name);
    file.resize(file.len().next_multiple_of(8), 0);
}

/// A dump with two stacks of one line, that line alone, and an unused site of the native line.
fn with_stacks() -> Vec<u8> {
    let mut file = dump(&[(0, false, b"a.rb"), (1, false, b"/lib/libz.so.1+0x1c")]);
    [3u64, 3, 3, 4].iter().zip((COUNTS..).step_by(8)).for_each(|(count, at)| {
        file[at..at + 8].copy_from_slice(&count.to_ne_bytes());
    });
    for text in [&b"a.rb"[..], b"b.rb", b"work"] {
        file.extend((text.len() as u64).to_ne_bytes());
        file.extend_from_slice(text);
        file.resize(file.len().next_multiple_of(8), 0);
    }
    // a.rb:12 in work, b.rb:1, b.rb:2 in work; and a.rb:12 called by each of the others.
    for words in [[0u32, 12, 3, 0], [1, 1, 0, 0], [1, 2, 3, 0]] {
        words.iter().for_each(|word| file.extend(word.to_ne_bytes()));
    }
    for words in [[0u32, 2], [1, 1], [1, 3]] {
        words.iter().for_each(|word| file.extend(word.to_ne_bytes()));
    }
    for (id, node) in [(0, 2), (0, 3), (0, 0)] {
        site(&mut file, [0, 0, id, node], b"");
    }
    let end = file.len() + size_of::<DumpSite>();
    [1u32, 0, 0, 0, 1].iter().for_each(|word| file.extend(word.to_ne_bytes()));
    file.resize(end, 0);
    file
}

/// The same with the words of a part changed, so many bytes from the end.
fn with_stacks_and(before_end: usize, word: u32) -> Vec<u8> {
    let mut file = with_stacks();
    let at = file.len() - before_end;
    file[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    file
}

fn whole() -> Vec<u8> {
    dump(&[
        (0, false, b"/app/leak.rb"),
        (1, true, b"/lib/libz.so.1+0x1c"),
        (1, false, b"0x7f00"),
        (2, false, b"(gc)"),
    ])
}

/// A dump with some bytes changed.
fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = whole();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// File name, the file, and the answer that the reader must give.
fn files() -> Vec<(&'static str, Vec<u8>, Result<usize, Error>)> {
    let first = size_of::<DumpHeader>();
    vec![
        ("whole", whole(), Ok(4)),
        ("no-sites", dump(&[]), Ok(0)),
        ("empty-names", dump(&[(0, true, b""), (1, true, b"+"), (2, true, b"")]), Ok(3)),
        ("no-variances", with(first - 8, &f64::NAN.to_ne_bytes()), Ok(4)),
        ("other-mark", with(0, b"memintro"), Err(Error::Foreign)),
        ("version-99", with(8, &99u32.to_ne_bytes()), Err(Error::Version(99))),
        ("kind-7", with(first, &7u32.to_ne_bytes()), Err(Error::UnknownKind(7))),
        ("sites-huge", with(32, &u64::MAX.to_ne_bytes()), Err(Error::Truncated { site: 4, of: u64::MAX })),
        ("sites-fewer", with(32, &1u64.to_ne_bytes()), Ok(1)),
        ("name-huge", with(first + 8, &u32::MAX.to_ne_bytes()), Err(Error::Truncated { site: 0, of: 4 })),
        ("cut-in-the-header", whole()[..first - 1].to_vec(), Err(Error::Truncated { site: 0, of: 0 })),
        ("stacks", with_stacks(), Ok(2)),
        ("cut-in-the-stacks", with_stacks()[..with_stacks().len() - 9].to_vec(), Err(Error::TruncatedStacks)),
        // A node that calls itself, a frame of no text, and a stack of no node.
        ("node-of-itself", with_stacks_and(4 * size_of::<DumpSite>() + 8, 3), Err(Error::DamagedStacks)),
        ("frame-of-no-text", with_stacks_and(4 * size_of::<DumpSite>() + 40, 3), Err(Error::DamagedStacks)),
        ("stack-of-no-node", with_stacks_and(2 * size_of::<DumpSite>() - 20, 9), Err(Error::DamagedStacks)),
        ("cut-in-a-name", whole()[..whole().len() - 5].to_vec(), Err(Error::Truncated { site: 3, of: 4 })),
    ]
}

#[test]
fn each_file_of_the_corpus_is_read_or_refused_for_what_is_wrong() {
    for (name, file, expected) in files() {
        if std::env::var_os("MEMINTRO_WRITE_CORPUS").is_some() {
            std::fs::create_dir_all(corpus()).unwrap();
            std::fs::write(corpus().join(name), &file).unwrap();
        }
        assert_eq!(exercise(&file), expected, "{name}");
    }
}

#[test]
fn stacks_have_their_lines_the_innermost_first() {
    let file = with_stacks();
    let dump = parse(&file).unwrap();
    let stacks = dump.stacks.unwrap();
    let lines: Vec<Vec<_>> = stacks
        .all()
        .iter()
        .map(|stack| stacks.frames(stack).map(|frame| (frame.path, frame.line, frame.label)).collect())
        .collect();
    let (leaf, root) = ((&b"a.rb"[..], 12, Some(&b"work"[..])), (&b"b.rb"[..], 1, None));
    assert_eq!(lines, [vec![leaf, root], vec![(b"b.rb", 2, Some(b"work")), root], vec![]]);
}

#[test]
fn the_whole_corpus_and_any_cut_of_it_is_read_without_a_panic() {
    for (_, file, _) in files() {
        (0..=file.len()).for_each(|len| drop(exercise(&file[..len])));
    }
}
