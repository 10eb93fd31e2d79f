//! What all parts of the hook share: live blocks, call sites, threads, and a few words of state.
//!
//! It uses no other file of the hook. What begins and ends tracking is in [`crate::state`].

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memintro_abi::{Mode, VmSource, VmWords};
use memintro_tracker::births::Births;
use memintro_tracker::captures::Followed;
use memintro_tracker::in_band::InBand;
use memintro_tracker::objects::Objects;
use memintro_tracker::sites::Sites;
use memintro_tracker::table::Table;
use memintro_tracker::threads::Threads;

/// Live blocks.
pub(crate) static TABLE: Table = Table::new();
/// Live blocks with in-band records.
pub(crate) static IN_BAND_RECORDS: InBand = InBand::new();
/// Live objects of the VM, by slot.
pub(crate) static OBJECTS: Objects = Objects::new();
/// Call sites.
pub(crate) static SITES: Sites = Sites::new();
/// What is born while something is measured.
pub(crate) static BIRTHS: Births = Births::new();
/// Sampled blocks of which the native callers are known.
pub(crate) static FOLLOWED: Followed = Followed::new();
/// Threads. (What a fork writes in both processes lies together, because each page that is written is copied.)
#[unsafe(link_section = ".data.fork")]
pub(crate) static THREADS: Threads = Threads::new();

/// Whether the VM's objects are tracked, too.
pub(crate) static TRACKS_OBJECTS: AtomicBool = AtomicBool::new(false);
/// Most lines of Ruby in a call site: from 2 on, a site is a whole stack.
pub(crate) static STACK_DEPTH: AtomicU32 = AtomicU32::new(1);
/// Not 0 while events are recorded. Each stub reads it, so it is a word of its own. (What stubs read lies together.)
#[unsafe(link_section = ".bss.path")]
pub(crate) static ACTIVE: AtomicU32 = AtomicU32::new(0);
/// In sampled mode, malloc and calloc do more than pay: this is a memory check, or the allocator's functions
/// call each other.
#[unsafe(link_section = ".bss.path")]
pub(crate) static BODIES_ONLY: AtomicBool = AtomicBool::new(false);
/// The value of [`ACTIVE`] in full mode while blocks get in-band records. Stubs distinguish it from the other
/// values.
pub(crate) const IN_BAND: u32 = 4;
/// The same while those blocks move to the table.
pub(crate) const LEAVING: u32 = 8;
const fn is_told_by_parity(active: u32) -> bool {
    (active - Mode::FULL.0).count_ones().is_multiple_of(2) == (active == IN_BAND)
}
const _: () =
    assert!(is_told_by_parity(Mode::SAMPLED.0) && is_told_by_parity(IN_BAND) && is_told_by_parity(LEAVING));
/// Values in full mode.
const ANY_FULL: u32 = Mode::FULL.0 | IN_BAND | LEAVING;
/// Allocations of the collector, when [`crate::contents`] had looked at all of them.
pub(crate) static LOOKED_AT: AtomicU64 = AtomicU64::new(0);
/// Set by the constructor when the library is first in the process.
pub(crate) static PRELOADED: AtomicBool = AtomicBool::new(false);
/// `MEMINTRO_DISABLE=1`, or a privileged process.
pub(crate) static DISABLED: AtomicBool = AtomicBool::new(false);
/// Ruby is in the process, but has not lent its functions yet.
pub(crate) static BOOTING: AtomicBool = AtomicBool::new(false);
/// Counts clears. A block that was taken out before a clear must not be put back after it.
pub(crate) static EPOCH: AtomicU32 = AtomicU32::new(0);
/// The process that the state belongs to. A vfork child shares the memory but is another process.
pub(crate) static PID: AtomicU32 = AtomicU32::new(0);

/// The figures of this process cannot be trusted and must not be changed: it was forked in the middle of a change, or
/// a thread left one unfinished.
static IS_LOST: AtomicBool = AtomicBool::new(false);
static VM: AtomicPtr<VmSource> = AtomicPtr::new(ptr::null_mut());
/// Placeholders for unknown words: of a VM, and without a VM, where no collection has ever run. (So readers
/// need not check whether there are any.)
static NO_WORDS: VmWords = VmWords::unknown(ptr::null_mut());
static NO_VM: VmWords = VmWords::unknown((&raw const NO_COLLECTIONS).cast_mut().cast());
static NO_COLLECTIONS: AtomicUsize = AtomicUsize::new(0);

/// The addresses where the VM keeps the results of its functions, if they are known.
static WORDS: AtomicPtr<VmWords> = AtomicPtr::new((&raw const NO_VM).cast_mut());
/// The same while a call site is a single line.
static WORDS_OF_LINES: AtomicPtr<VmWords> = AtomicPtr::new((&raw const NO_VM).cast_mut());
/// The same while it is a whole stack, whose key the hook may compute.
static WORDS_OF_STACKS: AtomicPtr<VmWords> = AtomicPtr::new((&raw const NO_WORDS).cast_mut());
static VM_SLOTS: [VmSlot; 2] = [const { VmSlot(core::cell::UnsafeCell::new(None)) }; 2];
static VM_TURN: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
struct VmSlot(core::cell::UnsafeCell<Option<VmSource>>);
// SAFETY: a slot is written only while the world is paused and no reader can hold it.
unsafe impl Sync for VmSlot {}

/// The functions that the VM has lent, if any.
#[inline]
pub(crate) fn vm() -> Option<&'static VmSource> {
    // SAFETY: the pointer is null or leads into VM_SLOTS.
    unsafe { VM.load(Ordering::Acquire).as_ref() }
}

/// Whether Ruby is in the process, but has not lent its functions yet: then all its allocations belong to its
/// start.
#[inline(always)]
pub(crate) fn is_booting() -> bool {
    BOOTING.load(Ordering::Relaxed) && vm().is_none()
}

/// The words that the VM has lent; without a VM, placeholders that must not be used.
#[inline(always)]
pub(crate) fn words() -> &'static VmWords {
    // SAFETY: those above, or the words of a VM, which stay as long as this process does.
    unsafe { &*WORDS.load(Ordering::Acquire) }
}

/// The same, and also such words where call sites are no single lines.
#[inline(always)]
pub(crate) fn words_of_lines() -> &'static VmWords {
    // SAFETY: as above.
    unsafe { &*WORDS_OF_LINES.load(Ordering::Acquire) }
}

/// The same, and none where call sites are lines.
#[inline(always)]
pub(crate) fn words_of_stacks() -> &'static VmWords {
    // SAFETY: as above.
    unsafe { &*WORDS_OF_STACKS.load(Ordering::Acquire) }
}

/// Sets the most lines of a call site. The world is paused.
pub(crate) fn set_stack_depth(depth: u32) {
    STACK_DEPTH.store(depth, Ordering::Relaxed);
    lend_words(words());
}

fn lend_words(words: &'static VmWords) {
    let is_line = STACK_DEPTH.load(Ordering::Relaxed) <= 1;
    let of_stacks = vm().and_then(|vm| vm.stack_words).filter(|_| !is_line);
    let of_lines = if is_line { words } else { &NO_WORDS };
    WORDS.store(ptr::from_ref(words).cast_mut(), Ordering::Release);
    WORDS_OF_LINES.store(ptr::from_ref(of_lines).cast_mut(), Ordering::Release);
    WORDS_OF_STACKS.store(ptr::from_ref(of_stacks.unwrap_or(&NO_WORDS)).cast_mut(), Ordering::Release);
}

/// GC generation now; 0 without a VM.
#[inline(always)]
pub(crate) fn generation() -> u32 {
    known_generation().unwrap_or_else(asked_generation)
}

/// GC generation now, if the VM need not be asked for it.
#[inline(always)]
pub(crate) fn known_generation() -> Option<u32> {
    // SAFETY: null, or a word of the VM that stays as long as it is lent.
    let collections = unsafe { words().collections.load(Ordering::Relaxed).as_ref() }?;
    // SAFETY: as above; the collector changes it meanwhile. A generation wraps at 2^32; ages are differences.
    Some(unsafe { ptr::from_ref(collections).read_volatile() as u32 })
}

#[inline(never)]
fn asked_generation() -> u32 {
    match vm() {
        // SAFETY: the lender promises that it may be called from any thread.
        Some(vm) => unsafe { (vm.generation)() as u32 },
        None => 0,
    }
}

/// Replaces the VM's functions, or removes them. The world is paused.
pub(crate) fn lend_vm(source: Option<VmSource>) {
    let turn = VM_TURN.fetch_add(1, Ordering::Relaxed) & 1;
    let Some((slot, source)) = VM_SLOTS.get(turn).zip(source) else {
        VM.store(ptr::null_mut(), Ordering::Release);
        lend_words(&NO_VM);
        return;
    };
    // SAFETY: the world is paused, and the other slot is the one in use.
    unsafe { *slot.0.get() = Some(source) };
    // SAFETY: the slot was just filled.
    let lent = unsafe { (*slot.0.get()).as_mut() };
    let words = lent.as_ref().and_then(|vm| vm.words);
    VM.store(lent.map_or(ptr::null_mut(), ptr::from_mut), Ordering::Release);
    lend_words(words.unwrap_or(&NO_WORDS));
}

/// The mode of tracking now.
pub(crate) fn mode() -> Mode {
    mode_of(ACTIVE.load(Ordering::Relaxed))
}

fn mode_of(active: u32) -> Mode {
    if active & ANY_FULL != 0 { Mode::FULL } else { Mode(active) }
}

/// Whether all blocks are followed.
#[inline(always)]
pub(crate) fn is_full() -> bool {
    const { assert!(ANY_FULL & Mode::SAMPLED.0 == 0) };
    ACTIVE.load(Ordering::Relaxed) & ANY_FULL != 0
}

/// Marks the figures as unusable, because a change to them will never be finished. From now on no thread reads or
/// changes them.
pub(crate) fn give_up() {
    IS_LOST.store(true, Ordering::Release);
    ACTIVE.store(0, Ordering::Release);
    THREADS.make_unusual();
}

/// Adds all threads' counters to the sites. The world is paused.
pub(crate) fn flush() {
    for state in THREADS.states() {
        state.counters.flush(|id| SITES.counters(id));
    }
}

/// What [`of_other_process`] reads.
pub(crate) struct Other {
    /// Its mode.
    pub(crate) mode: u32,
    /// Whether its figures are unusable.
    pub(crate) is_lost: bool,
    /// The address of the words that its VM has lent; `None`: it has a VM that has not lent any yet.
    pub(crate) words: Option<usize>,
}

/// For another process with this library. `moved` turns the address of a static into that of its counterpart.
///
/// # Safety
/// These counterparts are mapped and can be read.
pub(crate) unsafe fn of_other_process(moved: impl Fn(usize) -> usize) -> Other {
    // SAFETY: the caller's; atomics have the layout of what is in them.
    unsafe fn read<T: Copy>(place: usize) -> T {
        // SAFETY: as above.
        unsafe { ptr::with_exposed_provenance::<T>(place).read() }
    }
    // SAFETY: as above.
    unsafe {
        let words = read::<usize>(moved((&raw const WORDS).expose_provenance()));
        let is_booting = read::<u8>(moved((&raw const BOOTING).expose_provenance())) != 0;
        Other {
            mode: mode_of(read::<u32>(moved((&raw const ACTIVE).expose_provenance()))).0,
            is_lost: read::<u8>(moved((&raw const IS_LOST).expose_provenance())) != 0,
            words: (!is_booting).then_some(words),
        }
    }
}

/// Whether this is a frozen copy of the process that the state belongs to: another process with a copy of its memory, made
/// without libc's fork. No other thread is there, and one may have held a lock of the allocator at the copy's instant: so
/// nothing of the allocator may be called here.
pub(crate) fn is_copy() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::getpid() }.unsigned_abs() != PID.load(Ordering::Relaxed)
}

/// Whether the figures are unusable.
pub(crate) fn is_lost() -> bool {
    IS_LOST.load(Ordering::Acquire)
}
