//! Measures with criterion what the table costs a malloc/free pair. Each heap is a group, and each shape is a
//! benchmark in it.
//!
//! The time is the CPU time of all threads, so a group with several threads can be compared with one of a single
//! thread. A heap lives in a process of its own and serves all its shapes. After criterion's own lines come the
//! ratios of criterion's medians to the bare allocator. The bare allocator is measured before and after the table,
//! and a ratio is to the mean of the two; their difference shows how much the machine's speed changed meanwhile.
//!
//! `cargo bench -p memintro-bench --bench criterion [-- FILTER]`. Groups of 50 million blocks, which need 10 GB,
//! run only with `MEMINTRO_BENCH_HUGE=1`. `benches/table` measures the same in rounds, and also the bytes a block.

#[path = "table/cases.rs"]
mod cases;
#[path = "table/shapes.rs"]
mod shapes;
#[path = "table/traffic.rs"]
mod traffic;

use std::env;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use cases::{CASES, Case};
use criterion::{BenchmarkGroup, Criterion, SamplingMode, measurement::WallTime};
use memintro_tracker::in_band::InBand;
use memintro_tracker::table::Table;
use shapes::{Bare, Open, Radix, Records, Shape, Tracked};
use traffic::{Ring, Worker, cpu_ns, settle, trade};

/// Names the group that a process measures.
const GROUP: &str = "MEMINTRO_BENCH_GROUP";
const HUGE: &str = "MEMINTRO_BENCH_HUGE";

static TABLE: Table = Table::new();
static LOCKED: Tracked = Tracked { table: &TABLE, shared: true };
static ALONE: Tracked = Tracked { table: &TABLE, shared: false };
static IN_BAND_RECORDS: InBand = InBand::new();
static RECORDS: Records =
    Records { in_band: &IN_BAND_RECORDS, rest: Tracked { table: &TABLE, shared: true } };
static RECORDS_ALONE: Records =
    Records { in_band: &IN_BAND_RECORDS, rest: Tracked { table: &TABLE, shared: false } };

fn main() {
    match env::var(GROUP) {
        Ok(name) => measure(Case::named(&name)),
        Err(_) => in_processes(),
    }
}

/// Runs each group with these arguments, one after the other.
fn in_processes() {
    for case in CASES.iter().filter(|case| !case.huge || env::var_os(HUGE).is_some()) {
        case.run_apart(|program| program.args(env::args_os().skip(1)).env(GROUP, case.name));
    }
}

/// The folder in which criterion keeps its results, inside cargo's target folder.
fn folder() -> PathBuf {
    let program = env::current_exe().expect("own path");
    program.ancestors().nth(3).expect("target/release/deps").join("criterion")
}

fn measure(case: &'static Case) {
    let folder = folder();
    let mut criterion = Criterion::default().output_directory(&folder).configure_from_args();
    let mut group = criterion.benchmark_group(case.name);
    group
        .sampling_mode(SamplingMode::Flat)
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3));
    let mut heap = Heap::new(case, folder.join(case.name));
    heap.measure(&mut group, "radix", Box::leak(Box::new(Radix::new())));
    heap.measure(&mut group, "open", Box::leak(Box::new(Open::new())));
    // The bare allocator is measured before and after the product's table, because heaps of mixed sizes keep ageing.
    heap.measure(&mut group, "bare", &Bare);
    heap.measure(&mut group, "table", &LOCKED);
    if case.threads == 1 {
        heap.measure(&mut group, "alone", &ALONE);
    }
    heap.measure(&mut group, "records", &RECORDS);
    if case.threads == 1 {
        heap.measure(&mut group, "records_alone", &RECORDS_ALONE);
    }
    heap.measure(&mut group, "bare_again", &Bare);
    group.finish();
    heap.print_ratios();
}

/// The blocks of a case and the threads that allocate and free them. The threads stay, because an allocator gives
/// each thread a heap of its own. They are started for the first shape that is measured, because a filter may leave
/// out all shapes.
struct Heap {
    case: &'static Case,
    folder: PathBuf,
    crew: Option<Crew>,
    measured: Vec<&'static str>,
}

impl Heap {
    fn new(case: &'static Case, folder: PathBuf) -> Self {
        Self { case, folder, crew: None, measured: Vec::new() }
    }

    fn measure(
        &mut self,
        group: &mut BenchmarkGroup<'_, WallTime>,
        name: &'static str,
        shape: &'static impl Shape,
    ) {
        let mut ready = false;
        group.bench_function(name, |bencher| {
            if !ready {
                self.prepare(name, shape);
                ready = true;
            }
            bencher.iter_custom(|pairs| self.follow(shape, pairs));
        });
        if ready {
            self.crew().perform(Task::TakeOut(shape));
            shape.reset(0);
        }
    }

    /// Empties the shape and inserts the live blocks.
    fn prepare(&mut self, name: &'static str, shape: &'static impl Shape) {
        // Clears what an earlier shape left.
        _ = fs::remove_file(self.estimates(name));
        self.measured.push(name);
        shape.reset(self.case.blocks);
        self.crew().perform(Task::TakeIn(shape));
    }

    fn crew(&mut self) -> &mut Crew {
        let case = self.case;
        self.crew.get_or_insert_with(|| {
            let mut crew = Crew::new(case);
            // The heap's state has changed only after most of its blocks have been replaced.
            crew.perform(Task::Follow(&Bare, (4 * case.blocks).max(3_000_000) / case.threads));
            crew
        })
    }

    /// CPU time of this many pairs, which the threads share.
    fn follow(&mut self, shape: &'static impl Shape, pairs: u64) -> Duration {
        let each = pairs.div_ceil(self.case.threads as u64) as usize;
        let ns = self.crew().perform(Task::Follow(shape, each));
        Duration::from_secs_f64(ns * pairs as f64 / (each * self.case.threads) as f64 / 1e9)
    }

    fn estimates(&self, name: &str) -> PathBuf {
        self.folder.join(name).join("new").join("estimates.json")
    }

    /// Nanoseconds of a pair: criterion's median; `None` if criterion only listed or tried the benchmark.
    fn median(&self, name: &str) -> Option<f64> {
        let estimates: serde_json::Value =
            serde_json::from_reader(File::open(self.estimates(name)).ok()?).ok()?;
        estimates["median"]["point_estimate"].as_f64()
    }

    fn print_ratios(&self) {
        let (Some(first), Some(last)) = (self.median("bare"), self.median("bare_again")) else { return };
        let bare = f64::midpoint(first, last);
        for (name, ns) in self.measured.iter().filter_map(|name| Some((name, self.median(name)?))) {
            println!(
                "{:<14}{:>12}{:>10.1} ns{:>9.2}x{:>+10.1} ns",
                self.case.name,
                name,
                ns,
                ns / bare,
                ns - bare
            );
        }
        println!();
    }
}

/// The work that all threads do at the same time.
#[derive(Clone, Copy)]
enum Task {
    TakeIn(&'static dyn Followed),
    TakeOut(&'static dyn Followed),
    /// This many pairs in each thread.
    Follow(&'static dyn Followed, usize),
}

/// A shape behind a pointer: one call runs many pairs, which are compiled for the shape.
trait Followed: Sync {
    fn take_in(&self, worker: &mut Worker);
    fn take_out(&self, worker: &Worker);
    fn churn(&self, worker: &mut Worker, pairs: usize);
    fn trade(&self, size: usize, pairs: usize, mine: &Ring, theirs: &Ring);
}

impl<S: Shape> Followed for S {
    fn take_in(&self, worker: &mut Worker) {
        worker.take_in(self);
    }

    fn take_out(&self, worker: &Worker) {
        worker.take_out(self);
    }

    fn churn(&self, worker: &mut Worker, pairs: usize) {
        worker.churn(self, pairs);
    }

    fn trade(&self, size: usize, pairs: usize, mine: &Ring, theirs: &Ring) {
        trade(self, size, pairs, mine, theirs);
    }
}

/// One thread's share of a case.
enum Member {
    Churns(Box<Worker>),
    Trades(usize, &'static [Ring; 2], usize),
}

impl Member {
    fn new(case: &Case, rings: &'static [Ring; 2], thread: usize) -> Self {
        if case.exchange {
            settle(thread);
            return Self::Trades(case.sizes.table()[0], rings, thread);
        }
        Self::Churns(Box::new(Worker::new(case.blocks / case.threads, case.sizes, thread)))
    }

    /// CPU time that the work took, in nanoseconds.
    fn perform(&mut self, task: Task) -> f64 {
        let begun = cpu_ns();
        match (task, self) {
            (Task::TakeIn(shape), Self::Churns(worker)) => shape.take_in(worker),
            (Task::TakeOut(shape), Self::Churns(worker)) => shape.take_out(worker),
            (Task::TakeIn(_) | Task::TakeOut(_), Self::Trades(..)) => (),
            (Task::Follow(shape, pairs), Self::Churns(worker)) => shape.churn(worker, pairs),
            (Task::Follow(shape, pairs), Self::Trades(size, rings, thread)) => {
                shape.trade(*size, pairs, &rings[*thread], &rings[1 - *thread]);
            }
        }
        cpu_ns() - begun
    }
}

/// The threads of a case. The first one is the caller, so that a single thread really has no other beside it.
struct Crew {
    own: Member,
    others: Vec<(Sender<Task>, Receiver<f64>)>,
}

impl Crew {
    fn new(case: &'static Case) -> Self {
        let rings: &'static [Ring; 2] = Box::leak(Box::new([Ring::new(case.blocks), Ring::new(case.blocks)]));
        let others = (1..case.threads).map(|thread| {
            let (tasks, ours) = mpsc::channel();
            let (theirs, times) = mpsc::channel();
            thread::spawn(move || {
                let mut member = Member::new(case, rings, thread);
                // The channel ends when the other threads are dropped.
                while let Ok(task) = ours.recv() {
                    _ = theirs.send(member.perform(task));
                }
            });
            (tasks, times)
        });
        Self { others: others.collect(), own: Member::new(case, rings, 0) }
    }

    /// CPU time of all threads together, in nanoseconds.
    fn perform(&mut self, task: Task) -> f64 {
        for (tasks, _) in &self.others {
            tasks.send(task).expect("a thread that waits");
        }
        let own = self.own.perform(task);
        own + self.others.iter().map(|(_, times)| times.recv().expect("a thread's time")).sum::<f64>()
    }
}
