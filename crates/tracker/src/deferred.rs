//! Events that cannot be recorded immediately, in the order in which they happened.
//!
//! While the world is paused ([`crate::threads`]), no thread records and no thread waits. Events are written down
//! here, and the thread that ends the pause records them before any other thread goes on. The order is that in which
//! places are handed out. A free is written down before its block is freed, and a birth after its block was
//! allocated, so the events of one address are in order whichever threads they come from.
//!
//! One compare-and-swap of the gate's word reserves a place together with room for a path. The word also says whether
//! the gate is closed, so nothing can be written down once the gate is open.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::lock::wait_round;
use crate::mmap;

/// Number of places. Events beyond them are dropped, and counted as such. There are fewer where address space is
/// short.
const MOST_PLACES: u32 = 1 << 18;
const LEAST_PLACES: u32 = 1 << 10;
/// Room for paths for each place, in words of 8 bytes.
const WORDS_A_PLACE: u32 = 8;
/// Sleeps until an event whose place is reserved has been written, before it is passed over because the queue is full. Its
/// thread has only a few instructions left, unless a signal handler has interrupted it.
const SLEEPS: u32 = 1000;
/// Events that a thread records on its way, inside malloc and after a fork, as long as there are not many.
const SOME: u32 = 256;
/// The same after a wait in vain, because then probably many events will not be written.
const SLEEPS_ONCE_SPOILED: u32 = 2;
/// Number of places whose memory is kept after use.
const FEW: u32 = 64;

/// An event. The caller defines the numbers, except `text_at` and `text_len`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Event {
    /// The kind of event, on which the meaning of all else depends.
    pub kind: u32,
    /// The number of a call site, or of the way to find it.
    pub site: u32,
    /// The block's address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The native caller.
    pub caller: u64,
    /// The build of its module, and the offset in it.
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
    /// An age, or a number of marks.
    pub extra: u32,
    /// A number that distinguishes before and after a clear.
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

/// The event is not written yet.
const FREE: u32 = 0;
const WRITTEN: u32 = 1;
/// The reader did not wait for the event.
const PASSED_OVER: u32 = 2;

/// Bytes that so many places take, and the same with the room for their paths.
const fn places_bytes(places: u32) -> usize {
    places as usize * size_of::<Place>()
}

const fn all_bytes(places: u32) -> usize {
    places_bytes(places) + (places * WORDS_A_PLACE) as usize * 8
}

/// How many of the written events a thread records. The next thread that comes records the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Some events, up to one that has not been written yet.
    Brief,
    /// All events up to one that has not been written yet.
    Whole,
    /// All, with so many sleeps for each that has not been written yet. One that takes longer is passed over.
    Patient(u32),
}

/// Where events are written down.
#[derive(Debug)]
pub struct Deferred {
    /// Where events are written; null: events cannot be written down.
    memory: AtomicPtr<u8>,
    /// Where events are read. It differs from the above while no more are to be written there.
    reading: AtomicPtr<u8>,
    /// Number of places.
    places: AtomicU32,
    /// Places that have been read. Only the thread that has paused the world uses it.
    read: AtomicU32,
    /// Places below this belong to threads that do not exist here: those of a forked child's parent.
    orphaned: AtomicU32,
    /// A writer may still write to a place that was skipped, so the memory must not be used again.
    spoiled: AtomicBool,
}

impl Deferred {
    /// Without memory, so that nothing can be written down.
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

    /// Reserves the address space, which takes memory only where it is used. If the kernel has none, nothing can be
    /// written down. Called only by the thread that has paused the world.
    pub fn init(&self) {
        if !self.memory().is_null() || self.spoiled.load(Ordering::Relaxed) {
            return;
        }
        let mut places = MOST_PLACES;
        while places >= LEAST_PLACES {
            if let Some(memory) = mmap::reserve_large(all_bytes(places), true) {
                self.places.store(places, Ordering::Relaxed);
                self.reading.store(memory.as_ptr(), Ordering::Relaxed);
                // Release: a thread that sees the memory sees zeroes.
                return self.memory.store(memory.as_ptr(), Ordering::Release);
            }
            places /= 4;
        }
    }

    /// Number of events that can be written down.
    pub(crate) fn places(&self) -> u32 {
        self.places.load(Ordering::Relaxed)
    }

    /// From this number of events on, a thread that comes to the gate waits a little first, so that the thread that
    /// ends the pause can finish.
    pub(crate) fn many(&self) -> u32 {
        self.places() / 2
    }

    /// How many sleeps a thread makes before it writes an event down at this place. Less room means more
    /// sleeps, so that the thread that has closed the gate can finish.
    pub(crate) fn sleeps_before(&self, place: u32) -> Option<u32> {
        let (many, places) = (self.many(), self.places());
        match place {
            _ if place < many || place >= places => None,
            _ if place < many + many / 2 => Some(1),
            _ if place < self.nearly_all() => Some(4),
            _ => Some(20),
        }
    }

    /// From this number of events on, a thread that comes to the gate waits longer.
    fn nearly_all(&self) -> u32 {
        self.places() / 8 * 7
    }

    /// Number of words of paths that can be written down.
    pub(crate) fn text_words(&self) -> u32 {
        self.places() * WORDS_A_PLACE
    }

    /// The memory now, to be compared before and after a place is reserved. Null: nothing can be written down.
    pub(crate) fn memory(&self) -> *mut u8 {
        self.memory.load(Ordering::Acquire)
    }

    /// Writes an event into a place that the caller has reserved in this memory together with room for `text`.
    /// `false`: the reader did not wait for it.
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
        // SAFETY: as above. Release: a reader that sees that it is written sees all of it. If it was passed over, it stays so.
        let state = unsafe { &(*at).state };
        state.compare_exchange(FREE, WRITTEN, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Reads the events in the places below `end`, each once. `false`: there are more. Called by the thread that has paused the
    /// world.
    pub(crate) fn read(&self, end: u32, effort: Effort, mut each: impl FnMut(&Event, &[u8])) -> bool {
        let mut next = self.read.load(Ordering::Relaxed);
        let is_brief = effort == Effort::Brief && end < self.many();
        let most = if is_brief { next.saturating_add(SOME) } else { u32::MAX };
        while next < end.min(most) {
            let memory = self.reading.load(Ordering::Relaxed);
            let Some(at) = self.place_in(memory, next) else { return true };
            // SAFETY: the place lies within the mapping, which is zeroed or written.
            let state = unsafe { &(*at).state };
            let sleeps = self.sleeps(next, end, effort);
            if Self::is_written(state, sleeps) {
                // SAFETY: it is written, and not written again before the gate has been open.
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
            } else if sleeps.is_none() {
                return false;
            } else if !self.pass_over(state) {
                // It has been written just now.
                continue;
            }
            next = next.wrapping_add(1);
            self.read.store(next, Ordering::Relaxed);
        }
        next >= end
    }

    /// Whether this reader would leave even the next event to other threads. Called by the thread that has
    /// the turn.
    pub(crate) fn is_held_up(&self, end: u32, effort: Effort) -> bool {
        let next = self.read.load(Ordering::Relaxed);
        next < end
            && self.sleeps(next, end, effort).is_none()
            && self.place_in(self.reading.load(Ordering::Relaxed), next).is_some_and(|at| {
                // SAFETY: the place lies within the mapping, which is zeroed or written.
                unsafe { (*at).state.load(Ordering::Relaxed) != WRITTEN }
            })
    }

    /// Sleeps of a reader until an event has been written. `None`: it leaves that event to the next one, because its writer is
    /// about to write it.
    fn sleeps(&self, place: u32, end: u32, effort: Effort) -> Option<u32> {
        let is_spoiled = self.spoiled.load(Ordering::Relaxed);
        let limit = if is_spoiled { SLEEPS_ONCE_SPOILED } else { u32::MAX };
        match effort {
            _ if place < self.orphaned.load(Ordering::Relaxed) => Some(0),
            Effort::Patient(sleeps) => Some(sleeps.min(limit)),
            _ if end >= self.places() => Some(SLEEPS.min(limit)),
            _ => None,
        }
    }

    fn is_written(state: &AtomicU32, sleeps: Option<u32>) -> bool {
        let (mut rounds, sleeps) = (0, sleeps.unwrap_or(0));
        // Acquire: the written event is seen.
        while state.load(Ordering::Acquire) != WRITTEN {
            if sleeps == 0 || !wait_round(&mut rounds, sleeps) {
                return false;
            }
        }
        true
    }

    /// Gives up waiting for an event. From now on no event is written here; the reader still reads the places
    /// after it, and then leaves this memory. `false`: the event has been written just now.
    fn pass_over(&self, state: &AtomicU32) -> bool {
        let is_passed_over =
            state.compare_exchange(FREE, PASSED_OVER, Ordering::Acquire, Ordering::Acquire).is_ok();
        if is_passed_over {
            self.memory.store(ptr::null_mut(), Ordering::Release);
            self.spoiled.store(true, Ordering::Relaxed);
        }
        is_passed_over
    }

    /// All events below `places` have been read, whose paths took `words`. The gate is still closed.
    pub(crate) fn tidy(&self, places: u32, words: u32) {
        let memory = self.memory();
        if places > FEW && !memory.is_null() {
            // Only whole pages that no thread reads or writes any more.
            let whole_pages = |bytes: usize| bytes & !4095;
            mmap::discard(memory, whole_pages((places as usize).wrapping_mul(size_of::<Place>())));
            mmap::discard(self.text_in(memory, 0), whole_pages((words as usize).wrapping_mul(8)));
        }
    }

    /// The gate is open, and only the caller may pause the world. If the writer of a skipped place may still write to
    /// it, later events are written elsewhere, and the former memory stays mapped.
    pub(crate) fn restart(&self, is_open: bool) {
        self.read.store(0, Ordering::Relaxed);
        if is_open {
            self.orphaned.store(0, Ordering::Relaxed);
        }
        if self.spoiled.swap(false, Ordering::Relaxed) {
            self.init();
        }
    }

    /// From now on no event is written down, and written events are not read.
    pub(crate) fn forget(&self) {
        self.memory.store(ptr::null_mut(), Ordering::Relaxed);
        self.reading.store(ptr::null_mut(), Ordering::Relaxed);
        self.read.store(0, Ordering::Relaxed);
    }

    /// Called in a forked child: the threads that have reserved one of the first `count` places and not written it do
    /// not exist here.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the events that are read.
    fn read(deferred: &Deferred, end: u32, effort: Effort) -> (bool, Vec<u32>) {
        let mut kinds = Vec::new();
        let is_all = deferred.read(end, effort, |event, _| kinds.push(event.kind));
        (is_all, kinds)
    }

    fn write(deferred: &Deferred, place: u32) -> bool {
        deferred.write(deferred.memory(), place, 0, &[], &Event { kind: place, ..Event::default() })
    }

    #[test]
    fn an_event_that_is_not_written_yet_is_left_to_the_next_reader_with_those_behind_it() {
        let deferred = Deferred::new();
        deferred.init();
        assert!([0, 2, 3].iter().all(|place| write(&deferred, *place)));
        assert_eq!(read(&deferred, 4, Effort::Whole), (false, vec![0]));
        assert!(deferred.is_held_up(4, Effort::Brief));
        assert_eq!(read(&deferred, 4, Effort::Brief), (false, vec![]));
        assert!(write(&deferred, 1));
        assert!(!deferred.is_held_up(4, Effort::Brief));
        assert_eq!(read(&deferred, 4, Effort::Whole), (true, vec![1, 2, 3]));
    }

    #[test]
    fn a_patient_reader_passes_over_what_is_not_written() {
        let deferred = Deferred::new();
        deferred.init();
        assert!([0, 2].iter().all(|place| write(&deferred, *place)));
        assert_eq!(read(&deferred, 3, Effort::Patient(1)), (true, vec![0, 2]));
        assert!(deferred.memory().is_null(), "nothing more is written there");
    }

    #[test]
    fn it_is_passed_over_by_each_reader_where_the_queue_is_full() {
        let deferred = Deferred::new();
        deferred.init();
        let most = deferred.places();
        assert!((1..most).all(|place| write(&deferred, place)));
        assert_eq!(read(&deferred, most - 1, Effort::Brief), (false, vec![]));
        let (is_all, kinds) = read(&deferred, most, Effort::Brief);
        assert!(is_all && kinds.iter().copied().eq(1..most), "{}", kinds.len());
    }

    #[test]
    fn threads_that_do_not_exist_are_not_waited_for() {
        let deferred = Deferred::new();
        deferred.init();
        assert!([0, 2].iter().all(|place| write(&deferred, *place)));
        deferred.orphan(3);
        assert_eq!(read(&deferred, 3, Effort::Whole), (true, vec![0, 2]));
    }

    #[test]
    fn a_brief_reader_reads_some_events() {
        let deferred = Deferred::new();
        deferred.init();
        let all = 2 * SOME + 10;
        assert!((0..all).all(|place| write(&deferred, place)));
        let lengths: Vec<_> = (0..3).map(|_| read(&deferred, all, Effort::Brief)).collect();
        assert!(lengths.iter().map(|(_, kinds)| kinds.len() as u32).eq([SOME, SOME, 10]));
        assert!(lengths.iter().map(|(is_all, _)| *is_all).eq([false, false, true]));
    }
}
