//! Copies of the calling thread's registers and of the top of its stack, taken inside malloc, unwound outside of it.
//!
//! There are a few places for them, which are mapped once. A copy that finds none free is left out. Nothing waits:
//! a writer takes a free place, a reader takes a full one, and each hands it on by one store.
//!
//! # How a stack is copied without a fault
//!
//! The page of the stack pointer is there. Whether the next page is, the kernel tells: `rt_sigprocmask` with an unknown
//! `how` reads the set that it is given, changes nothing, and answers `EFAULT` if it could not read. A thread's own
//! stack ends below its thread pointer, so nothing beyond that is asked for. What is left is a coroutine's stack that
//! ends within two pages: the mapping behind it may be read, if there is one.
//!
//! `process_vm_readv` would do the same in one call. But filters that end a process for an unexpected system call
//! (systemd's `@system-service` does not have that one) know `rt_sigprocmask`, because libc itself needs it.

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

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

/// What is known of the block, beside registers and stack.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Number of its call site.
    pub site: u32,
    /// Its kind.
    pub kind: SiteKind,
    /// How often modules had been loaded.
    pub loads: u32,
    /// Which start or clear that number belongs to.
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
        // Release: whoever sees the address may use the memory.
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

    /// Copies registers and stack of the calling thread, for this block. `false`: no place is free, and it is not asked
    /// for the block.
    #[inline]
    pub fn capture(&self, birth: impl FnOnce() -> Birth) -> bool {
        let Some(memory) = NonNull::new(self.memory.load(Ordering::Acquire)) else { return false };
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        for index in (0..TRIES).map(|step| at.wrapping_add(step) % PLACES) {
            let Some(state) = self.states.get(index) else { return false };
            // Acquire: the reader is done with the place.
            if state.compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            // SAFETY: the index is below the number of places, and this thread has this one for itself.
            unsafe { fill(UnsafeCell::raw_get(memory.as_ptr().add(index)), &birth()) };
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

    /// Visits those that wait, and keeps them. To be called where no thread writes any more, or where it does not matter.
    pub fn each(&self, mut visit: impl FnMut(&CallerSample)) {
        let Some(memory) = NonNull::new(self.memory.load(Ordering::Acquire)) else { return };
        for (index, state) in self.states.iter().enumerate() {
            if state.load(Ordering::Acquire) == FULL {
                // SAFETY: the index is below the number of places; a full place of a pool that nobody drains is never
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

/// Blocks that were sampled and are live: of a line that allocates a thousand blocks for each one that it leaks, the
/// leaking function is seen in these only.
///
/// Each address has one place, which the block that was sampled last has. So a free costs one read. All-zero memory is
/// valid, and follows nothing.
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
        let tag = Self::tag(address);
        if self.place(tag).0.load(Ordering::Relaxed) == tag {
            self.forget(tag);
        }
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
/// Nobody else uses the record.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn fill(record: *mut CallerSample, birth: &Birth) {
    let (ip, sp, bp, thread): (u64, u64, u64, u64);
    // SAFETY: reads registers, and the thread pointer, which libc keeps at this place.
    unsafe {
        core::arch::asm!(
            "lea {ip}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp", "mov {thread}, qword ptr fs:[0]",
            ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp, thread = out(reg) thread,
            options(nostack, readonly, preserves_flags),
        );
    }
    let len = copyable(sp, thread);
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
/// Nobody else uses the record.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn fill(record: *mut CallerSample, birth: &Birth) {
    // SAFETY: the record is this thread's own.
    unsafe {
        (*record).site = birth.site;
        (*record).epoch = birth.epoch;
        (*record).len = 0;
    }
}

/// Whether stacks can be copied on this processor.
pub const IS_SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// How many bytes from the stack pointer on may be read, in whole words.
#[cfg(target_arch = "x86_64")]
fn copyable(sp: u64, thread: u64) -> u64 {
    const PAGE: u64 = 4096;
    let mut limit = sp.saturating_add(CALLER_STACK_BYTES as u64);
    if (sp..limit).contains(&thread) {
        limit = thread;
    }
    let mut end = (sp | (PAGE - 1)).saturating_add(1);
    while end < limit && is_readable(end) {
        end = end.saturating_add(PAGE);
    }
    end.min(limit).saturating_sub(sp) & !7
}

/// Whether the page that begins here may be read. Changes nothing, and never faults.
#[cfg(target_arch = "x86_64")]
fn is_readable(page: u64) -> bool {
    let answer: i64;
    // SAFETY: the kernel reads the set before it looks at `how`, which it then refuses. The call does not touch errno.
    unsafe {
        core::arch::asm!(
            "syscall",
            inout("rax") libc::SYS_rt_sigprocmask => answer,
            in("rdi") -1_i64, in("rsi") page, in("rdx") 0_u64, in("r10") 8_u64,
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    answer == -i64::from(libc::EINVAL)
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
        assert!(!captures.capture(|| birth(1)), "there are no places yet");
        assert!(captures.init() && captures.init());
        let marks = core::hint::black_box([0x5eed_0001_u64, 0x5eed_0002, 0x5eed_0003]);
        assert!(captures.capture(|| birth(7)));
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
        let taken = (0..100).filter(|_| captures.capture(|| birth(1))).count();
        assert_eq!((taken, captures.waiting()), (PLACES, PLACES));
        let mut seen = 0;
        captures.drain(|_| seen += 1);
        assert_eq!(seen, PLACES);
        assert!(captures.capture(|| birth(1)));
    }

    #[test]
    fn a_page_that_is_not_there_ends_the_copy() {
        let page = 4096;
        // SAFETY: plain system calls on memory of this test's own.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(ptr::null_mut(), 4 * page, libc::PROT_READ, flags, -1, 0).addr() as u64;
            let guard = memory + 2 * page as u64;
            assert_eq!(libc::mprotect(guard as *mut _, page, libc::PROT_NONE), 0);
            assert!(is_readable(memory) && !is_readable(guard));
            assert_eq!(copyable(memory + 8, 0), CALLER_STACK_BYTES as u64);
            assert_eq!(copyable(guard - page as u64 - 8, 0), page as u64 + 8);
            assert_eq!(copyable(guard - 24, 0), 24);
            assert_eq!(copyable(memory + 8, memory + 40), 32, "the thread pointer ends its stack");
            assert_eq!(libc::munmap(guard as *mut _, page), 0);
            assert_eq!(copyable(guard - 24, 0), 24);
            libc::munmap(memory as *mut _, 2 * page);
            libc::munmap((guard + page as u64) as *mut _, page);
        }
        let mut before = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        let mut after = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: valid records; zeroed sets are valid, too.
        unsafe {
            libc::pthread_sigmask(0, ptr::null(), before.as_mut_ptr());
            assert!(!is_readable(0));
            libc::pthread_sigmask(0, ptr::null(), after.as_mut_ptr());
            for signal in 1..64 {
                assert_eq!(
                    libc::sigismember(before.as_ptr(), signal),
                    libc::sigismember(after.as_ptr(), signal)
                );
            }
        }
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
                            if captures.capture(|| birth(site)) {
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
