//! What the table costs a malloc/free pair, as a ratio to the bare allocator.
//!
//! Each case runs in a process of its own. There, one heap serves all shapes in turn, five rounds: the shape is emptied,
//! takes in the blocks that live, and then follows the traffic of malloc and free. Seventy of a hundred frees hit one of
//! the last 512 blocks of the thread, thirty any of its blocks. Times are CPU time of the threads, medians of the rounds.
//! The frees are made as a hook makes them: fetch the block's header, take the block from the table, free it.
//!
//! `cargo bench -p memintro-tracker --bench table [-- CASE…]`; cases are listed by `-- list`, `-- all` adds those of 50
//! million blocks, which need 10 GB.

mod shapes;
mod traffic;

use std::process::Command;

use memintro_tracker::table::Table;
use shapes::{Bare, Lines, Open, Radix};
use traffic::{Figures, Sizes, Spec};

static TABLE: Table = Table::new();

/// `alone` is the product's table while the hook knows of one thread only; it stays empty for several.
const SHAPES: [&str; 5] = ["bare", "radix", "open", "table", "alone"];

struct Case {
    name: &'static str,
    blocks: usize,
    sizes: Sizes,
    threads: usize,
    /// Blocks are freed by the other one of two threads.
    exchange: bool,
    /// Only when asked for.
    huge: bool,
}

const fn case(name: &'static str, blocks: usize, sizes: Sizes, threads: usize) -> Case {
    Case { name, blocks, sizes, threads, exchange: false, huge: blocks > 10_000_000 }
}

const CASES: [Case; 16] = [
    case("1k-64B", 1_000, Sizes::Fixed(64), 1),
    case("1k-64B-2t", 1_000, Sizes::Fixed(64), 2),
    case("1k-64B-4t", 1_000, Sizes::Fixed(64), 4),
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

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.first().map(String::as_str) {
        Some("list") => CASES.iter().for_each(|case| println!("{}", case.name)),
        Some("run") => run(&arguments[1]),
        first => {
            println!(
                "{:<14}{:>8}{:>10}{:>9}{:>9}{:>9}{:>9}{:>12}",
                "case", "shape", "ns/pair", "ratio", "+ns", "fastest", "slowest", "bytes/block"
            );
            for case in &CASES {
                let wanted = match first {
                    None => !case.huge,
                    Some("all") => true,
                    Some(_) => arguments.iter().any(|argument| argument == case.name),
                };
                if wanted {
                    let program = std::env::current_exe().expect("own path");
                    let status =
                        Command::new(program).args(["run", case.name]).status().expect("own program");
                    assert!(status.success(), "{} failed: {status}", case.name);
                }
            }
        }
    }
}

fn run(name: &str) {
    let case =
        CASES.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case {name}; see `list`"));
    let spec = Spec {
        blocks: case.blocks / case.threads,
        sizes: case.sizes,
        threads: case.threads,
        pairs: if case.blocks < 1_000_000 { 8_000_000 } else { 3_000_000 } / case.threads,
        rounds: 5,
    };
    let (radix, open) = (Radix::new(), Open::new());
    let table = Lines { table: &TABLE, shared: true };
    let alone = Lines { table: &TABLE, shared: spec.threads > 1 };
    let figures = if case.exchange {
        traffic::exchange(spec, &Bare, &radix, &open, &table, &alone)
    } else {
        traffic::churn(spec, &Bare, &radix, &open, &table, &alone)
    };
    print(name, &figures);
}

fn print(name: &str, figures: &[Figures; 5]) {
    let bare = figures[0].median_ns;
    for (shape, figures) in SHAPES.iter().zip(figures).filter(|(_, figures)| figures.median_ns > 0.0) {
        println!(
            "{:<14}{:>8}{:>10.1}{:>9.2}{:>9.1}{:>9.1}{:>9.1}{:>12.1}",
            name,
            shape,
            figures.median_ns,
            figures.median_ns / bare,
            figures.median_ns - bare,
            figures.fastest_ns,
            figures.slowest_ns,
            figures.bytes_per_block,
        );
    }
}
