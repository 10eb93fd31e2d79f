//! Measures what the table costs a malloc/free pair, as a ratio to the bare allocator.
//!
//! Each case runs in a process of its own. There one heap serves all shapes in turn, in five rounds: the shape is
//! emptied, the live blocks are inserted, and then come the calls of malloc and free. Seventy of a hundred frees hit
//! one of the last 512 blocks of the thread, thirty any of its blocks. Times are CPU time of the threads, medians of
//! the rounds. A block is freed as a hook does it: fetch the block's header, remove the block from the table, free
//! it. In-band records need 8 bytes more of the allocator: before their rounds, and after them, all blocks are
//! replaced. After the last round each shape must have all live blocks, with their sizes.
//!
//! `cargo bench -p memintro-bench --bench table [-- [--quick] CASE…]`. `list` lists the cases, `all` adds those of 50
//! million blocks, which need 10 GB. `--quick` is one round of tiny sizes, in which no figure means anything.
//! `MEMINTRO_BENCH_ALLOCATOR` names the library of another allocator, which is preloaded for the cases. `bin/bench
//! table` has options for both.

mod cases;
mod rounds;
mod shapes;
mod traffic;

use std::env;
use std::ffi::{CStr, OsString};
use std::fs;
use std::mem;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use cases::{CASES, Case};
use memintro_tracker::in_band::InBand;
use memintro_tracker::table::Table;
use rounds::{Figures, SHAPES, Shapes, Spec};
use shapes::{Open, Radix, Records, Tracked};

static TABLE: Table = Table::new();
static IN_BAND_RECORDS: InBand = InBand::new();

/// Names the library of another allocator.
const ALLOCATOR: &str = "MEMINTRO_BENCH_ALLOCATOR";

const NAMES: [(&str, &str); SHAPES] = [
    ("bare", "malloc and free alone, to which ratio and +ns compare"),
    ("radix", "a word for each 16 bytes of the address space"),
    ("open", "open addressing with a scattering hash"),
    ("table", "the product's table, with locks, as for several threads"),
    ("alone", "the same with plain stores, as for a single thread"),
    (
        "records",
        "the product's in-band records, for several threads; blocks of more than 32 KiB are in its table",
    ),
    ("records-alone", "the same with plain stores, as for a single thread"),
];

fn main() -> ExitCode {
    let mut arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let all = arguments.len();
    arguments.retain(|argument| argument != "--quick");
    let is_quick = arguments.len() < all;
    match arguments.first().map(String::as_str) {
        Some("list") => CASES.iter().for_each(|case| println!("{}", case.name)),
        Some("run") => run(&arguments[1], is_quick),
        Some("all") => run_apart(CASES.iter(), is_quick),
        None => run_apart(CASES.iter().filter(|case| !case.huge), is_quick),
        Some(_) => {
            let is_case = |name: &&String| CASES.iter().any(|case| case.name == **name);
            if let Some(unknown) = arguments.iter().find(|name| !is_case(name)) {
                eprintln!("table: there is no case {unknown} (`list` lists them)");
                return ExitCode::from(2);
            }
            run_apart(CASES.iter().filter(|case| arguments.iter().any(|name| name == case.name)), is_quick);
        }
    }
    ExitCode::SUCCESS
}

/// Runs cases, each in a process of its own, and with the other allocator if there shall be one.
fn run_apart(cases: impl Iterator<Item = &'static Case>, is_quick: bool) {
    let other = env::var_os(ALLOCATOR);
    println!("allocator: {}", other.as_ref().map_or("glibc".into(), |library| library.to_string_lossy()));
    for (name, what) in NAMES.iter().filter(|(name, _)| other.is_none() || !name.starts_with("records")) {
        println!("{name:<14} {what}");
    }
    println!(
        "\n{:<14}{:>14}{:>10}{:>9}{:>9}{:>9}{:>9}{:>12}",
        "case", "shape", "ns/pair", "ratio", "+ns", "fastest", "slowest", "bytes/block"
    );
    for case in cases {
        case.run_apart(|program| {
            preload(program, other.as_ref()).args(["run", case.name]).args(is_quick.then_some("--quick"))
        });
    }
}

fn preload<'a>(program: &'a mut Command, library: Option<&OsString>) -> &'a mut Command {
    match library {
        Some(library) => program.env("LD_PRELOAD", library),
        None => program,
    }
}

/// The library that answers malloc in this process.
fn allocator() -> PathBuf {
    let mut info = mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: a function's address, and room for the answer, which is there if it is not 0.
    let name = unsafe {
        assert_ne!(
            libc::dladdr(libc::malloc as *const libc::c_void, info.as_mut_ptr()),
            0,
            "malloc is nowhere"
        );
        CStr::from_ptr(info.assume_init().dli_fname)
    };
    fs::canonicalize(name.to_str().expect("a path")).expect("a library")
}

fn run(name: &str, is_quick: bool) {
    let case = Case::named(name);
    let other = env::var_os(ALLOCATOR);
    if let Some(library) = &other {
        // The loader only warns if it cannot load what is to be preloaded, and goes on.
        let found = allocator();
        assert!(
            fs::canonicalize(library).is_ok_and(|library| library == found),
            "{} answers malloc, not {}",
            found.display(),
            library.display()
        );
    }
    let (blocks, pairs, rounds) = match case.blocks {
        blocks if is_quick => (blocks.min(10_000), 50_000, 1),
        blocks if blocks < 1_000_000 => (blocks, 8_000_000, 5),
        blocks => (blocks, 3_000_000, 5),
    };
    let threads = case.threads;
    let spec = Spec { blocks: blocks / threads, sizes: case.sizes, threads, pairs: pairs / threads, rounds };
    let table = |shared| Tracked { table: &TABLE, shared };
    let records = |shared| Records { in_band: &IN_BAND_RECORDS, rest: table(shared) };
    let shapes = Shapes {
        radix: Radix::new(),
        open: Open::new(),
        table: table(true),
        alone: (threads == 1).then(|| table(false)),
        records: other.is_none().then(|| records(true)),
        records_alone: (other.is_none() && threads == 1).then(|| records(false)),
    };
    print(name, &if case.exchange { rounds::exchange(spec, &shapes) } else { rounds::churn(spec, &shapes) });
}

fn print(name: &str, figures: &[Figures; SHAPES]) {
    let bare = figures[0].median_ns;
    for ((shape, _), figures) in NAMES.iter().zip(figures).filter(|(_, figures)| figures.median_ns > 0.0) {
        println!(
            "{:<14}{:>14}{:>10.1}{:>9.2}{:>9.1}{:>9.1}{:>9.1}{:>12.1}",
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
