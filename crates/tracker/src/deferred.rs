//! Events that cannot be recorded at once, in the order in which they happened.
//!
//! While the world is paused ([`crate::threads`]) nobody records, and nobody waits either: what happens meanwhile is
//! written down here, and whoever ends the pause records it before anybody else goes on. The order is that in which
//! places are handed out: a free is written down before its block is given back, a birth after its block was had, so
//! one address's events are in order whichever threads they come from.
//!
//! A place is reserved together with room for a path by one compare-and-swap of the gate's word, which also says
//! whether the gate is closed. So nothing can be written down once the gate is open.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::lock::wait_round;
use crate::mmap;

/// Places; what comes after these is lost, and counted as such. Fewer where address space is short.
const MOST_PLACES: u32 = 1 << 18;
const LEAST_PLACES: u32 = 1 << 10;
/// Room for paths, in words of 8 bytes for each place.
const WORDS_A_PLACE: u32 = 8;
/// Sleeps until an event whose place is reserved has been written: its thread has a few instructions left to do, unless a
/// signal handler runs on top of it.
const SLEEPS: u32 = 1000;
/// The same when one has been waited for in vain: many will not be written then.
const SLEEPS_ONCE_SPOILED: u32 = 2;
/// Places up to which their memory is kept.
const FEW: u32 = 64;

/// What happened. The numbers are the user's own, but for `text_at` and `text_len`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Event {
    /// What kind of event; the meaning of all else depends on it.
    pub kind: u32,
    /// A number of a call site, or of how it is told.
    pub site: u32,
    /// The block's address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The native caller.
    pub caller: u64,
    /// What its module was built from, and its offset there.
    pub build: u64,
    /// See `build`.
    pub offset: u64,
    /// Mean distance of samples.
    pub mean: u64,
    /// The thread's state, as an address.
    pub owner: u64,
    /// GC generation.
    pub generation: u32,
    /// Line of Ruby.
    pub line: u32,
    /// An age, a number of marks.
    pub extra: u32,
    /// A number that tells before from after.
    pub epoch: u32,
    text_at: u32,
    text_len: u32,
}

/// A place. All-zero memory is a free one.
#[repr(C)]
struct Place {
    state: AtomicU32,
    _unused: u32,
    event: Event,
}

/// Nothing is written yet.
const FREE: u32 = 0;
const WRITTEN: u32 = 1;
/// Whoever read it did not wait for it.
const PASSED_OVER: u32 = 2;

/// Bytes that so many places take, and with the room for their paths.
const fn places_bytes(places: u32) -> usize {
    places as usize * size_of::<Place>()
}

const fn all_bytes(places: u32) -> usize {
    places_bytes(places) + (places * WORDS_A_PLACE) as usize * 8
}

/// Where events are written down.
#[derive(Debug)]
pub struct Deferred {
    /// Where to write; null: nothing can be written down.
    memory: AtomicPtr<u8>,
    /// Where to read; the same, but while no more is to be written there.
    reading: AtomicPtr<u8>,
    /// How many places there are.
    places: AtomicU32,
    /// Places that have been read. Only who has paused the world touches it.
    read: AtomicU32,
    /// Places below it belong to threads that are not there: those of the parent of a forked child.
    orphaned: AtomicU32,
    /// A writer may still come to a place that was passed over: the memory must not serve again.
    spoiled: AtomicBool,
}

impl Deferred {
    /// Without memory: nothing can be written down.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "made to be part of a static")]
    pub const fn new() -> Self {
        Self {
            memory: AtomicPtr::new(ptr::null_mut()),
            reading: AtomicPtr::new(ptr::null_mut()),
            places: AtomicU32::new(0),
            read: AtomicU32::new(0),
            orphaned: AtomicU32::new(0),
            spoiled: AtomicBool::new(false),
        }
    }

    /// Reserves the address space, which takes memory only where it is used. Where the kernel has none, nothing can be
    /// written down. Only who has paused the world calls it.
    pub fn init(&self) {
        if !self.memory().is_null() || self.spoiled.load(Ordering::Relaxed) {
            return;
        }
        let mut places = MOST_PLACES;
        while places >= LEAST_PLACES {
            if let Some(memory) = mmap::reserve_large(all_bytes(places), true) {
                self.places.store(places, Ordering::Relaxed);
                self.reading.store(memory.as_ptr(), Ordering::Relaxed);
                // Release: whoever sees it sees zeroes.
                return self.memory.store(memory.as_ptr(), Ordering::Release);
            }
            places /= 4;
        }
    }

    /// Events that can be written down.
    pub(crate) fn places(&self) -> u32 {
        self.places.load(Ordering::Relaxed)
    }

    /// From here on who comes to the gate waits a little first, so that whoever ends the pause catches up.
    pub(crate) fn many(&self) -> u32 {
        self.places() / 2
    }

    /// Words of paths that can be.
    pub(crate) fn text_words(&self) -> u32 {
        self.places() * WORDS_A_PLACE
    }

    /// The memory now, to be compared before and after a place is reserved; null: nothing can be written down.
    pub(crate) fn memory(&self) -> *mut u8 {
        self.memory.load(Ordering::Acquire)
    }

    /// Writes an event into a place that the caller has reserved in this memory together with room for `text`. `false`: nobody
    /// has waited for it.
    pub(crate) fn write(
        &self,
        memory: *mut u8,
        place: u32,
        text_at: u32,
        text: &[u8],
        event: &Event,
    ) -> bool {
        let Some(at) = self.place_in(memory, place) else { return false };
        if !text.is_empty() {
            // SAFETY: the room was reserved for this text, and lies within the mapping.
            unsafe { ptr::copy_nonoverlapping(text.as_ptr(), self.text_in(memory, text_at), text.len()) };
        }
        let event = Event { text_at, text_len: text.len() as u32, ..*event };
        // SAFETY: the place is this writer's own until it says that it is written.
        unsafe { (&raw mut (*at).event).write(event) };
        // SAFETY: as above. Release: whoever sees that it is written sees all of it. If it was passed over, it stays so.
        let state = unsafe { &(*at).state };
        state.compare_exchange(FREE, WRITTEN, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Reads what was written into the places below `end`, each once. Whoever has paused the world calls it.
    pub(crate) fn read(&self, end: u32, mut each: impl FnMut(&Event, &[u8])) {
        let mut next = self.read.load(Ordering::Relaxed);
        while next < end {
            let memory = self.reading.load(Ordering::Relaxed);
            let Some(at) = self.place_in(memory, next) else { break };
            // SAFETY: the place lies within the mapping, which is zeroed or written.
            let state = unsafe { &(*at).state };
            if self.is_written(next, state) {
                // SAFETY: it is written, and nobody writes it again before the gate has been open.
                let event = unsafe { (&raw const (*at).event).read() };
                // SAFETY: as above; the text was copied before.
                let text = unsafe {
                    core::slice::from_raw_parts(
                        self.text_in(memory, event.text_at).cast_const(),
                        event.text_len as usize,
                    )
                };
                each(&event, text);
                state.store(FREE, Ordering::Relaxed);
            }
            next = next.wrapping_add(1);
            self.read.store(next, Ordering::Relaxed);
        }
    }

    fn is_written(&self, place: u32, state: &AtomicU32) -> bool {
        let mut rounds = 0;
        let sleeps = if place < self.orphaned.load(Ordering::Relaxed) {
            0
        } else if self.spoiled.load(Ordering::Relaxed) {
            SLEEPS_ONCE_SPOILED
        } else {
            SLEEPS
        };
        // Acquire: what was written is seen.
        while state.load(Ordering::Acquire) != WRITTEN {
            if (sleeps == 0 || !wait_round(&mut rounds, sleeps))
                && state.compare_exchange(FREE, PASSED_OVER, Ordering::Acquire, Ordering::Acquire).is_ok()
            {
                // From now on nothing is written here: what is behind this place is read, and then it ends.
                self.memory.store(ptr::null_mut(), Ordering::Release);
                self.spoiled.store(true, Ordering::Relaxed);
                return false;
            }
        }
        true
    }

    /// All events below `places` have been read, whose paths took `words`, and the gate is still closed.
    pub(crate) fn tidy(&self, places: u32, words: u32) {
        let memory = self.memory();
        if places > FEW && !memory.is_null() {
            // Only whole pages of what nobody reads or writes any more.
            let whole_pages = |bytes: usize| bytes & !4095;
            mmap::discard(memory, whole_pages((places as usize).wrapping_mul(size_of::<Place>())));
            mmap::discard(self.text_in(memory, 0), whole_pages((words as usize).wrapping_mul(8)));
        }
    }

    /// The gate is open, and the caller still is the only one who may pause the world. If the writer of a place may still
    /// come, later events go elsewhere; the former memory stays mapped.
    pub(crate) fn restart(&self, is_open: bool) {
        self.read.store(0, Ordering::Relaxed);
        if is_open {
            self.orphaned.store(0, Ordering::Relaxed);
        }
        if self.spoiled.swap(false, Ordering::Relaxed) {
            self.init();
        }
    }

    /// Nothing that was written down is read any more, and nothing is written down.
    pub(crate) fn forget(&self) {
        self.memory.store(ptr::null_mut(), Ordering::Relaxed);
        self.reading.store(ptr::null_mut(), Ordering::Relaxed);
        self.read.store(0, Ordering::Relaxed);
    }

    /// In a forked child: who has reserved one of the first `count` places and not written it is not there.
    pub(crate) fn orphan(&self, count: u32) {
        self.orphaned.store(count, Ordering::Relaxed);
    }

    fn place_in(&self, memory: *mut u8, number: u32) -> Option<*mut Place> {
        // SAFETY: the mapping has room for so many, and begins on a page.
        (number < self.places() && !memory.is_null())
            .then(|| unsafe { memory.cast::<Place>().add(number as usize) })
    }

    fn text_in(&self, memory: *mut u8, word: u32) -> *mut u8 {
        let words = (word.min(self.text_words()) as usize).wrapping_mul(8);
        memory.wrapping_add(places_bytes(self.places())).wrapping_add(words)
    }
}
