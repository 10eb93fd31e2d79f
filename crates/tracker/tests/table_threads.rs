//! With several threads, no block is lost, doubled or mixed up with another.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use memintro_tracker::table::{Block, Inserted, Table};

fn table() -> Table {
    let table = Table::new();
    table.init(256 << 20).unwrap();
    table
}

/// Each thread has addresses of its own, interleaved with those of the others, and the shards grow meanwhile.
#[test]
fn addresses_of_different_threads_do_not_disturb_each_other() {
    let table = table();
    let generation = AtomicU32::new(0);
    thread::scope(|scope| {
        for thread in 0..4usize {
            let (table, generation) = (&table, &generation);
            scope.spawn(move || {
                let address = |i: usize| 0x7000_0000_0000 + (i * 4 + thread) * 16;
                for i in 0..300_000 {
                    let now = generation.fetch_add(1, Ordering::Relaxed) / 4;
                    let block = Block { site: thread as u32, size: (i % 70_000) as u64, generation: now };
                    assert_eq!(table.insert(address(i), block, now), Inserted::New);
                    if i % 3 == 2 {
                        let removed = table.remove(address(i - 1), now).expect("this thread's own");
                        assert_eq!((removed.site, removed.size), (thread as u32, ((i - 1) % 70_000) as u64));
                    }
                }
            });
        }
    });
    let mut blocks = [0; 4];
    table.for_each(300_000, &mut |address, removed| {
        assert_eq!((address >> 4) & 3, removed.site as usize);
        blocks[removed.site as usize] += 1;
    });
    assert_eq!(blocks, [200_000; 4], "{} waits were given up", memintro_tracker::lock::given_up());
}

/// One thread allocates blocks and another one frees them, in both directions. An address is in use only once at a
/// time.
#[test]
fn blocks_handed_to_another_thread_are_found_there() {
    let table = table();
    let missing = AtomicUsize::new(0);
    thread::scope(|scope| {
        for pair in 0..2usize {
            let (sender, receiver) = mpsc::sync_channel::<usize>(512);
            let (back, returned) = mpsc::channel::<usize>();
            let (table, missing) = (&table, &missing);
            scope.spawn(move || {
                let mut free: Vec<usize> = (0..2000).map(|i| 0x10_0000 + (i * 2 + pair) * 16).collect();
                for i in 0..400_000u64 {
                    let address =
                        free.pop().unwrap_or_else(|| returned.recv().expect("the other side lives"));
                    let block = Block { site: pair as u32, size: i, generation: 0 };
                    assert_eq!(table.insert(address, block, 0), Inserted::New);
                    sender.send(address).expect("the other side lives");
                    free.extend(returned.try_iter());
                }
            });
            scope.spawn(move || {
                for (expected, address) in (0u64..).zip(receiver) {
                    match table.remove(address, 0) {
                        Some(removed) => assert_eq!((removed.site, removed.size), (pair as u32, expected)),
                        None => _ = missing.fetch_add(1, Ordering::Relaxed),
                    }
                    let _ = back.send(address);
                }
            });
        }
    });
    assert_eq!(missing.into_inner(), 0);
    assert_eq!(table.len_estimate(), 0);
}

/// All threads insert and remove the same few addresses. Each removal finds the block of exactly one insertion.
#[test]
fn one_address_used_by_all_threads_is_counted_once() {
    let table = table();
    let (put, got) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let (table, put, got, start) = (&table, &put, &got, &start);
            scope.spawn(move || {
                start.wait();
                for i in 0..200_000usize {
                    let address = 0x1000 + (i * 7 + thread as usize) % 40 * 16;
                    if (i + thread as usize).is_multiple_of(2) {
                        let size = if i % 5 == 0 { 1 << 20 } else { 100 };
                        match table.insert(address, Block { site: thread, size, generation: 0 }, 0) {
                            Inserted::New => _ = put.fetch_add(1, Ordering::Relaxed),
                            Inserted::Replaced(old) => assert!(old.size == 100 || old.size == 1 << 20),
                            Inserted::Full => panic!("40 blocks fit"),
                        }
                    } else if let Some(removed) = table.remove(address, 0) {
                        assert!(removed.site < 4 && (removed.size == 100 || removed.size == 1 << 20));
                        got.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(put.into_inner() - got.into_inner(), table.len_estimate());
}

/// Clearing and visiting are safe while other threads work. Blocks that are inserted after the last clear are found.
#[test]
fn clearing_and_visiting_go_on_beside_the_traffic() {
    let table = table();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3usize {
            let (table, stop) = (&table, &stop);
            scope.spawn(move || {
                let mut i = 0usize;
                while !stop.load(Ordering::Relaxed) {
                    let address = 0x100_0000 + ((i % 200_000) * 3 + thread) * 16;
                    table.insert(
                        address,
                        Block { site: thread as u32, size: 1 << (i % 40), generation: 0 },
                        0,
                    );
                    table.remove(address.wrapping_sub(48 * 1000), 0);
                    i += 1;
                }
            });
        }
        for round in 0..60 {
            table.for_each(0, &mut |_, removed| assert!(removed.site < 3));
            if round % 4 == 0 {
                table.clear();
                table.init(256 << 20).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    table.clear();
    assert_eq!(table.insert(0x5000, Block { site: 1, size: 1, generation: 0 }, 0), Inserted::New);
    assert_eq!(table.len_estimate(), 1);
}

/// Heap pages open and close all the time: each thread has three addresses in each of 3,000 heap pages, mostly with
/// one live block or none.
#[test]
fn blocks_survive_while_pages_open_and_close() {
    const PAGES: usize = 3000;
    let table = Table::new();
    table.init(64 << 20).unwrap();
    thread::scope(|scope| {
        for thread in 0..4usize {
            let table = &table;
            scope.spawn(move || {
                let mut random = 0x9E37_79B9_7F4A_7C15u64 + thread as u64;
                let mut live = vec![0u64; PAGES * 3];
                for turn in 1..2_000_000u64 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let place = (random >> 20) as usize % live.len();
                    let address = 0x7F00_0000_0000 + place / 3 * 8192 + (place % 3 * 4 + thread) * 16;
                    if live[place] != 0 {
                        let removed = match table.remove_fast(address, 0, |_| Some(())) {
                            Some((removed, (), is_untidy)) => {
                                if is_untidy {
                                    table.tidy(address);
                                }
                                removed
                            }
                            None => table.remove(address, 0).unwrap_or_else(|| {
                                panic!(
                                    "it is live; {} waits were given up",
                                    memintro_tracker::lock::given_up()
                                )
                            }),
                        };
                        assert_eq!(removed.size, std::mem::take(&mut live[place]));
                    } else if random.is_multiple_of(3) {
                        let size = if random.is_multiple_of(64) { 100_000 } else { turn % 5000 + 1 };
                        let block = Block { site: thread as u32, size, generation: 0 };
                        if !table.insert_fast(address, &block, 0)
                            && !table.insert_in_order(address, &block, 0)
                        {
                            let given_up = memintro_tracker::lock::given_up;
                            assert_eq!(
                                table.insert(address, block, 0),
                                Inserted::New,
                                "{} waits were given up",
                                given_up()
                            );
                        }
                        live[place] = size;
                    }
                }
                for (place, size) in live.into_iter().enumerate().filter(|(_, size)| *size != 0) {
                    let address = 0x7F00_0000_0000 + place / 3 * 8192 + (place % 3 * 4 + thread) * 16;
                    assert_eq!(table.remove(address, 0).map(|block| block.size), Some(size));
                }
            });
        }
    });
    assert_eq!(table.len_estimate(), 0);
}
