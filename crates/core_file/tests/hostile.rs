//! A small core file: what is found in it, and that nothing which is cut off, changed or made up ends the program.

use std::collections::BTreeMap;

use memintro_core_file::{Wanted, search_bytes};
use proptest::prelude::*;

#[path = "support/made.rs"]
mod made;

const WANTED: Wanted<'_> = Wanted { first_words: true, lines: None };

fn found(file: &[u8]) -> serde_json::Value {
    serde_json::from_str(&search_bytes(file, WANTED).unwrap()).unwrap()
}

#[test]
fn blocks_are_told_apart_by_what_points_to_them() {
    let answer = found(&made::core());
    let sums: BTreeMap<&str, u64> = ["leaked_blocks", "indirectly_leaked_blocks", "scanned_blocks"]
        .map(|key| (key, answer[key].as_u64().unwrap()))
        .into();
    // 4, one of 5 and 6, and 7.
    assert_eq!(
        sums,
        BTreeMap::from([("leaked_blocks", 3), ("indirectly_leaked_blocks", 1), ("scanned_blocks", 8)])
    );
    let first = &answer["groups"][0];
    assert_eq!((first["size"].as_u64(), first["count"].as_u64()), (Some(made::CHUNK - 8), Some(3)));
    assert_eq!(answer["notes"].as_array().unwrap().len(), 3, "{}", answer["notes"]);
}

#[test]
fn memory_of_the_hook_is_no_block_whatever_it_begins_with() {
    let (with, without) = (found(&made::core_with_hook()), found(&made::core()));
    assert_eq!(with["groups"], without["groups"]);
    assert_eq!((with["scanned_blocks"].as_u64(), with["leaked_blocks"].as_u64()), (Some(8), Some(3)));
}

#[test]
fn a_file_that_is_cut_off_anywhere_has_no_verdict() {
    let file = made::core();
    for end in 0..file.len() {
        assert!(search_bytes(&file[..end], WANTED).is_err(), "{end} of {}", file.len());
    }
    let why = search_bytes(&file[..file.len() - 100], WANTED).unwrap_err();
    assert!(why.contains("was cut off") && why.contains("100 of"), "{why}");
}

#[test]
fn what_disagrees_with_itself_has_no_verdict() {
    let file = made::core();
    let place = |bytes: u64| file.windows(8).rposition(|part| part == bytes.to_le_bytes()).unwrap();
    let changed = |at: usize, value: u64| {
        let mut file = file.clone();
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        search_bytes(&file, WANTED).unwrap_err()
    };
    // The last head of a chunk; the topmost one; the count of large blocks.
    assert!(changed(place(made::CHUNK | 1), 4001).contains("chunks cannot be read to their end"));
    assert!(changed(place((8192 - 8 * made::CHUNK) | 1), 1).contains("main arena"));
    assert!(changed(place(1 << 48), 1 << 48 | 7).contains("glibc has counted 7"));
    assert!(search_bytes(b"no core file", WANTED).unwrap_err().contains("this is no core file"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(changes in prop::collection::vec((0_usize..40_000, prop::sample::select(vec![
        0_u64, 1, u64::MAX, made::HEAP, made::block(3), made::PAGES + 16, made::LIBC + 64, 1 << 47, 112, 1 << 20,
    ])), 1..8)) {
        let mut file = made::core();
        for (at, value) in changes {
            let at = at % (file.len() - 8);
            file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let _ = search_bytes(&file, WANTED);
    }
}

/// `MEMINTRO_WRITE_CORPUS=1` writes the file that fuzzers begin with.
#[test]
fn the_fuzzers_corpus_is_that_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/core_file/small");
    if std::env::var_os("MEMINTRO_WRITE_CORPUS").is_some() {
        std::fs::write(path, made::core()).unwrap();
    }
    assert!(std::fs::read(path).unwrap() == made::core(), "write it anew: MEMINTRO_WRITE_CORPUS=1");
}
