//! A table reserves little address space at first, and more when its blocks need it. This is one test in a process of
//! its own, because it reads the kernel's figures of the process.

use memintro_tracker::table::{Block, Inserted, Removed, Table};

const MIB: usize = 1 << 20;

fn block(size: u64) -> Block {
    Block { site: 7, size, generation: 0 }
}

/// The address space of this process in bytes: `VmSize`.
fn address_space() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split(' ').next().and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4096
}

/// Fills an empty table with dense blocks, then with sparse ones, and empties it.
fn fill(table: &Table, dense: usize, sparse: usize) {
    let before = address_space();
    table.init(16 << 30).unwrap();
    let reserved = address_space() - before;
    assert!(reserved <= 128 * MIB, "{reserved} bytes reserved for nothing yet");

    let dense_at = |i: usize| 0x5600_0000_0000 + i * 80;
    let sparse_at = |i: usize| 0x7000_0000_0000 + i * 16_400 / 16 * 16;
    for i in 0..dense {
        assert_eq!(table.insert(dense_at(i), block(64), 0), Inserted::New);
    }
    for i in 0..sparse {
        assert_eq!(table.insert(sparse_at(i), block(16_384), 0), Inserted::New);
    }
    assert_eq!(table.len_estimate(), dense + sparse);
    let (grown, resident) = (address_space() - before, table.resident_bytes());
    assert!(resident <= (dense + sparse) * 16, "{resident} bytes");
    // One step of each of three kinds of memory, an eighth in advance; words of heap pages take a thousandth of the
    // heap.
    let words = (dense * 80 + sparse * 16_400) / 1000;
    assert!(grown <= resident * 5 / 4 + words + 128 * MIB, "{grown} bytes of address space for {resident}");
    for i in 0..dense {
        assert_eq!(table.remove(dense_at(i), 0), Some(Removed { site: 7, size: 64, age: 0 }), "{i}");
    }
    for i in 0..sparse {
        assert_eq!(table.remove(sparse_at(i), 0), Some(Removed { site: 7, size: 16_384, age: 0 }), "{i}");
    }
    table.clear();
}

#[test]
fn address_space_is_taken_as_blocks_come() {
    let table = Table::new();
    // The memory grows beyond the first step; the second time it is already reserved.
    fill(&table, 8_000_000, 4_000_000);
    let before = address_space();
    table.init(16 << 30).unwrap();
    assert_eq!(address_space(), before, "again is nothing");
}

#[test]
#[ignore = "takes minutes"]
fn fifty_million_blocks_have_room() {
    fill(&Table::new(), 50_000_000, 10_000_000);
}
