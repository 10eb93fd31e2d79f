//! Replays the fuzzer's corpus on stable Rust. Its files are made here: whole dumps, and dumps with one error each,
//! which must be refused for exactly that error.

use std::path::PathBuf;

use memintro_abi::{DUMP_MAGIC, DumpHeader, DumpSite, VERSION};
use memintro_analysis::raw_dump::Error;

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
    file.resize(size_of::<DumpHeader>(), 1);
    for (kind, estimated, name) in sites {
        let end = file.len() + size_of::<DumpSite>();
        file.extend(kind.to_ne_bytes());
        file.extend(12u32.to_ne_bytes());
        file.extend((name.len() as u32).to_ne_bytes());
        file.extend(u32::from(*estimated).to_ne_bytes());
        file.resize(end, 2);
        file.extend_from_slice(name);
        file.resize(file.len().next_multiple_of(8), 0);
    }
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
        ("cut-in-a-name", whole()[..whole().len() - 5].to_vec(), Err(Error::Truncated { site: 3, of: 4 })),
    ]
}

#[test]
fn each_file_of_the_corpus_is_read_or_refused_for_what_is_wrong() {
    for (name, file, expected) in files() {
        let path = corpus().join(name);
        if std::env::var_os("MEMINTRO_WRITE_CORPUS").is_some() {
            std::fs::write(&path, &file).unwrap();
        }
        assert_eq!(std::fs::read(&path).ok(), Some(file.clone()), "{name}: not the committed file");
        assert_eq!(exercise(&file), expected, "{name}");
    }
}

#[test]
fn the_whole_corpus_and_any_cut_of_it_is_read_without_a_panic() {
    let paths: Vec<_> = std::fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(paths.len() >= files().len(), "{} files", paths.len());
    for path in paths {
        let file = std::fs::read(path).unwrap();
        (0..=file.len()).for_each(|len| drop(exercise(&file[..len])));
    }
}
