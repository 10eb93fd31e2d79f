//! What blocks are reached from, and the search. As in the live process: writable memory of modules, anonymous memory,
//! stacks from the stack pointer on, registers; not malloc's own memory, free slots, or what the hook has mapped for itself.
//!
//! A live process collects garbage first. Here, Ruby's objects are searched like blocks: only what reaches an object makes
//! it hold others. What nothing reaches is garbage, and holds what it owns by an address, as Ruby would free that, but not
//! what it has as an integer. So an object whose holder is not seen as one loses nothing that it owns.

use std::collections::HashMap;

use memintro_abi::{MOST_RANGES, RANGES_SIGN};
use memintro_analysis::leaks::is_own_library;
use memintro_analysis::leaks::mark::{Marking, Memory, Root, ranks};
use memintro_analysis::leaks::nodes::{NO_HOLDER, Node, Nodes, State};
use memintro_analysis::leaks::ranges::{self, around};
use memintro_analysis::leaks::unused::{self, Blocks, Read, end_of_fiber};

use crate::classes::Classes;
use crate::image::{Image, PAGE, Segment, Thread};
use crate::ruby::Heap;

/// Kinds of roots.
pub mod kinds {
    /// Memory of a module.
    pub const DATA: u8 = 1;
    /// A stack or a register.
    pub const STACK: u8 = 2;
    /// Anonymous memory.
    pub const ANONYMOUS: u8 = 5;
    /// Code that was made at run time.
    pub const CODE: u8 = 8;
    /// The same where malloc's memory is not known.
    pub const UNFOLLOWED: u8 = 6;
    /// The stack of a fiber.
    pub const FIBER: u8 = 10;
    /// An object that nothing points to, and that Ruby had not collected.
    pub const GARBAGE: u8 = 9;
}

/// The stack of a function that the kernel has interrupted reaches so far below its pointer.
const RED_ZONE: usize = 128;
/// Zeroed data of a module directly behind its file; what is larger is more likely somebody else's.
const LARGEST_DATA: usize = 1 << 20;
/// Instead of a call site: this is an object, no block.
pub const OBJECT: u32 = u32::MAX - 1;
/// Objects of C extensions, and of Ruby's own code.
const DATA: u8 = 0x0c;
/// Classes of objects from which all of Ruby's own structures are reached.
const MACHINERY: [&str; 4] = ["Thread", "Fiber", "RubyVM", "Ractor"];
/// Types whose values may be in Ruby's own short-lived memory: objects, arrays, hashes, structs.
const TRANSIENT: [u8; 4] = [0x01, 0x07, 0x08, 0x09];

/// Where the memory of memintro's hook is, if it was in the process.
#[must_use]
pub fn own_ranges(image: &Image<'_>) -> Option<Vec<(usize, usize)>> {
    let of_hook = |segment: &&Segment<'_>| {
        let path = segment.file.and_then(|file| image.files.get(file)).map_or(&b""[..], |file| file.path);
        path.windows(16).any(|part| part == b"libmemintro_hook")
    };
    let mut found = None;
    for segment in image.segments.iter().filter(of_hook) {
        found = found.or(Some(Vec::new()));
        let Some(at) = segment.bytes.windows(16).step_by(8).position(|part| part == RANGES_SIGN) else {
            continue;
        };
        let list = image.pointer(segment.start + at * 8 + 16)?;
        let ranges = (0..MOST_RANGES).filter_map(|index| {
            let place = list.checked_add(index * 16)?;
            let (start, end) = (image.pointer(place)?, image.pointer(place + 8)?);
            (start != 0 && start < end).then_some((start, end))
        });
        return Some(ranges.collect());
    }
    found
}

/// The file's memory without what is known to be out of use.
#[derive(Debug)]
pub struct Words<'a> {
    image: &'a Image<'a>,
    unused: Vec<(usize, usize)>,
    /// Stacks of fibers, in the order of their addresses.
    fibers: Vec<(usize, usize)>,
}

impl<'a> Words<'a> {
    /// Looks for what is out of use. `ranges`: those of malloc, in the order of their addresses.
    #[must_use]
    pub fn new(image: &'a Image<'a>, list: &[Node], ranges: &[(usize, usize)], heap: &Heap) -> Self {
        let is_mapped = |from: usize, to: usize| {
            let next = ranges.partition_point(|range| range.1 <= from);
            let is_malloc = ranges.get(next).is_some_and(|range| range.0 < to);
            !is_malloc && image.segment(from).is_some_and(|segment| to <= segment.end)
        };
        let mut unused = Vec::new();
        let mut visit = |from: usize, to: usize| unused.push((from, to));
        let blocks = Blocks { memory: image, list, is_malloc: |node| node.site != OBJECT };
        let mut pages: Vec<usize> = heap.pages.iter().filter_map(|page| image.pointer(page.body)).collect();
        pages.sort_unstable();
        pages.dedup();
        let is_running = |from: usize, to: usize| {
            image.threads.iter().any(|thread| (from..to).contains(&thread.stack_pointer))
        };
        let mapped = |start| {
            let begins = image.segment(start).filter(|segment| segment.start == start);
            begins.filter(|segment| segment.is_writable && segment.file.is_none()).map(|segment| segment.end)
        };
        let mut fibers = Vec::new();
        blocks.fiber_stacks(mapped, |start, end| fibers.push((start, end)));
        fibers.sort_unstable();
        blocks.of_vm(&pages, is_mapped, is_running, &mut visit);
        let mut used = vec![0; list.len()];
        let find = |at: usize| Some(list.partition_point(|node| node.end() <= at));
        for page in &heap.pages {
            for (slot, kind) in page.slots(image) {
                blocks.of_object((slot, kind, page.stride), find, &mut used, &mut visit);
            }
        }
        blocks.room(&used, &mut visit);
        let count = ranges::join(&mut unused);
        unused.truncate(count);
        Self { image, unused, fibers }
    }
}

impl Memory for Words<'_> {
    fn words(&self, from: usize, to: usize, mut visit: impl FnMut(usize, usize)) {
        around(&self.unused, from, to, |from, to| self.image.words(from, to, &mut visit));
    }
}

/// Slots of Ruby's heap as blocks, and what short arrays and the like have in memory of their own. Each has its type in
/// place of an age.
#[must_use]
pub fn objects(image: &Image<'_>, heap: &Heap) -> Vec<Node> {
    let mut list = Vec::new();
    for page in &heap.pages {
        for (slot, kind) in page.slots(image) {
            let end = unused::end_of_slot(image, slot, kind, page.stride);
            list.push(Node { site: OBJECT, age: u32::from(kind), ..Node::new(slot, end - slot) });
            if TRANSIENT.contains(&kind) {
                let owned = unused::owned(image, slot, kind, page.stride);
                transient(image, slot, page.stride, owned, |at, bytes| {
                    list.push(Node { site: OBJECT, age: u32::from(kind), ..Node::new(at, bytes) });
                });
            }
        }
    }
    list
}

/// Ruby's own short-lived memory up to Ruby 3.2, in which all that is in use is in the list of objects: no roots. It is
/// one mapping in pieces, which are chained to one another.
#[must_use]
pub fn short_lived(image: &Image<'_>) -> Vec<(usize, usize)> {
    const ALL: usize = 32 << 20;
    const PIECE: usize = 32 << 10;
    let is_one = |segment: &&Segment<'_>| {
        let bytes = segment.end - segment.start;
        if !segment.is_writable || segment.file.is_some() || !(ALL..=ALL + PIECE).contains(&bytes) {
            return false;
        }
        let pieces = (segment.start.next_multiple_of(PIECE)..segment.end).step_by(PIECE);
        let chained = pieces
            .filter_map(|piece| image.pointer(piece + 8))
            .filter(|next| next.is_multiple_of(PIECE) && segment.start <= *next && *next < segment.end);
        chained.count() > ALL / PIECE / 2
    };
    image.segments.iter().filter(is_one).map(|segment| (segment.start, segment.end)).collect()
}

/// Which object has each block as its own, whether anything points to that object or not: its number, or [`NO_HOLDER`]; and how
/// surely it does ([`ranks`]). `waiting` is
/// as for the search.
#[must_use]
pub fn owners(
    words: &Words<'_>,
    classes: &Classes<'_>,
    nodes: &mut Nodes<'_>,
    waiting: &mut [u32],
) -> Vec<(u32, u8)> {
    for node in nodes.list.iter_mut().filter(|node| node.site == OBJECT) {
        node.state = State::Visited;
    }
    let mut is_machinery = HashMap::new();
    let mut marking = Marking::new(nodes, words, waiting, None);
    for index in 0..marking.nodes.list.len() {
        let Some(node) = marking.nodes.list.get(index).copied().filter(|node| node.site == OBJECT) else {
            continue;
        };
        let class = if node.age == u32::from(DATA) { classes.class_at(node.start) } else { None };
        let is_one = class.is_some_and(|class| {
            *is_machinery.entry(class).or_insert_with(|| {
                classes.name_of(class).is_some_and(|(name, _)| MACHINERY.contains(&name.as_str()))
            })
        });
        let rank = if is_one { ranks::MACHINERY } else { ranks::OWNER };
        let root = Root::new(0, index + 1, rank);
        marking.from_root(node.start, node.end(), root);
        unused::io_buffers(words.image, node.start, node.age as u8, |start, _, _| {
            marking.from_word(start, root)
        });
    }
    marking.follow();
    let owner = |node: &Node| match node.state {
        State::Reached => (node.root as u32 - 1, node.rank),
        _ => (NO_HOLDER, ranks::LAST),
    };
    let owners = nodes.list.iter().map(owner).collect();
    for node in nodes.list.iter_mut().filter(|node| matches!(node.state, State::Reached | State::Visited)) {
        *node = Node {
            site: node.site,
            age: node.age,
            content: node.content,
            ..Node::new(node.start, node.bytes)
        };
    }
    owners
}

/// Reaches blocks from all roots. `skipped`: in the order of their addresses. `is_part`: only blocks that the hook followed are
/// known.
pub fn search(
    image: &Image<'_>,
    skipped: &[(usize, usize)],
    (words, is_part): (&Words<'_>, bool),
    marking: &mut Marking<'_, '_, Words<'_>>,
) {
    let anonymous = if is_part { kinds::UNFOLLOWED } else { kinds::ANONYMOUS };
    for thread in &image.threads {
        for word in &thread.registers {
            marking.from_word(*word, Root::new(kinds::STACK, thread.number as usize, ranks::STACK));
        }
    }
    io_buffers(image, marking);
    segments(image, skipped, &words.fibers, anonymous, marking);
    marking.follow();
    garbage(marking);
}

/// Searches memory of the program, and that of memintro's own libraries. Memintro keeps no integers of Ruby: what is in its
/// memory where one may be is from a former user.
fn segments(
    image: &Image<'_>,
    skipped: &[(usize, usize)],
    fibers: &[(usize, usize)],
    anonymous: u8,
    marking: &mut Marking<'_, '_, Words<'_>>,
) {
    let is_ours = |segment: &Segment<'_>| {
        let path = segment.file.and_then(|file| image.files.get(file)).map_or(&b""[..], |file| file.path);
        is_own_library(path)
    };
    let mut before: Option<&Segment<'_>> = None;
    for segment in &image.segments {
        let is_guarded = before.is_some_and(|before| before.is_closed && before.end == segment.start);
        // Data of a module may go on behind its file.
        let is_data = segment.file.is_some()
            || segment.end - segment.start <= LARGEST_DATA
                && before.is_some_and(|before| {
                    before.file.is_some() && before.is_writable && before.end == segment.start
                });
        let are_ours = is_ours(segment) || is_data && segment.file.is_none() && before.is_some_and(is_ours);
        before = Some(segment);
        if segment.is_executable {
            if segment.file.is_none() && segment.is_writable {
                code(segment, marking);
            }
            continue;
        }
        let is_here = |thread: &&Thread| (segment.start..=segment.end).contains(&thread.stack_pointer);
        let thread = image.threads.iter().filter(is_here).min_by_key(|thread| thread.stack_pointer);
        let root = match thread {
            Some(thread) => Root::new(kinds::STACK, thread.number as usize, ranks::STACK),
            None if are_ours => Root { has_integers: false, ..Root::new(kinds::DATA, 0, ranks::LAST) },
            None if is_data => Root::new(kinds::DATA, 0, ranks::STATIC),
            // Ruby keeps values there that were once those of arrays, and marks none of them.
            None => Root { has_integers: is_guarded, ..Root::new(anonymous, segment.start, ranks::MEMORY) },
        };
        let from = thread
            .map_or(segment.start, |thread| thread.stack_pointer.saturating_sub(RED_ZONE).max(segment.start));
        let fiber = if thread.is_none() { end_of_fiber(fibers, segment.start) } else { None };
        // Other memory may have joined the mapping.
        let end = fiber.unwrap_or(from);
        let of_fiber = Root { kind: kinds::FIBER, key: 1, rank: ranks::STACK, ..root };
        around(skipped, from, segment.known_end(), |from, to| {
            marking.from_root(from, to.min(end), of_fiber);
            marking.from_root(from.max(end), to, root);
        });
    }
}

/// Buffers of IOs, garbage or not: the words that point to them are at odd places.
fn io_buffers(image: &Image<'_>, marking: &mut Marking<'_, '_, Words<'_>>) {
    for index in 0..marking.nodes.list.len() {
        let Some(node) = marking.nodes.list.get(index).copied() else { break };
        if node.site == OBJECT {
            unused::io_buffers(image, node.start, node.age as u8, |start, _, _| {
                marking.from_word(
                    start,
                    Root { has_integers: false, ..Root::new(kinds::GARBAGE, 1, ranks::LAST) },
                );
            });
        }
    }
}

/// What objects own that nothing points to: Ruby frees it with them. Addresses that they have as integers have no owner.
fn garbage(marking: &mut Marking<'_, '_, Words<'_>>) {
    let root = Root { has_integers: false, ..Root::new(kinds::GARBAGE, 1, ranks::LAST) };
    marking.has_integers = false;
    for index in 0..marking.nodes.list.len() {
        let Some(node) = marking.nodes.list.get(index).copied() else { break };
        if node.site == OBJECT && node.state == State::Unreached {
            marking.close(index, root);
            marking.from_root(node.start, node.end(), root);
            marking.follow();
        }
    }
    marking.has_integers = true;
}

/// Where an object has its values in Ruby's own short-lived memory ([`unused::transient_bytes`]), without what is out of use.
/// `owned`: where the content of the object begins, and where what is in use of it ends, if that is known.
fn transient(
    image: &Image<'_>,
    slot: usize,
    stride: usize,
    owned: Option<(usize, usize)>,
    mut visit: impl FnMut(usize, usize),
) {
    for at in (slot + 16..slot + stride).step_by(8) {
        let block = image.pointer(at).filter(|block| block.is_multiple_of(8));
        let head = block.and_then(|block| block.checked_sub(unused::TRANSIENT_HEAD));
        let (Some(block), Some(head)) = (block, head) else { continue };
        let both = image.word(head).zip(image.word(head + 8));
        let bytes =
            both.and_then(|(word, object)| unused::transient_bytes(word as usize, object as usize, slot));
        if let Some(bytes) = bytes {
            let used = owned.filter(|owned| owned.0 == block).map_or(bytes, |owned| owned.1 - block);
            visit(block, bytes.min(used));
        }
    }
}

/// Addresses in code are at any place.
fn code(segment: &Segment<'_>, marking: &mut Marking<'_, '_, Words<'_>>) {
    let root = Root::new(kinds::CODE, segment.start, ranks::MEMORY);
    for page in segment.bytes.chunks(PAGE).filter(|page| page.iter().any(|byte| *byte != 0)) {
        for part in page.windows(8) {
            if let Ok(part) = part.try_into() {
                marking.from_word(u64::from_le_bytes(part) as usize, root);
            }
        }
    }
}
