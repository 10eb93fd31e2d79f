//! Copies of the calling thread's registers and of the top of its stack, taken inside malloc, unwound outside of it.
//!
//! There are a few places for them, which are mapped once. A copy that finds none free is left out. Nothing waits:
//! a writer takes a free place, a reader takes a full one, and each hands it on by one store.
//!
//! # How a stack is copied without a fault
//!
//! This reads only memory that is known to be part of the running stack, so it cannot be unmapped meanwhile.
//! It makes no system call, which a filter could refuse or punish.
//!
//! | stack | ends | how that is known |
//! |---|---|---|
//! | of a thread or fiber of the VM | where the VM says | an argument of [`Captures::capture`] |
//! | the first one of the program | where its arguments begin | an argument of [`know_first_stack`]; the
//! kernel keeps the memory below free |
//! | of another thread, close to its beginning | at the thread pointer | libc puts that on top of the stack, and makes none smaller than [`LEAST_STACK`] |
//! | any other: of a signal handler, of another library's coroutines | with the page of the stack pointer | that page is in use |

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use memintro_abi::{CALLER_STACK_BYTES, CallerSample, SiteKind};

use crate::mmap;

/// Places that one attempt looks at.
const TRIES: usize = 4;

const FREE: u32 = 0;
const WRITING: u32 = 1;
const FULL: u32 = 2;
const READING: u32 = 3;

/// The places. All-zero memory is a valid pool without any.
#[derive(Debug)]
pub struct Captures<const PLACES: usize> {
    memory: AtomicPtr<UnsafeCell<CallerSample>>,
    states: [AtomicU32; PLACES],
    next: AtomicU32,
}

/// Facts about the block, apart from registers and stack.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Number of its call site.
    pub site: u32,
    /// Its kind.
    pub kind: SiteKind,
    /// How often modules had been loaded.
    pub loads: u32,
    /// The start or clear to which that number belongs.
    pub epoch: u32,
    /// How many allocations of the site it stands for.
    pub weight: u32,
    /// Its number, from [`Followed::follow`].
    pub serial: u32,
    /// Its address.
    pub block: u64,
    /// Bytes asked for.
    pub size: u64,
}

impl<const PLACES: usize> Captures<PLACES> {
    /// A pool without places.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            memory: AtomicPtr::new(ptr::null_mut()),
            states: [const { AtomicU32::new(FREE) }; PLACES],
            next: AtomicU32::new(0),
        }
    }

    /// Maps the places, unless they are there. They take memory only once they are written. `false`: the kernel has none.
    pub fn init(&self) -> bool {
        if !self.memory.load(Ordering::Acquire).is_null() {
            return true;
        }
        let Some(memory) = mmap::map_lazily(PLACES * size_of::<CallerSample>()) else { return false };
        // Release: a reader that sees the address may use the memory.
        let set = self.memory.compare_exchange(
            ptr::null_mut(),
            memory.as_ptr().cast(),
            Ordering::Release,
            Ordering::Acquire,
        );
        if set.is_err() {
            mmap::unreserve(memory.as_ptr(), PLACES * size_of::<CallerSample>());
        }
        true
    }

    /// Copies registers and stack of the calling thread, for this block. `stack_end` says where the stack ends that an
    /// address belongs to, or 0. `false`: no place is free, and neither closure was called.
    #[inline]
    pub fn capture(&self, stack_end: impl FnOnce(usize) -> usize, birth: impl FnOnce() -> Birth) -> bool {
        let Some(memory) = NonNull::new(self.memory.load(Ordering::Acquire)) else { return false };
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        for index in (0..TRIES).map(|step| at.wrapping_add(step) % PLACES) {
            let Some(state) = self.states.get(index) else { return false };
            // Acquire: the reader is done with the place.
            if state.compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            // SAFETY: the index is below the number of places, and this thread has this one for itself.
            unsafe { fill(UnsafeCell::raw_get(memory.as_ptr().add(index)), stack_end, &birth()) };
            state.store(FULL, Ordering::Release);
            return true;
        }
        false
    }

    /// How many wait to be read.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.states.iter().filter(|state| state.load(Ordering::Relaxed) == FULL).count()
    }

    /// Visits and forgets those that wait.
    pub fn drain(&self, mut visit: impl FnMut(&CallerSample)) {
        let Some(memory) = NonNull::new(self.memory.load(Ordering::Acquire)) else { return };
        for (index, state) in self.states.iter().enumerate() {
            // Acquire: the writer is done with the place.
            if state.compare_exchange(FULL, READING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // SAFETY: the index is below the number of places, this thread has this one for itself, and it was
                // filled.
                visit(unsafe { &*UnsafeCell::raw_get(memory.as_ptr().add(index)) });
                state.store(FREE, Ordering::Release);
            }
        }
    }

    /// Visits those that wait, and keeps them. For use when no thread writes any more, or when late writes do
    /// not matter.
    pub fn each(&self, mut visit: impl FnMut(&CallerSample)) {
        let Some(memory) = NonNull::new(self.memory.load(Ordering::Acquire)) else { return };
        for (index, state) in self.states.iter().enumerate() {
            if state.load(Ordering::Acquire) == FULL {
                // SAFETY: the index is below the number of places; a full place of a pool that is never drained is never
                // written again.
                visit(unsafe { &*UnsafeCell::raw_get(memory.as_ptr().add(index)) });
            }
        }
    }

    /// Called in a forked child: the threads that were reading do not exist there.
    pub fn in_child(&self) {
        for state in &self.states {
            let _ = state.compare_exchange(READING, FREE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Live sampled blocks. If a line allocates a thousand blocks for each one that it leaks, only these show the
/// leaking function.
///
/// Each address has one place, which belongs to the block that was sampled last. So a free costs one read.
/// All-zero memory is valid, and follows nothing.
#[derive(Debug)]
pub struct Followed {
    /// Low bits of the address; 0: none.
    tags: [AtomicU32; FOLLOWED],
    serials: [AtomicU32; FOLLOWED],
    next: AtomicU32,
}

const FOLLOWED: usize = 2048;

impl Followed {
    /// Follows nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            tags: [const { AtomicU32::new(0) }; FOLLOWED],
            serials: [const { AtomicU32::new(0) }; FOLLOWED],
            next: AtomicU32::new(0),
        }
    }

    /// The lowest bits of an address are always the same.
    #[inline(always)]
    fn tag(address: u64) -> u32 {
        (address >> 4) as u32
    }

    #[inline(always)]
    fn place(&self, tag: u32) -> (&AtomicU32, &AtomicU32) {
        // The mask keeps the index inside the arrays, so that no bounds check (and no panic) is left.
        let at = tag as usize & (FOLLOWED - 1);
        (&self.tags[at], &self.serials[at])
    }

    /// Follows a block that was born just now. Returns its number.
    pub fn follow(&self, address: u64) -> u32 {
        let serial = self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let (tag, number) = self.place(Self::tag(address));
        // Relaxed: if two threads meet at one place, the number of one of them is found with no tag or another's, and
        // counts as not known.
        tag.store(0, Ordering::Relaxed);
        number.store(serial, Ordering::Relaxed);
        tag.store(Self::tag(address), Ordering::Relaxed);
        serial
    }

    /// The block at this address is freed or moves.
    #[inline(always)]
    pub fn freed(&self, address: u64) {
        if self.may_follow(address) {
            self.forget(Self::tag(address));
        }
    }

    /// Whether a block at this address is followed, or one whose address has the same low bits.
    #[inline(always)]
    #[must_use]
    pub fn may_follow(&self, address: u64) -> bool {
        let tag = Self::tag(address);
        self.place(tag).0.load(Ordering::Relaxed) == tag
    }

    #[cold]
    #[inline(never)]
    fn forget(&self, tag: u32) {
        let (own, number) = self.place(tag);
        own.store(0, Ordering::Relaxed);
        number.store(0, Ordering::Relaxed);
    }

    /// Whether the block that was given this number is live; `false` also if another one has its place.
    #[must_use]
    pub fn is_live(&self, address: u64, serial: u32) -> bool {
        let (tag, number) = self.place(Self::tag(address));
        tag.load(Ordering::Relaxed) == Self::tag(address) && number.load(Ordering::Relaxed) == serial
    }
}

impl Default for Followed {
    fn default() -> Self {
        Self::new()
    }
}

impl<const PLACES: usize> Default for Captures<PLACES> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: the memory is reached only through a place that one thread has taken for itself.
unsafe impl<const PLACES: usize> Send for Captures<PLACES> {}
// SAFETY: as above.
unsafe impl<const PLACES: usize> Sync for Captures<PLACES> {}

/// # Safety
/// No other thread uses the record.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn fill(record: *mut CallerSample, stack_end: impl FnOnce(usize) -> usize, birth: &Birth) {
    let (ip, sp, bp, thread): (u64, u64, u64, u64);
    // SAFETY: reads registers, and the thread pointer, which libc keeps at this place.
    unsafe {
        core::arch::asm!(
            "lea {ip}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp", "mov {thread}, qword ptr fs:[0]",
            ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp, thread = out(reg) thread,
            options(nostack, readonly, preserves_flags),
        );
    }
    let len = copyable(sp, thread, stack_end(sp as usize) as u64);
    // SAFETY: the record is this thread's own; so many bytes of the stack may be read, and there is room for them.
    unsafe {
        (*record).site = birth.site;
        (*record).kind = birth.kind;
        (*record).loads = birth.loads;
        (*record).epoch = birth.epoch;
        (*record).weight = birth.weight;
        (*record).serial = birth.serial;
        (*record).block = birth.block;
        (*record).size = birth.size;
        (*record).ip = ip;
        (*record).sp = sp;
        (*record).bp = bp;
        (*record).len = len;
        // Not a copy that the compiler knows of: these bytes are frames of running functions.
        core::arch::asm!(
            "rep movsq",
            inout("rcx") len / 8 => _, inout("rsi") sp => _, inout("rdi") (&raw mut (*record).stack) as u64 => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Other processors are not supported: there is nothing to unwind.
///
/// # Safety
/// No other thread uses the record.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn fill(record: *mut CallerSample, _: impl FnOnce(usize) -> usize, birth: &Birth) {
    // SAFETY: the record is this thread's own.
    unsafe {
        (*record).site = birth.site;
        (*record).epoch = birth.epoch;
        (*record).len = 0;
    }
}

/// Whether stacks can be copied on this processor.
pub const IS_SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// Libc makes no stack smaller than this (`PTHREAD_STACK_MIN`).
const LEAST_STACK: u64 = 16 << 10;
/// More than the bytes that the kernel leaves free below the first stack's end.
const FIRST_STACK: u64 = 8 << 20;
/// Where the first stack of the program ends; 0: not known.
static FIRST_STACK_END: AtomicU64 = AtomicU64::new(0);

/// The first stack of the program ends here.
pub fn know_first_stack(end: usize) {
    FIRST_STACK_END.store(end as u64, Ordering::Relaxed);
}

/// How many bytes from the stack pointer on may be read, in whole words. `known_end`: the end of the stack;
/// 0: unknown.
#[cfg(target_arch = "x86_64")]
fn copyable(sp: u64, thread: u64, known_end: u64) -> u64 {
    const PAGE: u64 = 4096;
    let first_end = FIRST_STACK_END.load(Ordering::Relaxed);
    let is_within = |end: u64, size: u64| sp < end && end.wrapping_sub(sp) < size;
    let end = if sp < known_end {
        known_end
    } else if is_within(first_end, FIRST_STACK) {
        first_end
    } else if is_within(thread, LEAST_STACK) {
        thread
    } else {
        (sp | (PAGE - 1)).saturating_add(1)
    };
    let limit = sp.saturating_add(CALLER_STACK_BYTES as u64);
    end.min(limit).saturating_sub(sp) & !7
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    const PLACES: usize = 16;

    fn birth(site: u32) -> Birth {
        Birth {
            site,
            kind: SiteKind::RUBY,
            loads: 0,
            epoch: 1,
            weight: 3,
            serial: 2,
            block: 0x1000,
            size: 64,
        }
    }

    #[test]
    fn a_copy_holds_the_words_above_the_stack_pointer() {
        let captures = Captures::<PLACES>::new();
        assert!(!captures.capture(|_| 0, || birth(1)), "there are no places yet");
        assert!(captures.init() && captures.init());
        let marks = core::hint::black_box([0x5eed_0001_u64, 0x5eed_0002, 0x5eed_0003]);
        let end = marks.as_ptr_range().end.addr();
        assert!(captures.capture(|_| end, || birth(7)));
        let mut seen = 0;
        captures.drain(|sample| {
            seen += 1;
            assert_eq!((sample.site, sample.weight, sample.size), (7, 3, 64));
            let at = marks.as_ptr().addr() as u64 - sample.sp;
            assert!(at + 24 <= sample.len, "{at} of {}", sample.len);
            let words: Vec<u64> = sample.stack[at as usize..][..24]
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                .collect();
            assert_eq!(words, marks);
        });
        assert_eq!((seen, captures.waiting()), (1, 0));
    }

    #[test]
    fn a_followed_block_lives_until_its_own_free() {
        let followed = Followed::new();
        let first = followed.follow(0x7000_1230);
        assert!(followed.is_live(0x7000_1230, first));
        assert!(!followed.is_live(0x7000_1240, first) && !followed.is_live(0x7000_1230, first + 1));
        followed.freed(0x7000_1240);
        assert!(followed.is_live(0x7000_1230, first));
        followed.freed(0x7000_1230);
        assert!(!followed.is_live(0x7000_1230, first));
        // The address is handed out again, and is not sampled this time.
        assert!(!followed.is_live(0x7000_1230, first));
        let second = followed.follow(0x7000_1230);
        assert!(followed.is_live(0x7000_1230, second) && !followed.is_live(0x7000_1230, first));
    }

    #[test]
    fn what_finds_no_place_is_left_out() {
        let captures = Captures::<PLACES>::new();
        captures.init();
        let taken = (0..100).filter(|_| captures.capture(|_| 0, || birth(1))).count();
        assert_eq!((taken, captures.waiting()), (PLACES, PLACES));
        let mut seen = 0;
        captures.drain(|_| seen += 1);
        assert_eq!(seen, PLACES);
        assert!(captures.capture(|_| 0, || birth(1)));
    }

    #[test]
    fn nothing_is_read_beyond_the_end_of_the_stack_or_of_its_page() {
        let (page, most) = (4096, CALLER_STACK_BYTES as u64);
        let sp = 0x7f00_0000_1000;
        assert_eq!(copyable(sp, 0, sp + 96), 96);
        assert_eq!(copyable(sp, 0, sp + 3 * page), most);
        assert_eq!(copyable(sp + 8, 0, 0), page - 8, "an unknown stack");
        assert_eq!(copyable(sp + page - 24, 0, 0), 24);
        assert_eq!(copyable(sp + 8, sp + 2 * LEAST_STACK, 0), page - 8, "too far from the thread pointer");
        assert_eq!(copyable(sp + page - 24, sp + page + 72, 0), 96, "a thread that began just now");
        assert_eq!(copyable(sp + page - 24, sp + LEAST_STACK, 0), most);
        know_first_stack(0x7ffc_0000_0000);
        assert_eq!(copyable(0x7ffb_ffff_f000, 0, 0), page);
        assert_eq!(copyable(0x7ffb_ffff_0008, 0, 0), most);
        assert_eq!(copyable(0x7ffb_0000_0008, 0, 0), page - 8);
        know_first_stack(0);
    }

    #[test]
    fn threads_and_a_reader_share_the_places() {
        use std::sync::atomic::{AtomicBool, AtomicUsize};
        let captures = Captures::<PLACES>::new();
        captures.init();
        let (taken, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut seen = 0;
        std::thread::scope(|scope| {
            let writers: Vec<_> = (1..=3)
                .map(|site| {
                    let (captures, taken) = (&captures, &taken);
                    scope.spawn(move || {
                        for _ in 0..5_000 {
                            if captures.capture(|_| 0, || birth(site)) {
                                taken.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                writers.into_iter().for_each(|writer| writer.join().unwrap());
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                captures.drain(|sample| {
                    assert!((1..=3).contains(&sample.site) && sample.len > 0);
                    seen += 1;
                });
            }
        });
        captures.drain(|_| seen += 1);
        assert_eq!(seen, taken.into_inner());
    }
}
