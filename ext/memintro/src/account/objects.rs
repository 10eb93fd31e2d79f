//! Ruby's heap in the copy: which of its pages' bytes hold objects, and what objects own outside.

use std::cell::Cell;
use std::ops::ControlFlow;

use memintro_analysis::account::PAGE;
use memintro_analysis::account::claims::{Found, Search};
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::owners::Owner;
use memintro_analysis::account::space::{Area, Space};

use super::answer::AnswerWriter;
use super::data_objects;
use super::frozen::{Frozen, prefetch, read};
use crate::atlas::types::{self, T_ICLASS, T_IMEMO};
use crate::atlas::{Object, RUBY};
use crate::heap::{FrozenPage, Trouble, Vm};

/// Heap pages begin at multiples of a power of two: 16 KiB in Ruby 3.1, 64 KiB since 3.2. It is the least one in
/// which the slots of the fullest page have room.
pub(crate) fn body_bytes(list: &[HeapPage]) -> usize {
    list.iter().map(|page| page.end - page.start).max().unwrap_or(0).next_power_of_two().max(PAGE)
}

/// Words of a page's description in which the address of its first slot is looked for.
const WORDS: usize = 16;
/// The first slot comes this soon.
const FIRST_SLOT: usize = 512;

/// `struct heap_page` has 0.3 to 1.3 KiB.
const DESCRIPTION: u64 = 2048;
/// The kind of a method's entry among imemos; and the most that a method's definition has.
const METHOD: usize = 6;
const DEFINITION: u64 = 128;

pub(crate) type HeapPage = FrozenPage;

/// The pages of Ruby's heap, listed under the GVL.
pub(crate) fn heap_pages() -> Result<Vec<HeapPage>, Trouble> {
    let mut pages = Vec::new();
    crate::heap::list_pages(|page| {
        pages.push(page);
        ControlFlow::Continue(())
    })?;
    pages.sort_unstable_by_key(|page| page.start);
    Ok(pages)
}

/// Claims the pages of Ruby's heap, empty ones included.
pub(crate) fn pages(list: &[HeapPage], frozen: &mut Frozen<'_>, answer: &mut AnswerWriter<'_>) {
    let body_bytes = body_bytes(list);
    let (mut live, mut free) = (0, 0);
    for page in list {
        let body = page.start & !(body_bytes - 1);
        let all = frozen.space.resident(body, body + body_bytes);
        let head = frozen.space.resident(body, page.start);
        let mut taken = 0;
        for slot in page.slots() {
            // A slot that is not resident holds no object, or one that was swapped out.
            if frozen.space.is_resident(slot) && page.is_taken(slot) {
                taken += frozen.space.resident(slot, slot + page.stride);
            }
        }
        let claimed = frozen.space.claim(body, body + body_bytes);
        // The head of a page is there for its objects.
        let head = if taken > 0 { head } else { 0 };
        live += (taken + head).min(all);
        free += claimed.saturating_sub((taken + head).min(all));
    }
    answer.figure("heap_live", live);
    answer.figure("heap_free", free);
    let (count, empty) = empty_pages(list, frozen);
    answer.add("heap_empty", &[Word::Number(count), Word::Number(empty)]);
    answer.figure("heap_pages", list.len() as u64);
}

/// How a page of Ruby's heap is known. It begins with the address of its description, which has the address of the first
/// slot at the same place for all pages.
#[derive(Clone)]
pub(super) struct Form {
    body_bytes: usize,
    place: usize,
    /// Where the description before was: most are in one area.
    last: Cell<Area>,
}

impl Form {
    /// As the page of this object shows.
    pub(super) fn of_object(space: &Space<'_>, object: usize) -> Option<Self> {
        Self::of_page(space, RUBY.page_bytes, object)
    }

    fn of_page(space: &Space<'_>, body_bytes: usize, object: usize) -> Option<Self> {
        let body = object & !(body_bytes - 1);
        space.area(body).filter(|area| area.holds(body, body + 8))?;
        // SAFETY: within a readable mapping of this process, in which nothing else runs.
        let description = unsafe { read(body) } as usize;
        (0..WORDS)
            .map(|word| Self { body_bytes, place: word * 8, last: Cell::default() })
            .find(|form| form.is_described(space, body, description, object))
    }

    /// Whether the description is that of the page at this address, and its first slot is not after `most`.
    fn is_described(&self, space: &Space<'_>, body: usize, description: usize, most: usize) -> bool {
        let Some(at) = description.checked_add(self.place).filter(|at| at.is_multiple_of(8)) else {
            return false;
        };
        if !self.last.get().holds(at, at.saturating_add(8)) {
            let Some(area) = space.area(at).filter(|area| area.holds(at, at.saturating_add(8))) else {
                return false;
            };
            self.last.set(*area);
        }
        // SAFETY: within a readable mapping of this process, in which nothing else runs.
        let first = unsafe { read(at) } as usize;
        body < first && first - body < FIRST_SLOT && first <= most
    }

    /// Where the page of Ruby's heap ends that begins at this page of the area, if one does. Those that follow are fetched
    /// meanwhile.
    pub(super) fn end_of_page(&self, space: &Space<'_>, area: &Area, body: usize) -> Option<usize> {
        const AHEAD: usize = 6;
        if body & (self.body_bytes - 1) != 0 || self.body_bytes > area.end - body {
            return None;
        }
        // SAFETY: within a readable mapping of this process, in which nothing else runs.
        let word = |at: usize| unsafe { read(at) } as usize;
        prefetch(body + 2 * AHEAD * self.body_bytes);
        let ahead = body + AHEAD * self.body_bytes;
        if area.holds(ahead, ahead + 8) && space.resident_in(area, ahead, ahead + 8) > 0 {
            prefetch(word(ahead).wrapping_add(self.place));
        }
        self.is_described(space, body, word(body), usize::MAX).then_some(body + self.body_bytes)
    }
}

/// Pages without objects are not in the list.
fn empty_pages(list: &[HeapPage], frozen: &mut Frozen<'_>) -> (u64, u64) {
    let known = list.first().map(|page| page.start);
    let body_bytes = body_bytes(list);
    let Some(form) = known.and_then(|start| Form::of_page(&frozen.space, body_bytes, start)) else {
        return (0, 0);
    };
    let (mut count, mut bytes) = (0, 0);
    for area in frozen.space.areas() {
        let mut from = area.start;
        while let Some(page) = frozen.space.next_resident(area, from) {
            // Its first page is read, and so is resident where it is one of Ruby's.
            let body = page.next_multiple_of(body_bytes);
            from = page + PAGE;
            if page == body && form.end_of_page(&frozen.space, area, body).is_some() {
                count += 1;
                bytes += frozen.space.claim(body, body + body_bytes);
            }
        }
    }
    (count, bytes)
}

#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    /// Bytes that they say they own outside of their slots, rounded up as malloc does.
    bytes: u64,
    /// Resident bytes of their blocks that were found.
    found: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64, found: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.found += found;
    }

    fn words<'a>(&self, name: &'a [u8]) -> [Word<'a>; 4] {
        [Word::Number(self.count), Word::Number(self.bytes), Word::Number(self.found), Word::Text(name)]
    }
}

/// Which pages of Ruby's heap are this process's own, at least in part, though others are shared: how many there are, those
/// of them with free slots, and the objects on them. Called before pages are claimed, where only shared ones count.
pub(super) fn aged(list: &[HeapPage], frozen: &Frozen<'_>, answer: &mut AnswerWriter<'_>) {
    let body_bytes = body_bytes(list);
    let (mut pages, mut with_free, mut old, mut young) = (0, 0, 0, 0);
    for page in list {
        let body = page.start & !(body_bytes - 1);
        let is_own = (body..body + body_bytes)
            .step_by(PAGE)
            .any(|at| frozen.space.is_resident(at) && frozen.space.resident(at, at + PAGE) == 0);
        if !is_own {
            continue;
        }
        let mut has_free = false;
        for slot in page.slots().filter(|slot| frozen.space.is_resident(*slot)) {
            match page.is_old(slot) {
                Some(true) => old += 1,
                Some(false) => young += 1,
                None => has_free = true,
            }
        }
        pages += 1;
        with_free += u64::from(has_free);
    }
    answer.add("own_pages", &[list.len() as u64, pages, with_free, old, young].map(Word::Number));
}

/// Whether more is asked than sizes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Details {
    /// What fibers and objects of extensions lead to.
    All,
    /// No.
    Sizes,
}

/// What objects own outside of their slots, by type; of internal ones, by kind. Asks Ruby, which only reads.
///
/// Where malloc's chunks are known, the blocks of each object are looked for, by its pointers.
///
/// `own_code`: the folder of memintro's own.
pub(super) fn sizes(
    list: &[HeapPage],
    frozen: &mut Frozen<'_>,
    (details, own_code): (Details, &[u8]),
    answer: &mut AnswerWriter<'_>,
) {
    let Some(vm) = Vm::get() else { return };
    if details == Details::All {
        data_objects::fibers(list, frozen, answer);
    }
    let (owners, malloc) = (frozen.owners.take(), frozen.malloc.take());
    let mut both = owners.zip(malloc);
    let mut search = both.as_mut().map(|(owners, pages)| Search::new(owners, pages));
    if let Some(search) = &mut search {
        descriptions(list, frozen, search, answer);
    }
    let mut types = [Sum::default(); 32];
    let mut kinds = [Sum::default(); 16];
    let mut own = Sum::default();
    for page in list {
        for slot in page.slots() {
            if frozen.space.area(slot).is_none() || !page.is_object(slot) {
                continue;
            }
            let (object, owned) = vm.object(slot, page.stride as u64);
            let sum = match object.kind() {
                T_IMEMO => kinds.get_mut(object.imemo_kind()),
                kind => types.get_mut(kind),
            };
            let Some(sum) = sum else { continue };
            let bytes = as_chunk(owned);
            let found =
                search.as_mut().map_or(0, |search| blocks(search, page.stride, (object, owned), vm).resident);
            sum.add(bytes, found);
            if vm.is_iseq(object) && is_own(vm.path_of_code(slot), own_code) {
                own.add(bytes, found);
            }
        }
    }
    for (kind, sum) in types.iter().enumerate().filter(|(_, sum)| sum.count > 0) {
        let name = types::name(kind).as_bytes();
        answer.add("type", &sum.words(name));
    }
    for (kind, sum) in kinds.iter().enumerate().filter(|(_, sum)| sum.count > 0) {
        let name = vm.imemo_name(kind);
        answer.add("imemo", &sum.words(name));
    }
    answer.add("own_code", &[own.count, own.bytes, own.found].map(Word::Number));
    answer.figure("searched", u64::from(search.is_some()));
    if let (Some(search), Details::All) = (&mut search, details) {
        data_objects::reached(list, frozen, search, vm, answer);
    }
    frozen.owners = both.map(|(owners, _)| owners);
}

/// Whether code is of a file in this folder, or of the file that is named like it.
fn is_own(path: Option<&[u8]>, folder: &[u8]) -> bool {
    let rest = path.and_then(|path| path.strip_prefix(folder)).filter(|_| !folder.is_empty());
    rest.is_some_and(|rest| rest.starts_with(b"/") || rest == b".rb")
}

/// What the VM knows of each page of the heap, and the pages themselves where they are malloc's.
fn descriptions(
    list: &[HeapPage],
    frozen: &Frozen<'_>,
    search: &mut Search<'_, '_>,
    answer: &mut AnswerWriter<'_>,
) {
    let body_bytes = body_bytes(list);
    let mut sum = Sum::default();
    for page in list {
        let body = page.start & !(body_bytes - 1);
        if search.owners.of_block(body) == Owner::Native {
            search.owners.set(body - 16, Owner::Heap);
        }
        sum.count += 1;
        sum.bytes += DESCRIPTION;
        if frozen.word(body).is_some() {
            let word = |at: usize| {
                // SAFETY: the page's first word, or the head or contents of a chunk.
                Some(unsafe { read(at) })
            };
            sum.found += search.claim((body, body + 8), DESCRIPTION, false, Owner::Internal, word).resident;
        }
    }
    answer.add("imemo", &sum.words(b"descriptions of heap pages"));
}

/// The blocks of one object.
fn blocks(search: &mut Search<'_, '_>, stride: usize, (object, owned): (Object, u64), vm: Vm) -> Found {
    let owner = match object.kind() {
        T_IMEMO if vm.is_iseq(object) => Owner::Iseqs,
        T_IMEMO | T_ICLASS => Owner::Internal,
        _ => Owner::Objects,
    };
    // Ruby counts a pointer of these, and not the definition to which it points.
    let is_method = object.kind() == T_IMEMO && object.imemo_kind() == METHOD;
    let owned = if is_method { DEFINITION } else { owned };
    if owned == 0 {
        return Found::default();
    }
    // Nothing else can be read here than slots, which are resident, and chunks that were walked over.
    // SAFETY: see above.
    let word = |at: usize| Some(unsafe { read(at) });
    let slot = (object.address, object.address + stride);
    search.claim(slot, owned, object.has_nested_blocks(), owner, word)
}

/// What malloc takes for so many bytes, if they are one block.
fn as_chunk(bytes: u64) -> u64 {
    const LEAST_MAPPED: u64 = 128 << 10;
    match bytes {
        0 => 0,
        1..LEAST_MAPPED => (bytes + 8).next_multiple_of(16).max(32),
        _ => (bytes + 16).next_multiple_of(PAGE as u64),
    }
}
