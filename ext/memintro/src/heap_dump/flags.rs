//! What the collector knows of an object, as it stands at the end of a line.

use rb_sys::ID;

use super::output::Output;
use super::slot::Object;
use super::text::Padded;
use super::vm::Vm;

/// Most flags that an object has, and the bytes of all of them.
const MOST: usize = 8;
const LONGEST: usize = 160;

/// The flags of the object before: most objects have the same.
pub(super) struct Flags {
    recent: [ID; MOST],
    count: usize,
    text: Padded<LONGEST>,
}

impl Flags {
    pub(super) const NONE: Self = Self { recent: [ID::MAX; MOST], count: usize::MAX, text: Padded::EMPTY };

    /// Writes the end of the line.
    #[inline(always)]
    pub(super) fn write(&mut self, object: Object, vm: &Vm, out: &mut Output<'_>) {
        let mut found = [0; MOST];
        // SAFETY: an object of the heap, and room for so many.
        let count = unsafe { (vm.functions.gc_flags)(object.value(), found.as_mut_ptr(), found.len()) };
        if count != self.count || !is_same(&found, &self.recent, count) {
            self.count = count;
            self.recent = found;
            self.text = text(found.get(..count).unwrap_or_default(), vm);
        }
        out.padded::<LONGEST, 96>(&self.text);
    }
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

/// One after the other, as `slot::Key::is` does.
#[inline(always)]
fn is_same(found: &[ID; MOST], recent: &[ID; MOST], count: usize) -> bool {
    let mut at = 0;
    while at < count && at < MOST {
        if found[at] != recent[at] {
            return false;
        }
        at += 1;
    }
    true
}
