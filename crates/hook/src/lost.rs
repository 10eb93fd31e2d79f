//! Subtracts blocks with damaged records from the sums, so that live figures agree again with the known
//! blocks.
//!
//! The call sites of such blocks are unknown until all other blocks have been found, so this runs after the
//! table has taken over ([`crate::in_band`]). Blocks that a site has in its sums but not in the table are
//! then lost: they were freed without the hook, or their records were overwritten.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memintro_tracker::mmap;
use memintro_tracker::threads::ThreadState;

use crate::shared::{self, IN_BAND_RECORDS, SITES, TABLE, THREADS};

/// The number of damaged records at the last run.
static DONE: AtomicU64 = AtomicU64::new(0);
/// Unknown blocks do not count as lost: sums were reset since the start or clear, or records cannot be read.
static IS_BARRED: AtomicBool = AtomicBool::new(false);
/// What was taken out.
static BLOCKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Live blocks of a site, and their bytes.
type Live = [u64; 2];

/// So many blocks and bytes were taken out of the sums.
pub(crate) fn taken_out() -> [u64; 2] {
    [&BLOCKS, &BYTES].map(|sum| sum.load(Ordering::Relaxed))
}

/// Unknown blocks may be live. The world is paused.
pub(crate) fn bar() {
    IS_BARRED.store(true, Ordering::Relaxed);
}

/// The sums start at zero again. The world is paused.
pub(crate) fn forget() {
    IS_BARRED.store(false, Ordering::Relaxed);
    for sum in [&DONE, &BLOCKS, &BYTES] {
        sum.store(0, Ordering::Relaxed);
    }
}

/// Subtracts lost blocks from the sums, if there are any. Takes as long as a visit of all blocks. The world
/// is paused; not inside malloc.
pub(crate) fn take_out() {
    let damaged = IN_BAND_RECORDS.damaged();
    let is_to_do = damaged != DONE.load(Ordering::Relaxed)
        && !IN_BAND_RECORDS.is_on()
        && !IS_BARRED.load(Ordering::Relaxed);
    if is_to_do && with_room(SITES.count() as usize, take_out_rest) {
        DONE.store(damaged, Ordering::Relaxed);
    }
}

/// Calls this with so many zeroes. `false`: there is no memory.
fn with_room(sites: usize, run: impl FnOnce(&mut [Live])) -> bool {
    let bytes = sites.saturating_mul(size_of::<Live>()).max(1);
    let Some(room) = mmap::map(bytes) else { return false };
    let first: NonNull<Live> = room.cast();
    // SAFETY: fresh memory of that size, whose zeroes are numbers; no other thread has it.
    run(unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), sites) });
    // SAFETY: as above.
    unsafe { mmap::unmap(room, bytes) };
    true
}

fn take_out_rest(known: &mut [Live]) {
    shared::flush();
    let mut add = |site: u32, size: u64| {
        if let Some([blocks, bytes]) = known.get_mut(site as usize) {
            *blocks = blocks.wrapping_add(1);
            *bytes = bytes.wrapping_add(size);
        }
    };
    TABLE.for_each(shared::generation(), &mut |_, block| add(block.site, block.size));
    // The allocator resizes these at this moment.
    for (site, size) in THREADS.states().filter_map(ThreadState::moving) {
        add(site, size);
    }
    for (id, [blocks, bytes]) in known.iter().enumerate() {
        let Some(counters) = SITES.counters(id as u32) else { continue };
        let less = |all: &AtomicU64, freed: &AtomicU64, known: u64| {
            let live = all.load(Ordering::Relaxed).wrapping_sub(freed.load(Ordering::Relaxed));
            let lost = live.wrapping_sub(known).cast_signed().max(0).cast_unsigned();
            freed.fetch_add(lost, Ordering::Relaxed);
            lost
        };
        BLOCKS.fetch_add(less(&counters.allocations, &counters.frees, *blocks), Ordering::Relaxed);
        BYTES.fetch_add(less(&counters.total_bytes, &counters.freed_bytes, *bytes), Ordering::Relaxed);
    }
}
