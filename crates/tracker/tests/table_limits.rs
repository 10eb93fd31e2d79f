//! The limits of one entry, and the behaviour beyond them.

use memintro_tracker::table::{Block, Inserted, MAX_AGE, MAX_SITE, MAX_SIZE, Removed, Table};

fn table(budget_bytes: usize) -> Table {
    let table = Table::new();
    table.init(budget_bytes).unwrap();
    table
}

fn block(site: u32, size: u64) -> Block {
    Block { site, size, generation: 0 }
}

#[test]
fn sizes_are_exact_up_to_the_whole_address_space() {
    let table = table(64 << 20);
    let sizes = [0, 1, 65_535, 65_536, 65_537, 5 << 30, (5 << 30) + 1, (1 << 47) - 1, 1 << 47, MAX_SIZE];
    for (i, size) in sizes.into_iter().enumerate() {
        assert_eq!(table.insert(0x10_0000 + i * 16, block(1, size), 0), Inserted::New);
    }
    for (i, size) in sizes.into_iter().enumerate() {
        assert_eq!(table.remove(0x10_0000 + i * 16, 0), Some(Removed { site: 1, size, age: 0 }));
    }
}

#[test]
fn a_million_sites_are_told_apart() {
    let table = table(64 << 20);
    let site = |i: u32| if i.is_multiple_of(2) { i } else { MAX_SITE - i };
    for i in 0..1_000_000 {
        assert_eq!(table.insert(0x1000_0000 + i as usize * 32, block(site(i), 24), 0), Inserted::New);
    }
    for i in 0..1_000_000 {
        let removed = table.remove(0x1000_0000 + i as usize * 32, 0).expect("inserted above");
        assert_eq!(removed.site, site(i));
    }
    assert_eq!(table.insert(16, block(MAX_SITE + 1, 1), 0), Inserted::Full);
    assert_eq!(table.get(16, 0), None);
}

#[test]
fn ages_are_exact_for_100_000_collections_and_saturate_after() {
    let table = table(64 << 20);
    let start = u32::MAX - 50_000;
    for i in 0..5000usize {
        table.insert(0x2000_0000 + i * 64, Block { site: 1, size: 64, generation: start }, start);
    }
    for passed in 0..700_000u32 {
        let now = start.wrapping_add(passed);
        // A removal of an address that is not in the table advances the clock, as any traffic does.
        assert_eq!(table.remove(0x10, now), None);
        if passed % 1009 == 0 || passed == 100_000 || passed.abs_diff(MAX_AGE) < 3 {
            let address = 0x2000_0000 + (passed as usize % 5000) * 64;
            assert_eq!(table.get(address, now).expect("never removed").age, passed.min(MAX_AGE), "{passed}");
        }
    }
}

#[test]
fn a_block_can_be_put_back_with_its_age() {
    let table = table(1 << 20);
    table.insert(0x40, Block { site: 9, size: 8, generation: 10 }, 50);
    let removed = table.remove(0x40, 60).expect("inserted above");
    assert_eq!(removed.age, 50);
    table.insert(0x40, Block { site: 9, size: 8, generation: 60 - removed.age }, 61);
    assert_eq!(table.get(0x40, 61).expect("inserted above").age, 51);
    table.insert(0x50, Block { site: 9, size: 8, generation: 62 }, 61);
    assert_eq!(table.get(0x50, 61).expect("inserted above").age, 0, "a birth in the future is now");
}

#[test]
fn a_table_without_memory_holds_nothing() {
    let table = Table::new();
    assert_eq!(table.insert(0x1000, block(1, 1), 0), Inserted::Full);
    assert_eq!(table.remove(0x1000, 0), None);
    assert_eq!((table.len_estimate(), table.resident_bytes()), (0, 0));
    table.prefetch(0x1000);
    table.clear();
    assert_eq!(table.insert(0x1000, block(1, 1), 0), Inserted::Full);
}

#[test]
fn addresses_that_no_allocator_gives_are_refused() {
    let table = table(1 << 20);
    for address in [1usize, 0x1004, 1 << 48, usize::MAX] {
        assert_eq!(table.insert(address, block(1, 1), 0), Inserted::Full, "{address:#x}");
        assert_eq!(table.remove(address, 0), None, "{address:#x}");
    }
}

#[test]
fn at_the_budget_the_table_refuses_and_forgets_nothing() {
    let table = table(4 << 20);
    let mut kept = Vec::new();
    for i in 0..600_000 {
        let address = 0x3000_0000 + i * 32;
        match table.insert(address, block(2, 32), 0) {
            Inserted::New => kept.push(address),
            other => assert_eq!(other, Inserted::Full),
        }
    }
    assert!(table.resident_bytes() <= 4 << 20);
    // Each takes between 8 and 16 bytes.
    assert!(kept.len() > 262_144 && kept.len() < 524_288, "{} kept", kept.len());
    assert!(kept.iter().all(|address| table.get(*address, 0).is_some()));

    table.init(64 << 20).unwrap();
    table.clear();
    table.init(64 << 20).unwrap();
    for i in 0..400_000 {
        assert_eq!(table.insert(0x3000_0000 + i * 32, block(2, 32), 0), Inserted::New);
    }
}

#[test]
fn clearing_gives_memory_back_and_the_table_goes_on() {
    let table = table(256 << 20);
    for round in 0..3 {
        for i in 0..500_000 {
            assert_eq!(table.insert(0x3000_0000 + i * 64, block(round, 1 << 20), 0), Inserted::New);
        }
        let full = table.resident_bytes();
        table.clear();
        assert_eq!(table.len_estimate(), 0);
        assert!(table.resident_bytes() < 4 << 20 && full > 6 << 20, "{full}");
        assert_eq!(table.get(0x3000_0000, 0), None);
    }
}

#[test]
fn more_different_large_sizes_than_codes_are_refused_and_come_back() {
    let table = table(64 << 20);
    for i in 0..65_536usize {
        assert_eq!(table.insert(0x100_0000 + i * 16, block(1, (1 << 20) + i as u64), 0), Inserted::New);
    }
    assert_eq!(table.insert(0x10, block(1, 99_999_999), 0), Inserted::Full);
    assert_eq!(table.insert(0x10, block(1, 1 << 20), 0), Inserted::New, "a size that is known has a code");
    assert!(table.remove(0x100_0000 + 16 * 77, 0).is_some());
    assert_eq!(table.insert(0x20, block(1, 99_999_999), 0), Inserted::New);
    assert_eq!(table.get(0x20, 0).expect("inserted above").size, 99_999_999);
}
