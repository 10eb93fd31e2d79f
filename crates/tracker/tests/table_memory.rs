//! At most 16 bytes a live block, at any block size. One test in a process of its own, since it reads the kernel's
//! account of the process.

use memintro_tracker::table::{Block, Inserted, Table};

/// What the table takes whatever the number of its blocks.
const FIXED_BYTES: usize = 512 * 1024;

#[test]
fn no_block_costs_more_than_16_bytes() {
    let mixed = |i: usize| 24 + (i.wrapping_mul(0x9E37_79B1) >> 7) % 65_512;
    let spacings: [(&str, &dyn Fn(usize) -> usize); 4] = [
        ("64 B", &|_| 80),
        ("1 KiB", &|_| 1040),
        ("mixed", &move |i| (mixed(i) + 23) & !15),
        ("1 MiB", &|_| 1 << 20),
    ];
    for (name, spacing) in spacings {
        let table = Table::new();
        table.init(1 << 30).unwrap();
        let mut address = 0x5600_0000_0010;
        let before = resident_bytes();
        for i in 0..4_000_000usize {
            let size = spacing(i) as u64;
            assert_eq!(
                table.insert(address, Block { site: i as u32 % 1000, size, generation: 0 }, 0),
                Inserted::New
            );
            address += spacing(i);
            let blocks = i + 1;
            if blocks >= 1_000_000 && blocks % 250_000 == 0 {
                let counted = table.resident_bytes() as f64 / blocks as f64;
                let measured = (resident_bytes() - before).saturating_sub(FIXED_BYTES) as f64 / blocks as f64;
                assert!(counted <= 16.0, "{name}, {blocks} blocks: {counted} bytes by its own account");
                assert!(measured <= 16.0, "{name}, {blocks} blocks: {measured} bytes by the kernel's");
            }
        }
        assert_eq!(table.len_estimate(), 4_000_000);
    }
}

/// Resident bytes of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4096
}
