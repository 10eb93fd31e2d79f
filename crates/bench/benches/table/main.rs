//! Measures what the table costs a malloc/free pair, as a ratio to the bare allocator.
//!
//! Each case runs in a process of its own. There one heap serves all shapes in turn, in five rounds: the shape is
//! emptied, the live blocks are inserted, and then come the calls of malloc and free. Seventy of a hundred frees hit
//! one of the last 512 blocks of the thread, thirty any of its blocks. Times are CPU time of the threads, medians of
//! the rounds. A block is freed as a hook does it: fetch the block's header, remove the block from the table, free
//! it.
//!
//! `cargo bench -p memintro-bench --bench table [-- CASE…]`. `-- list` lists the cases, `-- all` adds those of 50
//! million blocks, which need 10 GB.

mod cases;
mod rounds;
mod shapes;
mod traffic;

use cases::{CASES, Case};
use memintro_tracker::table::Table;
use rounds::{Figures, Spec};
use shapes::{Bare, Open, Radix, Tracked};

static TABLE: Table = Table::new();

/// `alone` is the product's table while the hook knows of one thread only; it stays empty for several.
const SHAPES: [&str; 5] = ["bare", "radix", "open", "table", "alone"];

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
                    case.run_apart(|program| program.args(["run", case.name]));
                }
            }
        }
    }
}

fn run(name: &str) {
    let case = Case::named(name);
    let spec = Spec {
        blocks: case.blocks / case.threads,
        sizes: case.sizes,
        threads: case.threads,
        pairs: if case.blocks < 1_000_000 { 8_000_000 } else { 3_000_000 } / case.threads,
        rounds: 5,
    };
    let (radix, open) = (Radix::new(), Open::new());
    let table = Tracked { table: &TABLE, shared: true };
    let alone = Tracked { table: &TABLE, shared: spec.threads > 1 };
    let figures = if case.exchange {
        rounds::exchange(spec, &Bare, &radix, &open, &table, &alone)
    } else {
        rounds::churn(spec, &Bare, &radix, &open, &table, &alone)
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
