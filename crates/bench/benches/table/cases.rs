//! The heaps that the shapes are measured on.

use std::env;
use std::process::Command;

use crate::traffic::Sizes;

/// One heap and the traffic on it.
pub(crate) struct Case {
    /// Blocks, size, threads.
    pub(crate) name: &'static str,
    /// Live blocks of all threads.
    pub(crate) blocks: usize,
    /// Their sizes.
    pub(crate) sizes: Sizes,
    /// Threads.
    pub(crate) threads: usize,
    /// Each of two threads frees the blocks of the other one.
    pub(crate) exchange: bool,
    /// Runs only when it is asked for.
    pub(crate) huge: bool,
}

const fn case(name: &'static str, blocks: usize, sizes: Sizes, threads: usize) -> Case {
    Case { name, blocks, sizes, threads, exchange: false, huge: blocks > 10_000_000 }
}

impl Case {
    /// The case with this name.
    pub(crate) fn named(name: &str) -> &'static Self {
        CASES.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case {name}"))
    }

    /// Runs the case in a process of its own, to which `tell` passes its name.
    pub(crate) fn run_apart(&self, tell: impl FnOnce(&mut Command) -> &mut Command) {
        let mut program = Command::new(env::current_exe().expect("own path"));
        let status = tell(&mut program).status().expect("own program");
        assert!(status.success(), "{} failed: {status}", self.name);
    }
}

/// All cases.
pub(crate) const CASES: [Case; 18] = [
    case("1k-64B", 1_000, Sizes::Fixed(64), 1),
    case("1k-64B-2t", 1_000, Sizes::Fixed(64), 2),
    case("1k-64B-4t", 1_000, Sizes::Fixed(64), 4),
    case("1k-even", 1_000, Sizes::Even, 1),
    case("1k-even-2t", 1_000, Sizes::Even, 2),
    case("5M-64B", 5_000_000, Sizes::Fixed(64), 1),
    case("5M-64B-2t", 5_000_000, Sizes::Fixed(64), 2),
    case("5M-64B-4t", 5_000_000, Sizes::Fixed(64), 4),
    case("5M-1KiB", 5_000_000, Sizes::Fixed(1024), 1),
    case("5M-1KiB-2t", 5_000_000, Sizes::Fixed(1024), 2),
    case("5M-1KiB-4t", 5_000_000, Sizes::Fixed(1024), 4),
    case("5M-mixed", 5_000_000, Sizes::Mixed, 1),
    case("5M-mixed-2t", 5_000_000, Sizes::Mixed, 2),
    case("5M-mixed-4t", 5_000_000, Sizes::Mixed, 4),
    Case { exchange: true, ..case("exchange-64B", 8_192, Sizes::Fixed(64), 2) },
    case("50M-64B", 50_000_000, Sizes::Fixed(64), 1),
    case("50M-64B-2t", 50_000_000, Sizes::Fixed(64), 2),
    case("50M-64B-4t", 50_000_000, Sizes::Fixed(64), 4),
];
