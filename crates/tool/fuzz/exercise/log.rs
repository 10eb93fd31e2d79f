//! Reads a log as `memintro plot` would, and checks invariants. For the fuzzer and for the replay of its
//! corpus.

use crate::plot::history::History;

pub(crate) fn exercise(log: &[u8]) {
    let mut history = History::default();
    history.take(0, log);
    history.sort();
    let lines = history.skipped + history.timeless + history.samples() as u64;
    let ends = log.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(lines, ends + u64::from(log.last().is_some_and(|byte| *byte != b'\n')));
    for curve in &history.curves {
        assert!(curve.samples.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let figures = || curve.samples.iter().flat_map(|sample| sample.figures);
        assert!(figures().all(|figure| figure.is_nan() || figure >= 0.0));
    }
    assert_eq!(history.period().is_some(), history.samples() > 0);
}
