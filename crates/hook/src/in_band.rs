//! When blocks have their records within themselves ([`memintro_tracker::tails`]), and what that takes beside malloc and free.
//!
//! Only in full mode of a program that was preloaded, from the first start to the first stop or change of mode: so all functions
//! that hand out blocks are known, and asked for [`EXTRA`] bytes more. And only if the allocator is glibc's own and says how long
//! a block is where this library reads it.
//!
//! While the gate is closed, records stay as they are, because the thread that has closed it may be reading them. So a block
//! with a record that is freed meanwhile is given back only when the gate opens ([`crate::defer`]), and one that is resized is
//! copied.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use memintro_abi::{Mode, StartOptions};
use memintro_tracker::mmap::Errno;
use memintro_tracker::table::Removed;
use memintro_tracker::tails::{self, EXTRA};
use memintro_tracker::threads::{ThreadState, bump};

use crate::apply::{Origin, died};
use crate::functions;
use crate::patch::is_all_of_libc;
use crate::real::call;
use crate::shared::{self, ACTIVE, IN_BAND, PRELOADED, TABLE, TAILS, THREADS};
use crate::thread;

type Pointer = *mut c_void;

/// Sizes that the allocator is tried with.
const TRIED: [usize; 9] = [0, 1, 17, 24, 40, 105, 1_000, 5_000, 20_000];

static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// The next start shall have them, if that is possible.
pub(crate) fn want() {
    IS_WANTED.store(true, Ordering::Relaxed);
}

/// Whether the next start shall have them.
pub(crate) fn is_wanted() -> bool {
    IS_WANTED.load(Ordering::Relaxed)
}

/// The value of [`ACTIVE`] for a start with these options, which have no budget. The world is paused.
pub(crate) fn active(options: &StartOptions) -> u32 {
    let is_wanted = IS_WANTED.swap(false, Ordering::Relaxed);
    if is_wanted
        && options.mode == Mode::FULL
        && options.max_tracker_bytes == u64::MAX
        && PRELOADED.load(Ordering::Relaxed)
        && is_possible()
    {
        TAILS.begin();
        return IN_BAND;
    }
    options.mode.0
}

/// Whether the allocator's blocks are as glibc's.
fn is_possible() -> bool {
    let (word, mut copied) = (1_u64, 0_u64);
    let can_read = copy((&raw const word).expose_provenance(), (&raw mut copied).cast(), 8);
    if cfg!(not(target_arch = "x86_64")) || !is_all_of_libc() || !can_read || copied != word {
        return false;
    }
    TRIED.iter().all(|size| {
        let asked = size.saturating_add(EXTRA);
        // SAFETY: a block of the allocator's, which is given back.
        unsafe {
            let block = call!(functions::malloc::REAL, fn(usize) -> Pointer)(asked);
            if block.is_null() {
                return false;
            }
            let usable = call!(functions::malloc_usable_size::REAL, fn(Pointer) -> usize)(block);
            let is_told = usable >= asked && tails::is_told(block.addr(), usable);
            call!(functions::free::REAL, fn(Pointer))(block);
            is_told
        }
    })
}

/// What to ask the allocator for.
#[inline(always)]
pub(crate) fn roomy(size: usize) -> usize {
    if ACTIVE.load(Ordering::Relaxed) == IN_BAND { size.saturating_add(EXTRA) } else { size }
}

/// Blocks have their records in the table from here on. The world is paused.
pub(crate) extern "C" fn end(own: &ThreadState) {
    if !TAILS.is_on() {
        return;
    }
    let now = shared::generation();
    begin_to_read();
    // SAFETY: the process' own memory.
    unsafe { TAILS.move_to(&TABLE, now, 0, read_word, |block| drop_block(own, &block, now)) };
    TAILS.end();
}

/// A block can no longer be followed, but the sums must still agree.
fn drop_block(own: &ThreadState, block: &Removed, now: u32) {
    bump(&own.traffic.dropped, 1);
    died(Origin::of(own), block, now);
}

/// Whether some blocks may soon be too old for their records.
pub(crate) fn is_due() -> bool {
    TAILS.is_on() && TAILS.is_to_look(shared::generation())
}

/// Moves them to the table, if no other thread is recording now. Called inside malloc, so it does not wait.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn move_old() {
    let Some(own) = thread::own() else { return };
    if own.is_busy() {
        return;
    }
    let Some(paused) = THREADS.pause_for(&own, 0) else { return };
    move_old_now(&own);
    drop(paused);
}

#[inline(never)]
extern "C" fn move_old_now(own: &ThreadState) {
    let now = shared::generation();
    if TAILS.is_to_look(now) {
        begin_to_read();
        // SAFETY: the process' own memory.
        unsafe { TAILS.move_old(&TABLE, now, read_word, |block| drop_block(own, &block, now)) };
    }
}

/// Bytes of blocks that are given back only when the gate opens.
static HELD: AtomicI64 = AtomicI64::new(0);
/// From here on, blocks are given back at once, so that a long reading of a busy program does not double its memory.
const MOST_HELD: i64 = 32 << 20;

/// Whether no more blocks may be held back.
pub(crate) fn holds_enough() -> bool {
    HELD.load(Ordering::Relaxed) >= MOST_HELD
}

/// Counts a block as held back, or as given back.
///
/// # Safety
/// Its owner has given it up.
pub(crate) unsafe fn hold(address: usize, sign: i64) {
    // SAFETY: the caller's.
    let bytes = unsafe { tails::bytes_of(address) };
    HELD.fetch_add(bytes.cast_signed().wrapping_mul(sign), Ordering::Relaxed);
}

/// Gives a block back whose free was written down, and is recorded now.
///
/// # Safety
/// Its owner has given it up.
pub(crate) unsafe extern "C" fn give_back_later(address: usize) {
    let _errno = Errno::save();
    // SAFETY: the caller's.
    unsafe { hold(address, -1) };
    // SAFETY: as above.
    unsafe { call!(functions::free::REAL, fn(Pointer))(ptr::with_exposed_provenance_mut(address)) };
}

/// Bytes of a piece of memory that is read at once: a call of the kernel for each page would take longer than all else. Where
/// some of it is not mapped, single pages are read.
const PIECE: usize = 32 << 10;
const PAGE: usize = 4096;

/// A piece that was read: where it begins, how many bytes there are, and what they are.
struct Piece {
    start: usize,
    len: usize,
    words: [u64; PIECE / 8],
}

/// The pieces that were read last, one of even number and one of odd: most blocks begin and end in one or two.
struct Pieces(UnsafeCell<[Piece; 2]>);

// SAFETY: used only by the thread that has paused the world.
unsafe impl Sync for Pieces {}

static PIECES: Pieces =
    Pieces(UnsafeCell::new([const { Piece { start: 0, len: 0, words: [0; PIECE / 8] } }; 2]));

/// Forgets what was read before.
fn begin_to_read() {
    // SAFETY: the caller has paused the world.
    unsafe { (*PIECES.0.get()).iter_mut().for_each(|piece| piece.len = 0) };
}

/// Reads a word of this process through the kernel, which knows what is mapped. For whoever has paused the world, and has called
/// [`begin_to_read`].
fn read_word(address: usize) -> Option<u64> {
    // SAFETY: the caller has paused the world.
    let [even, odd] = unsafe { &mut *PIECES.0.get() };
    let piece = if address & PIECE == 0 { even } else { odd };
    if address.wrapping_sub(piece.start) >= piece.len {
        let into = piece.words.as_mut_ptr().cast();
        let found = [PIECE, PAGE].into_iter().find(|len| copy(address & !len.wrapping_sub(1), into, *len));
        piece.len = found.unwrap_or(0);
        piece.start = address & !piece.len.wrapping_sub(1);
        found?;
    }
    piece.words.get(address.wrapping_sub(piece.start) / 8).copied()
}

/// Copies memory of this process; `false`: it is not there.
fn copy(from: usize, to: *mut c_void, len: usize) -> bool {
    let local = libc::iovec { iov_base: to, iov_len: len };
    let remote = libc::iovec { iov_base: ptr::with_exposed_provenance_mut(from), iov_len: len };
    let _errno = Errno::save();
    // SAFETY: the caller has this room.
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    read.cast_unsigned() == len
}

/// Visits all blocks with a record. The world is paused.
pub(crate) fn for_each(now: u32, visit: &mut dyn FnMut(usize, Removed)) {
    if TAILS.is_on() {
        begin_to_read();
        TAILS.for_each(now, read_word, visit);
        TAILS.tidy();
    }
}
