//! In-band records of blocks: the last 8 bytes of a block's usable size, which the hook requests in addition
//! to the program's bytes ([`EXTRA`]).
//!
//! Only for blocks of glibc's allocator: the word in front of a block holds its length. A map has a byte for
//! each 32 bytes of the heap, which says whether a block with an in-band record begins there. At most one
//! does, because no block is shorter. So only the owner of that block writes the byte, without a locked
//! instruction. (A bit for each 16 bytes would take a quarter of the memory, but two threads that hand blocks
//! to each other then take 1.8 times the allocator's own time instead of 1.1.) The map lies in leaves, each
//! for 256 MiB of address space, whose pages take memory only where there are such blocks: 32 KiB for a
//! mebibyte.
//!
//! Rules for neighbours: a record is written and read only by the owner of the block (it was just handed out, or is about to be
//! given back), or while the world is paused.

mod damage;
mod paused;
mod record;

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::mmap;
use crate::table::{Block, Removed};
use damage::Damage;
pub use record::{bytes_of, is_glibcs, is_told};
use record::{decode, encode, tail, usable};

/// Bytes that the allocator is asked for on top of a block's size.
pub const EXTRA: usize = 8;

/// The arguments of calloc that request [`EXTRA`] more bytes; unchanged if that is not possible.
#[inline(always)]
#[must_use]
pub fn with_extra(count: usize, size: usize) -> (usize, usize) {
    match count.checked_mul(size).and_then(|bytes| bytes.checked_add(EXTRA)) {
        Some(bytes) => (1, bytes),
        None => (count, size),
    }
}

/// The address space of an x86-64 program that requests no larger one.
const ADDRESS_BITS: u32 = 47;
const LEAF_SHIFT: u32 = 28;
const MOST_PLACES: usize = 1 << (ADDRESS_BITS - LEAF_SHIFT);
/// Places that are left for threads that reserve leaves at the same time.
const SPARE_LEAVES: usize = 64;
/// Most leaves: the heap may have this many times 256 MiB, or this many parts.
const MOST_LEAVES: usize = 1024;
const UNIT_SHIFT: u32 = 5;
const UNITS: usize = 1 << (LEAF_SHIFT - UNIT_SHIFT);
/// Values of a unit of the map: no block with an in-band record begins in these 32 bytes, or one begins in
/// their first or second half.
const NOTHING: u8 = 0;
const HALF_SHIFT: u32 = 4;

#[derive(Debug)]
struct Leaf([AtomicU8; UNITS]);

/// The result of reading an in-band record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No block with an in-band record begins there.
    Nothing,
    /// This one.
    Whole(Removed),
    /// The record was overwritten, or the block is gone: an overrun, or a missed free. Its contents are
    /// unknown.
    Damaged,
}

/// Generations between two looks for old blocks: a birth is kept modulo 2^18, so older ones move to the table.
const GENERATIONS: u32 = 1 << 16;

/// No block has a record.
const OFF: u8 = 0;
/// Blocks get records.
const TAKES: u8 = 1;
/// Blocks that have records keep them until they are freed or moved to a table; no others get any.
const LEAVES: u8 = 2;

/// Which blocks have a record.
#[derive(Debug)]
pub struct InBand {
    leaves: [AtomicPtr<Leaf>; MOST_PLACES],
    /// The numbers of existing leaves, plus 1, so that a pass need not visit all places.
    numbers: [AtomicUsize; MOST_LEAVES],
    /// [`OFF`], [`TAKES`] or [`LEAVES`].
    state: AtomicU8,
    /// Generation of the last look for old blocks.
    looked: AtomicU32,
    /// Where a pass over all blocks continues ([`InBand::step`]): a place in `numbers`, and a unit of that
    /// leaf.
    reached: [AtomicUsize; 2],
    /// Part of each check. It changes at each clear, so that older records do not match.
    salt: AtomicU64,
    damage: Damage,
}

/// An intact record: the usable bytes of its block, its address, and its contents.
struct Whole {
    usable: u64,
    tail: *mut u64,
    removed: Removed,
}

impl InBand {
    /// Without memory, and off.
    #[allow(clippy::new_without_default, reason = "it belongs into a static")]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            leaves: [const { AtomicPtr::new(ptr::null_mut()) }; MOST_PLACES],
            numbers: [const { AtomicUsize::new(0) }; MOST_LEAVES],
            state: AtomicU8::new(OFF),
            looked: AtomicU32::new(0),
            reached: [const { AtomicUsize::new(0) }; 2],
            salt: AtomicU64::new(0),
            damage: Damage::new(),
        }
    }

    /// Reads the record of a block that has one; `None`: it is damaged.
    ///
    /// # Safety
    /// The block is the caller's.
    #[inline(always)]
    unsafe fn whole(&self, address: usize, now: u32) -> Option<Whole> {
        // SAFETY: the caller's promise.
        let usable = unsafe { usable(address) }?;
        let tail = tail(address, usable);
        // SAFETY: as above.
        let removed = decode(address, usable, unsafe { *tail }, now, self.salt())?;
        Some(Whole { usable, tail, removed })
    }

    #[inline(always)]
    fn salt(&self) -> u64 {
        self.salt.load(Ordering::Relaxed)
    }

    /// Whether any block may have a record.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OFF
    }

    /// Whether blocks get records.
    #[inline(always)]
    pub fn takes(&self) -> bool {
        self.state.load(Ordering::Relaxed) == TAKES
    }

    /// Whether blocks that have records are to move to a table ([`InBand::leave`]).
    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.state.load(Ordering::Relaxed) == LEAVES
    }

    /// Blocks get records from here on, in this generation. The world is paused, and no block has one.
    pub fn begin(&self, now: u32) {
        self.forget_all();
        self.looked.store(now, Ordering::Relaxed);
        self.reach(0, 0);
        self.state.store(TAKES, Ordering::Relaxed);
    }

    /// No more blocks get records, and those that have them are to move to a table, by [`InBand::step`]. The world is paused.
    pub fn leave(&self) {
        self.reach(0, 0);
        self.state.store(LEAVES, Ordering::Relaxed);
    }

    /// No block has a record from here on. The world is paused.
    pub fn end(&self) {
        // In this order: an owner that sees the state gives a block back immediately, and its address must be
        // unknown when it is handed out again.
        self.discard();
        self.state.store(OFF, Ordering::Relaxed);
    }

    /// Starts another pass over old blocks.
    pub fn postpone(&self, now: u32) {
        self.looked.store(now, Ordering::Relaxed);
    }

    fn reach(&self, leaf: usize, unit: usize) {
        let [in_leaves, in_units] = &self.reached;
        in_leaves.store(leaf, Ordering::Relaxed);
        in_units.store(unit, Ordering::Relaxed);
    }

    /// The existing leaves, with their numbers.
    fn known(&self) -> impl Iterator<Item = (usize, *mut Leaf)> {
        let numbers = self
            .numbers
            .iter()
            .map(|number| number.load(Ordering::Acquire))
            .take_while(|number| *number != 0);
        numbers.filter_map(|number| {
            let index = number.wrapping_sub(1);
            Some((index, self.leaves.get(index)?.load(Ordering::Acquire))).filter(|(_, leaf)| !leaf.is_null())
        })
    }

    /// Forgets all records and all damage. The world is paused.
    pub fn forget_all(&self) {
        self.discard();
        self.salt.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        self.damage.forget();
    }

    fn discard(&self) {
        for (_, leaf) in self.known() {
            // Locked memory (mlockall) is not given back.
            if !mmap::discard(leaf.cast(), size_of::<Leaf>()) {
                paused::set_to_nothing(leaf);
            }
        }
    }

    /// Counts damaged records from 0 again.
    pub fn forget_damaged(&self) {
        self.damage.forget_count();
    }

    /// How many records were damaged since the last start or clear: their contents are lost.
    pub fn damaged(&self) -> u64 {
        self.damage.count()
    }

    /// How often, since the last start or clear, a block seemed to be freed or resized without the hook, or
    /// written beyond its end.
    pub fn escapes(&self) -> u64 {
        self.damage.escapes()
    }

    /// Whether it is time to look for blocks that are too old for their records.
    #[inline]
    pub fn is_to_look(&self, now: u32) -> bool {
        self.is_on() && now.wrapping_sub(self.looked.load(Ordering::Relaxed)) >= GENERATIONS
    }

    /// Bytes of memory that the map takes.
    pub fn resident_bytes(&self) -> usize {
        if !self.is_on() {
            return 0;
        }
        self.known().map(|(_, leaf)| mmap::resident(leaf.cast(), size_of::<Leaf>())).sum()
    }

    #[inline(always)]
    fn unit(&self, address: usize) -> Option<&AtomicU8> {
        // SAFETY: null, or a leaf that is never unmapped. The masks keep both indices inside.
        let leaf = unsafe {
            self.leaves[(address >> LEAF_SHIFT) & (MOST_PLACES - 1)].load(Ordering::Acquire).as_ref()
        }?;
        Some(&leaf.0[(address >> UNIT_SHIFT) & (UNITS - 1)])
    }

    /// Whether a block with an in-band record begins there.
    #[inline(always)]
    pub fn has(&self, address: usize) -> bool {
        self.unit(address).is_some_and(|unit| unit.load(Ordering::Relaxed) == mark(address))
    }

    /// No block with an in-band record begins there. Returns whether one did.
    #[inline]
    pub fn forget(&self, address: usize) -> bool {
        self.unit(address).is_some_and(|unit| {
            unit.compare_exchange(mark(address), NOTHING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }

    /// Takes the record of a block while another thread may be reading it, or moving it to a table. `None`:
    /// that thread was first, or the record is missing or damaged.
    ///
    /// # Safety
    /// The block is the caller's.
    pub unsafe fn claim(&self, address: usize, now: u32) -> Option<Removed> {
        if !self.has(address) {
            return None;
        }
        // SAFETY: the caller's promise.
        let Whole { tail, removed, .. } = unsafe { self.whole(address, now) }?;
        if !self.forget(address) {
            return None;
        }
        // SAFETY: as above.
        unsafe { *tail = 0 };
        Some(removed)
    }

    /// Writes the record of a block. `false`: nothing was done, because the block cannot have one, or memory
    /// is needed first ([`InBand::make_room`]), or the address has a record whose block's free was missed.
    ///
    /// # Safety
    /// The block is the caller's, not null, and no other thread knows of it yet.
    #[inline(always)]
    pub unsafe fn put_fast(&self, address: usize, block: &Block) -> bool {
        let Some(unit) = self.unit(address).filter(|unit| unit.load(Ordering::Relaxed) == NOTHING) else {
            return false;
        };
        // SAFETY: the caller's promise.
        let Some(usable) = (unsafe { usable(address) }) else { return false };
        let Some(record) = encode(address, usable, block, self.salt()) else { return false };
        // SAFETY: the last word of the block, for which the caller has asked.
        unsafe { *tail(address, usable) = record };
        unit.store(mark(address), Ordering::Relaxed);
        true
    }

    /// Takes the record of a block that is about to be given back, if `ready` returns something for it. `None`: nothing was
    /// done.
    ///
    /// # Safety
    /// The block is the caller's.
    #[inline(always)]
    pub unsafe fn take_fast<R>(
        &self,
        address: usize,
        now: u32,
        ready: impl FnOnce(&Removed) -> Option<R>,
    ) -> Option<(Removed, R)> {
        let unit = self.unit(address).filter(|unit| unit.load(Ordering::Relaxed) == mark(address))?;
        // SAFETY: the caller's promise.
        let Whole { tail, removed, .. } = unsafe { self.whole(address, now) }?;
        let ready = ready(&removed)?;
        // Otherwise it could look intact to a later block at this address. SAFETY: as above.
        unsafe { *tail = 0 };
        unit.store(NOTHING, Ordering::Relaxed);
        Some((removed, ready))
    }

    /// Takes the record of a block that is about to be given back or moved. A damaged one is counted.
    ///
    /// # Safety
    /// The block is the caller's.
    #[inline]
    pub unsafe fn take(&self, address: usize, now: u32) -> Found {
        if !self.has(address) {
            return Found::Nothing;
        }
        // SAFETY: the caller's promise.
        match unsafe { self.take_fast(address, now, |_| Some(())) } {
            Some((removed, ())) => Found::Whole(removed),
            None => {
                self.forget(address);
                self.damage.found(address);
                Found::Damaged
            }
        }
    }

    /// Takes the record of a block whose free was missed from an address that was handed out again. It is
    /// `Whole` if the new block ends where the old one did, unless an even older record may be left there.
    /// `owns`: the new block is the caller's.
    ///
    /// # Safety
    ///
    /// If `owns`, the caller owns the block.
    #[inline]
    pub unsafe fn take_stale(&self, address: usize, now: u32, owns: bool) -> Found {
        let Some(unit) = self.unit(address).filter(|unit| unit.load(Ordering::Relaxed) != NOTHING) else {
            return Found::Nothing;
        };
        // A block of 32 bytes or more that lies 16 bytes before or behind this one is gone as well.
        let is_same = unit.swap(NOTHING, Ordering::Relaxed) == mark(address);
        let stale = if is_same { address } else { address ^ 1 << HALF_SHIFT };
        self.damage.escaped();
        let is_certain = owns && is_same && !self.damage.may_be_at(address);
        // SAFETY: the caller's promise.
        match is_certain.then(|| unsafe { self.whole(address, now) }).flatten() {
            Some(Whole { removed, .. }) => Found::Whole(removed),
            None => {
                self.damage.found(stale);
                Found::Damaged
            }
        }
    }

    /// A stale record of an earlier block may be left at this address.
    pub fn doubt(&self, address: usize) {
        self.damage.doubt(address);
    }

    /// How many bytes of a block its owner may use: all but the record. `None`: the allocator must be asked.
    ///
    /// # Safety
    /// The block is the caller's.
    #[inline(always)]
    pub unsafe fn usable(&self, address: usize) -> Option<usize> {
        if !self.has(address) {
            return None;
        }
        // SAFETY: the caller's promise.
        let Whole { usable, .. } = unsafe { self.whole(address, 0) }?;
        Some(usable.wrapping_sub(8) as usize)
    }

    /// Reserves the map around an address. `false`: there is no memory.
    #[inline]
    pub fn make_room(&self, address: usize) -> bool {
        self.unit(address).is_some() || self.reserve(address)
    }

    /// Writes a leaf's number down.
    fn list(&self, index: usize) {
        let number = index.wrapping_add(1);
        let is_free = |place: &&AtomicUsize| {
            place.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        // There is a free place: see `reserve`.
        let _ = self.numbers.iter().find(is_free);
    }

    #[cold]
    extern "C" fn reserve(&self, address: usize) -> bool {
        let place = &self.leaves[(address >> LEAF_SHIFT) & (MOST_PLACES - 1)];
        // Some places are left for threads that come here at the same time.
        let is_full = self
            .numbers
            .get(MOST_LEAVES - SPARE_LEAVES)
            .is_none_or(|number| number.load(Ordering::Relaxed) != 0);
        if is_full {
            return false;
        }
        let Some(leaf) = mmap::reserve(size_of::<Leaf>()) else { return false };
        // A huge page would be more than the map of a small heap.
        mmap::advise(leaf.as_ptr(), size_of::<Leaf>(), false);
        let new = leaf.as_ptr().cast();
        match place.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => self.list(address >> LEAF_SHIFT),
            Err(_) => mmap::unreserve(leaf.as_ptr(), size_of::<Leaf>()),
        }
        true
    }
}

#[inline(always)]
fn mark(address: usize) -> u8 {
    1 + (address >> HALF_SHIFT & 1) as u8
}
