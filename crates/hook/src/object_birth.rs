//! The VM's event of a new object, where all objects are tracked.
//!
//! A fast path like those of malloc ([`crate::in_full`]): the hook itself is the VM's handler, reads the
//! object and the size of its slot from the VM's memory ([`memintro_abi::ObjectWords`]), and checks
//! everything before it changes anything. In all other cases it ends with a jump to the extension's handler,
//! which calls [`crate::objects::made`].

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use memintro_abi::ObjectWords;
use memintro_tracker::sites::objects_of;
use memintro_tracker::threads::ThreadState;
use memintro_tracker::{objects, order};

use crate::line;
use crate::objects::is_tracking;
use crate::shared::{OBJECTS, THREADS};
use crate::thread;

/// Used while no words are lent.
static NO_WORDS: ObjectWords = ObjectWords {
    object: AtomicUsize::new(0),
    slot_bytes: AtomicUsize::new(0),
    page_bytes: AtomicUsize::new(0),
    slot_bytes_at: AtomicUsize::new(0),
    otherwise: nothing,
};
static WORDS: AtomicPtr<ObjectWords> = AtomicPtr::new((&raw const NO_WORDS).cast_mut());

unsafe extern "C" fn nothing(_: u64, _: *mut c_void) {}

/// See [`memintro_abi::HookApi::object_words`].
pub(crate) unsafe extern "C" fn lend(words: *const ObjectWords) {
    // SAFETY: the caller's own words, which stay.
    let words = unsafe { words.as_ref() }.unwrap_or(&NO_WORDS);
    WORDS.store(ptr::from_ref(words).cast_mut(), Ordering::Release);
}

/// See [`memintro_abi::HookApi::object_event`].
pub(crate) unsafe extern "C" fn event(_: u64, argument: *mut c_void) {
    // SAFETY: the argument of an event; both end with it.
    unsafe {
        let Some(own) = thread::at_hand() else { return otherwise(argument) };
        if own.untracked.get() != 0 || !THREADS.enter_if_open(own) {
            return otherwise(argument);
        }
        let is_recorded = is_tracking() && is_recorded(own, argument);
        own.leave();
        if !is_recorded {
            otherwise(argument);
        }
    }
}

/// By itself, because here nothing is kept over a call.
#[inline(never)]
unsafe extern "C" fn otherwise(argument: *mut c_void) {
    // SAFETY: words that were lent, or those above; the argument of an event.
    unsafe { ((*WORDS.load(Ordering::Acquire)).otherwise)(0, argument) };
}

/// Records the object. `false`: an assumption failed, and nothing was changed.
///
/// # Safety
/// It is the argument of an event of the VM, for a new object. The thread is busy.
#[inline(always)]
unsafe fn is_recorded(own: &ThreadState, argument: *mut c_void) -> bool {
    let Some(line) = line::of_event() else { return false };
    let Some(site) = own.sites.known(line.key, line.detail, line.generation) else { return false };
    let Some(counters) = own.counters.at_hand(objects_of(site), 0, line.generation) else { return false };
    if counters.is_due() {
        return false;
    }
    // This frees the registers of the site and the generation.
    let cell = order::here(objects::cell(site, line.generation));
    order::keep();
    // SAFETY: words that were lent, or those above.
    let words = unsafe { &*WORDS.load(Ordering::Acquire) };
    let at = words.object.load(Ordering::Acquire);
    if at == 0 {
        return false;
    }
    // SAFETY: the lender has found the object there.
    let object = unsafe { argument.byte_add(at).cast::<usize>().read() };
    // SAFETY: the object of an event is in its slot, so its page has a structure.
    let bytes = unsafe { slot_bytes(words, object) };
    if !OBJECTS.insert_fast(object, bytes, cell) {
        return false;
    }
    counters.allocated(bytes as u64);
    true
}

/// # Safety
/// The object is in its slot.
#[inline(always)]
unsafe fn slot_bytes(words: &ObjectWords, object: usize) -> usize {
    let bytes = words.slot_bytes.load(Ordering::Relaxed);
    if bytes != 0 {
        return bytes;
    }
    let page = object & words.page_bytes.load(Ordering::Relaxed).wrapping_neg();
    let at = words.slot_bytes_at.load(Ordering::Relaxed);
    // SAFETY: the lender has found that each page begins with the address of its structure, which has the size there.
    unsafe { usize::from((page as *const *const u8).read().add(at).cast::<u16>().read()) }
}
