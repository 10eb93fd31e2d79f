//! Any file, read as a raw dump. Run: `rake fuzz[raw_dump,60]`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/exercise.rs"]
mod exercise;

fuzz_target!(|file: &[u8]| {
    let _ = exercise::exercise(file);
});
