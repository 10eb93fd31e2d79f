//! Resident bytes of the stacks of fibers. Ruby maps these stacks itself, so they are no blocks of malloc, and it uses
//! the stack of a fiber that has ended for the next one.
//!
//! No function tells where the stack of a fiber is. Its structure has four words, one behind the other:
//!
//! | word | what |
//! |---|---|
//! | 0 | where the stack's memory begins; 0 before the fiber has run and after it has ended |
//! | 1 | from where it grows down: word 0 and word 3 together |
//! | 2 | bytes of the memory |
//! | 3 | bytes that are left below word 1 |
//!
//! Known from `cont.c` of all known Rubies (`struct fiber_pool_stack`). [`learn`] finds them in a fiber that it makes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use magnus::{Ruby, Value, prelude::*, rb_sys::AsRawValue};
use memintro_analysis::account::PAGE;

use crate::atlas::Object;
use crate::atlas::types::T_DATA;
use crate::vm::Probe;

/// Words of a fiber's structure that are searched: at most so many fit into what a probe reads.
const WORDS: usize = 256;
/// More bytes than the stack of a fiber has.
const LARGEST: usize = 1 << 30;
/// Bits of a page's entry: it is resident, or was swapped out.
const IS_PRESENT: u64 = 1 << 63;
const IS_SWAPPED: u64 = 1 << 62;
/// Entries that are read at a time.
const ENTRIES: usize = 512;

/// Word of the structure at which the four begin; `None`: not found.
static PLACE: OnceLock<Option<usize>> = OnceLock::new();

/// Where stacks of fibers are, and which of their pages are resident.
pub(crate) struct Stacks {
    place: usize,
    pages: File,
}

impl Stacks {
    /// `None` before [`learn`], and where it has found nothing or the kernel does not tell of pages.
    pub(crate) fn open() -> Option<Self> {
        let place = (*PLACE.get()?)?;
        let pages = File::open("/proc/self/pagemap").ok()?;
        // SAFETY: a number. A kernel with larger pages has other entries.
        (unsafe { libc::sysconf(libc::_SC_PAGESIZE) } == PAGE as i64).then_some(Self { place, pages })
    }

    /// Bytes of the fiber's stack that are in memory or were swapped out.
    ///
    /// # Safety
    /// It is a live fiber.
    pub(crate) unsafe fn bytes(&self, fiber: u64) -> u64 {
        // SAFETY: the caller's promise; `learn` has found the words in the structure of a fiber.
        let words = unsafe {
            let structure = structure(fiber as usize);
            if structure == 0 {
                return 0;
            }
            *((structure + self.place * size_of::<usize>()) as *const [usize; 4])
        };
        if is_stack(words) { self.kept(words[0], words[2]) } else { 0 }
    }

    fn kept(&self, start: usize, bytes: usize) -> u64 {
        let mut room = [0_u8; ENTRIES * 8];
        let (mut kept, pages) = (0, bytes / PAGE);
        for at in (0..pages).step_by(ENTRIES) {
            let want = ENTRIES.min(pages - at) * 8;
            let Some(room) = room.get_mut(..want) else { break };
            if self.pages.read_exact_at(room, ((start / PAGE + at) * 8) as u64).is_err() {
                break;
            }
            let entries = room.as_chunks::<8>().0.iter().map(|entry| u64::from_ne_bytes(*entry));
            kept += entries.filter(|entry| entry & (IS_PRESENT | IS_SWAPPED) != 0).count() as u64;
        }
        kept * PAGE as u64
    }
}

/// Whether the object is a fiber.
///
/// # Safety
/// There is an object in the slot.
pub(crate) unsafe fn is_fiber(object: u64) -> bool {
    // SAFETY: the caller's promise; a typed object's type outlives it, and its name is terminated.
    unsafe {
        let object = Object::read(object as usize);
        object.kind() == T_DATA && object.type_name() == b"fiber"
    }
}

/// Makes a fiber and looks for its stack, if it is not known yet. Returns whether it has found it just now. Runs Ruby.
pub(crate) fn learn(ruby: &Ruby) -> bool {
    if PLACE.get().is_some() {
        return false;
    }
    let place = sample(ruby);
    PLACE.set(place).is_ok() && place.is_some()
}

fn sample(ruby: &Ruby) -> Option<usize> {
    let fiber: Value = ruby.eval("::Fiber.new { ::Fiber.yield }.tap(&:resume)").ok()?;
    // SAFETY: an object; its address is used while this function holds it.
    let structure = unsafe {
        let object = fiber.as_raw();
        if !is_fiber(object) {
            return None;
        }
        structure(object as usize)
    };
    let probe = Probe::new()?;
    let place = (0..WORDS).find(|word| {
        let words = probe.words::<4>(structure + word * size_of::<usize>());
        words
            .is_some_and(|words| is_stack(words) && probe.words::<1>(words[1] - size_of::<usize>()).is_some())
    });
    // Its stack is free again when it has ended.
    let _ = fiber.funcall::<_, _, Value>("resume", ());
    place
}

/// # Safety
/// It is a typed object of an extension.
unsafe fn structure(object: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { Object::read(object) }.structure()
}

fn is_stack([start, top, bytes, left]: [usize; 4]) -> bool {
    start != 0
        && start.is_multiple_of(PAGE)
        && bytes.is_multiple_of(PAGE)
        && (PAGE..LARGEST).contains(&bytes)
        && left > 0
        && start.checked_add(left) == Some(top)
        && left <= bytes
}
