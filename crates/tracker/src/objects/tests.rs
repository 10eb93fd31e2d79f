//! The table is a map, and ends are exact, slot by slot and by bits.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn objects(max_bytes: usize) -> Box<Objects> {
    // SAFETY: zeroes are an empty one.
    let objects: Box<Objects> = unsafe { Box::new_zeroed().assume_init() };
    objects.init(max_bytes).expect("address space");
    objects
}

proptest! {
    /// Areas of several sizes of slots, some of which get another size when they are empty or not.
    #[test]
    fn it_is_a_map(
        steps in proptest::collection::vec((0usize..6, 0usize..102, 0u8..4, 0u32..1 << 24), 0..2000),
        sizes in proptest::collection::vec(prop::sample::select(vec![32usize, 40, 48, 80, 160, 320, 640]), 6),
        start in 0usize..60,
    ) {
        let objects = objects(16 << 20);
        let mut twin: HashMap<usize, Removed> = HashMap::new();
        let mut sizes = sizes;
        for (number, (area, index, step, site)) in steps.into_iter().enumerate() {
            if number % 501 == 500 {
                sizes.rotate_left(1);
            }
            let size = sizes[area];
            let base = [0x7000_0000_0000, 0x7000_0001_0000, 0x7001_0000_0000, 0x10000, 0xffff_ffff_0000, 0x20000][area];
            let slot = base + start / size * size + start * 8 % size + index % (AREA_BYTES / size - 1) * size;
            if step == 0 {
                prop_assert_eq!(objects.remove(slot, 9), twin.remove(&slot));
                continue;
            }
            let others: Vec<usize> = twin.keys().copied()
                .filter(|other| other & !(AREA_BYTES - 1) == base && twin[other].size != size as u64).collect();
            let mut stale: Vec<Removed> = others.iter().filter_map(|other| twin.remove(other)).collect();
            let mut gone = Vec::new();
            let block = Block { site, size: size as u64, generation: u32::from(step) };
            let inserted = objects.insert(slot, block, 9, |old| gone.push(*old));
            stale.sort_by_key(|old| (old.site, old.age));
            gone.sort_by_key(|old| (old.site, old.age));
            prop_assert_eq!(gone, stale);
            let object = Removed { site, size: size as u64, age: 9 - u32::from(step) };
            prop_assert_eq!(inserted, twin.insert(slot, object).map_or(Inserted::New, Inserted::Replaced));
        }
        let mut seen = HashMap::new();
        objects.for_each(9, &mut |slot, object| { seen.insert(slot, object); });
        prop_assert_eq!(seen, twin);
        objects.clear();
    }
}

/// Judges each slot, and as it is asked also all slots of a page by bits.
struct Asking<F> {
    fate: F,
    asked: Vec<usize>,
    pages: Option<Pages>,
}

struct Pages {
    bytes: usize,
    has_old: bool,
    bits: Box<[[u64; 26]; 2]>,
}

impl<F: Fn(usize) -> Fate> Judge for Asking<F> {
    fn fate(&mut self, slot: usize) -> Fate {
        self.asked.push(slot);
        (self.fate)(slot)
    }

    fn page(&mut self, slot: usize) -> Option<Page> {
        let pages = self.pages.as_mut()?;
        let begin = slot & !(pages.bytes - 1);
        *pages.bits = [[u64::MAX; 26], [0; 26]];
        let [marked, old] = &mut *pages.bits;
        for unit in 0..pages.bytes.div_ceil(40) {
            // Any address of the unit stands for it.
            let fate = (self.fate)(begin + unit * 40);
            let clear = |word: &mut u64| *word &= !(1 << (unit % 64));
            if fate == Fate::Dead {
                clear(&mut marked[unit / 64]);
            }
            old[unit / 64] |= u64::from(fate == Fate::Old) << (unit % 64);
        }
        let old = if pages.has_old { old.as_ptr() } else { ptr::null() };
        Some(Page { begin, bytes: pages.bytes, unit: 40, marked: marked.as_ptr(), old })
    }
}

proptest! {
    /// Two tables of the same objects; one of them settles by bits.
    #[test]
    fn bits_of_pages_tell_the_same(
        slots in proptest::collection::btree_set(0usize..3 * 1638, 0..1500),
        stride in prop::sample::select(vec![1usize, 2, 4, 8, 16, 3]),
        page_bits in 14u32..=16, has_old: bool, seed: u64, start in 0usize..40,
    ) {
        let size = stride * 40;
        let page = 1usize << page_bits;
        // Slots are at multiples of a unit from the beginning of their page, as far as they fit into it.
        let place = |number: usize| {
            let (area, index) = (number / 1638, number % 1638);
            let slot = 0x7000_0000_0000 + (area << AREA_SHIFT) + start + index * size;
            (slot & (page - 1) >= start && index * size + size + start <= AREA_BYTES
                && (page == AREA_BYTES || stride == 1)).then_some(slot)
        };
        let mut tables = [objects(16 << 20), objects(16 << 20)];
        let fate = |slot: usize| {
            let unit = ((slot & (page - 1)) / 40 + slot / page * 7919) as u64;
            match (unit ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 {
                0..3 => Fate::Dead,
                3 | 4 => Fate::Old,
                _ => Fate::Young,
            }
        };
        let mut seen = Vec::new();
        for (objects, is_by_bits) in tables.iter_mut().zip([false, true]) {
            for slot in slots.iter().filter_map(|number| place(*number)) {
                let block = Block { site: (slot % 7) as u32, size: size as u64, generation: 3 };
                objects.insert(slot, block, 9, |_| {});
            }
            let pages = is_by_bits.then(|| Pages { bytes: page, has_old, bits: Box::new([[0; 26]; 2]) });
            let mut gone = [0; 7];
            for all in [false, true, false] {
                let asked = Vec::new();
                let pages = pages.as_ref().map(|pages| Pages { bits: pages.bits.clone(), ..*pages });
                let mut asking = Asking { fate, asked, pages };
                let mut areas = objects.areas();
                while areas.settle(all, 9, &mut asking, |object, count| {
                    gone[object.site as usize] += count;
                }) {}
                prop_assert!(!is_by_bits || !has_old || asking.asked.is_empty());
            }
            let mut left = Vec::new();
            objects.for_each(9, &mut |slot, object| left.push((slot, object.site)));
            seen.push((gone, left));
            objects.clear();
        }
        let [asked, told] = &seen[..] else { unreachable!() };
        prop_assert_eq!(asked, told);
    }
}

proptest! {
    /// Compares with a list that remembers of each object whether a marking has found it old.
    #[test]
    fn who_is_dead_is_told_at_the_end_of_markings(
        steps in proptest::collection::vec((0u8..12, 0usize..3, 0usize..200, 0u8..4), 1..600),
    ) {
        let objects = objects(16 << 20);
        let mut twin: HashMap<usize, (u32, bool)> = HashMap::new();
        for (number, (step, area, index, fates)) in steps.into_iter().enumerate() {
            let slot = 0x7000_0000_0000 + (area << AREA_SHIFT) + 16 + index * 40;
            let site = number as u32 / 4;
            match step {
                0..8 => {
                    let block = Block { site, size: 40, generation: 3 };
                    objects.insert(slot, block, 9, |_| {});
                    twin.insert(slot, (site, false));
                }
                8..10 => {
                    let removed = objects.remove(slot, 9).map(|object| object.site);
                    prop_assert_eq!(removed, twin.remove(&slot).map(|(site, _)| site));
                }
                _ => {
                    let all = step == 11;
                    let judge = |slot: usize| match (slot / 40 + fates as usize) % 4 {
                        0 => Fate::Dead,
                        1 => Fate::Old,
                        _ => Fate::Young,
                    };
                    let mut gone = Vec::new();
                    let mut areas = objects.areas();
                    let mut asking = Asking { fate: judge, asked: Vec::new(), pages: None };
                    while areas.settle(all, 9, &mut asking, |object, count| {
                        gone.extend(std::iter::repeat_n(object.site, count as usize));
                    }) {}
                    let mut asked = asking.asked;
                    let mut expected: Vec<usize> =
                        twin.iter().filter(|(_, (_, old))| all || !old).map(|(slot, _)| *slot).collect();
                    let mut dead: Vec<u32> = Vec::new();
                    for slot in &expected {
                        match judge(*slot) {
                            Fate::Dead => dead.extend(twin.remove(slot).map(|(site, _)| site)),
                            fate => twin.get_mut(slot).expect("there").1 = fate == Fate::Old,
                        }
                    }
                    for list in [&mut expected, &mut asked] { list.sort_unstable(); }
                    for list in [&mut dead, &mut gone] { list.sort_unstable(); }
                    prop_assert_eq!(asked, expected);
                    prop_assert_eq!(gone, dead);
                }
            }
        }
        let mut seen = HashMap::new();
        objects.for_each(9, &mut |slot, object| { seen.insert(slot, object.site); });
        let left: HashMap<usize, u32> = twin.iter().map(|(slot, (site, _))| (*slot, *site)).collect();
        prop_assert_eq!(seen, left);
        objects.clear();
    }
}

#[test]
fn each_slot_of_an_area_has_a_cell_of_its_own() {
    for size in (area::LEAST_SLOT..=700).chain([4096, 65_536]) {
        let objects = objects(1 << 20);
        let slots = (0..AREA_BYTES / size).map(|index| 0x7f00_0000_0000 + index * size);
        for slot in slots.clone() {
            let block = Block { site: 1, size: size as u64, generation: 0 };
            assert_eq!(objects.insert(slot, block, 0, |_| unreachable!()), Inserted::New, "{slot:x} {size}");
        }
        let mut seen = Vec::new();
        objects.for_each(0, &mut |slot, _| seen.push(slot));
        assert!(slots.eq(seen));
        objects.clear();
    }
}

/// Larger slots need fewer cells. An area whose slots become smaller is moved, and not again when they do so once more.
#[test]
fn an_area_takes_what_its_slots_need() {
    let taken = |size: usize| {
        let objects = objects(1 << 20);
        let block = Block { site: 1, size: size as u64, generation: 0 };
        assert_eq!(objects.insert(1 << 40, block, 0, |_| {}), Inserted::New);
        let bytes = objects.resident_bytes() - REGION_RESIDENT;
        objects.clear();
        bytes
    };
    assert!((13_104..14_000).contains(&taken(40)), "{}", taken(40));
    assert!(taken(640) < 2_000, "{}", taken(640));
    let objects = objects(1 << 20);
    let mut bytes = Vec::new();
    for round in 0..3 {
        for size in [640, 320, 160, 80, 40] {
            let block = Block { site: size, size: u64::from(size), generation: 0 };
            let mut gone = Vec::new();
            let slot = (1 << 40) + 640 * (round + 1);
            assert_eq!(objects.insert(slot, block, 0, |old| gone.push(old.site)), Inserted::New);
            let before = if size == 640 { 40 } else { size * 2 };
            assert_eq!(gone, if round == 0 && size == 640 { vec![] } else { vec![before] });
        }
        bytes.push(objects.resident_bytes());
    }
    assert_eq!(bytes, [bytes[0]; 3]);
    let mut seen = Vec::new();
    objects.for_each(0, &mut |slot, object| seen.push((slot, object.site)));
    assert_eq!(seen, [((1 << 40) + 640 * 3, 40)]);
    objects.clear();
}

#[test]
fn a_budget_is_kept_and_a_clear_gives_everything_back() {
    let objects = objects(1 << 20);
    let block = Block { site: 1, size: 40, generation: 0 };
    let slots =
        (0..1_000).flat_map(|area| (0..1_638).map(move |i| (area << AREA_SHIFT) + (1 << 40) + i * 40));
    let kept = slots.take_while(|slot| objects.insert(*slot, block, 0, |_| {}) != Inserted::Full).count();
    assert!(objects.resident_bytes() <= 1 << 20 && kept > 120_000, "{kept}");
    objects.clear();
    assert_eq!((objects.resident_bytes(), objects.remove(1 << 40, 0)), (0, None));
    assert_eq!(objects.insert(1 << 50, block, 0, |_| {}), Inserted::Full);
    objects.init(1 << 20).expect("address space");
    assert_eq!(objects.insert(1 << 40, block, 0, |_| {}), Inserted::New);
    objects.clear();
}

/// What is old when a look finds its contents is left out from then on, until it dies or moves; a twin keeps the same in sets.
#[test]
fn a_look_leaves_out_what_is_old_and_done() {
    use std::collections::HashSet;

    let objects = objects(16 << 20);
    let slots: Vec<usize> = (0..3_000)
        .map(|index| 0x7000_0000_0000 + index * 40 / 65_520 * 65_536 + index * 40 % 65_520)
        .collect();
    let put = |slot: usize| {
        let _ = objects.insert(slot, Block { site: 7, size: 40, generation: 1 }, 9, |_| {});
    };
    slots.iter().for_each(|slot| put(*slot));
    let look = |is_done: &dyn Fn(usize) -> bool| {
        let (mut seen, mut areas) = (HashSet::new(), objects.areas());
        while areas.look(9, &mut |slot, object| {
            assert_eq!(object, Removed { site: 7, size: 40, age: 8 });
            assert!(seen.insert(slot));
            is_done(slot)
        }) {}
        seen
    };
    let all: HashSet<usize> = slots.iter().copied().collect();
    let is_third = |slot: &usize| (slot / 8).is_multiple_of(3);
    let settle = |all: bool, fate: &dyn Fn(usize) -> Fate| {
        let mut judge = Asking { fate: |slot| fate(slot), asked: Vec::new(), pages: None };
        let mut areas = objects.areas();
        while areas.settle(all, 9, &mut judge, |_, _| {}) {}
    };
    // Young ones are looked at each time, whatever was said.
    assert_eq!((look(&|_| true), look(&|_| true)), (all.clone(), all.clone()));
    settle(false, &|_| Fate::Old);
    assert_eq!(look(&|slot| is_third(&slot)), all);
    let rest: HashSet<usize> = all.iter().copied().filter(|slot| !is_third(slot)).collect();
    assert_eq!(look(&|_| false), rest);
    // One that is freed, and whose slot has another one; one that dies in a marking; one that is no longer old.
    let mut done = slots.iter().copied().filter(is_third);
    let [freed, dead, young] = [(); 3].map(|()| done.next().expect("a slot"));
    assert!(objects.remove(freed, 9).is_some());
    settle(true, &|slot| match slot {
        slot if slot == dead => Fate::Dead,
        slot if slot == young => Fate::Young,
        _ => Fate::Old,
    });
    [freed, dead].into_iter().for_each(put);
    settle(false, &|_| Fate::Old);
    let again: HashSet<usize> = rest.iter().copied().chain([freed, dead, young]).collect();
    assert_eq!(look(&|_| false), again);
}
