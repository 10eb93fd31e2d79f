//! Reads a dump on all processors: each thread takes the next block and parses it; one takes the results in their order.

use super::batch::Batch;
use super::line::Line;
use super::lines::Lines;
use super::source::{Block, Source};
use super::{Problem, Wants};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// More threads would only wait for the one that takes the results.
const MOST_THREADS: usize = 6;
/// Results that may wait for each thread.
const AHEAD: usize = 2;

/// The receiver of the batches.
pub trait Sink {
    /// Takes the next batch; an error ends the reading.
    fn take(&mut self, batch: &Batch) -> Result<(), Problem>;
}

/// Facts about the reading that the sink does not keep.
#[derive(Debug, Default)]
pub struct ReadOutcome {
    /// Bytes of the dump, unpacked.
    pub bytes: u64,
    /// The first few problems.
    pub problems: Vec<Problem>,
    /// Lines that were left out.
    pub bad_lines: u64,
}

/// A buffer that one long line has made larger is given back.
const KEPT_BYTES: usize = 1 << 21;
/// More problems are only counted.
const MOST_PROBLEMS: usize = 10;

impl ReadOutcome {
    fn note(&mut self, batch: &Batch) {
        self.bytes += batch.block.bytes.len() as u64;
        self.bad_lines += batch.bad_lines;
        for problem in &batch.problems {
            self.complain(problem.clone());
        }
    }

    fn complain(&mut self, problem: Problem) {
        // The problem that ends the reading is always reported.
        if self.problems.len() < MOST_PROBLEMS || problem.ends {
            self.problems.push(problem);
        }
    }
}

/// What the threads share.
struct Shared {
    source: Source,
    end: Option<Problem>,
    done: bool,
}

/// Reads everything, and gives it to the sink in the order of the dump.
pub fn read(source: Source, wants: Wants, sink: &mut impl Sink) -> ReadOutcome {
    let threads = thread_count();
    let shared = Arc::new(Mutex::new(Shared { source, end: None, done: false }));
    let (give, taken) = sync_channel::<Batch>(threads * AHEAD);
    // As many buffers as can be under way, so that none is made twice.
    let (recycle, buffers) = sync_channel::<Batch>(threads * (AHEAD + 1));
    for _ in 0..threads * (AHEAD + 1) {
        let _ = recycle.try_send(Batch::default());
    }
    let buffers = Arc::new(Mutex::new(buffers));
    let mut reading = ReadOutcome::default();
    thread::scope(|scope| {
        let started = (0..threads)
            .map_while(|_| {
                let (shared, buffers, give) = (Arc::clone(&shared), Arc::clone(&buffers), give.clone());
                let work = move || work(&shared, &buffers, &give, wants);
                thread::Builder::new().spawn_scoped(scope, work).ok()
            })
            .count();
        drop(give);
        if started == 0 {
            return read_alone(&shared, wants, sink, &mut reading);
        }
        drain(&taken, &recycle, sink, &mut reading);
        // Threads that still work end when their results have no receiver.
        drop((taken, recycle));
    });
    if let Ok(mut shared) = shared.lock()
        && let Some(problem) = shared.end.take()
    {
        reading.complain(problem);
    }
    reading
}

/// For a user who may have no more threads.
fn read_alone(shared: &Mutex<Shared>, wants: Wants, sink: &mut impl Sink, reading: &mut ReadOutcome) {
    let (mut lines, mut batch) = (Lines::default(), Batch::default());
    while take_block(shared, &mut batch.block) {
        batch.parse(&mut lines, wants);
        reading.note(&batch);
        if let Err(problem) = sink.take(&batch) {
            return reading.complain(problem);
        }
        shrink(&mut batch);
    }
}

fn work(shared: &Mutex<Shared>, buffers: &Mutex<Receiver<Batch>>, give: &SyncSender<Batch>, wants: Wants) {
    let mut lines = Lines::default();
    loop {
        let Ok(Ok(mut batch)) = buffers.lock().map(|buffers| buffers.recv()) else { return };
        if !take_block(shared, &mut batch.block) {
            return;
        }
        batch.parse(&mut lines, wants);
        if give.send(batch).is_err() {
            return;
        }
    }
}

/// Takes lines in no order: one for each thread.
pub trait Fold: Send {
    /// Takes the next line.
    fn line(&mut self, line: &Line);

    /// Its approximate bytes, for a budget.
    fn memory_bytes(&self) -> usize;
}

/// Reads everything in no order, which is faster. Returns the result of each thread.
pub fn fold<F: Fold>(
    source: Source,
    wants: Wants,
    budget: Option<usize>,
    make: impl Fn() -> F,
) -> (Vec<F>, ReadOutcome) {
    let shared = Mutex::new(Shared { source, end: None, done: false });
    let folds: Vec<F> = (0..thread_count()).map(|_| make()).collect();
    let most = budget.map(|bytes| bytes / folds.len());
    let mut reading = ReadOutcome::default();
    let done = thread::scope(|scope| {
        let shared = &shared;
        let mut folds = folds.into_iter();
        let own = folds.next();
        // The user may have no more threads: this one does all remaining work.
        let threads: Vec<_> = folds
            .map_while(|fold| {
                let work = move || fold_blocks(shared, fold, wants, most);
                thread::Builder::new().spawn_scoped(scope, work).ok()
            })
            .collect();
        let own = own.map(|fold| fold_blocks(shared, fold, wants, most));
        own.into_iter().chain(threads.into_iter().filter_map(|thread| thread.join().ok())).collect::<Vec<_>>()
    });
    let mut folds = Vec::new();
    for (fold, part) in done {
        reading.bytes += part.bytes;
        reading.bad_lines += part.bad_lines;
        part.problems.into_iter().for_each(|problem| reading.complain(problem));
        folds.push(fold);
    }
    reading.problems.sort_by_key(|problem| problem.offset);
    if let Some(problem) = shared.into_inner().ok().and_then(|shared| shared.end) {
        reading.complain(problem);
    }
    (folds, reading)
}

fn fold_blocks<F: Fold>(
    shared: &Mutex<Shared>,
    mut fold: F,
    wants: Wants,
    most: Option<usize>,
) -> (F, ReadOutcome) {
    let (mut lines, mut block, mut reading) = (Lines::default(), Block::default(), ReadOutcome::default());
    while take_block(shared, &mut block) {
        lines.each(&block, wants, |line| {
            if line.is_known()? {
                fold.line(line);
            }
            Ok(())
        });
        reading.bytes += block.bytes.len() as u64;
        reading.bad_lines += lines.bad_lines;
        for problem in lines.problems.drain(..) {
            reading.complain(problem);
        }
        if most.is_some_and(|most| fold.memory_bytes() > most)
            && let Ok(mut shared) = shared.lock()
        {
            shared.done = true;
            shared.end = Some(Problem { offset: block.offset, message: over_budget(), ends: true });
        }
        if block.bytes.capacity() > KEPT_BYTES {
            block.bytes = Vec::new();
        }
    }
    (fold, reading)
}

/// The message for a dump that takes too much memory.
pub fn over_budget() -> String {
    "the dump takes more memory than allowed; --max-memory-bytes allows more".to_string()
}

fn thread_count() -> usize {
    thread::available_parallelism().map_or(2, |count| count.get().clamp(1, MOST_THREADS))
}

/// Fills the block with the next lines; false: there are none.
fn take_block(shared: &Mutex<Shared>, block: &mut Block) -> bool {
    let Ok(mut shared) = shared.lock() else { return false };
    if shared.done {
        return false;
    }
    match shared.source.next(block) {
        Ok(more) => {
            shared.done = !more;
            more
        }
        Err(problem) => {
            shared.end = Some(problem);
            shared.done = true;
            true
        }
    }
}

fn drain(
    taken: &Receiver<Batch>,
    recycle: &SyncSender<Batch>,
    sink: &mut impl Sink,
    reading: &mut ReadOutcome,
) {
    let mut next = 0;
    let mut early = BTreeMap::new();
    while let Ok(batch) = taken.recv() {
        early.insert(batch.block.number, batch);
        while let Some(mut batch) = early.remove(&next) {
            next += 1;
            reading.note(&batch);
            if let Err(problem) = sink.take(&batch) {
                reading.complain(problem);
                return;
            }
            shrink(&mut batch);
            let _ = recycle.try_send(batch);
        }
    }
}

/// Gives back the memory of one huge line.
fn shrink(batch: &mut Batch) {
    if batch.block.bytes.capacity() > KEPT_BYTES {
        *batch = Batch::default();
    }
}
