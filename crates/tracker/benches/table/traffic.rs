//! The traffic of malloc and free that the shapes follow.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use crate::shapes::{Bare, Lines, Open, Radix, Shape};

/// How large the blocks are.
#[derive(Clone, Copy)]
pub(crate) enum Sizes {
    /// All the same.
    Fixed(usize),
    /// 24 B to 64 KiB, small ones far more often; 1.5 KB in the mean.
    Mixed,
}

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

/// What came out for one shape.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    /// CPU time of a pair, median of the rounds.
    pub(crate) median_ns: f64,
    /// The best round.
    pub(crate) fastest_ns: f64,
    /// The worst round.
    pub(crate) slowest_ns: f64,
    /// Resident bytes that the shape adds to a live block.
    pub(crate) bytes_per_block: f64,
}

/// Blocks that count as recent.
const RECENT: usize = 512;

struct Random(u64);

impl Random {
    #[inline]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    #[inline]
    fn below(&mut self, limit: usize) -> usize {
        (((self.next() >> 32) * limit as u64) >> 32) as usize
    }
}

impl Sizes {
    /// A table, so that drawing a size costs the same for all.
    fn table(self) -> Vec<usize> {
        (0..4096)
            .map(|i| match self {
                Self::Fixed(bytes) => bytes,
                Self::Mixed => (24.0 * (11.415 * ((i as f64 + 0.5) / 4096.0).powi(4)).exp2()) as usize,
            })
            .collect()
    }
}

/// One thread's blocks.
struct Worker {
    random: Random,
    sizes: Vec<usize>,
    blocks: Vec<usize>,
    recent: [usize; RECENT],
    turn: usize,
}

impl Worker {
    fn new(spec: Spec, thread: usize) -> Self {
        let mut random = Random(0x9E37_79B9_7F4A_7C15 + thread as u64);
        let sizes = spec.sizes.table();
        let blocks: Vec<usize> = (0..spec.blocks).map(|_| malloc(sizes[random.below(4096)])).collect();
        let mut recent = [0; RECENT];
        recent.iter_mut().for_each(|recent| *recent = random.below(spec.blocks));
        Self { random, sizes, blocks, recent, turn: 0 }
    }

    fn take_in(&self, shape: &impl Shape) {
        for block in &self.blocks {
            shape.insert(*block, 7, 64);
        }
    }

    fn churn(&mut self, shape: &impl Shape, pairs: usize) {
        for _ in 0..pairs {
            let draw = self.random.next();
            let place = if (draw & 1023) < 717 {
                self.recent[(draw >> 10) as usize % RECENT]
            } else {
                self.random.below(self.blocks.len())
            };
            free(shape, self.blocks[place]);
            let size = self.sizes[(draw >> 40) as usize % 4096];
            let block = malloc(size);
            shape.insert(block, (draw >> 20) as u32 & 1023, size as u64);
            self.blocks[place] = block;
            self.turn = (self.turn + 1) % RECENT;
            self.recent[self.turn] = place;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.blocks.iter().for_each(|block| free(&Bare, *block));
    }
}

#[inline]
fn malloc(size: usize) -> usize {
    // SAFETY: malloc has no preconditions; the first word of a block of 24 bytes and more may be written.
    unsafe {
        let block = libc::malloc(size);
        assert!(!block.is_null(), "out of memory");
        block.cast::<usize>().write(size);
        black_box(block) as usize
    }
}

#[inline]
fn free(shape: &impl Shape, block: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect that a program can see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>((block - 16) as *const i8);
    }
    shape.remove(block);
    // SAFETY: each block comes from `malloc` and is freed once.
    unsafe { libc::free(block as *mut libc::c_void) };
}

/// CPU time of the calling thread.
fn cpu_ns() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Resident bytes of this process.
fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).expect("a number of pages") * 4096.0
}

/// Times of all rounds, by shape.
#[derive(Default)]
struct Times([Vec<f64>; 5], [f64; 5]);

impl Times {
    fn figures(mut self) -> [Figures; 5] {
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

/// What the threads of a case share.
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

    /// One round of one shape, run by all threads at once; thread 0 keeps the book.
    fn round(
        &self,
        shape: &impl Shape,
        index: usize,
        thread: usize,
        take_in: impl FnOnce(),
        work: impl FnOnce(),
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
            shape.reset(0);
        }
        self.barrier.wait();
    }
}

/// Runs `work` in as many threads as the case has; the first is the caller, so one thread is truly alone.
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
pub(crate) fn churn(
    spec: Spec,
    bare: &Bare,
    radix: &Radix,
    open: &Open,
    table: &Lines,
    alone: &Lines,
) -> [Figures; 5] {
    let stage = Stage::new(spec);
    in_threads(spec.threads, |thread| {
        let mut worker = Worker::new(spec, thread);
        // The heap's first rounds are unlike the later ones: its free lists are empty.
        worker.churn(bare, spec.pairs);
        fn round(stage: &Stage, shape: &impl Shape, index: usize, thread: usize, worker: &mut Worker) {
            let worker = std::cell::RefCell::new(worker);
            stage.round(
                shape,
                index,
                thread,
                || worker.borrow().take_in(shape),
                || worker.borrow_mut().churn(shape, stage.spec.pairs),
            );
        }
        for _ in 0..spec.rounds {
            round(&stage, bare, 0, thread, &mut worker);
            round(&stage, radix, 1, thread, &mut worker);
            round(&stage, open, 2, thread, &mut worker);
            round(&stage, table, 3, thread, &mut worker);
            if !alone.shared {
                round(&stage, alone, 4, thread, &mut worker);
            }
        }
    });
    stage.times.into_inner().unwrap().figures()
}

/// A ring of blocks on their way from one thread to another.
struct Ring {
    slots: Vec<AtomicUsize>,
    put: Padded,
    got: Padded,
}

#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicUsize);

impl Ring {
    fn new(len: usize) -> Self {
        Self {
            slots: (0..len).map(|_| AtomicUsize::new(0)).collect(),
            put: Padded::default(),
            got: Padded::default(),
        }
    }

    fn put(&self, block: usize) -> bool {
        let put = self.put.0.load(Ordering::Relaxed);
        if put - self.got.0.load(Ordering::Acquire) == self.slots.len() {
            return false;
        }
        self.slots[put % self.slots.len()].store(block, Ordering::Relaxed);
        self.put.0.store(put + 1, Ordering::Release);
        true
    }

    fn get(&self) -> Option<usize> {
        let got = self.got.0.load(Ordering::Relaxed);
        if got == self.put.0.load(Ordering::Acquire) {
            return None;
        }
        let block = self.slots[got % self.slots.len()].load(Ordering::Relaxed);
        self.got.0.store(got + 1, Ordering::Release);
        Some(block)
    }
}

/// Two threads; each frees what the other one allocates.
pub(crate) fn exchange(
    spec: Spec,
    bare: &Bare,
    radix: &Radix,
    open: &Open,
    table: &Lines,
    _: &Lines,
) -> [Figures; 5] {
    let stage = Stage::new(spec);
    let rings = [Ring::new(spec.blocks), Ring::new(spec.blocks)];
    in_threads(2, |thread| {
        fn trade(shape: &impl Shape, spec: Spec, mine: &Ring, theirs: &Ring) {
            let size = spec.sizes.table()[0];
            let (mut sent, mut freed) = (0, 0);
            let mut held = None;
            while sent < spec.pairs || freed < spec.pairs {
                let mut idle = true;
                if sent < spec.pairs {
                    let block = held.take().unwrap_or_else(|| {
                        let block = malloc(size);
                        shape.insert(block, 7, size as u64);
                        block
                    });
                    if mine.put(block) {
                        sent += 1;
                        idle = false;
                    } else {
                        held = Some(block);
                    }
                }
                if let Some(block) = theirs.get() {
                    free(shape, block);
                    freed += 1;
                    idle = false;
                }
                if idle {
                    // Sleeping is no CPU time, waiting for the other one would be.
                    thread::sleep(Duration::from_micros(20));
                }
            }
        }
        let (mine, theirs) = (&rings[thread], &rings[1 - thread]);
        for _ in 0..spec.rounds {
            stage.round(bare, 0, thread, || (), || trade(bare, spec, mine, theirs));
            stage.round(radix, 1, thread, || (), || trade(radix, spec, mine, theirs));
            stage.round(open, 2, thread, || (), || trade(open, spec, mine, theirs));
            stage.round(table, 3, thread, || (), || trade(table, spec, mine, theirs));
        }
    });
    stage.times.into_inner().unwrap().figures()
}
