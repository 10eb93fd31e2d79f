//! Compares the table with its twin, an exact `HashMap`, under the same random calls.

use std::collections::HashMap;

use memintro_tracker::table::{Block, Inserted, MAX_AGE, MAX_SITE, MAX_SIZE, Removed, Table};
use proptest::prelude::*;

/// The slow and simple table.
#[derive(Default)]
struct Twin(HashMap<usize, Block>);

impl Twin {
    fn removed(block: Block, now: u32) -> Removed {
        Removed { site: block.site, size: block.size, age: (now - block.generation).min(MAX_AGE) }
    }

    fn insert(&mut self, address: usize, block: Block, now: u32) -> Inserted {
        match self.0.insert(address, block) {
            None => Inserted::New,
            Some(old) => Inserted::Replaced(Self::removed(old, now)),
        }
    }

    fn get(&self, address: usize, now: u32) -> Option<Removed> {
        self.0.get(&address).map(|block| Self::removed(*block, now))
    }

    fn remove(&mut self, address: usize, now: u32) -> Option<Removed> {
        self.0.remove(&address).map(|block| Self::removed(block, now))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        place: u16,
        site: u32,
        size: u64,
        age: u32,
    },
    Remove {
        place: u16,
    },
    Get {
        place: u16,
    },
    /// Inserts `count` neighbours at once, so that shards grow.
    Fill {
        start: u16,
        count: u16,
    },
    Later {
        generations: u32,
    },
    Compare,
    Clear,
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..200u64,
        2 => 65_000..66_000u64,
        1 => (0..20u64).prop_map(|i| (1 << 20) + i),
        1 => 0..=(1u64 << 47),
        1 => Just(MAX_SIZE),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (any::<u16>(), 0..=MAX_SITE, size(), prop_oneof![9 => Just(0), 1 => 0..1000u32])
            .prop_map(|(place, site, size, age)| Step::Insert { place, site, size, age }),
        20 => any::<u16>().prop_map(|place| Step::Remove { place }),
        10 => any::<u16>().prop_map(|place| Step::Get { place }),
        4 => (any::<u16>(), 0..8000u16).prop_map(|(start, count)| Step::Fill { start, count }),
        10 => prop_oneof![8 => 0..600u32, 2 => 0..70_000u32, 1 => 0..400_000u32]
            .prop_map(|generations| Step::Later { generations }),
        2 => Just(Step::Compare),
        1 => Just(Step::Clear),
    ]
}

/// Few addresses, so that calls hit the same ones; `spacing` puts them close together in one shard, or spreads them.
fn address(place: u16, spacing: usize) -> usize {
    0x5555_0000_0010 + usize::from(place) * spacing
}

fn compare(table: &Table, twin: &Twin, now: u32) -> Result<(), TestCaseError> {
    let mut seen = HashMap::new();
    table.for_each(now, &mut |address, removed| {
        assert!(seen.insert(address, removed).is_none(), "{address:#x} visited twice");
    });
    let expected: HashMap<usize, Removed> =
        twin.0.iter().map(|(address, block)| (*address, Twin::removed(*block, now))).collect();
    prop_assert_eq!(table.len_estimate(), expected.len());
    prop_assert_eq!(seen, expected);
    Ok(())
}

/// Inserts and removes as the hook does: at once where that is possible.
fn insert(table: &Table, address: usize, block: Block, now: u32) -> Inserted {
    if table.insert_fast(address, &block, now) || table.insert_in_order(address, &block, now) {
        return Inserted::New;
    }
    table.insert(address, block, now)
}

fn remove(table: &Table, address: usize, now: u32) -> Option<Removed> {
    let Some((removed, site, is_untidy)) = table.remove_fast(address, now, |block| Some(block.site)) else {
        return table.remove(address, now);
    };
    assert_eq!(site, removed.site);
    if is_untidy {
        table.tidy(address);
    }
    Some(removed)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_map(
        steps in prop::collection::vec(step(), 1..300),
        spacing in prop::sample::select(vec![8usize, 16, 80, 4096, 1 << 20]),
        start in prop::sample::select(vec![0u32, 300_000, 0x7FFF_0000]),
        at_once: bool,
        shared: bool,
    ) {
        let insert = if at_once { insert } else { Table::insert };
        let remove = if at_once { remove } else { Table::remove };
        let table = Table::new();
        table.set_shared(shared);
        table.init(256 << 20).unwrap();
        let mut twin = Twin::default();
        let mut now = start;
        for step in steps {
            match step {
                Step::Insert { place, site, size, age } => {
                    let block = Block { site, size, generation: now - age.min(now) };
                    let address = address(place, spacing);
                    prop_assert_eq!(insert(&table, address, block, now), twin.insert(address, block, now));
                }
                Step::Remove { place } => {
                    let address = address(place, spacing);
                    prop_assert_eq!(remove(&table, address, now), twin.remove(address, now));
                }
                Step::Get { place } => {
                    let address = address(place, spacing);
                    prop_assert!(table.remove_fast(address, now, |_| None::<()>).is_none());
                    prop_assert_eq!(table.get(address, now), twin.get(address, now));
                }
                Step::Fill { start, count } => {
                    for i in 0..count {
                        let address = address(start.wrapping_add(i), spacing);
                        let block = Block { site: u32::from(i), size: u64::from(count), generation: now };
                        prop_assert_eq!(insert(&table, address, block, now), twin.insert(address, block, now));
                    }
                }
                Step::Later { generations } => now = now.saturating_add(generations),
                Step::Compare => compare(&table, &twin, now)?,
                Step::Clear => {
                    table.clear();
                    twin.0.clear();
                }
            }
        }
        compare(&table, &twin, now)?;
    }
}

/// Random traffic on a heap that grows to 300,000 blocks and shrinks again. Shards grow several times, and homes
/// overflow at loads that short sequences never reach.
#[test]
fn behaves_like_a_map_while_it_grows_and_empties() {
    let table = Table::new();
    table.init(64 << 20).unwrap();
    let mut twin = Twin::default();
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..3_000_000u32 {
        let now = round / 10;
        let filling = round < 1_500_000;
        let address = 0x7F00_0000_0000 + (next() % 400_000) as usize * 48;
        if next() % 100 < if filling { 70 } else { 25 } {
            let size = if next() % 50 == 0 { 1 << (16 + next() % 30) } else { next() % 65_536 };
            let block = Block { site: next() as u32 & MAX_SITE, size, generation: now };
            assert_eq!(table.insert(address, block, now), twin.insert(address, block, now));
        } else {
            assert_eq!(table.remove(address, now), twin.remove(address, now));
        }
        if round % 500_000 == 499_999 {
            compare(&table, &twin, now).unwrap();
        }
    }
}

/// A heap in which blocks of uneven sizes come and go at the same places. Without the place behind a home that is taken, it
/// is 73 of 100; with it, 89.
#[test]
fn inserts_most_blocks_at_once() {
    let table = Table::new();
    table.init(64 << 20).unwrap();
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut places = Vec::new();
    let mut address = 0x7000_0000_0000usize;
    for _ in 0..5_000 {
        let size = 16 << random(5);
        let block = Block { site: 1, size, generation: 0 };
        assert_eq!(table.insert(address, block, 0), Inserted::New);
        places.push((address, block));
        address += size as usize + 16;
    }
    let (mut all, mut at_once, mut in_order) = (0, 0, 0);
    for _ in 0..50_000 {
        // As many come as go, and half of them are there.
        let (address, block) = places[random(5_000) as usize];
        if remove(&table, address, 0).is_some() {
            continue;
        }
        all += 1;
        if table.insert_fast(address, &block, 0) {
            at_once += 1;
        } else if table.insert_in_order(address, &block, 0) {
            in_order += 1;
        } else {
            assert_eq!(table.insert(address, block, 0), Inserted::New);
        }
    }
    assert!(at_once * 100 > all * 85, "{at_once} of {all}");
    assert!((at_once + in_order) * 100 > all * 95, "{at_once} and {in_order} of {all}");
}
