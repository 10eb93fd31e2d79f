//! Reads any file as if the loader had mapped it. Run: `rake fuzz[module,60]`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/exercise.rs"]
mod exercise;
#[path = "../../tests/support/image.rs"]
mod image;

fuzz_target!(|file: &[u8]| {
    exercise::exercise(file);
});
