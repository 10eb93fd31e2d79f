//! Runs every command on a heap dump, and checks invariants. For the fuzzer, for the replay of its corpus,
//! and for the tests with hostile lines.

use memintro_heap::answer::Answer;
use memintro_heap::diff::{Objects, Signs, diff};
use memintro_heap::dominators::Dominators;
use memintro_heap::graph::Graph;
use memintro_heap::holders::holders;
use memintro_heap::lists::{dominators, generations, histo, retained_by_class, top};
use memintro_heap::options::Options;
use memintro_heap::paths::{path, referrers, retained};
use memintro_heap::read::Wants;
use memintro_heap::read::load::ReadOutcome;
use memintro_heap::read::source::Source;
use memintro_heap::strings::{Strings, duplicates, strings};
use memintro_heap::tally::Tally;
use memintro_heap::ways::Ways;
use std::io::Cursor;

/// Bytes that a dump may take; a larger one gets an error message.
const BUDGET: usize = 1 << 28;

pub(crate) fn exercise(dump: &[u8]) {
    let Some(graph) = load(dump) else { return };
    holds(&graph.reading);
    let everything = Options { addresses: vec![0x10, 0x18], ..options() };
    for options in [everything, Options { class: Some("STRING".into()), ..options() }] {
        for answer in [path, referrers, retained] {
            let _ = answer(&graph, &options);
        }
    }
    let ways = Ways::find(&graph);
    (0..graph.len() as u32).for_each(|object| assert!(!ways.text(&graph, object).is_empty()));
    of_lines(dump, &graph);
    // These consume parts of the object graph.
    type Question = fn(&mut Graph, &Options) -> Result<Answer, String>;
    let questions: [(Question, Options); 4] = [
        (holders, Options { class: Some("STRING".into()), ..options() }),
        (top, options()),
        (top, Options { by: Some("bytes".into()), ..options() }),
        (dominators, options()),
    ];
    for (answer, options) in questions {
        if let Some(Ok(answer)) = load(dump).map(|mut graph| answer(&mut graph, &options)) {
            assert!(!answer.sentence.is_empty());
            assert!(!answer.lines.contains('\u{1b}'), "{:?}", answer.lines);
        }
    }
    let Some(mut graph) = load(dump) else { return };
    let total = graph.total_bytes();
    let tree = Dominators::compute(&mut graph);
    assert!(tree.retained[0] <= total);
    retained_by_class(&graph, &tree);
}

fn load(dump: &[u8]) -> Option<Graph> {
    let wants = Wants { references: true, edges: true, values: true, sites: true };
    Some(Graph::load(open(dump).ok()?, wants, Some(BUDGET)))
}

/// Questions that need no object graph: they read on several threads, in no order.
fn of_lines(dump: &[u8], graph: &Graph) {
    let (Ok(source), Ok(copy), Ok(once), Ok(again)) = (open(dump), open(dump), open(dump), open(dump)) else {
        return;
    };
    let tally = Tally::load(source, Some(BUDGET));
    holds(&tally.reading);
    // An object graph leaves out what has an address twice.
    assert!(tally.total().objects >= graph.len() as u64);
    for by in ["class", "type", "line"] {
        let _ = histo(&tally, &Options { by: Some(by.into()), ..options() });
    }
    let _ = generations(&tally, &options());
    let found = Strings::load(copy, &options());
    let _ = (duplicates(&found, &options()), strings(&found, &options()));
    let mut signs = Signs::default();
    let dumps = [once, again].map(|source| Objects::load(source, Some(BUDGET), &mut signs));
    let _ = diff(&dumps, &signs, &options());
}

/// The message of a problem names a place within the bytes that were read.
fn holds(reading: &ReadOutcome) {
    for problem in &reading.problems {
        assert!(!problem.message.is_empty());
        assert!(problem.offset <= reading.bytes, "{problem:?} of {}", reading.bytes);
    }
    assert!(reading.problems.len() as u64 <= reading.bad_lines + 1);
}

fn open(dump: &[u8]) -> std::io::Result<Source> {
    Source::new(Cursor::new(dump.to_vec()))
}

fn options() -> Options {
    Options { top: 5, paths: 3, budget: Some(BUDGET), ..Options::default() }
}
