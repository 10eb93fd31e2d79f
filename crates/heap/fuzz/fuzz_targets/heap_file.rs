//! Reads any file as a heap dump: plain, gzip or zstd by its first bytes. Run: `rake fuzz[heap_file,60]`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../exercise/heap_file.rs"]
mod exercise;

fuzz_target!(|file: &[u8]| exercise::exercise(file));
