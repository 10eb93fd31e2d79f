//! Reads a dump on all processors: each thread takes the next block and parses it; one takes the results in their order.

use super::batch::Batch;
use super::source::Source;
use super::{Problem, Wants};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// More threads would only wait for the one that takes the results.
const MOST_THREADS: usize = 6;
/// Results that may wait for each thread.
const AHEAD: usize = 2;

/// What takes the batches.
pub trait Sink {
    /// Takes the next batch; an error ends the reading.
    fn take(&mut self, batch: &Batch) -> Result<(), Problem>;
}

/// What was read, as far as that is not the sink's matter.
#[derive(Debug, Default)]
pub struct Reading {
    /// Bytes of the dump, unpacked.
    pub bytes: u64,
    /// The first few things that were wrong.
    pub problems: Vec<Problem>,
    /// Lines that were left out.
    pub bad_lines: u64,
}

/// More problems are only counted.
const MOST_PROBLEMS: usize = 10;

impl Reading {
    fn note(&mut self, batch: &Batch) {
        self.bytes += batch.block.bytes.len() as u64;
        self.bad_lines += batch.bad_lines;
        for problem in &batch.problems {
            self.complain(problem.clone());
        }
    }

    fn complain(&mut self, problem: Problem) {
        // What ends the reading is always told.
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
pub fn read(source: Source, wants: Wants, sink: &mut impl Sink) -> Reading {
    let threads = thread::available_parallelism().map_or(2, |count| count.get().clamp(1, MOST_THREADS));
    let shared = Arc::new(Mutex::new(Shared { source, end: None, done: false }));
    let (give, taken) = sync_channel::<Batch>(threads * AHEAD);
    // As many buffers as can be under way, so that none is made twice.
    let (recycle, buffers) = sync_channel::<Batch>(threads * (AHEAD + 1));
    for _ in 0..threads * (AHEAD + 1) {
        let _ = recycle.try_send(Batch::default());
    }
    let buffers = Arc::new(Mutex::new(buffers));
    let mut reading = Reading::default();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (shared, buffers, give) = (Arc::clone(&shared), Arc::clone(&buffers), give.clone());
            scope.spawn(move || work(&shared, &buffers, &give, wants));
        }
        drop(give);
        drain(&taken, &recycle, sink, &mut reading);
        // Threads that still work end when they find nobody to give to.
        drop((taken, recycle));
    });
    if let Ok(mut shared) = shared.lock()
        && let Some(problem) = shared.end.take()
    {
        reading.complain(problem);
    }
    reading
}

fn work(shared: &Mutex<Shared>, buffers: &Mutex<Receiver<Batch>>, give: &SyncSender<Batch>, wants: Wants) {
    loop {
        let Ok(Ok(mut batch)) = buffers.lock().map(|buffers| buffers.recv()) else { return };
        {
            let Ok(mut shared) = shared.lock() else { return };
            if shared.done {
                return;
            }
            match shared.source.next(&mut batch.block) {
                Ok(more) => shared.done = !more,
                Err(problem) => {
                    shared.end = Some(problem);
                    shared.done = true;
                }
            }
        }
        batch.parse(wants);
        if give.send(batch).is_err() {
            return;
        }
    }
}

fn drain(taken: &Receiver<Batch>, recycle: &SyncSender<Batch>, sink: &mut impl Sink, reading: &mut Reading) {
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

/// Gives back what one huge line has taken.
fn shrink(batch: &mut Batch) {
    const KEPT: usize = 1 << 20;
    if batch.block.bytes.capacity() > KEPT {
        batch.block.bytes = Vec::new();
    }
    batch.records.shrink_to(KEPT / 64);
    batch.references.shrink_to(KEPT / 8);
    batch.edges.shrink_to(KEPT / 8);
}
