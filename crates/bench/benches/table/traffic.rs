//! The calls of malloc and free that the shapes record.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::shapes::{Bare, Shape};

/// The sizes of the blocks.
#[derive(Clone, Copy)]
pub(crate) enum Sizes {
    /// All blocks have this size.
    Fixed(usize),
    /// 24 B to 64 KiB, small ones far more often; 1.5 KB on average.
    Mixed,
    /// 16 B to 2 KiB, all alike; 1 KB on average.
    Even,
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
    /// A table, so that choosing a size costs the same for all.
    pub(crate) fn table(self) -> Vec<usize> {
        (0..4096)
            .map(|i| match self {
                Self::Fixed(bytes) => bytes,
                Self::Even => 16 + i * 2033 / 4096,
                Self::Mixed => (24.0 * (11.415 * ((i as f64 + 0.5) / 4096.0).powi(4)).exp2()) as usize,
            })
            .collect()
    }
}

/// One thread's blocks.
pub(crate) struct Worker {
    random: Random,
    sizes: Vec<usize>,
    /// Bytes that the allocator was asked for on top of each block's size.
    extra: usize,
    blocks: Vec<usize>,
    recent: [usize; RECENT],
    turn: usize,
}

impl Worker {
    /// The blocks of a thread; its number gives the seed.
    pub(crate) fn new(blocks: usize, sizes: Sizes, thread: usize) -> Self {
        let mut random = Random(0x9E37_79B9_7F4A_7C15 + thread as u64);
        let sizes = sizes.table();
        let blocks: Vec<usize> = (0..blocks).map(|_| malloc(sizes[random.below(4096)], 0)).collect();
        let mut recent = [0; RECENT];
        recent.iter_mut().for_each(|recent| *recent = random.below(blocks.len()));
        Self { random, sizes, extra: 0, blocks, recent, turn: 0 }
    }

    /// Inserts all blocks into the shape, which is empty.
    pub(crate) fn take_in<S: Shape>(&mut self, shape: &S) {
        if self.extra != S::EXTRA {
            self.refit(S::EXTRA);
        }
        for block in &self.blocks {
            shape.insert(*block, 7, size_of_block(*block) as u64);
        }
    }

    /// Replaces each block by one with so many bytes on top of its size.
    fn refit(&mut self, extra: usize) {
        for block in &mut self.blocks {
            let size = size_of_block(*block);
            free(&Bare, *block);
            *block = malloc(size, extra);
        }
        self.extra = extra;
    }

    /// Removes all blocks from the shape, and fails if one is not there.
    pub(crate) fn take_out(&self, shape: &impl Shape) {
        for block in &self.blocks {
            let size = size_of_block(*block);
            assert!(shape.had(*block, size as u64), "a block of {size} bytes is not where it belongs");
        }
    }

    /// Frees and allocates this many blocks.
    pub(crate) fn churn<S: Shape>(&mut self, shape: &S, pairs: usize) {
        for _ in 0..pairs {
            let draw = self.random.next();
            let place = if (draw & 1023) < 717 {
                self.recent[(draw >> 10) as usize % RECENT]
            } else {
                self.random.below(self.blocks.len())
            };
            free(shape, self.blocks[place]);
            let size = self.sizes[(draw >> 40) as usize % 4096];
            let block = malloc(size, S::EXTRA);
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

/// A block, whose first word is its size.
#[inline]
fn malloc(size: usize, extra: usize) -> usize {
    // SAFETY: malloc has no preconditions; the first word of a block of 16 bytes and more may be written.
    unsafe {
        let block = libc::malloc(size + extra);
        assert!(!block.is_null(), "out of memory");
        block.cast::<usize>().write(size);
        black_box(block) as usize
    }
}

fn size_of_block(block: usize) -> usize {
    // SAFETY: a live block of `malloc`.
    unsafe { *(block as *const usize) }
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
pub(crate) fn cpu_ns() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// A ring of blocks that one thread sends to another.
pub(crate) struct Ring {
    slots: Vec<AtomicUsize>,
    put: Padded,
    got: Padded,
}

#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicUsize);

impl Ring {
    /// A ring for this many blocks.
    pub(crate) fn new(len: usize) -> Self {
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

/// Keeps the calling thread on a processor of its own, if there are as many. The kernel often has two threads that wait for
/// each other on one processor, where they take turns, and nothing passes from one processor's caches to the other's.
pub(crate) fn settle(thread: usize) {
    // SAFETY: a set on the stack, of the size that is said.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut all);
        let mut usable =
            (0..libc::CPU_SETSIZE as usize).filter(|processor| libc::CPU_ISSET(*processor, &all));
        if let Some(processor) = usable.nth(thread) {
            let mut own: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut own);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const own);
        }
    }
}

/// Runs one of two threads that each send `pairs` blocks to the other one and free as many of the other's.
pub(crate) fn trade<S: Shape>(shape: &S, size: usize, pairs: usize, mine: &Ring, theirs: &Ring) {
    let (mut sent, mut freed) = (0, 0);
    let mut held = None;
    while sent < pairs || freed < pairs {
        let mut idle = true;
        if sent < pairs {
            let block = held.take().unwrap_or_else(|| {
                let block = malloc(size, S::EXTRA);
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
            // Sleeping takes no CPU time; a spinning wait for the other thread would.
            thread::sleep(Duration::from_micros(20));
        }
    }
}
