//! The bytes of objects, as they stand in a line. Of most objects, they depend on a few words of the slot alone, and those of
//! one kind have few different ones. So the text is kept by these words, and Ruby is asked for each once.

use super::output::Output;
use super::text::Padded;
use super::vm::Vm;
use crate::atlas::{Object, RUBY, types};
use crate::copy::own_memory::slice;

/// What the bytes depend on. All zero for none.
#[derive(Clone, Copy)]
struct Key {
    flags: usize,
    slot_size: usize,
    words: [usize; 2],
}

impl Key {
    /// `None` of what has other memory, of which only Ruby knows.
    #[inline(always)]
    fn of(object: Object, slot_size: usize) -> Option<Self> {
        if object.has_variables_aside() {
            return None;
        }
        let words = match object.kind() {
            types::T_FLOAT => [0, 0],
            types::T_STRING if object.flags & (Object::OUTSIDE | Object::SHARED) == Object::OUTSIDE => {
                [object.capacity(), 0]
            }
            types::T_STRING => [0, 0],
            types::T_ARRAY if object.has(Object::EMBEDDED) => [0, 0],
            types::T_ARRAY => [object.word(2), object.word(3)],
            types::T_OBJECT if object.embeds_variables() => [0, 0],
            // The number of its variables, which may depend on the shape, or on a table.
            types::T_OBJECT if RUBY.shapes.is_none() => [object.word(2), 0],
            types::T_HASH if !object.has(Object::HAS_LARGE_TABLE) => {
                [usize::from(RUBY.embeds_hashes || object.word(2) != 0), 0]
            }
            _ => return None,
        };
        Some(Self { flags: object.flags & Object::OF_TYPE, slot_size, words })
    }

    #[inline(always)]
    fn place(self) -> usize {
        let [one, other] = self.words;
        (self.flags ^ self.flags >> 12 ^ self.slot_size >> 3 ^ one ^ one >> 6 ^ other) & (Sizes::COUNT - 1)
    }

    /// One word after the other, as `heads::Key::is` does.
    #[inline(always)]
    fn is(self, other: Self) -> bool {
        self.flags == other.flags
            && self.slot_size == other.slot_size
            && self.words[0] == other.words[0]
            && self.words[1] == other.words[1]
    }
}

#[derive(Clone, Copy)]
struct Size {
    key: Key,
    text: Padded<{ Sizes::LONGEST }>,
}

/// Kept texts.
pub(super) struct Sizes(&'static mut [Size]);

impl Sizes {
    /// A power of two.
    const COUNT: usize = 256;
    const LONGEST: usize = 32;
    const USUAL: usize = 32;

    /// `None` without memory.
    pub(super) fn new() -> Option<Self> {
        Some(Self(slice(Self::COUNT)?))
    }

    /// Writes the member of the line, if there is one.
    #[inline(always)]
    pub(super) fn write(&mut self, object: Object, slot_size: usize, vm: &Vm, out: &mut Output<'_>) {
        if let Some(key) = Key::of(object, slot_size)
            && let Some(size) = self.0.get(key.place()).filter(|size| size.key.is(key))
        {
            return out.padded::<{ Self::LONGEST }, { Self::USUAL }>(&size.text);
        }
        self.ask(object, slot_size, vm, out);
    }

    #[inline(never)]
    fn ask(&mut self, object: Object, slot_size: usize, vm: &Vm, out: &mut Output<'_>) {
        // SAFETY: an object of the heap.
        let memsize = unsafe { (vm.functions.memsize)(object.value()) };
        if memsize == 0 {
            return;
        }
        let mut digits = [0; 20];
        let count = super::text::decimal(&mut digits, memsize as u64);
        let mut text = Padded::EMPTY;
        text.add(b", \"memsize\":");
        text.add(digits.get(..count).unwrap_or_default());
        out.bytes(text.text());
        if let Some(key) = Key::of(object, slot_size)
            && let Some(place) = self.0.get_mut(key.place())
        {
            *place = Size { key, text };
        }
    }
}
