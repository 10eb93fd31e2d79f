//! The allocator of this library's Rust code: the system's, and a small reserve for when that has no memory left.
//!
//! Rust ends a process that cannot allocate, and the process is the program's. What may take much asks first
//! ([`crate::copy::own_memory::has_room`]); names, messages and the like take from the reserve instead. It lies in the
//! library's zeroed data, so it takes no memory until it is used.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

#[global_allocator]
static ALLOCATOR: WithReserve = WithReserve;

struct WithReserve;

const BYTES: usize = 256 << 10;

#[repr(align(4096))]
struct Reserve(UnsafeCell<[u8; BYTES]>);

// SAFETY: `USED` gives each byte to one block at a time.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new([0; BYTES]));

/// The number of blocks in the reserve above, and how many of its bytes are taken below. Bytes come back when no block
/// is left.
static USED: AtomicU64 = AtomicU64::new(0);

const ONE_BLOCK: u64 = 1 << 32;

fn take(layout: Layout) -> *mut u8 {
    let mut begin = 0;
    let taken = USED.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
        begin = (used as u32 as usize).next_multiple_of(layout.align());
        let end = begin.checked_add(layout.size()).filter(|end| *end <= BYTES)?;
        Some(((used >> 32) + 1) << 32 | end as u64)
    });
    // SAFETY: begins at most at the end of the reserve.
    if taken.is_ok() { unsafe { RESERVE.0.get().cast::<u8>().add(begin) } } else { ptr::null_mut() }
}

fn is_in_reserve(block: *mut u8) -> bool {
    (block as usize).wrapping_sub(RESERVE.0.get() as usize) < BYTES
}

fn give_back() {
    let left = |used: u64| if used >> 32 == 1 { 0 } else { used - ONE_BLOCK };
    let _ = USED.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| Some(left(used)));
}

// SAFETY: the system's allocator keeps the contract; a block of the reserve is within it, aligned, and of no other
// owner until it is given back.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { take(layout) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            return block;
        }
        let block = take(layout);
        if !block.is_null() {
            // SAFETY: a block of this size, which may have been used before.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_in_reserve(block) {
            give_back();
        } else {
            // SAFETY: the block came from the system's allocator.
            unsafe { System.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_in_reserve(block) {
            // SAFETY: the block came from the system's allocator; the caller keeps the contract.
            let moved = unsafe { System.realloc(block, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller keeps the contract: the size fits the alignment.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: two blocks, each at least as long, and the old one is given back once.
            unsafe {
                moved.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}
