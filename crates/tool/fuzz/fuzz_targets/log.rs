//! Any log, read as `memintro plot` would. Run: `cargo +nightly fuzz run log`.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The readers alone: the crate's libraries for charts and terminals would take minutes to build for nothing.
#[path = "../../src/plot"]
mod plot {
    #![allow(dead_code)]
    pub mod history;
    mod json_line;
    pub mod line;
    pub mod stamp;
}

fuzz_target!(|log: &[u8]| {
    let mut history = plot::history::History::default();
    history.take(0, log);
    history.sort();
    let lines = history.skipped + history.timeless + history.samples() as u64;
    let ends = log.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(lines, ends + u64::from(log.last().is_some_and(|byte| *byte != b'\n')));
    for curve in &history.curves {
        assert!(curve.samples.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(curve.samples.iter().all(|sample| sample.figures.iter().all(|figure| figure.is_nan() || *figure >= 0.0)));
    }
    assert_eq!(history.period().is_some(), history.samples() > 0);
});
