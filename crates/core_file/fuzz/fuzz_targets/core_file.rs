//! Any file, searched as a core file. Run: `rake fuzz[core_file,60]`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memintro_core_file::{Wanted, search_bytes};

fuzz_target!(|file: &[u8]| {
    let _ = search_bytes(file, Wanted { first_words: true, lines: None });
});
