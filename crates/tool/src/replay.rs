//! Replays the fuzzers' corpora on stable Rust.

use std::path::PathBuf;

#[path = "../fuzz/exercise/log.rs"]
mod log;

fn each(corpus: &str, exercise: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(corpus);
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 3, "{} files", files.len());
    for path in files {
        let input = std::fs::read(&path).unwrap();
        // Each prefix of it is read as well.
        for len in (0..input.len()).step_by(input.len() / 50 + 1).chain([input.len()]) {
            exercise(&input[..len]);
        }
    }
}

#[test]
fn logs_are_read_without_a_panic() {
    each("log", log::exercise);
}

#[test]
fn answers_are_taken_without_a_panic() {
    each("answer", crate::watch::exercise::exercise);
}
