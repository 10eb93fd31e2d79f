//! Objects that point to structures of C: fibers, which have stacks, and those of extensions, which may own more than they
//! tell Ruby.

use memintro_analysis::account::claims::Search;
use memintro_analysis::account::lines::Word;

use super::answer::AnswerWriter;
use super::frozen::{Frozen, read};
use super::objects::HeapPage;
use crate::copy::own_memory::slice;
use crate::heap::{DataObject, Vm};

/// Words of a fiber's structure in which the address of its stack is looked for.
const FIBER_WORDS: usize = 160;
/// Words of an enumerator's structure; one of them is its fiber.
const ENUMERATOR_WORDS: usize = 12;
/// Blocks that were found and not looked into yet: memory that is reserved, not taken.
const MOST_WAITING: usize = 1 << 22;
/// Classes that are distinguished, and those that are written.
const MOST_CLASSES: usize = 1 << 12;
const LISTED: usize = 20;
/// Where in its slot an object has the address of its structure, or the structure itself.
const DATA_AT: usize = 4 * 8;

/// Visits all objects that point to a structure.
fn each(list: &[HeapPage], frozen: &Frozen<'_>, mut visit: impl FnMut(HeapPage, usize, DataObject)) {
    for page in list {
        for slot in page.slots() {
            if frozen.space.area(slot).is_some()
                && let Some(object) = page.data(slot)
            {
                visit(*page, slot, object);
            }
        }
    }
}

/// Writes how many fibers have a stack, and for how many of them an enumerator runs in it.
pub(super) fn fibers(list: &[HeapPage], frozen: &Frozen<'_>, answer: &mut AnswerWriter<'_>) {
    let words = |start: usize, count: usize| {
        (0..count).map_while(move |place| frozen.word(start.checked_add(place * 8)?))
    };
    let has_stack = |object: &DataObject| {
        object.data != 0
            && words(object.data, FIBER_WORDS).any(|word| frozen.is_stack_of_fiber(word as usize))
    };
    let is_fiber = |slot: usize| {
        let place = list.partition_point(|page| page.end <= slot);
        list.get(place)
            .filter(|page| page.start <= slot && (slot - page.start).is_multiple_of(page.stride))
            .and_then(|page| page.data(slot))
            .is_some_and(|object| object.type_name == b"fiber" && has_stack(&object))
    };
    let (mut all, mut of_enumerators) = (0, 0);
    each(list, frozen, |_, slot, object| match object.type_name {
        b"fiber" => all += u64::from(has_stack(&object)),
        b"enumerator" => {
            // From 3.3 on, its structure is in the slot.
            let start = if object.data == 0 { slot + DATA_AT } else { object.data };
            let holds = words(start, ENUMERATOR_WORDS).any(|word| is_fiber(word as usize));
            of_enumerators += u64::from(holds);
        }
        _ => {}
    });
    answer.add("fibers", &[all, of_enumerators].map(Word::Number));
}

/// Objects with one name.
#[derive(Clone, Copy, Default)]
struct Kind {
    name: &'static [u8],
    objects: u64,
    blocks: u64,
    bytes: u64,
}

impl Kind {
    fn words(&self) -> [Word<'_>; 4] {
        [
            Word::Number(self.objects),
            Word::Number(self.blocks),
            Word::Number(self.bytes),
            Word::Text(self.name),
        ]
    }
}

/// Writes which blocks that have no owner objects lead to, by class: their extensions do not tell Ruby of them. The VM's own
/// structures, which lead to all that Ruby has, are left out.
pub(super) fn reached(
    list: &[HeapPage],
    frozen: &Frozen<'_>,
    search: &mut Search<'_, '_>,
    vm: Vm,
    answer: &mut AnswerWriter<'_>,
) {
    let (Some(room), Some(kinds)) = (slice(MOST_WAITING), slice::<Kind>(MOST_CLASSES)) else { return };
    let (mut used, mut all) = (0, Kind::default());
    // Nothing else can be read here than slots, which are resident, and chunks that were walked over.
    // SAFETY: see above.
    let word = |at: usize| Some(unsafe { read(at) });
    each(list, frozen, |page, slot, object| {
        if object.type_name.starts_with(b"VM") || matches!(object.type_name, b"fiber" | b"ractor") {
            return;
        }
        let start = slot + DATA_AT;
        let end = if object.data == 0 { slot + page.stride } else { start + 8 };
        let found = search.reach((start, end), room, word);
        if found.blocks == 0 {
            return;
        }
        let name = vm.class_name(slot).unwrap_or(object.type_name);
        let name = if name.is_empty() { b"(hidden T_DATA)" } else { name };
        let place = kinds.get(..used).and_then(|known| known.iter().position(|kind| kind.name == name));
        let place = place.unwrap_or_else(|| {
            used = MOST_CLASSES.min(used + 1);
            used - 1
        });
        for kind in kinds.get_mut(place).into_iter().chain([&mut all]) {
            if kind.objects == 0 {
                kind.name = name;
            }
            kind.objects += 1;
            kind.blocks += found.blocks;
            kind.bytes += found.resident;
        }
    });
    answer.add("reached_all", &[all.objects, all.blocks, all.bytes].map(Word::Number));
    let Some(kinds) = kinds.get_mut(..used) else { return };
    kinds.sort_unstable_by_key(|kind| std::cmp::Reverse(kind.bytes));
    for kind in kinds.iter().take(LISTED) {
        answer.add("reached", &kind.words());
    }
}
