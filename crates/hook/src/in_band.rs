//! Decides when blocks have in-band records ([`memintro_tracker::in_band`]), and handles them outside malloc
//! and free.
//!
//! This needs full mode without a budget, and glibc's own allocator with the block headers that this library
//! reads. The hook requests [`EXTRA`] more bytes from all functions that hand out blocks.
//!
//! | value of [`ACTIVE`] | new blocks | blocks with a record |
//! |---|---|---|
//! | [`IN_BAND`] | get a record, if they can have one | keep it |
//! | [`LEAVING`] | are in the table | keep it until they are freed, or moved to the table, some at a time |
//! | others | are in the table, or not followed | there are none |
//!
//! Records move to the table at a stop, at a change of mode, and for good when other code bypasses the hook.
//!
//! While the gate is closed, records stay as they are, because the thread that has closed it may be reading them. So a block
//! with a record that is freed meanwhile is given back only when the gate opens ([`crate::defer`]), and one that is resized is
//! copied.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use memintro_abi::{Mode, StartOptions};
use memintro_tracker::in_band::{EXTRA, bytes_of, is_glibcs, is_told};
use memintro_tracker::mmap::{Errno, is_filtered};
use memintro_tracker::proc_file::ProcFile;
use memintro_tracker::table::Removed;
use memintro_tracker::threads::{ThreadState, bump};

use crate::apply::{Origin, died};
use crate::functions;
use crate::lost;
use crate::patch::{code_around, is_all_of_libc, look_up};
use crate::real::call;
use crate::shared::{self, ACTIVE, IN_BAND, IN_BAND_RECORDS, LEAVING, TABLE, THREADS};
use crate::{thread, tls};

type Pointer = *mut c_void;

/// Sizes that the allocator is tried with.
const TRIED: [usize; 9] = [0, 1, 17, 24, 40, 105, 1_000, 5_000, 20_000];

/// How many records may be damaged or stale before the table takes over: other code frees or resizes blocks
/// without the hook, or writes beyond their ends.
const MOST_ESCAPES: u64 = 64;

/// Only the table is used: the user has chosen it, or this is a memory check, the allocator checks blocks, or
/// other code bypasses the hook.
static IS_BARRED: AtomicBool = AtomicBool::new(false);
/// Only their owners may read them.
static IS_UNREADABLE: AtomicBool = AtomicBool::new(false);
/// The start that is under way uses in-band records.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// No later start uses in-band records.
pub(crate) fn bar() {
    IS_BARRED.store(true, Ordering::Relaxed);
}

/// Whether a start with these (normalised) options and empty figures could use in-band records. Then
/// `malloc_usable_size` must already leave out the bytes of a future record.
pub(crate) fn is_possible_with(options: &StartOptions) -> bool {
    !IS_BARRED.load(Ordering::Relaxed)
        && options.mode == Mode::FULL
        && options.max_tracker_bytes == u64::MAX
        && is_possible()
}

/// Whether the start that is under way uses in-band records.
pub(crate) fn want(is_wanted: bool) {
    IS_WANTED.store(is_wanted, Ordering::Relaxed);
}

/// The value of [`ACTIVE`] for a start in this mode. The world is paused.
pub(crate) fn active(mode: Mode) -> u32 {
    if !IS_WANTED.swap(false, Ordering::Relaxed) {
        return mode.0;
    }
    IN_BAND_RECORDS.begin(shared::generation());
    IN_BAND
}

/// The address range of Ruby's code, or of the program that contains it.
static RUBY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Finds the code of Ruby, if it is there.
pub(crate) fn find_ruby() {
    let code = code_around(look_up(c"ruby_xmalloc").addr()).unwrap_or_default();
    for (limit, address) in RUBY.iter().zip([code.start, code.end]) {
        limit.store(address as usize, Ordering::Relaxed);
    }
}

/// Whether this address is in that range.
#[inline(always)]
pub(crate) fn is_of_ruby(address: usize) -> bool {
    let [start, end] = &RUBY;
    start.load(Ordering::Relaxed) <= address && address < end.load(Ordering::Relaxed)
}

/// Whether the allocator's blocks are as glibc's.
fn is_possible() -> bool {
    if cfg!(not(target_arch = "x86_64")) || !is_all_of_libc() || !can_read() {
        return false;
    }
    find_ruby();
    TRIED.iter().all(|size| {
        let asked = size.saturating_add(EXTRA);
        // SAFETY: a block of the allocator's, which is given back.
        unsafe {
            let block = call!(functions::malloc::REAL, fn(usize) -> Pointer)(asked);
            if block.is_null() {
                return false;
            }
            let usable = call!(functions::malloc_usable_size::REAL, fn(Pointer) -> usize)(block);
            // Ask `malloc_usable_size` first: under Valgrind, the header must not be read.
            let is_told = is_glibcs(asked, usable) && is_told(block.addr(), usable);
            call!(functions::free::REAL, fn(Pointer))(block);
            is_told
        }
    })
}

/// The bytes to request from the allocator.
#[inline(always)]
pub(crate) fn roomy(size: usize) -> usize {
    if ACTIVE.load(Ordering::Relaxed) == IN_BAND { size.saturating_add(EXTRA) } else { size }
}

/// Visits of a step outside malloc, during which others write their events down: about a millisecond.
const MOST_VISITS: usize = 1 << 14;
/// The same inside malloc, whose caller waits for it: about a tenth of a millisecond.
const MOST_VISITS_IN_MALLOC: usize = 1 << 10;

/// Moves all records to the table, which holds all blocks from here on. Takes as long as a reading of all
/// blocks; other threads can record between two steps. Not inside malloc.
pub(crate) fn leave() {
    let Some(own) = thread::own() else { return };
    let mut goes_on = true;
    while goes_on && IN_BAND_RECORDS.is_on() {
        let Some(paused) = THREADS.pause(&own) else { return };
        goes_on = step(&own, true, MOST_VISITS);
        lost::take_out();
        drop(paused);
    }
}

/// The same in one step. Blocks that cannot be read count as dropped. The world is paused.
pub(crate) fn end() {
    let Some(own) = thread::kept().filter(|_| IN_BAND_RECORDS.is_on()) else { return };
    if !step(own, true, usize::MAX) {
        IN_BAND_RECORDS.give_up();
        lost::bar();
        is_the_tables();
    }
}

/// No block has a record. The world is paused.
pub(crate) fn forget() {
    if IN_BAND_RECORDS.is_on() {
        IN_BAND_RECORDS.end();
        is_the_tables();
    }
}

/// A library is about to be loaded that will not find this library's functions.
#[cold]
pub(crate) fn is_passed_by() {
    bar();
    leave();
    if IN_BAND_RECORDS.is_on() {
        // This thread cannot pause the world now. Others go on with it.
        THREADS.make_unusual();
    }
}

fn is_the_tables() {
    if [IN_BAND, LEAVING].contains(&ACTIVE.load(Ordering::Relaxed)) {
        ACTIVE.store(Mode::FULL.0, Ordering::Relaxed);
    }
}

/// Continues to move records to the table: all if it takes over (`leaves`), else those of old blocks.
/// `false`: they cannot be read, so they stay. The world is paused.
#[inline(never)]
extern "C" fn step(own: &ThreadState, leaves: bool, most: usize) -> bool {
    let now = shared::generation();
    if !begin_to_read() {
        IN_BAND_RECORDS.postpone(now);
        return false;
    }
    if leaves && IN_BAND_RECORDS.takes() {
        IN_BAND_RECORDS.leave();
        ACTIVE.store(LEAVING, Ordering::Relaxed);
    }
    let is_done = IN_BAND_RECORDS.step(&TABLE, now, read_word, |block| drop_block(own, &block, now), most);
    if is_done && IN_BAND_RECORDS.is_leaving() {
        IN_BAND_RECORDS.end();
        is_the_tables();
    }
    true
}

/// A block can no longer be followed, but the sums must still agree.
fn drop_block(own: &ThreadState, block: &Removed, now: u32) {
    bump(&own.traffic.dropped, 1);
    died(Origin::of_thread(own), block, now);
}

/// Whether blocks are to move to the table.
#[inline]
pub(crate) fn is_due() -> bool {
    IN_BAND_RECORDS.is_on() && (is_to_leave() || IN_BAND_RECORDS.is_to_look(shared::generation()))
}

fn is_to_leave() -> bool {
    let is_over = IS_BARRED.load(Ordering::Relaxed) || IN_BAND_RECORDS.escapes() >= MOST_ESCAPES;
    IN_BAND_RECORDS.is_leaving() || is_over && !IS_UNREADABLE.load(Ordering::Relaxed)
}

/// Moves some of them, if no other thread is recording now. Called inside malloc, so it does not wait.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn go_on(own: &ThreadState) {
    if own.is_busy() {
        return;
    }
    let Some(paused) = THREADS.pause_for(own, 0) else { return };
    if is_due() {
        if IN_BAND_RECORDS.escapes() >= MOST_ESCAPES {
            bar();
        }
        step(own, is_to_leave(), MOST_VISITS_IN_MALLOC);
    }
    drop(paused);
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
    let bytes = unsafe { bytes_of(address) };
    HELD.fetch_add(bytes.cast_signed().wrapping_mul(sign), Ordering::Relaxed);
}

/// The thread that must not call the allocator when it records queued events: its [`tls::number`].
static KEEPER: AtomicUsize = AtomicUsize::new(0);
/// The last block that this thread has kept; each one begins with the address of the one before. 0: there is
/// none. Only the thread that has paused the world uses it.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Runs an action that pauses the world or opens the gate, in a signal handler that may have interrupted the
/// allocator: blocks that would be given back are kept until another reading ends. (A thread that aborts
/// inside free holds the allocator's lock, and would wait for itself.)
pub(crate) fn keeping(records: impl FnOnce()) {
    KEEPER.store(tls::number(), Ordering::Relaxed);
    records();
    KEEPER.store(0, Ordering::Relaxed);
}

/// Visits the blocks that are kept, with their bytes. The world is paused.
pub(crate) fn each_given_up(visit: &mut dyn FnMut(usize, u64)) {
    let mut next = KEPT.load(Ordering::Relaxed);
    while next != 0 {
        // SAFETY: a block that its owner has given up, and that begins with the address of the one before.
        unsafe {
            visit(next, bytes_of(next));
            next = *ptr::with_exposed_provenance::<usize>(next);
        }
    }
}

/// Gives back a block whose queued free is recorded now. The world is paused. A copy of the process keeps the
/// block.
///
/// # Safety
/// Its owner has given it up.
pub(crate) unsafe extern "C" fn give_back_later(address: usize) {
    let first = ptr::with_exposed_provenance_mut::<usize>(address);
    let keeper = KEEPER.load(Ordering::Relaxed);
    // SAFETY: each is a block that its owner has given up, and has room for an address.
    unsafe {
        if keeper != 0 && keeper == tls::number() || shared::is_copy() {
            *first = KEPT.swap(address, Ordering::Relaxed);
            return;
        }
        let _errno = Errno::save();
        *first = KEPT.swap(0, Ordering::Relaxed);
        let mut next = first;
        while !next.is_null() {
            let block = next;
            next = ptr::with_exposed_provenance_mut(*block);
            hold(block.addr(), -1);
            call!(functions::free::REAL, fn(Pointer))(block.cast());
        }
    }
}

/// Bytes of memory that one system call reads: a call for each page would dominate the time. If a part is not
/// mapped, single pages are read.
const PIECE: usize = 32 << 10;
const PAGE: usize = 4096;

/// A piece that was read: its address, its length and its bytes.
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

/// Forgets what was read before. `false`: the kernel no longer lets this process read its own memory, because of a filter that
/// was added (seccomp). Such a filter stays.
fn begin_to_read() -> bool {
    // SAFETY: the caller has paused the world.
    unsafe { (*PIECES.0.get()).iter_mut().for_each(|piece| piece.len = 0) };
    IS_UNREADABLE.store(!can_read(), Ordering::Relaxed);
    !IS_UNREADABLE.load(Ordering::Relaxed)
}

fn can_read() -> bool {
    let (word, mut copied) = (1_u64, 0_u64);
    copy((&raw const word).expose_provenance(), (&raw mut copied).cast(), 8) && copied == word
}

/// Reads a word of this process through the kernel, which knows what is mapped. The caller has paused the
/// world and called [`begin_to_read`].
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

/// Copies memory of this process; `false`: it is not mapped, or may not be read. A seccomp filter may end the
/// process at a rare system call, so with a filter this reads /proc/self/mem instead.
fn copy(from: usize, to: *mut c_void, len: usize) -> bool {
    let _errno = Errno::save();
    if is_filtered() {
        return copy_by_file(from, to, len);
    }
    let local = libc::iovec { iov_base: to, iov_len: len };
    let remote = libc::iovec { iov_base: ptr::with_exposed_provenance_mut(from), iov_len: len };
    // SAFETY: the caller has this room.
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    read.cast_unsigned() == len
}

fn copy_by_file(from: usize, to: *mut c_void, len: usize) -> bool {
    // SAFETY: the caller has this room.
    ProcFile::open(c"/proc/self/mem").is_some_and(|file| unsafe { file.read(from, to, len) })
}

/// Visits all blocks with an in-band record. The world is paused. `false`: they cannot be read.
pub(crate) fn for_each(now: u32, visit: &mut dyn FnMut(usize, Removed)) -> bool {
    if IN_BAND_RECORDS.is_on() {
        if !begin_to_read() {
            return false;
        }
        IN_BAND_RECORDS.for_each(true, now, read_word, visit);
        IN_BAND_RECORDS.tidy();
    }
    true
}
