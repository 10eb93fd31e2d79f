//! Arbitrary answers of a process, read as `memintro watch` would read them. Run: `rake fuzz[answer,60]`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../src/units.rs"]
mod units;

#[path = "../../src/watch"]
mod watch {
    #![allow(dead_code)]
    mod connection;
    #[path = "../../fuzz/exercise/answer.rs"]
    pub mod exercise;
    mod peer;
    mod state;
    mod vitals;
    mod worker;
}

fuzz_target!(|answers: &[u8]| watch::exercise::exercise(answers));
