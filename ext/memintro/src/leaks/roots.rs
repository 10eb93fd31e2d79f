//! What blocks are reached from, and the search.
//!
//! | memory | a root? |
//! |---|---|
//! | writable data of modules, anonymous memory, TLS blocks and control blocks of threads in it | yes |
//! | stacks of threads | from the stack pointer on, where the kernel tells it |
//! | registers of the calling thread, and those of others that the kernel tells | yes |
//! | slots of Ruby's objects, and of those that await their finalizer | yes; free slots are not |
//! | code that was made at run time | yes, at each byte |
//! | writable data of memintro's own libraries | last, and only of blocks that the hook does not follow |
//! | glibc's arenas, memory that malloc has free, what the hook has mapped for itself | no |
//!
//! Where malloc's chunks are not known, all of its memory that is no followed block is a root.

use std::ffi::CStr;

use memintro_analysis::account::PAGE;
use memintro_analysis::account::space::{Area, Space};
use memintro_analysis::leaks::is_own_library;
use memintro_analysis::leaks::mark::{Marking, Root, ranks};
use memintro_analysis::leaks::ranges::around;
use memintro_analysis::leaks::unused::{
    TRANSIENT_HEAD, end_of_fiber, end_of_slot, io_buffers, owned as owned_of, transient_bytes,
};

use super::memory::{Kind, Words};
use crate::account::HeapPage;
use crate::account::frozen::{Region, read};
use crate::atlas::types::{T_DATA, T_IMEMO, T_ZOMBIE};
use crate::atlas::{DataType, Object};
use crate::contents::TRANSIENT;
use crate::heap::Vm;

/// Kinds of roots, as lines and the Ruby side have them.
pub(super) mod kinds {
    pub(crate) const DATA: u8 = 1;
    pub(crate) const STACK: u8 = 2;
    pub(crate) const OBJECT: u8 = 3;
    pub(crate) const INTERNAL: u8 = 4;
    pub(crate) const ANONYMOUS: u8 = 5;
    pub(crate) const UNFOLLOWED: u8 = 6;
    pub(crate) const DOUBT: u8 = 7;
    pub(crate) const CODE: u8 = 8;
    pub(crate) const HEAP_PAGE: u8 = 9;
    pub(crate) const TYPE: u8 = 10;
    pub(crate) const OURS: u8 = 11;
    pub(crate) const REGISTER: u8 = 12;
    pub(crate) const FIBER: u8 = 13;
}

/// Stands for the calling thread's number: the kernel's numbers of threads are less.
pub(super) const CALLER: usize = 1 << 22;

/// The stack of a function that the kernel has interrupted reaches so far below its pointer.
const RED_ZONE: usize = 128;
/// Zeroed data of a module directly behind its file; what is larger is more likely somebody else's.
const LARGEST_DATA: usize = 1 << 20;

/// Where roots are.
pub(super) struct Roots<'a> {
    pub(super) space: &'a Space<'a>,
    pub(super) regions: &'a [Region],
    pub(super) kinds: &'a [Kind],
    /// Where stacks begin to be in use, and of which threads: first those that wait, then [`CALLER`].
    pub(super) stacks: &'a [(usize, usize)],
    /// Stacks of fibers, in the order of their addresses.
    pub(super) fibers: &'a [(usize, usize)],
    /// Statics of memintro's libraries, in the order of their addresses.
    pub(super) own_data: &'a [(usize, usize)],
    /// Ranges that are no roots, in the order of their addresses.
    pub(super) skipped: &'a [(usize, usize)],
    /// Blocks lie among the roots.
    pub(super) has_blocks: bool,
    /// Registers of the calling thread.
    pub(super) registers: &'a [usize],
    /// Arguments of the threads that wait, in the order of their stacks.
    pub(super) arguments: &'a [[usize; 6]],
}

pub(super) type Search<'a, 'b, 'c> = Marking<'a, 'b, Words<'c>>;

impl Roots<'_> {
    pub(super) fn search(&self, marking: &mut Search<'_, '_, '_>) {
        let waiting = self.arguments.iter().map(|words| words.as_slice()).zip(self.stacks);
        let threads = waiting.map(|(words, stack)| (words, stack.1)).chain([(self.registers, CALLER)]);
        for (words, thread) in threads {
            let start = words.as_ptr() as usize;
            marking.from_root(
                start,
                start + size_of_val(words),
                Root::new(kinds::STACK, thread, ranks::STACK),
            );
        }
        for ((area, region), kind) in self.space.areas().iter().zip(self.regions).zip(self.kinds) {
            self.own_statics(area, marking);
            let stack = (region.is_stack || region.is_guarded)
                .then(|| self.stacks.iter().find(|(pointer, _)| area.holds(*pointer, *pointer)))
                .flatten();
            let root = self.root(area, region, *kind, stack.map(|stack| stack.1));
            let from = stack.map_or(area.start, |stack| stack.0.saturating_sub(RED_ZONE).max(area.start));
            if *kind == Kind::Code {
                self.code(marking, area);
                continue;
            }
            let fiber = if stack.is_none() { end_of_fiber(self.fibers, area.start) } else { None };
            // Other memory may have joined the mapping.
            let end = fiber.unwrap_or(from);
            let of_fiber = Root { kind: kinds::FIBER, key: 1, rank: ranks::STACK, ..root };
            self.pages(area, from, |from, to| {
                around(self.own_data, from, to, |from, to| {
                    self.around_skipped(from, to.min(end), of_fiber, marking);
                    self.around_skipped(from.max(end), to, root, marking);
                });
            });
        }
    }

    /// Statics of memintro's libraries, as far as they are in an area. What they hold is memintro's own, unless something else
    /// holds it as well. It keeps no integers of Ruby: where one may be is a word of a former user.
    fn own_statics(&self, area: &Area, marking: &mut Search<'_, '_, '_>) {
        let root = Root { has_integers: false, ..Root::new(kinds::OURS, 1, ranks::LAST) };
        for (start, end) in self.own_data.iter().filter(|own| own.0 < area.end && area.start < own.1) {
            self.pages(area, (*start).max(area.start), |from, to| {
                self.around_skipped(from, to.min(*end), root, marking);
            });
        }
    }

    fn root(&self, area: &Area, region: &Region, kind: Kind, thread: Option<usize>) -> Root {
        let is_data = kind == Kind::Data || !region.file.is_empty() && area.end - area.start <= LARGEST_DATA;
        if thread.is_some() || region.is_stack {
            Root::new(kinds::STACK, thread.unwrap_or(area.start), ranks::STACK)
        } else if is_data && !is_own_library(region.file) {
            Root::new(kinds::DATA, 0, ranks::STATIC)
        } else if self.has_blocks {
            // What Ruby's objects own is searched for integers by itself, so that freed arrays hold nothing.
            let root = Root::new(kinds::UNFOLLOWED, area.start, ranks::MEMORY);
            Root { has_integers: region.is_guarded, ..root }
        } else {
            // Ruby keeps values there that were once those of arrays, and marks none of them.
            let root = Root::new(kinds::ANONYMOUS, area.start, ranks::MEMORY);
            Root { has_integers: region.is_guarded, ..root }
        }
    }

    /// Runs of pages that are there and have no other owner.
    fn pages(&self, area: &Area, from: usize, mut visit: impl FnMut(usize, usize)) {
        let mut at = from & !4095;
        while let Some(page) = self.space.next_resident(area, at) {
            let mut end = page + 4096;
            while self.space.next_resident(area, end) == Some(end) && end < area.end {
                end += 4096;
            }
            visit(page.max(from), end);
            at = end;
        }
    }

    fn around_skipped(&self, from: usize, to: usize, root: Root, marking: &mut Search<'_, '_, '_>) {
        around(self.skipped, from, to, |from, to| self.around_blocks(from, to, root, marking));
    }

    fn around_blocks(&self, from: usize, to: usize, root: Root, marking: &mut Search<'_, '_, '_>) {
        if !self.has_blocks {
            marking.from_root(from, to, root);
            return;
        }
        let mut at = from;
        let mut next = marking.nodes.list.partition_point(|node| node.end() <= from);
        while at < to {
            let block = marking.nodes.list.get(next).map(|node| (node.start, node.end()));
            let Some((start, end)) = block.filter(|(start, _)| *start < to) else {
                marking.from_root(at, to, root);
                return;
            };
            if at < start {
                marking.from_root(at, start, root);
            }
            at = at.max(end);
            next += 1;
        }
    }

    /// Addresses in code are at any place.
    fn code(&self, marking: &mut Search<'_, '_, '_>, area: &Area) {
        const PIECE: usize = 64;
        self.pages(area, area.start, |from, to| {
            let mut at = from;
            while at + 16 <= to {
                let mut shifted = [0_usize; PIECE];
                let mut used = 0;
                while used < PIECE && at + 16 <= to {
                    // SAFETY: two words of a readable page.
                    let (low, high) = unsafe { (read(at & !7), read((at & !7) + 8)) };
                    let bits = 8 * (at % 8) as u32;
                    let both = u128::from(high) << 64 | u128::from(low);
                    if let Some(place) = shifted.get_mut(used) {
                        *place = (both >> bits) as usize;
                    }
                    used += 1;
                    at += 1;
                }
                let start = shifted.as_ptr() as usize;
                let root = Root::new(kinds::CODE, area.start, ranks::MEMORY);
                marking.from_root(start, start + used * 8, root);
            }
        });
    }
}

/// Slots of Ruby's objects, and the blocks in which pages of its heap are.
pub(super) fn objects(
    pages: &[HeapPage],
    there: &Space<'_>,
    machinery: &Machinery,
    marking: &mut Search<'_, '_, '_>,
) {
    for page in pages {
        for place in [page.start, page.end.saturating_sub(8)] {
            if let Some(block) = marking.nodes.find(place) {
                marking.close(block, Root::new(kinds::HEAP_PAGE, 1, ranks::OWNER));
            }
        }
    }
    let words = Words { there, unused: &[] };
    for page in pages {
        let mut last = (0, false);
        for slot in page.slots() {
            // Most slots are in the memory page of the one before.
            if last.0 != slot / PAGE {
                last = (slot / PAGE, there.is_resident(slot));
            }
            let Some((kind, root)) = last.1.then(|| root_of(*page, slot, machinery)).flatten() else {
                continue;
            };
            marking.from_root(slot, end_of_slot(&words, slot, kind as u8, page.stride), root);
            io_buffers(&words, slot, kind as u8, |start, _, _| marking.from_word(start, root));
            if TRANSIENT.contains(&kind) {
                let owned = owned_of(&words, slot, kind as u8, page.stride);
                transient((slot, page.stride), owned, there, root, marking);
            }
        }
    }
}

/// Objects from which all of Ruby's own structures are reached: threads, fibers, and the VM itself.
#[derive(Clone, Copy, Default)]
pub(super) struct Machinery {
    /// Which type of data a thread has, whatever its class is.
    thread_type: Option<DataType>,
    classes: [usize; 4],
}

impl Machinery {
    /// The caller holds the GVL.
    pub(super) fn find() -> Self {
        // SAFETY: this thread's object has a type of data, and constants of `Object` are only looked up where they are set.
        unsafe {
            let class = |name: &CStr| {
                let name = rb_sys::rb_intern(name.as_ptr());
                let is_set = rb_sys::rb_const_defined(rb_sys::rb_cObject, name) != 0;
                if is_set { rb_sys::rb_const_get(rb_sys::rb_cObject, name) as usize } else { 0 }
            };
            Self {
                thread_type: Some(Object::read(rb_sys::rb_thread_current() as usize).data_type()),
                classes: [class(c"Thread"), class(c"Fiber"), class(c"RubyVM"), class(c"Ractor")],
            }
        }
    }

    /// Whether this object is one of them.
    pub(super) fn has(&self, slot: usize, kind: usize, class: usize) -> bool {
        // SAFETY: a slot that holds an object.
        let data_type = || unsafe { Object::read(slot) }.data_type();
        kind == T_DATA && (self.classes.contains(&class) || self.thread_type == Some(data_type()))
    }
}

/// The type of an object, and what it is as a root.
fn root_of(page: HeapPage, slot: usize, machinery: &Machinery) -> Option<(usize, Root)> {
    let (kind, imemo, class) = page.identity(slot)?;
    let root = match imemo {
        Some(imemo) => Root::new(kinds::INTERNAL, imemo + 1, ranks::OWNER),
        None if class == 0 || [T_IMEMO, T_ZOMBIE].contains(&kind) => {
            Root::new(kinds::TYPE, kind, ranks::OWNER)
        }
        None if machinery.has(slot, kind, class) => Root::new(kinds::OBJECT, slot, ranks::MACHINERY),
        None => Root::new(kinds::OBJECT, slot, ranks::OWNER),
    };
    Some((kind, root))
}

/// What objects own outside of their slots, where the list of blocks does not have it: as many bytes as Ruby says, from
/// where a word of the slot points to, and from where the first words there point to.
pub(super) fn owned(
    pages: &[HeapPage],
    there: &Space<'_>,
    machinery: &Machinery,
    marking: &mut Search<'_, '_, '_>,
) {
    const LEAST: u64 = 8;
    const FIRST_WORDS: usize = 8;
    let Some(vm) = Vm::get() else { return };
    for page in pages {
        for slot in page.slots() {
            if !there.is_resident(slot) || !page.is_object(slot) {
                continue;
            }
            let (object, owned) = vm.object(slot, page.stride as u64);
            let Some((_, root)) = root_of(*page, slot, machinery).filter(|_| owned >= LEAST) else {
                continue;
            };
            let bytes = usize::try_from(owned).unwrap_or(usize::MAX);
            for at in (slot + 16..slot + page.stride).step_by(8) {
                let Some(block) = unlisted(at, there, marking) else { continue };
                piece(block, bytes, there, root, marking);
                if object.has_nested_blocks() {
                    for inner in (block..block + FIRST_WORDS * 8).step_by(8) {
                        if let Some(inner) = unlisted(inner, there, marking) {
                            piece(inner, bytes, there, root, marking);
                        }
                    }
                }
            }
        }
    }
}

/// Where a word points to, if memory is there that is no block of the list.
fn unlisted(at: usize, there: &Space<'_>, marking: &Search<'_, '_, '_>) -> Option<usize> {
    if !there.is_resident(at) {
        return None;
    }
    // SAFETY: a word of a page that is there.
    let block = unsafe { read(at) } as usize;
    let is_one = block.is_multiple_of(8) && there.is_resident(block) && marking.nodes.find(block).is_none();
    is_one.then_some(block)
}

fn piece(block: usize, bytes: usize, there: &Space<'_>, root: Root, marking: &mut Search<'_, '_, '_>) {
    let end = there.area(block).map_or(block, |area| area.end);
    marking.from_root(block, block.saturating_add(bytes).min(end), root);
}

/// Where an object has its values in Ruby's own short-lived memory ([`transient_bytes`]), without what is out of use. `owned`:
/// where the object's content begins, and where what is in use of it ends, if that is known.
fn transient(
    (slot, stride): (usize, usize),
    owned: Option<(usize, usize)>,
    there: &Space<'_>,
    root: Root,
    marking: &mut Search<'_, '_, '_>,
) {
    for at in (slot + 16..slot + stride).step_by(8) {
        // SAFETY: a word of a slot.
        let block = unsafe { read(at) } as usize;
        if block < TRANSIENT_HEAD || !block.is_multiple_of(8) || marking.nodes.find(block).is_some() {
            continue;
        }
        let head = block - TRANSIENT_HEAD;
        if !there.is_resident(block) || !there.is_resident(head) {
            continue;
        }
        // SAFETY: both words are in pages that are there.
        let (word, object) = unsafe { (read(head) as usize, read(head + 8) as usize) };
        if let Some(bytes) = transient_bytes(word, object, slot) {
            let most = there.area(block).map_or(block, |area| area.end);
            let used = owned.filter(|owned| owned.0 == block).map_or(most, |owned| owned.1);
            marking.from_root(block, (block + bytes).min(most).min(used), root);
        }
    }
}
