//! A live block costs at most 16 bytes, at any block size. This is one test in a process of its own, because it reads
//! the kernel's figures of the process.

use memintro_tracker::table::{Block, Inserted, Table};

/// Bytes that the table takes for any number of blocks.
const FIXED_BYTES: usize = 512 * 1024;

#[test]
fn no_block_costs_more_than_16_bytes() {
    let mixed = |i: usize| 24 + (i.wrapping_mul(0x9E37_79B1) >> 7) % 65_512;
    // Small blocks far more often than large ones.
    let skewed = |i: usize| {
        let draw = ((i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) & 0xFFFF) as f64 / 65_536.0;
        (24.0 * (11.415 * draw.powi(4)).exp2()) as usize
    };
    type Spacing<'a> = &'a dyn Fn(usize) -> usize;
    let spacings: [(&str, Spacing<'_>); 16] = [
        ("16 B", &|_| 16),
        ("24 B", &|_| 32),
        ("64 B", &|_| 80),
        ("100 B", &|_| 112),
        ("400 B", &|_| 416),
        ("1 KiB", &|_| 1040),
        ("1.3 KiB", &|_| 1344),
        ("1.5 KiB", &|_| 1552),
        ("2 KiB", &|_| 2064),
        ("3 KiB", &|_| 3088),
        ("4 KiB", &|_| 4112),
        ("16 KiB", &|_| 16_400),
        ("evenly mixed", &move |i| (mixed(i) + 23) & !15),
        ("mixed", &move |i| (skewed(i) + 23) & !15),
        ("64 KiB", &|_| 65_552),
        ("1 MiB", &|_| 1 << 20),
    ];
    for (name, spacing) in spacings {
        let table = Table::new();
        table.init(1 << 30).unwrap();
        let mut address = 0x5600_0000_0010;
        let before = resident_bytes();
        for i in 0..1_250_000usize {
            let size = spacing(i) as u64 - 8;
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
        assert_eq!(table.len_estimate(), 1_250_000);
    }
}

/// Resident bytes of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4096
}
