//! Tests what a live block costs after long traffic, and that memory is given back or used again when the blocks are
//! freed.
//!
//! The heap is simulated: it has addresses but no memory. It chooses the best fit, splits, and joins adjacent free
//! memory, as allocators do.

use std::collections::{BTreeMap, BTreeSet};

use memintro_tracker::table::{Block, Inserted, Table};

/// Bytes that the table takes for any number of blocks.
const FIXED_BYTES: usize = 512 * 1024;
const BLOCKS: usize = 500_000;
const RECENT: usize = 512;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (((self.next() >> 32) * limit as u64) >> 32) as usize
    }
}

/// Free stretches, by address and by length.
struct Heap {
    by_address: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
    end: usize,
}

impl Heap {
    fn new() -> Self {
        Self { by_address: BTreeMap::new(), by_length: BTreeSet::new(), end: 0x5600_0000_0000 }
    }

    /// With a header of 16 bytes, at multiples of 16.
    fn length(size: usize) -> usize {
        ((size + 8 + 15) & !15).max(32)
    }

    fn add(&mut self, address: usize, length: usize) {
        self.by_address.insert(address, length);
        self.by_length.insert((length, address));
    }

    fn drop(&mut self, address: usize, length: usize) {
        self.by_address.remove(&address);
        self.by_length.remove(&(length, address));
    }

    fn malloc(&mut self, size: usize) -> usize {
        let wanted = Self::length(size);
        let Some((length, address)) = self.by_length.range((wanted, 0)..).next().copied() else {
            self.end += wanted;
            return self.end - wanted + 16;
        };
        self.drop(address, length);
        if length - wanted >= 32 {
            self.add(address + wanted, length - wanted);
        }
        address + 16
    }

    fn free(&mut self, block: usize, size: usize) {
        let (mut address, mut length) = (block - 16, Self::length(size));
        if let Some((before, its)) = self.by_address.range(..address).next_back().map(|(at, its)| (*at, *its))
            && before + its == address
        {
            self.drop(before, its);
            (address, length) = (before, length + its);
        }
        if let Some(its) = self.by_address.get(&(address + length)).copied() {
            self.drop(address + length, its);
            length += its;
        }
        self.add(address, length);
    }
}

struct Program {
    table: Table,
    heap: Heap,
    random: Random,
    blocks: Vec<(usize, usize)>,
}

impl Program {
    fn new() -> Self {
        let table = Table::new();
        table.init(1 << 30).unwrap();
        Self { table, heap: Heap::new(), random: Random(0x9E37_79B9_7F4A_7C15), blocks: Vec::new() }
    }

    fn malloc(&mut self, size: usize) -> (usize, usize) {
        let address = self.heap.malloc(size);
        let block = Block { site: self.random.below(1000) as u32, size: size as u64, generation: 0 };
        assert_eq!(self.table.insert(address, block, 0), Inserted::New);
        (address, size)
    }

    fn free(&mut self, (address, size): (usize, usize)) {
        assert_eq!(self.table.remove(address, 0).map(|block| block.size), Some(size as u64));
        self.heap.free(address, size);
    }

    fn fill(&mut self, count: usize, size: impl Fn(&mut Random) -> usize) {
        while self.blocks.len() < count {
            let size = size(&mut self.random);
            let block = self.malloc(size);
            self.blocks.push(block);
        }
    }

    /// Seventy of a hundred frees hit one of the last 512 blocks, thirty any block.
    fn churn(&mut self, pairs: usize, size: impl Fn(&mut Random) -> usize) {
        let mut recent = [0; RECENT];
        recent.iter_mut().for_each(|place| *place = self.random.below(self.blocks.len()));
        for turn in 0..pairs {
            let place = if self.random.below(100) < 70 {
                recent[self.random.below(RECENT)]
            } else {
                self.random.below(self.blocks.len())
            };
            self.free(self.blocks[place]);
            let size = size(&mut self.random);
            self.blocks[place] = self.malloc(size);
            recent[turn % RECENT] = place;
        }
    }

    fn shrink(&mut self, count: usize) {
        while self.blocks.len() > count {
            let place = self.random.below(self.blocks.len());
            let block = self.blocks.swap_remove(place);
            self.free(block);
        }
    }

    fn bytes_a_block(&self) -> f64 {
        self.table.resident_bytes().saturating_sub(FIXED_BYTES) as f64 / self.blocks.len() as f64
    }
}

/// 24 B to 64 KiB, small ones far more often.
fn mixed(random: &mut Random) -> usize {
    let draw = (random.below(4096) as f64 + 0.5) / 4096.0;
    (24.0 * (11.415 * draw.powi(4)).exp2()) as usize
}

fn even(random: &mut Random) -> usize {
    24 + random.below(65_512)
}

/// Bytes a block after the heap was filled, after traffic, after traffic of the second kind, and after nine of ten
/// blocks were freed and as many were allocated.
fn measure(first: fn(&mut Random) -> usize, second: fn(&mut Random) -> usize) -> [f64; 4] {
    let mut program = Program::new();
    program.fill(BLOCKS, first);
    let filled = program.bytes_a_block();
    program.churn(2 * BLOCKS, first);
    let churned = program.bytes_a_block();
    program.churn(2 * BLOCKS, second);
    let changed = program.bytes_a_block();
    program.shrink(BLOCKS / 10);
    program.fill(BLOCKS, second);
    assert_eq!(program.table.len_estimate(), BLOCKS);
    [filled, churned, changed, program.bytes_a_block()]
}

#[test]
fn traffic_adds_little_and_what_goes_makes_room() {
    // The last case is known to be above 16: where blocks of tens of KiB lie between small ones, both words of heap
    // pages and buckets are needed.
    for (name, first, second, most) in [
        ("64 B", (|_| 64) as fn(&mut Random) -> usize, (|_| 64) as fn(&mut Random) -> usize, 16.0),
        ("mixed", mixed, mixed, 16.5),
        ("64 B, then mixed", |_| 64, mixed, 16.5),
        ("even", even, even, 19.0),
    ] {
        let figures = measure(first, second);
        for (when, bytes) in ["filled", "churned", "changed", "refilled"].into_iter().zip(figures) {
            assert!(bytes <= most, "{name}, {when}: {bytes} bytes a block; all: {figures:?}");
        }
    }
}

#[test]
fn where_small_blocks_go_side_by_side_memory_goes_back() {
    let mut program = Program::new();
    program.fill(BLOCKS, |_| 64);
    let full = program.table.resident_bytes();
    program.blocks.sort_unstable();
    while program.blocks.len() > BLOCKS / 10 {
        let block = program.blocks.pop().expect("more than a tenth");
        program.free(block);
    }
    let left = program.table.resident_bytes();
    assert!(left <= full / 10 + 2 * FIXED_BYTES, "{left} of {full} bytes are left");
    assert_eq!(program.table.len_estimate(), BLOCKS / 10);
}
