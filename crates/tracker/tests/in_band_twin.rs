//! Compares in-band records with a table of the same blocks, event by event: both must agree on each block,
//! also after planted frees and overruns that neither records. The blocks are glibc's own.

#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memintro_tracker::in_band::{EXTRA, Found, InBand, is_told, with_extra};
use memintro_tracker::table::{Block, Inserted, Table};

const THREADS: u64 = 4;
/// Beyond the greatest size of a block with an in-band record.
const MOST_BYTES: u64 = 40 << 10;

static IN_BAND_RECORDS: InBand = InBand::new();
/// Those that cannot have a record.
static REST: Table = Table::new();
static TWIN: Table = Table::new();
static GENERATION: AtomicU32 = AtomicU32::new(7);
/// Blocks that some thread has left to others.
static SHARED: Mutex<Vec<Live>> = Mutex::new(Vec::new());

/// The planted errors, and their outcome.
static ESCAPED: AtomicU64 = AtomicU64::new(0);
static OVERRUN: AtomicU64 = AtomicU64::new(0);
static HEALED: AtomicU64 = AtomicU64::new(0);
/// Missed frees whose record was still intact.
static BELIEVED: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
/// Bytes of live blocks by the records and by the twin; bytes of blocks whose record was lost.
static BYTES: AtomicU64 = AtomicU64::new(0);
static TWINS_BYTES: AtomicU64 = AtomicU64::new(0);
static LOST_BYTES: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
struct Live {
    address: usize,
    size: u64,
    generation: u32,
    /// Its last byte was written, beyond the requested size, or it was resized without a record.
    is_overrun: bool,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// Mostly small.
    fn size(&mut self) -> u64 {
        match self.below(16) {
            0 => self.below(MOST_BYTES),
            1..=4 => self.below(2_000),
            _ => self.below(130),
        }
    }
}

fn now() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Does what the hook does after a block was handed out.
fn born(address: usize, size: u64, site: u32) -> Live {
    let now = now();
    let block = Block { site, size, generation: now };
    let stale = match TWIN.insert(address, block, now) {
        Inserted::New => None,
        Inserted::Replaced(stale) => Some(stale),
        Inserted::Full => panic!("the twin has no room"),
    };
    // One that lay 16 bytes aside is gone as well. The table notices when its own address comes again.
    let is_aside = IN_BAND_RECORDS.has(address ^ 16);
    // SAFETY: the block is this thread's.
    let mut found = unsafe { IN_BAND_RECORDS.take_stale(address, now, true) };
    if is_aside {
        assert_eq!(found, Found::Damaged);
        found = Found::Nothing;
        let aside = TWIN.remove(address ^ 16, now).expect("the twin does not know the block aside");
        LOST.fetch_add(1, Ordering::Relaxed);
        LOST_BYTES.fetch_add(aside.size, Ordering::Relaxed);
        TWINS_BYTES.fetch_sub(aside.size, Ordering::Relaxed);
    }
    let of_rest = REST.remove(address, now);
    match (found, of_rest, stale) {
        (Found::Nothing, None, None) => {}
        (Found::Nothing, Some(known), Some(stale)) => {
            assert_eq!(known, stale);
            HEALED.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_sub(known.size, Ordering::Relaxed);
        }
        (Found::Whole(found), None, Some(stale)) => {
            assert_eq!(found, stale);
            BELIEVED.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_sub(found.size, Ordering::Relaxed);
        }
        (Found::Damaged, None, Some(stale)) => {
            LOST.fetch_add(1, Ordering::Relaxed);
            LOST_BYTES.fetch_add(stale.size, Ordering::Relaxed);
        }
        other => panic!("at {address:#x}: {other:?}"),
    }
    if let Some(stale) = stale {
        TWINS_BYTES.fetch_sub(stale.size, Ordering::Relaxed);
    }
    assert!(IN_BAND_RECORDS.make_room(address));
    // SAFETY: the block is this thread's.
    if !unsafe { IN_BAND_RECORDS.put_fast(address, &block) } {
        if let Found::Whole(_) = found {
            IN_BAND_RECORDS.doubt(address);
        }
        assert_eq!(REST.insert(address, block, now), Inserted::New);
    }
    BYTES.fetch_add(size, Ordering::Relaxed);
    TWINS_BYTES.fetch_add(size, Ordering::Relaxed);
    Live { address, size, generation: now, is_overrun: false }
}

/// Does what the hook does before a block is given back or moved.
fn died(block: Live) {
    let now = now();
    // The bytes are the owner's up to what it is told.
    // SAFETY: the block is this thread's.
    let (told, found) =
        unsafe { (IN_BAND_RECORDS.usable(block.address), IN_BAND_RECORDS.take(block.address, now)) };
    // A block that was resized without a record may be smaller now.
    assert!(block.is_overrun || told.is_none_or(|told| told as u64 >= block.size));
    let known = match found {
        Found::Nothing => REST.remove(block.address, now),
        Found::Whole(known) => Some(known),
        Found::Damaged => None,
    };
    let twin = TWIN.remove(block.address, now).expect("the twin has lost a block");
    assert_eq!(twin.size, block.size);
    TWINS_BYTES.fetch_sub(twin.size, Ordering::Relaxed);
    match known {
        Some(known) => {
            // If it only moved aside, it may also be at its former place.
            assert_eq!((known.site, known.size), (twin.site, twin.size), "a damaged record was believed");
            // The table's age is less certain: a thread that had to wait with an old `now`, and then moves
            // the blocks of a heap page, gives blocks that were born meanwhile that older age.
            if matches!(found, Found::Whole(_)) {
                assert_eq!(known.age, now - block.generation);
            }
            BYTES.fetch_sub(known.size, Ordering::Relaxed);
        }
        None => {
            assert!(block.is_overrun, "a record was lost");
            LOST.fetch_add(1, Ordering::Relaxed);
            LOST_BYTES.fetch_add(twin.size, Ordering::Relaxed);
        }
    }
}

fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}

fn allocate(random: &mut Random) -> Live {
    let size = random.size();
    // SAFETY: any size may be asked for.
    let block = unsafe {
        if random.below(8) == 0 {
            let (count, size) = with_extra(1, size as usize);
            libc::calloc(count, size)
        } else {
            libc::malloc(size as usize + EXTRA)
        }
    };
    assert!(!block.is_null());
    // SAFETY: the block has these bytes.
    unsafe { block.cast::<u8>().write_bytes(0xA5, size as usize) };
    born(block.expose_provenance(), size, random.below(1 << 20) as u32)
}

fn resize(block: Live, random: &mut Random) -> Live {
    died(block);
    let size = random.size();
    // SAFETY: the block is this thread's.
    let moved = unsafe { libc::realloc(pointer(block.address), size as usize + EXTRA) };
    assert!(!moved.is_null());
    born(moved.expose_provenance(), size, random.below(1 << 20) as u32)
}

fn run(seed: u64, operations: u64) {
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ seed << 32);
    let mut own: Vec<Live> = Vec::new();
    for _ in 0..operations {
        let place = random.below(own.len().max(1) as u64) as usize;
        match random.below(100) {
            _ if own.len() < 50 => own.push(allocate(&mut random)),
            0..=44 if own.len() < 4_000 => own.push(allocate(&mut random)),
            45..=59 => {
                let block = own.swap_remove(place);
                own.push(resize(block, &mut random));
            }
            60..=62 => SHARED.lock().unwrap().push(own.swap_remove(place)),
            63..=65 => own.extend(SHARED.lock().unwrap().pop()),
            66 => {
                let _ = GENERATION.fetch_add(1, Ordering::Relaxed);
            }
            67 if random.below(20) == 0 => {
                // A free that is not recorded.
                ESCAPED.fetch_add(1, Ordering::Relaxed);
                // SAFETY: the block is this thread's.
                unsafe { libc::free(pointer(own.swap_remove(place).address)) };
            }
            69 if random.below(20) == 0
                && !own[place].is_overrun
                && IN_BAND_RECORDS.has(own[place].address) =>
            {
                // A realloc that is not recorded. If the block stays, its record need not be where it was.
                let block = own.swap_remove(place);
                // SAFETY: the block is this thread's.
                let moved = unsafe { libc::realloc(pointer(block.address), random.size() as usize + 1) };
                ESCAPED.fetch_add(1, Ordering::Relaxed);
                if moved.expose_provenance() == block.address {
                    own.push(Live { is_overrun: true, ..block });
                } else {
                    // SAFETY: as above. It has no owner.
                    unsafe { libc::free(moved) };
                }
            }
            68 if random.below(20) == 0
                && !own[place].is_overrun
                && IN_BAND_RECORDS.has(own[place].address) =>
            {
                OVERRUN.fetch_add(1, Ordering::Relaxed);
                own[place].is_overrun = true;
                let address = own[place].address;
                // SAFETY: the last bytes of the block, which are not its owner's, and no other thread's.
                unsafe {
                    let usable = libc::malloc_usable_size(pointer(address));
                    let byte = pointer(address).cast::<u8>().add(usable - 1 - random.below(8) as usize);
                    byte.write(byte.read() ^ (1 + random.below(255)) as u8);
                }
            }
            _ => {
                let block = own.swap_remove(place);
                died(block);
                // SAFETY: the block is this thread's.
                unsafe { libc::free(pointer(block.address)) };
            }
        }
    }
    SHARED.lock().unwrap().extend(own);
}

/// A word of this process, if it is there.
fn read(address: usize) -> Option<u64> {
    let mut word = 0_u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: pointer(address), iov_len: 8 };
    // SAFETY: room for a word.
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    (read == 8).then_some(word)
}

/// Ten million with `MEMINTRO_STORM_OPERATIONS=10000000`.
#[test]
fn records_within_blocks_say_what_a_table_says() {
    let operations = std::env::var("MEMINTRO_STORM_OPERATIONS").map_or(400_000, |text| text.parse().unwrap());
    REST.init(1 << 30).unwrap();
    TWIN.init(1 << 30).unwrap();
    IN_BAND_RECORDS.begin(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || run(thread + 1, operations / THREADS));
        }
    });
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert!(count(&ESCAPED) > 0 && count(&OVERRUN) > 0 && count(&LOST) > 0 && count(&BELIEVED) > 0);
    assert_eq!(IN_BAND_RECORDS.damaged(), count(&LOST));
    // Exactly equal.
    assert_eq!(count(&BYTES), count(&TWINS_BYTES) + count(&LOST_BYTES));

    // The same blocks are listed, except those that were freed without a record or whose record was
    // overwritten.
    let live: HashMap<usize, Live> =
        SHARED.lock().unwrap().iter().map(|block| (block.address, *block)).collect();
    let mut twins = HashMap::new();
    TWIN.for_each(now(), &mut |address, block| assert!(twins.insert(address, block).is_none()));
    let mut listed = HashMap::new();
    IN_BAND_RECORDS
        .for_each(true, now(), read, |address, block| assert!(listed.insert(address, block).is_none()));
    REST.for_each(now(), &mut |address, block| assert!(listed.insert(address, block).is_none()));
    for (address, block) in &listed {
        assert_eq!(twins.get(address), Some(block));
    }
    for (address, block) in &live {
        assert!(listed.contains_key(address) || block.is_overrun, "{address:#x}");
    }
    assert!(twins.len() as u64 <= live.len() as u64 + count(&ESCAPED));

    // Then all of them move to the table, as at a stop, some at a time.
    let expected: HashMap<_, _> = listed.clone();
    let with_bits = live.keys().chain(twins.keys()).filter(|address| IN_BAND_RECORDS.has(**address));
    let with_bits = with_bits.collect::<std::collections::HashSet<_>>().len() as u64;
    let mut in_table = 0;
    REST.for_each(now(), &mut |_, _| in_table += 1);
    let damaged = IN_BAND_RECORDS.damaged();
    IN_BAND_RECORDS.leave();
    assert!(IN_BAND_RECORDS.is_on() && !IN_BAND_RECORDS.takes());
    let mut steps = 1;
    while !IN_BAND_RECORDS.step(&REST, now(), read, |block| panic!("{block:?}"), 1_000) {
        steps += 1;
    }
    assert!(steps > 3, "{steps}");
    // Each damaged record has been counted. (Some blocks that were freed without a record, and whose memory
    // is gone, have no twin any more.)
    let whole = expected.len() as u64 - in_table;
    assert!(IN_BAND_RECORDS.damaged() - damaged >= with_bits - whole, "{with_bits} {whole}");
    let mut moved = HashMap::new();
    REST.for_each(now(), &mut |address, block| assert!(moved.insert(address, block).is_none()));
    // This test's own memory may now lie where a block was freed without a record.
    assert!(moved.iter().all(|(address, block)| expected.get(address) == Some(block)));
    assert!(expected.keys().all(|address| moved.contains_key(address) || !live.contains_key(address)));
    IN_BAND_RECORDS.end();
    assert!(live.keys().all(|address| !IN_BAND_RECORDS.has(*address)));
}

/// The thread that clears the byte first gets the block: its owner, or the thread that moves it.
#[test]
fn a_claimed_block_does_not_move() {
    static IN_BAND_RECORDS: InBand = InBand::new();
    static TABLE: Table = Table::new();
    TABLE.init(64 << 20).unwrap();
    IN_BAND_RECORDS.begin(0);
    // SAFETY: a block of this test.
    unsafe {
        let address = libc::malloc(100 + EXTRA).expose_provenance();
        let born = Block { site: 3, size: 100, generation: 5 };
        assert!(IN_BAND_RECORDS.make_room(address) && IN_BAND_RECORDS.put_fast(address, &born));
        // The owner comes just after the record was read.
        let claimed = core::cell::Cell::new(None);
        let claim_when_read = |at| {
            let word = read(at);
            if at != address - 8 {
                claimed.set(IN_BAND_RECORDS.claim(address, 7));
            }
            word
        };
        IN_BAND_RECORDS.leave();
        assert!(IN_BAND_RECORDS.step(&TABLE, 7, claim_when_read, |block| panic!("{block:?}"), 1 << 20));
        let block = claimed.get().unwrap();
        assert_eq!((block.age, block.size, block.site), (2, 100, 3));
        assert!(TABLE.get(address, 7).is_none() && !IN_BAND_RECORDS.has(address));
        assert!(IN_BAND_RECORDS.claim(address, 7).is_none());
        assert_eq!(IN_BAND_RECORDS.damaged(), 0);

        assert!(IN_BAND_RECORDS.put_fast(address, &born));
        assert!(IN_BAND_RECORDS.step(&TABLE, 7, read, |block| panic!("{block:?}"), 1 << 20));
        assert!(TABLE.get(address, 7).is_some() && IN_BAND_RECORDS.claim(address, 7).is_none());
        libc::free(pointer(address));
    }
}

#[test]
fn old_blocks_move_in_time() {
    static IN_BAND_RECORDS: InBand = InBand::new();
    static TABLE: Table = Table::new();
    TABLE.init(64 << 20).unwrap();
    IN_BAND_RECORDS.begin(0);
    // SAFETY: blocks of this test.
    unsafe {
        let [old, young] =
            [libc::malloc(100 + EXTRA), libc::malloc(100 + EXTRA)].map(<*mut c_void>::expose_provenance);
        let put = |address, generation| {
            assert!(IN_BAND_RECORDS.make_room(address));
            let block = Block { site: 3, size: 100, generation };
            assert!(IN_BAND_RECORDS.put_fast(address, &block));
        };
        put(old, 5);
        assert!(!IN_BAND_RECORDS.is_to_look(65_535));
        put(young, 60_000);
        assert!(IN_BAND_RECORDS.is_to_look(65_600));
        while !IN_BAND_RECORDS.step(&TABLE, 65_600, read, |block| panic!("{block:?}"), 1) {}
        assert!(
            !IN_BAND_RECORDS.has(old) && IN_BAND_RECORDS.has(young) && !IN_BAND_RECORDS.is_to_look(65_700)
        );
        assert_eq!(TABLE.get(old, 65_600).map(|block| block.age), Some(65_595));
        let Found::Whole(block) = IN_BAND_RECORDS.take(young, 65_700) else { panic!() };
        assert_eq!((block.age, block.size, block.site), (5_700, 100, 3));
        libc::free(pointer(old));
        libc::free(pointer(young));
    }
}

#[test]
fn a_record_that_is_rewritten_says_what_it_said_but_for_its_site() {
    static IN_BAND_RECORDS: InBand = InBand::new();
    IN_BAND_RECORDS.begin(0);
    // SAFETY: blocks of this test.
    unsafe {
        // The second has so many bytes to spare that a record has no room for such a site.
        let sizes = [40, 64];
        let [first, second] = sizes.map(|size| libc::malloc(size + EXTRA).expose_provenance());
        let put = |address: usize, size: usize, site| {
            IN_BAND_RECORDS.make_room(address)
                && IN_BAND_RECORDS.put_fast(address, &Block { site, size: size as u64, generation: 5 })
        };
        assert!(put(first, 40, 2) && put(second, 40, 2));
        assert!(IN_BAND_RECORDS.rewrite(first, &Block { site: 300_000, size: 40, generation: 5 }));
        assert!(!IN_BAND_RECORDS.rewrite(second, &Block { site: 0xF_8000, size: 40, generation: 5 }));
        let known = [first, second]
            .map(|address| IN_BAND_RECORDS.get(address, 9).map(|block| (block.site, block.size, block.age)));
        assert_eq!(known, [Some((300_000, 40, 4)), Some((2, 40, 4))]);
        let Found::Whole(taken) = IN_BAND_RECORDS.take(first, 9) else { panic!() };
        assert_eq!((taken.site, taken.size, taken.age), (300_000, 40, 4));
        assert_eq!((IN_BAND_RECORDS.get(first, 9), IN_BAND_RECORDS.damaged()), (None, 0));
        libc::free(pointer(first));
        libc::free(pointer(second));
    }
}

#[test]
fn records_that_nobody_may_read_count_as_damaged() {
    static IN_BAND_RECORDS: InBand = InBand::new();
    IN_BAND_RECORDS.begin(0);
    // SAFETY: blocks of this test.
    unsafe {
        let blocks = [100, 200, 300].map(|size| libc::malloc(size + EXTRA).expose_provenance());
        for (size, address) in [100, 200, 300].into_iter().zip(blocks) {
            let block = Block { site: 3, size, generation: 5 };
            assert!(IN_BAND_RECORDS.make_room(address) && IN_BAND_RECORDS.put_fast(address, &block));
        }
        assert!(IN_BAND_RECORDS.take(blocks[0], 5) != Found::Nothing);
        IN_BAND_RECORDS.give_up();
        assert_eq!(
            (IN_BAND_RECORDS.damaged(), IN_BAND_RECORDS.is_on(), IN_BAND_RECORDS.has(blocks[1])),
            (2, false, false)
        );
        for address in blocks {
            libc::free(pointer(address));
        }
    }
}

#[test]
fn glibc_is_told_from_others() {
    for size in [0, 1, 24, 25, 100, 5_000, 20_000] {
        // SAFETY: a block of this test.
        unsafe {
            let block = libc::malloc(size + EXTRA);
            let usable = libc::malloc_usable_size(block);
            assert!(is_told(block.expose_provenance(), usable));
            assert!(!is_told(block.expose_provenance(), usable + 16));
            libc::free(block);
        }
    }
}
