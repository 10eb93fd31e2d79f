//! Any log, read as `memintro plot` would. Run: `rake fuzz[log,60]`.
#![no_main]

use libfuzzer_sys::fuzz_target;

// Only the readers are built, because the crate's libraries for plots and terminals would take minutes and are not
// used.
#[path = "../../src/plot"]
mod plot {
    #![allow(dead_code)]
    pub mod history;
    mod json_line;
    pub mod memory_line;
    pub mod record;
    pub mod stamp;
}

#[path = "../exercise/log.rs"]
mod exercise;

fuzz_target!(|log: &[u8]| exercise::exercise(log));
