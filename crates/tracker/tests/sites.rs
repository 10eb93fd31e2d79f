//! A key has one call site number, whatever memory its path lies in, up to the limits.

use std::collections::HashMap;
use std::ffi::CString;

use memintro_abi::BlockFigures;
use memintro_tracker::counters::CounterCache;
use memintro_tracker::sites::{Kind, Loaded, MAX_PATH_BYTES, Place, SiteCache, Sites};
use proptest::prelude::*;

const PSEUDO: u32 = 3;

fn sites(max: u32) -> Box<Sites> {
    let sites = Box::new(Sites::new());
    assert!(sites.init(max, usize::MAX, PSEUDO));
    sites
}

fn ruby(sites: &Sites, path: &[u8], line: u32) -> Option<u32> {
    let path = CString::new(path).unwrap();
    // SAFETY: the path lives during the call.
    unsafe { sites.ruby(path.as_ptr(), line) }
}

fn path_of(sites: &Sites, id: u32) -> Vec<u8> {
    let (bytes, len) = sites.get(id).unwrap().path();
    // SAFETY: the interner keeps the path with this length.
    unsafe { std::slice::from_raw_parts(bytes, len as usize) }.to_vec()
}

#[test]
fn equal_paths_in_different_memory_are_one_site() {
    let sites = sites(100);
    let first = ruby(&sites, b"/app/leak.rb", 12).unwrap();
    assert_eq!(first, PSEUDO);
    assert_eq!(ruby(&sites, b"/app/leak.rb", 12), Some(first));
    assert_eq!(ruby(&sites, b"/app/leak.rb", 13), Some(first + 1));
    assert_eq!(path_of(&sites, first), b"/app/leak.rb");
    assert_eq!(sites.get(first).unwrap().line(), 12);
    assert_eq!(sites.get(0).unwrap().kind(), Kind::Pseudo);
}

#[test]
fn a_return_address_is_another_key_than_a_line() {
    let sites = sites(100);
    let native = sites.native(0x7f00_1234, None).unwrap();
    assert_eq!(sites.native(0x7f00_1234, None), Some(native));
    assert_eq!(sites.get(native).unwrap().kind(), Kind::Native);
    assert_eq!(sites.get(native).unwrap().address(), 0x7f00_1234);
    assert_ne!(ruby(&sites, b"a.rb", 1), Some(native));
}

#[test]
fn a_module_that_comes_back_elsewhere_has_the_same_sites() {
    let sites = sites(PSEUDO + 4);
    let place = |path, build, offset| Some(Place { path, build, offset });
    let (plugin, other): (&[u8], &[u8]) = (b"/opt/plugin.so", b"/opt/other.so");
    for load in 1..=1000_usize {
        let base = load << 20;
        assert_eq!(sites.native(base + 0x10, place(plugin, 7, 0x10)), Some(3));
        assert_eq!(sites.native(base + 0x20, place(plugin, 7, 0x20)), Some(4));
        assert_eq!(sites.get(3).unwrap().address(), (base + 0x10) as u64);
    }
    assert_eq!(sites.count(), PSEUDO + 2);
    // Another path at the same address, and another build at the same path.
    assert_eq!(sites.native((1000 << 20) + 0x10, place(other, 7, 0x10)), Some(5));
    assert_eq!(sites.native((1000 << 20) + 0x10, place(plugin, 8, 0x10)), Some(6));
    assert_eq!((path_of(&sites, 3), path_of(&sites, 5)), (plugin.to_vec(), other.to_vec()));
    assert_eq!((sites.get(4).unwrap().offset(), sites.get(4).unwrap().line()), (0x20, 0));
}

#[test]
fn what_is_loaded_where_is_as_of_a_look() {
    let sites = sites(100);
    let path: &[u8] = b"/opt/plugin.so";
    let placed = sites.native(0x1010, Some(Place { path, build: 7, offset: 0x10 })).unwrap();
    let bare = sites.native(0x9999, None).unwrap();
    let loaded = |id, walk| sites.loaded(sites.get(id).unwrap(), walk);
    sites.note_loaded(1, path, 7, 0x1000);
    sites.note_loaded(1, b"/not/known.so", 7, 0x5000);
    assert_eq!(loaded(placed, 1), Some(Loaded { build: 7, base: Some(0x1000) }));
    assert_eq!(loaded(placed, 2), Some(Loaded { build: 7, base: None }));
    sites.note_loaded(3, path, 7, 0x8000);
    assert_eq!(loaded(placed, 2), Some(Loaded { build: 7, base: Some(0x8000) }));
    assert_eq!(loaded(bare, 1), None);
}

#[test]
fn at_the_limit_old_sites_are_still_found() {
    let sites = sites(PSEUDO + 2);
    let ids = [ruby(&sites, b"a.rb", 1), ruby(&sites, b"a.rb", 2)];
    assert_eq!(ids, [Some(3), Some(4)]);
    assert_eq!(ruby(&sites, b"a.rb", 3), None);
    assert_eq!(sites.native(42, None), None);
    assert_eq!(ruby(&sites, b"a.rb", 2), Some(4));
    assert_eq!(sites.count(), 5);
}

#[test]
fn no_bytes_left_means_no_new_site() {
    let sites = Box::new(Sites::new());
    assert!(sites.init(1000, 0, PSEUDO));
    assert_eq!(ruby(&sites, b"a.rb", 1), None);
}

#[test]
fn a_path_longer_than_the_limit_is_cut_there() {
    let sites = sites(100);
    let long = vec![b'x'; MAX_PATH_BYTES + 10];
    let id = ruby(&sites, &long, 1).unwrap();
    assert_eq!(path_of(&sites, id).len(), MAX_PATH_BYTES);
}

#[test]
fn clear_gives_every_number_away_again() {
    let sites = sites(5000);
    for line in 1..=4000 {
        assert_eq!(ruby(&sites, b"a.rb", line), Some(PSEUDO + line - 1));
    }
    sites.clear();
    assert_eq!(sites.count(), 0);
    assert!(sites.init(5000, usize::MAX, PSEUDO));
    assert_eq!(ruby(&sites, b"b.rb", 7), Some(PSEUDO));
    assert_eq!(path_of(&sites, PSEUDO), b"b.rb");
}

#[test]
fn a_million_sites_are_told_apart() {
    let sites = sites(1 << 24);
    let path = CString::new("generated.rb").unwrap();
    for line in 0..1_000_000 {
        // SAFETY: the path lives during the call.
        assert_eq!(unsafe { sites.ruby(path.as_ptr(), line) }, Some(PSEUDO + line));
    }
    for line in (0..1_000_000).step_by(997) {
        // SAFETY: as above.
        assert_eq!(unsafe { sites.ruby(path.as_ptr(), line) }, Some(PSEUDO + line));
        assert_eq!(sites.get(PSEUDO + line).unwrap().line(), line);
    }
}

/// All-zero memory, as the hook maps it.
fn zeroed<T>() -> Box<T> {
    // SAFETY: used with the caches only, for which all-zero memory is documented to be valid.
    unsafe { Box::new(std::mem::MaybeUninit::zeroed().assume_init()) }
}

#[test]
fn the_cache_asks_again_for_another_line_or_generation() {
    let cache: Box<SiteCache> = zeroed();
    assert_eq!(cache.get(0x1000, 5, 1, || (10, true)), 10);
    assert_eq!(cache.get(0x1000, 5, 1, || unreachable!("it is cached")), 10);
    assert_eq!(cache.get(0x1000, 6, 1, || (11, true)), 11);
    assert_eq!(cache.get(0x1000, 6, 2, || (12, true)), 12);
    cache.discard();
    assert_eq!(cache.get(0x1000, 6, 2, || (13, true)), 13);
    assert_eq!(cache.get(0x1000, 7, 2, || (14, false)), 14);
    assert_eq!(cache.get(0x1000, 7, 2, || (15, true)), 15, "what was not to be remembered is asked again");
}

#[test]
fn many_threads_agree_on_numbers() {
    let sites = sites(1 << 20);
    let sites = &*sites;
    let seen: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u32)
            .map(|thread| {
                scope.spawn(move || {
                    // Each thread records the same lines in another order.
                    let mut ids: Vec<_> = (0..5000u32)
                        .map(|i| (i * 7 + thread * 1250) % 5000)
                        .map(|line| (line, ruby(sites, b"shared.rb", line).unwrap()))
                        .collect();
                    ids.sort_unstable();
                    ids.into_iter().map(|(_, id)| id).collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(sites.count(), PSEUDO + 5000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_like_a_map(keys in proptest::collection::vec((0u8..40, 0u32..30, any::<bool>()), 1..600)) {
        let sites = sites(1 << 20);
        let mut twin: HashMap<(u8, u32, bool), u32> = HashMap::new();
        for key in keys {
            let (path, line, native) = key;
            let id = if native {
                sites.native(usize::from(path) * 1000 + line as usize + 1, None)
            } else {
                ruby(&sites, format!("/app/file_{path}.rb").as_bytes(), line)
            };
            let next = PSEUDO + u32::try_from(twin.len()).unwrap();
            prop_assert_eq!(id, Some(*twin.entry(key).or_insert(next)));
        }
        prop_assert_eq!(sites.count() as usize, PSEUDO as usize + twin.len());
    }

    #[test]
    fn cached_counters_add_up(events in proptest::collection::vec((0u32..400, 1u64..100_000, 0u32..50, any::<bool>()), 1..2000)) {
        let sites = sites(1 << 20);
        for line in 0..400 {
            ruby(&sites, b"a.rb", line);
        }
        let cache: Box<CounterCache> = zeroed();
        // allocations, bytes, frees, freed bytes, ages, greatest age
        let mut twin: HashMap<u32, BlockFigures> = HashMap::new();
        for (site, size, age, is_free) in events {
            let site = site + PSEUDO;
            let sums = twin.entry(site).or_default();
            if is_free {
                cache.freed(site, size, age, 0, |id| sites.counters(id));
                let age = u64::from(age);
                sums.frees.value += 1;
                sums.freed_bytes.value += size;
                sums.age_total.value += age;
                sums.max_lifespan = sums.max_lifespan.max(age);
            } else {
                cache.allocated(site, size, 0, |id| sites.counters(id));
                sums.allocations.value += 1;
                sums.total_bytes.value += size;
            }
        }
        cache.flush(|id| sites.counters(id));
        for (site, sums) in twin {
            let mut now = BlockFigures::default();
            sites.counters(site).unwrap().add_to(&mut now);
            prop_assert_eq!(now, sums);
        }
    }
}

#[test]
fn stacks_are_told_apart_and_belong_to_their_line() {
    let sites = Box::new(Sites::new());
    assert!(sites.init(100, 64 << 20, 3));
    let leaf = sites.ruby_line(b"/app/leaf.rb", 7).unwrap();
    let frame = |path: &[u8], line, label: &[u8]| sites.frame(path, line, Some(label)).unwrap();
    let (inner, one, other) = (
        frame(b"/app/leaf.rb", 7, b"leaf"),
        frame(b"/app/a.rb", 1, b"one"),
        frame(b"/app/a.rb", 1, b"other"),
    );
    assert_ne!(one, other, "labels count");
    assert_eq!(one, frame(b"/app/a.rb", 1, b"one"));
    let stacks = [
        sites.stack(leaf, &[inner]).unwrap(),
        sites.stack(leaf, &[inner, one]).unwrap(),
        sites.stack(leaf, &[inner, other]).unwrap(),
        sites.stack(leaf, &[inner, one, one]).unwrap(),
    ];
    assert_eq!(stacks[1], sites.stack(leaf, &[inner, one]).unwrap());
    let frames: [&[u32]; 4] = [&[inner], &[inner, one], &[inner, other], &[inner, one, one]];
    assert_eq!(frames.map(|frames| sites.known_stack(frames)), stacks.map(Some));
    assert_eq!(
        [&[one][..], &[one, inner], &[inner, one, other], &[]].map(|frames| sites.known_stack(frames)),
        [None; 4]
    );
    let mut all: Vec<u32> = sites.with_stacks(leaf).map(|(id, _)| id).collect();
    assert_eq!(all.first(), Some(&leaf));
    all.sort_unstable();
    assert_eq!(all, [leaf, stacks[0], stacks[1], stacks[2], stacks[3]]);
    assert!(stacks.iter().all(|stack| sites.leaf_of(*stack) == leaf));
    assert_eq!(sites.leaf_of(leaf), leaf);
    assert_eq!(sites.with_stacks(stacks[1]).count(), 1, "a stack has none of its own");
    assert_eq!(sites.ruby_line(b"/app/leaf.rb", 7), Some(leaf), "a stack is not taken for its line");

    let mut lines = Vec::new();
    let mut next = sites.get(stacks[3]).unwrap().node();
    while let Some(line) = sites.stack_line(next) {
        lines.push((line.frame, line.line));
        next = line.caller;
    }
    assert_eq!(lines, [(inner, 7), (one, 1), (one, 1)]);

    sites.clear();
    assert!(sites.stack_line(1).is_none());
}

#[test]
fn stacks_without_room_are_refused() {
    let sites = Box::new(Sites::new());
    assert!(sites.init(5, 64 << 20, 3));
    let leaf = sites.ruby_line(b"/app/leaf.rb", 7).unwrap();
    let frame = sites.frame(b"/app/leaf.rb", 7, None).unwrap();
    assert!(sites.stack(leaf, &[frame]).is_some());
    assert_eq!(sites.stack(leaf, &[frame, frame]), None);
    assert_eq!(sites.stack(leaf, &[frame]), sites.with_stacks(leaf).nth(1).map(|(id, _)| id));
}
