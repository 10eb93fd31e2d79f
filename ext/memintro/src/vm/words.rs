//! The words of the VM that the hook reads by itself, so that it need not call [`super::frames::frame`].
//!
//! That call takes a hundred and fifty instructions, with the VM's functions that it asks in turn. The words are used
//! only where the execution context is in a thread-local word that was found ([`super::context`]) and the short cut is
//! open ([`super::control_frames`]).
//!
//! | what | where it is found | how it is checked before it is used |
//! |---|---|---|
//! | number of collections | in the code of `rb_gc_count` | equal to its answer, now and in a collection |
//! | whether the VM collects | in the code of `rb_during_gc` | 0 now, 1 in a collection, as its answer |
//! | the thread-local word with the thread | where `ruby_thread_has_gvl_p` looks, or has the loader look | it leads to the running thread |
//! | whether the thread holds the VM's lock | in the code of `ruby_thread_has_gvl_p` | 0 now, and another value in a section without the lock |
//!
//! The collection is the first one that comes: it asks [`super::marks`]' object, and that asks [`check`]. Each later one
//! checks again. Until then, and where anything differs, the hook calls the functions.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use memintro_abi::VmWords;

use super::context;
use super::functions::{self, Functions};
use super::probe::Probe;
use super::{accessors, control_frames};

/// The words.
pub(super) static WORDS: VmWords = VmWords::unknown(std::ptr::null_mut());

/// Whether all words are found, and what tells the lock is checked.
static ARE_FOUND: AtomicBool = AtomicBool::new(false);
/// The number of collections, while it waits for its check.
static COLLECTIONS: AtomicPtr<usize> = AtomicPtr::new(std::ptr::null_mut());

/// A word of a thread object that points to its structure: see [`super::context`].
const WORD_OF_OBJECT: usize = 4;

/// Finds the words. Under the GVL, outside of malloc. `true`: [`check_lock`] has to be called without the GVL.
pub(crate) fn find() -> bool {
    if ARE_FOUND.load(Ordering::Relaxed) {
        return false;
    }
    found().is_some()
}

/// Whether the hook reads them now.
pub(crate) fn are_read() -> bool {
    WORDS.stride.load(Ordering::Relaxed) != 0
}

fn found() -> Option<()> {
    let vm = functions::get()?;
    // SAFETY: reads a word of the VM. What a function of a library calls is looked up when it is called first.
    unsafe { (vm.gc_count)() };
    let (distance, _) = (context::offset()?, control_frames::opened()?);
    // SAFETY: functions of the VM, which may be called under the GVL.
    let (collections, collecting, without_lock, word) = unsafe {
        (
            accessors::place(vm.gc_count as *const () as usize)?,
            accessors::place(vm.during_gc as *const () as usize)?,
            accessors::compared_with_zero(vm.has_gvl as *const () as usize)?,
            accessors::thread_local(vm.has_gvl as *const () as usize)?,
        )
    };
    let probe = Probe::new()?;
    // SAFETY: under the GVL.
    let [thread] =
        probe.words(unsafe { vm.thread_current?() } as usize + WORD_OF_OBJECT * size_of::<usize>())?;
    let own = context::own_word(&probe, word)?;
    if probe.words(own) != Some([thread]) {
        return None;
    }
    // A bit of a byte is one of the half word around it.
    let (start, shift) = (collecting.address & !3, collecting.shift?);
    let bit = (collecting.address & 3) * 8 + usize::from(shift);
    let ([count], [_]) = (probe.words(collections.address)?, probe.words::<1>(start & !7)?);
    let [blocked] = probe.words(thread + without_lock)?;
    // SAFETY: as above.
    let is_right = unsafe {
        collections.shift.is_none()
            && count == (vm.gc_count)()
            && blocked == 0
            && (vm.has_gvl)() != 0
            && bit < 32
    };
    if !is_right {
        return None;
    }
    WORDS.context.store(distance, Ordering::Relaxed);
    WORDS.thread.store(context::distance(own)?, Ordering::Relaxed);
    WORDS.without_lock.store(without_lock, Ordering::Relaxed);
    WORDS.collecting.store(start as *mut u32, Ordering::Relaxed);
    WORDS.collecting_mask.store(1 << bit, Ordering::Relaxed);
    COLLECTIONS.store(collections.address as *mut usize, Ordering::Relaxed);
    Some(())
}

/// Whether what tells the lock tells that this thread does not hold it. To be called by a thread of Ruby's without the
/// GVL, after [`find`].
pub(crate) fn check_lock() {
    let Some(vm) = functions::get() else { return };
    // SAFETY: `find` has found the word of each thread, and the word in the thread, which is this one and lives.
    let is_without = unsafe {
        let thread = *context::word(WORDS.thread.load(Ordering::Relaxed)).cast::<*const u8>();
        *thread.add(WORDS.without_lock.load(Ordering::Relaxed)).cast::<usize>() != 0
    };
    // SAFETY: asks about this thread.
    let is_right = is_without && unsafe { (vm.has_gvl)() } == 0;
    ARE_FOUND.store(is_right, Ordering::Release);
}

/// Lets the hook read the words if they are right amid this collection, and never again if they are not. Called by the
/// collector when it asks for what an object of ours refers to, and by others who ask that.
pub(super) fn check() {
    if !ARE_FOUND.load(Ordering::Acquire) {
        return;
    }
    let (Some(vm), Some(stride)) = (functions::get(), control_frames::opened()) else { return };
    match is_right(vm) {
        Some(true) if WORDS.stride.load(Ordering::Relaxed) == 0 => {
            WORDS.collections.store(COLLECTIONS.load(Ordering::Relaxed), Ordering::Release);
            // Release: who sees it sees the others.
            WORDS.stride.store(stride * size_of::<usize>(), Ordering::Release);
        }
        Some(false) => {
            ARE_FOUND.store(false, Ordering::Relaxed);
            WORDS.stride.store(0, Ordering::Release);
            WORDS.collections.store(std::ptr::null_mut(), Ordering::Release);
        }
        _ => {}
    }
}

/// `None`: nothing collects, so it cannot be told.
fn is_right(vm: &Functions) -> Option<bool> {
    // SAFETY: the words of the VM that `find` has found readable; and functions that read such words.
    unsafe {
        let bits = *WORDS.collecting.load(Ordering::Relaxed) & WORDS.collecting_mask.load(Ordering::Relaxed);
        let counts = *COLLECTIONS.load(Ordering::Relaxed) == (vm.gc_count)();
        if (vm.during_gc)() == 0 {
            return if bits == 0 && counts { None } else { Some(false) };
        }
        Some(bits != 0 && counts)
    }
}

/// Has the hook call the function while all these bits are set in this half word of the context.
pub(super) fn mask(half: usize, bits: u32) {
    // In this order: in between, no half word of a context has all bits set.
    WORDS.mask.store(half * size_of::<u32>(), Ordering::Relaxed);
    WORDS.masks.store(bits, Ordering::Release);
}
