//! What the collector knows of an object, as it stands at the end of a line.
//!
//! Ruby tells it by a function ([`GcFlags`]), which takes a tenth of the time of a line. It reads bits in a record of the page,
//! whose places are looked for in the copy: bits are changed there one by one, and put back, and the one that changes a flag is
//! the one that is meant. No other process sees this memory. Where a place is not found, Ruby is asked for each object.

use rb_sys::{ID, VALUE};

use super::output::Output;
use super::text::{Padded, decimal};
use super::vm::Vm;
use crate::atlas::{self, GcFlag, GcFlags, IS_KNOWN, Object, RUBY};
use crate::copy::own_memory::slice;
use crate::heap::FrozenPage;
use crate::vm::Probe;

/// Bytes of the text of all flags.
const LONGEST: usize = 288;

/// Texts of flags, by the bits.
pub(super) struct Flags {
    bits: Option<Bits>,
    texts: &'static mut [Padded<LONGEST>],
    /// Where bits are not known: the flags of the object before. Most objects have the same.
    recent: Found,
    text: Padded<LONGEST>,
}

/// Flags of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Found {
    flags: [GcFlag; GcFlags::MOST],
    count: usize,
}

impl Found {
    fn of(object: Object, vm: &Vm) -> Self {
        let mut found = Self { flags: [GcFlag::NONE; GcFlags::MOST], count: 0 };
        // SAFETY: an object of the heap.
        unsafe {
            vm.functions.gc_flags.each(object.value(), |flag| {
                if let Some(place) = found.flags.get_mut(found.count) {
                    *place = flag;
                    found.count += 1;
                }
            });
        }
        found
    }

    fn each(&self) -> impl Iterator<Item = &GcFlag> {
        self.flags.iter().take(self.count)
    }

    fn text(&self, vm: &Vm) -> Padded<LONGEST> {
        let mut text = Padded::EMPTY;
        for (index, flag) in self.each().enumerate() {
            text.add(if index == 0 { b", \"flags\":{\"" } else { b", \"" });
            // SAFETY: a name that Ruby has answered.
            let name = unsafe { (vm.functions.name_of)(flag.name) };
            if atlas::is_string(name) {
                // SAFETY: a string of the heap.
                text.add(unsafe { Object::read(name as usize) }.string());
            }
            text.add(b"\":");
            add_value(&mut text, flag.value);
        }
        text.add(if self.count == 0 { b"}\n" } else { b"}}\n" });
        text
    }
}

fn add_value(text: &mut Padded<LONGEST>, value: VALUE) {
    if value & 1 == 1 {
        let mut digits = [0; 20];
        let count = decimal(&mut digits, (value.cast_signed() >> 1).unsigned_abs());
        text.add(digits.get(..count).unwrap_or_default());
    } else {
        text.add(match value {
            _ if value == rb_sys::Qtrue as VALUE => b"true",
            _ if value == rb_sys::Qfalse as VALUE => b"false",
            _ => b"null",
        });
    }
}

impl Flags {
    /// In the copy. `None` without memory.
    pub(super) fn new(vm: &Vm, pages: &[FrozenPage]) -> Option<Self> {
        let recent = Found { flags: [GcFlag::NONE; GcFlags::MOST], count: usize::MAX };
        Some(Self { bits: Bits::find(vm, pages), texts: slice(1 << ALL_BITS)?, recent, text: Padded::EMPTY })
    }

    /// Writes the end of the line.
    #[inline(always)]
    pub(super) fn write(&mut self, object: Object, vm: &Vm, out: &mut Output<'_>) {
        if let Some(bits) = &self.bits
            && !has_number(object)
            && let Some(text) = self.texts.get(bits.of(object)).filter(|text| text.length() > 0)
        {
            return out.padded::<LONGEST, 96>(text);
        }
        self.ask(object, vm, out);
    }

    #[inline(never)]
    fn ask(&mut self, object: Object, vm: &Vm, out: &mut Output<'_>) {
        let found = Found::of(object, vm);
        if found != self.recent {
            self.recent = found;
            self.text = found.text(vm);
        }
        out.bytes(self.text.text());
        if let Some(bits) = self.bits.as_ref().filter(|_| !has_number(object))
            && let Some(place) = self.texts.get_mut(bits.of(object))
        {
            *place = self.text;
        }
    }
}

/// Whether its number is among its flags, which no other object has.
#[inline(always)]
fn has_number(object: Object) -> bool {
    RUBY.has_ages_in_record && object.has_object_id()
}

/// Bitmaps of a page: one for each flag but that of old objects.
const BITMAPS: usize = RUBY.bitmaps;
const TOLD: usize = 5;
/// Bits that tell the flags of an object: of bitmaps, of its age, and of those in the slot.
const ALL_BITS: usize = BITMAPS + 3;
const PAGE: usize = RUBY.page_bytes;
/// Bytes of the smallest slot: a bit stands for so many.
const SLOT: usize = 40;
/// Words of a bitmap, and of a page's record in front of them.
const WORDS: usize = (PAGE / SLOT).div_ceil(BITS);
const HEADER: usize = 8;
const BITS: usize = usize::BITS as usize;

/// Where the bits of objects are.
struct Bits {
    /// Bytes from a page's record to each bitmap.
    offsets: [usize; BITMAPS],
    /// The same to the ages, which have two bits each.
    ages: usize,
}

impl Bits {
    /// `None` where this Ruby has them elsewhere.
    fn find(vm: &Vm, pages: &[FrozenPage]) -> Option<Self> {
        if !IS_KNOWN {
            return None;
        }
        let page = pages.iter().find(|page| page.start % PAGE < SLOT * 8)?;
        let mut objects = page.slots().filter(|slot| page.is_object(*slot));
        // One whose bit is in the first word, and one whose is in another.
        let near = objects.next().filter(|slot| index(*slot) < BITS)?;
        let far = objects.find(|slot| index(*slot) >= BITS)?;
        let record = record(near);
        // The first word is the record's, which knows where the slots begin.
        let probe = Probe::new()?;
        if probe.words::<1>(near & !(PAGE - 1))? != [record]
            || !probe.words::<HEADER>(record)?.contains(&page.start)
        {
            return None;
        }
        let (mut offsets, mut found) = ([0; BITMAPS], 0);
        let mut known = 0;
        for word in HEADER..HEADER + BITMAPS * WORDS {
            let changed = change(record + word * size_of::<usize>(), near, vm)?;
            if changed == 0 {
                continue;
            }
            // One flag, which no other bit changes.
            if !changed.is_power_of_two() || known & changed != 0 {
                return None;
            }
            known |= changed;
            *offsets.get_mut(found)? = word * size_of::<usize>();
            found += 1;
            let at = record + (word + index(far) / BITS) * size_of::<usize>();
            if change(at, far, vm)? != changed {
                return None;
            }
        }
        // A place that is not used has the first one's.
        let [first, .., last] = offsets;
        let ages = last + WORDS * size_of::<usize>();
        offsets.iter_mut().skip(found).for_each(|offset| *offset = first);
        let found_all = if RUBY.has_ages_in_record {
            found == BITMAPS && [near, far].iter().all(|slot| are_ages_told(*slot, ages, vm) == Some(true))
        } else {
            found >= TOLD && is_old_told(near, vm)?
        };
        found_all.then_some(Self { offsets, ages })
    }

    /// What tells the flags of an object.
    #[inline(always)]
    fn of(&self, object: Object) -> usize {
        let (record, index) = (record(object.address), index(object.address));
        let word = index / BITS * size_of::<usize>();
        let mut bits = if RUBY.has_ages_in_record {
            let (place, shift) = place_of_age(object.address, self.ages);
            // SAFETY: within the record of the object's page.
            let word = unsafe { std::ptr::with_exposed_provenance::<usize>(place).read() };
            (word >> shift & AGE) << 1 | usize::from(object.is_shareable())
        } else {
            usize::from(object.is_old())
        };
        for offset in self.offsets {
            // SAFETY: within the record of the object's page.
            let word = unsafe { std::ptr::with_exposed_provenance::<usize>(record + offset + word).read() };
            bits = bits << 1 | (word >> (index % BITS) & 1);
        }
        bits
    }
}

/// The record of the page that a slot is in.
#[inline(always)]
fn record(slot: usize) -> usize {
    // SAFETY: the first word of a page of the heap.
    unsafe { std::ptr::with_exposed_provenance::<usize>(slot & !(PAGE - 1)).read() }
}

#[inline(always)]
const fn index(slot: usize) -> usize {
    slot % PAGE / SLOT
}

/// The bits of an age.
const AGE: usize = 3;

/// The word with the age of an object, and the number of bits before it.
#[inline(always)]
fn place_of_age(slot: usize, ages: usize) -> (usize, usize) {
    const A_WORD: usize = BITS / 2;
    let index = index(slot);
    (record(slot) + ages + index / A_WORD * size_of::<usize>(), index % A_WORD * 2)
}

/// The flags of an object, a bit for each that the VM has. `None` for one that is not known.
fn flags_of(slot: usize, vm: &Vm) -> Option<u32> {
    // SAFETY: a slot with an object.
    let found = Found::of(unsafe { Object::read(slot) }, vm);
    let number = |id: &ID| vm.flags.iter().position(|known| known == id);
    found.each().try_fold(0, |all, flag| Some(all | 1 << number(&flag.name)?))
}

/// Which flags of an object change with the object's bit of this word.
fn change(word: usize, slot: usize, vm: &Vm) -> Option<u32> {
    with(word, 1 << (index(slot) % BITS), || flags_of(slot, vm))
        .zip(flags_of(slot, vm))
        .map(|(one, other)| one ^ other)
}

/// Whether an object is old if all bits for that are set, and only then.
fn is_old_told(slot: usize, vm: &Vm) -> Option<bool> {
    const BOTH: usize = 3 << 5;
    // SAFETY: a slot with an object.
    let flags = unsafe { Object::read(slot) }.flags & BOTH;
    for set in [0, 1 << 5, 2 << 5, BOTH] {
        let is_old = with(slot, flags ^ set, || flags_of(slot, vm))? & Vm::OLD != 0;
        if is_old != (set & RUBY.old == RUBY.old) {
            return Some(false);
        }
    }
    Some(true)
}

/// Whether Ruby tells the ages of an object that are in this place, and calls it old at the last of them only.
fn are_ages_told(slot: usize, ages: usize, vm: &Vm) -> Option<bool> {
    let (place, shift) = place_of_age(slot, ages);
    // SAFETY: a slot with an object.
    let object = unsafe { Object::read(slot) };
    let [word] = Probe::new()?.words::<1>(place)?;
    for age in 0..=AGE {
        let found = with(place, ((word >> shift & AGE) ^ age) << shift, || Found::of(object, vm));
        let is_told = |name: usize, value: usize| {
            found.each().any(|flag| Some(&flag.name) == vm.flags.get(name) && flag.value == value as VALUE)
        };
        let is_old = is_told(Vm::OLD.trailing_zeros() as usize, rb_sys::Qtrue as usize);
        if !is_told(Vm::AGE, age << 1 | 1) || is_old != (age == AGE) {
            return Some(false);
        }
    }
    Some(true)
}

/// Runs this while these bits of a word are changed. Only the copy has this word.
fn with<T>(word: usize, bits: usize, run: impl FnOnce() -> T) -> T {
    let place = std::ptr::with_exposed_provenance_mut::<usize>(word);
    // SAFETY: a word of the heap of this copy, which no other code uses, and which is put back.
    unsafe {
        let before = place.read_volatile();
        place.write_volatile(before ^ bits);
        let answer = run();
        place.write_volatile(before);
        answer
    }
}
