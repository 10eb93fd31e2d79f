//! What the collector knows of an object, as it stands at the end of a line.
//!
//! Ruby tells it by `rb_obj_gc_flags`, which takes a tenth of the time of a line. It reads bits in a record of the page, whose
//! places are looked for in the copy: bits are changed there one by one, and put back, and the one that changes a flag is the
//! one that is meant. No other process sees this memory. Where a place is not found, Ruby is asked for each object.

use rb_sys::ID;

use super::output::Output;
use super::slot::Object;
use super::text::Padded;
use super::vm::Vm;
use crate::copy::own_memory::slice;
use crate::heap::FrozenPage;
use crate::vm::Probe;

/// Most flags that an object has, and the bytes of all of them.
const MOST: usize = 8;
const LONGEST: usize = 160;

/// Texts of flags, by the bits.
pub(super) struct Flags {
    bits: Option<Bits>,
    texts: &'static mut [Padded<LONGEST>],
    /// Where bits are not known: the flags of the object before. Most objects have the same.
    recent: [ID; MOST],
    count: usize,
    text: Padded<LONGEST>,
}

impl Flags {
    /// In the copy. `None` without memory.
    pub(super) fn new(vm: &Vm, pages: &[FrozenPage]) -> Option<Self> {
        let (texts, recent) = (slice(1 << (1 + BITMAPS))?, [ID::MAX; MOST]);
        Some(Self { bits: Bits::find(vm, pages), texts, recent, count: usize::MAX, text: Padded::EMPTY })
    }

    /// Writes the end of the line.
    #[inline(always)]
    pub(super) fn write(&mut self, object: Object, vm: &Vm, out: &mut Output<'_>) {
        if let Some(bits) = &self.bits
            && let Some(text) = self.texts.get(bits.of(object)).filter(|text| text.length() > 0)
        {
            return out.padded::<LONGEST, 96>(text);
        }
        self.ask(object, vm, out);
    }

    #[inline(never)]
    fn ask(&mut self, object: Object, vm: &Vm, out: &mut Output<'_>) {
        let (found, count) = ask(object, vm);
        if count != self.count || found != self.recent {
            self.count = count;
            self.recent = found;
            self.text = text(found.get(..count).unwrap_or_default(), vm);
        }
        out.bytes(self.text.text());
        if let Some(bits) = &self.bits
            && let Some(place) = self.texts.get_mut(bits.of(object))
        {
            *place = self.text;
        }
    }
}

/// The flags of an object, and how many there are.
fn ask(object: Object, vm: &Vm) -> ([ID; MOST], usize) {
    let mut found = [0; MOST];
    // SAFETY: an object of the heap, and room for so many.
    let count = unsafe { (vm.functions.gc_flags)(object.value(), found.as_mut_ptr(), found.len()) };
    (found, count.min(MOST))
}

fn text(flags: &[ID], vm: &Vm) -> Padded<LONGEST> {
    let mut text = Padded::EMPTY;
    for (index, id) in flags.iter().enumerate() {
        text.add(if index == 0 { b", \"flags\":{" } else { b", " });
        if let Some((_, flag)) = vm.flags.iter().find(|(known, _)| known == id) {
            text.add(flag);
        }
    }
    text.add(if flags.is_empty() { b"}\n" } else { b"}}\n" });
    text
}

/// Bitmaps of a page: one for each flag but that of old objects, which is in the slot. Since 3.3, there is another one, of
/// which not all versions tell.
const BITMAPS: usize = if cfg!(ruby_gte_3_3) { 6 } else { 5 };
const TOLD: usize = 5;
/// Pages begin at multiples of this.
const PAGE: usize = if cfg!(ruby_gte_3_3) { 64 << 10 } else { 16 << 10 };
/// Bytes of the smallest slot: a bit stands for so many.
const SLOT: usize = 40;
/// Words of a bitmap, and of a page's record in front of them.
const WORDS: usize = (PAGE / SLOT).div_ceil(BITS);
const HEADER: usize = 8;
const BITS: usize = usize::BITS as usize;
/// The flag of old objects has all of these.
const OLD: usize = if cfg!(ruby_gte_3_3) { 1 << 5 } else { 3 << 5 };

/// Where the bits of objects are.
struct Bits {
    /// Bytes from a page's record to each bitmap.
    offsets: [usize; BITMAPS],
}

impl Bits {
    /// `None` where this Ruby has them elsewhere.
    fn find(vm: &Vm, pages: &[FrozenPage]) -> Option<Self> {
        if !cfg!(all(target_pointer_width = "64", ruby_lte_3_4)) || cfg!(all(ruby_gte_3_2, not(ruby_gte_3_3)))
        {
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
        let first = offsets[0];
        offsets.iter_mut().skip(found).for_each(|offset| *offset = first);
        (found >= TOLD && is_old_told(near, vm)?).then_some(Self { offsets })
    }

    /// What tells the flags of an object.
    #[inline(always)]
    fn of(&self, object: Object) -> usize {
        let (record, index) = (record(object.address), index(object.address));
        let word = index / BITS * size_of::<usize>();
        let mut bits = usize::from(object.has(OLD));
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

/// The flags of an object, a bit for each that the VM has. `None` for one that is not known.
fn flags_of(slot: usize, vm: &Vm) -> Option<u32> {
    // SAFETY: a slot with an object.
    let (found, count) = ask(unsafe { Object::read(slot) }, vm);
    let number = |id: &ID| vm.flags.iter().position(|(known, _)| known == id);
    found.iter().take(count).try_fold(0, |all, id| Some(all | 1 << number(id)?))
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
    let number = vm.flags.iter().position(|(_, text)| text.starts_with(b"\"old\""))?;
    // SAFETY: a slot with an object.
    let flags = unsafe { Object::read(slot) }.flags & BOTH;
    for set in [0, 1 << 5, 2 << 5, BOTH] {
        let is_old = with(slot, flags ^ set, || flags_of(slot, vm))? >> number & 1 == 1;
        if is_old != (set & OLD == OLD) {
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
