//! Measures the shapes in turn, round by round, on one heap.

use std::cell::RefCell;
use std::sync::{Barrier, Mutex};
use std::thread;

use crate::shapes::{Bare, Open, Radix, Records, Shape, Tracked};
use crate::traffic::{Ring, Sizes, Worker, cpu_ns, settle, trade};

/// One case.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    /// Live blocks of each thread.
    pub(crate) blocks: usize,
    /// Their sizes.
    pub(crate) sizes: Sizes,
    /// Threads.
    pub(crate) threads: usize,
    /// Pairs of malloc and free in a round, for each thread.
    pub(crate) pairs: usize,
    /// Rounds.
    pub(crate) rounds: usize,
}

/// The shapes of a case. Without `alone` there are several threads, without `records` another allocator than glibc's.
pub(crate) struct Shapes {
    pub(crate) radix: Radix,
    pub(crate) open: Open,
    pub(crate) table: Tracked,
    pub(crate) alone: Option<Tracked>,
    pub(crate) records: Option<Records>,
    pub(crate) records_alone: Option<Records>,
}

/// How many shapes there are, with the bare allocator, which is the first one.
pub(crate) const SHAPES: usize = 7;

/// The result of one shape.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    /// CPU time of a pair, the median of the rounds.
    pub(crate) median_ns: f64,
    /// The best round.
    pub(crate) fastest_ns: f64,
    /// The worst round.
    pub(crate) slowest_ns: f64,
    /// Resident bytes that the shape adds to a live block.
    pub(crate) bytes_per_block: f64,
}

/// Resident bytes of this process.
fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).expect("a number of pages") * 4096.0
}

/// Times of all rounds, by shape.
#[derive(Default)]
struct Times([Vec<f64>; SHAPES], [f64; SHAPES]);

impl Times {
    fn figures(mut self) -> [Figures; SHAPES] {
        std::array::from_fn(|shape| {
            let times = &mut self.0[shape];
            if times.is_empty() {
                return Figures::default();
            }
            times.sort_by(f64::total_cmp);
            Figures {
                median_ns: times[times.len() / 2],
                fastest_ns: times[0],
                slowest_ns: times[times.len() - 1],
                bytes_per_block: self.1[shape],
            }
        })
    }
}

/// The state that the threads of a case share.
struct Stage {
    spec: Spec,
    barrier: Barrier,
    times: Mutex<Times>,
    /// Sum of the threads' CPU time in this round.
    spent: Mutex<f64>,
    resident: Mutex<f64>,
}

impl Stage {
    fn new(spec: Spec) -> Self {
        Self {
            spec,
            barrier: Barrier::new(spec.threads),
            times: Mutex::default(),
            spent: Mutex::default(),
            resident: Mutex::default(),
        }
    }

    /// One round of one shape, run by all threads at once. Thread 0 records the times.
    fn round(
        &self,
        shape: &impl Shape,
        index: usize,
        thread: usize,
        take_in: impl FnOnce(),
        work: impl FnOnce(),
        finish: impl FnOnce(),
    ) {
        if thread == 0 {
            shape.reset(0);
            *self.resident.lock().unwrap() = resident_bytes();
            shape.reset(self.spec.blocks * self.spec.threads);
        }
        self.barrier.wait();
        take_in();
        self.barrier.wait();
        let start = cpu_ns();
        work();
        *self.spent.lock().unwrap() += cpu_ns() - start;
        self.barrier.wait();
        if thread == 0 {
            let pairs = (self.spec.pairs * self.spec.threads) as f64;
            let blocks = (self.spec.blocks * self.spec.threads) as f64;
            let times = &mut *self.times.lock().unwrap();
            times.0[index].push(std::mem::take(&mut *self.spent.lock().unwrap()) / pairs);
            times.1[index] = (resident_bytes() - *self.resident.lock().unwrap()) / blocks;
        }
        self.barrier.wait();
        finish();
        self.barrier.wait();
        if thread == 0 {
            shape.reset(0);
        }
        self.barrier.wait();
    }
}

/// Runs `work` in all threads of the case. The first thread is the caller, so that a single thread really has no
/// other beside it.
fn in_threads(threads: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for thread in 1..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
        work(0);
    });
}

/// Every thread frees its own blocks.
pub(crate) fn churn(spec: Spec, shapes: &Shapes) -> [Figures; SHAPES] {
    let stage = Stage::new(spec);
    in_threads(spec.threads, |thread| {
        let mut worker = Worker::new(spec.blocks, spec.sizes, thread);
        // The first rounds of a heap differ from the later ones, because its free lists are empty.
        worker.churn(&Bare, spec.pairs);
        for round in 1..=spec.rounds {
            let turn = Turn { stage: &stage, thread, is_last: round == spec.rounds };
            turn.churn(Some(&Bare), 0, &mut worker);
            turn.churn(Some(&shapes.radix), 1, &mut worker);
            turn.churn(Some(&shapes.open), 2, &mut worker);
            turn.churn(Some(&shapes.table), 3, &mut worker);
            turn.churn(shapes.alone.as_ref(), 4, &mut worker);
            turn.churn(shapes.records.as_ref(), 5, &mut worker);
            turn.churn(shapes.records_alone.as_ref(), 6, &mut worker);
        }
    });
    stage.times.into_inner().unwrap().figures()
}

/// One thread's part in a round.
struct Turn<'a> {
    stage: &'a Stage,
    thread: usize,
    is_last: bool,
}

impl Turn<'_> {
    fn churn(&self, shape: Option<&impl Shape>, index: usize, worker: &mut Worker) {
        let Some(shape) = shape else { return };
        let worker = RefCell::new(worker);
        self.stage.round(
            shape,
            index,
            self.thread,
            || worker.borrow_mut().take_in(shape),
            || worker.borrow_mut().churn(shape, self.stage.spec.pairs),
            || {
                if self.is_last {
                    worker.borrow().take_out(shape);
                }
            },
        );
    }

    fn trade(&self, shape: Option<&impl Shape>, index: usize, rings: &[Ring; 2]) {
        let Some(shape) = shape else { return };
        let spec = &self.stage.spec;
        let (mine, theirs) = (&rings[self.thread], &rings[1 - self.thread]);
        let work = || trade(shape, spec.sizes.table()[0], spec.pairs, mine, theirs);
        self.stage.round(shape, index, self.thread, || (), work, || ());
    }
}

/// Two threads; each frees what the other one allocates.
pub(crate) fn exchange(spec: Spec, shapes: &Shapes) -> [Figures; SHAPES] {
    let stage = Stage::new(spec);
    let rings = [Ring::new(spec.blocks), Ring::new(spec.blocks)];
    in_threads(2, |thread| {
        settle(thread);
        for round in 1..=spec.rounds {
            let turn = Turn { stage: &stage, thread, is_last: round == spec.rounds };
            turn.trade(Some(&Bare), 0, &rings);
            turn.trade(Some(&shapes.radix), 1, &rings);
            turn.trade(Some(&shapes.open), 2, &rings);
            turn.trade(Some(&shapes.table), 3, &rings);
            turn.trade(shapes.records.as_ref(), 5, &rings);
        }
    });
    stage.times.into_inner().unwrap().figures()
}
