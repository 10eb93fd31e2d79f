//! What blocks are reached from, and the search. As in the live process: writable memory of modules, anonymous memory,
//! stacks from the stack pointer on, registers; not malloc's own memory, free slots, or what the hook has mapped for itself.
//!
//! A live process collects garbage first. Here, Ruby's objects are searched like blocks: only what reaches an object makes
//! it hold others. What nothing reaches is garbage, and holds what it owns by an address, as Ruby would free that, but not
//! what it has as an integer. So an object whose holder is not seen as one loses nothing that it owns.

use std::collections::{HashMap, HashSet};

use memintro_abi::{MOST_RANGES, RANGES_SIGN};
use memintro_analysis::leaks::mark::{Marking, Memory, Root};
use memintro_analysis::leaks::nodes::{NO_SITE, Node, State};

use crate::image::{Image, PAGE, Segment};
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
    /// An object that nothing points to, and that Ruby had not collected.
    pub const GARBAGE: u8 = 9;
}

/// The stack of a function that the kernel has interrupted reaches so far below its pointer.
const RED_ZONE: usize = 128;
/// Zeroed data of a module directly behind its file; what is larger is more likely somebody else's.
const LARGEST_DATA: usize = 1 << 20;
/// Call sites are not known, so that of a block tells blocks from objects.
pub const OBJECT: u32 = 1;
/// Contexts of execution are parts of structures that are smaller.
const LARGEST_CONTEXT: usize = 4096;
/// The collector's own structure is no smaller.
const LEAST_COLLECTOR: usize = 1024;
/// Words in a stack of values.
const LEAST_VALUES: usize = 1 << 10;
const MOST_VALUES: usize = 1 << 24;
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
}

impl<'a> Words<'a> {
    /// Looks for the stacks of values of Ruby's threads and fibers: what is beyond their use are values of calls that have
    /// returned. And for its list of pages, which has room for more. `ranges`: those of malloc, in the order of their
    /// addresses.
    #[must_use]
    pub fn new(image: &'a Image<'a>, list: &[Node], ranges: &[(usize, usize)], heap: &Heap) -> Self {
        let is_stack = |stack: usize, bytes: usize| match list.binary_search_by_key(&stack, |node| node.start)
        {
            Ok(index) => list.get(index).is_some_and(|node| (bytes..bytes + 2 * PAGE).contains(&node.bytes)),
            Err(_) => {
                let next = ranges.partition_point(|range| range.1 <= stack);
                let is_malloc = ranges.get(next).is_some_and(|range| range.0 < stack + bytes);
                !is_malloc && image.segment(stack).is_some_and(|segment| stack + bytes <= segment.end)
            }
        };
        let mut unused: Vec<_> = list
            .iter()
            .filter(|node| node.site == NO_SITE && node.bytes <= LARGEST_CONTEXT)
            .flat_map(|node| (node.start..node.end()).step_by(8))
            .filter_map(|at| unused_values(image, at, is_stack))
            .collect();
        unused.extend(unused_list(image, list, heap));
        unused.extend(unused_room(image, list, heap));
        unused.extend(unused_marks(image, list));
        unused.sort_unstable();
        unused.dedup();
        Self { image, unused }
    }
}

impl Memory for Words<'_> {
    fn words(&self, from: usize, to: usize, mut visit: impl FnMut(usize, usize)) {
        around(&self.unused, from, to, |from, to| self.image.words(from, to, &mut visit));
    }
}

/// Ruby lists the descriptions of its pages in a block of their own. What comes after the last one was never written since the
/// block's former user had it.
fn unused_list(image: &Image<'_>, list: &[Node], heap: &Heap) -> Option<(usize, usize)> {
    // Since Ruby 3.4 two numbers come before them.
    const BEGINNINGS: [usize; 2] = [0, 16];
    let pages: HashSet<usize> = heap.pages.iter().filter_map(|page| image.pointer(page.body)).collect();
    let is_page = |at: usize| image.pointer(at).is_some_and(|word| pages.contains(&word));
    let blocks = list.iter().filter(|node| node.site == NO_SITE && node.bytes >= pages.len() * 8);
    blocks.filter(|node| BEGINNINGS.iter().any(|beginning| is_page(node.start + beginning))).find_map(
        |node| {
            let listed = (node.start..node.end().saturating_sub(7)).step_by(8).filter(|at| is_page(*at));
            let (count, last) = listed.fold((0, 0), |(count, _), at| (count + 1, at));
            (count == pages.len() && count > 0).then_some((last + 8, node.end()))
        },
    )
}

/// The collector's stack of objects to be marked: pieces of so many words and the address of the next one, a list of those in
/// use and a list of others, and how far the first one is in use. What was there in the last collection still is.
fn unused_marks(image: &Image<'_>, list: &[Node]) -> Vec<(usize, usize)> {
    const WORDS: usize = 500;
    const MOST_PIECES: usize = 1 << 16;
    let is_piece = |at: usize| {
        list.binary_search_by_key(&at, |node| node.start).is_ok_and(|index| {
            list.get(index).is_some_and(|node| node.site == NO_SITE && node.bytes == (WORDS + 1) * 8)
        })
    };
    let owners = list.iter().filter(|node| node.site == NO_SITE && node.bytes >= LEAST_COLLECTOR);
    let mut found = Vec::new();
    for at in owners.flat_map(|node| (node.start..node.end().saturating_sub(23)).step_by(8)) {
        let Some(both) = image.pointer(at + 16).filter(|both| both >> 32 == WORDS) else { continue };
        let index = both & 0xffff_ffff;
        let (Some(used), Some(others)) = (image.pointer(at), image.pointer(at + 8)) else { continue };
        let is_one = index <= WORDS && [used, others].iter().all(|piece| *piece == 0 || is_piece(*piece));
        if !is_one || used == others {
            continue;
        }
        if used != 0 {
            found.push((used + index * 8, used + WORDS * 8));
        }
        let mut piece = others;
        for _ in 0..MOST_PIECES {
            if !is_piece(piece) {
                break;
            }
            found.push((piece, piece + WORDS * 8));
            piece = image.pointer(piece + WORDS * 8).unwrap_or(0);
        }
    }
    found
}

/// Strings and arrays have room for more than they hold. What is beyond it is from its former user, or was taken away; the
/// last word of a string, too, if the string ends in it. Several may share a block.
fn unused_room<'a>(
    image: &'a Image<'_>,
    list: &'a [Node],
    heap: &Heap,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    const STRING: u8 = 0x05;
    const ARRAY: u8 = 0x07;
    // Of a string: it has a block. Of an array: it has none.
    const FLAG: u64 = 1 << 13;
    let mut used: HashMap<usize, usize> = HashMap::new();
    for (slot, kind) in heap.pages.iter().flat_map(|page| page.slots(image)) {
        let has_flag = image.word(slot).is_some_and(|flags| flags & FLAG != 0);
        let (at, unit) = match kind {
            STRING if has_flag => (slot + 24, 1),
            ARRAY if !has_flag => (slot + 32, 8),
            _ => continue,
        };
        let (Some(start), Some(length)) = (image.pointer(at), image.pointer(slot + 16)) else { continue };
        let index = list.partition_point(|node| node.end() <= start);
        let Some(block) = list.get(index).filter(|node| node.site == NO_SITE && node.start <= start) else {
            continue;
        };
        let end = length.checked_mul(unit).and_then(|bytes| start.checked_add(bytes));
        // What is longer than its block is not what it looks like.
        let end = end.filter(|end| *end <= block.end()).unwrap_or(usize::MAX);
        let known = used.entry(index).or_default();
        *known = end.max(*known);
    }
    used.into_iter().filter_map(|(index, end)| {
        let (end, of_block) = (end & !7, list.get(index)?.end());
        (end < of_block).then_some((end, of_block))
    })
}

/// A context of execution begins with its stack of values, its size in words, and its innermost frame, which lies at the
/// other end and says how far values are in use.
fn unused_values(
    image: &Image<'_>,
    at: usize,
    is_stack: impl Fn(usize, usize) -> bool,
) -> Option<(usize, usize)> {
    let size = image.pointer(at + 8).filter(|words| (LEAST_VALUES..MOST_VALUES).contains(words))? * 8;
    let stack = image.pointer(at).filter(|stack| *stack != 0 && stack.is_multiple_of(8))?;
    let innermost = image.pointer(at + 16).filter(|frame| frame.is_multiple_of(8))?;
    let used = image.pointer(innermost.checked_add(8)?)?;
    let is_one =
        stack <= used && used < innermost && innermost < stack.checked_add(size)? && is_stack(stack, size);
    is_one.then_some((used, innermost))
}

/// Slots of Ruby's heap as blocks, and what short arrays and the like have in memory of their own. Each has its type in
/// place of an age.
#[must_use]
pub fn objects(image: &Image<'_>, heap: &Heap) -> Vec<Node> {
    let mut list = Vec::new();
    for page in &heap.pages {
        for (slot, kind) in page.slots(image) {
            list.push(Node { site: OBJECT, age: u32::from(kind), ..Node::new(slot, page.stride) });
            if TRANSIENT.contains(&kind) {
                transient(image, slot, page.stride, |at, bytes| {
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

/// Reaches blocks from all roots. `skipped`: in the order of their addresses.
pub fn search(image: &Image<'_>, skipped: &[(usize, usize)], marking: &mut Marking<'_, '_, Words<'_>>) {
    for thread in &image.threads {
        for word in &thread.registers {
            marking.from_word(*word, Root::new(kinds::STACK, 1));
        }
    }
    let mut before: Option<&Segment<'_>> = None;
    for segment in &image.segments {
        let is_guarded = before.is_some_and(|before| before.is_closed && before.end == segment.start);
        // Data of a module may go on behind its file.
        let is_data = segment.file.is_some()
            || segment.end - segment.start <= LARGEST_DATA
                && before.is_some_and(|before| {
                    before.file.is_some() && before.is_writable && before.end == segment.start
                });
        before = Some(segment);
        if segment.is_executable {
            if segment.file.is_none() && segment.is_writable {
                code(segment, marking);
            }
            continue;
        }
        let pointers = image.threads.iter().map(|thread| thread.stack_pointer);
        let pointer = pointers.filter(|pointer| segment.start <= *pointer && *pointer <= segment.end).min();
        let root = match pointer {
            Some(_) => Root::new(kinds::STACK, segment.start),
            None if is_data => Root::new(kinds::DATA, 0),
            // Ruby keeps values there that were once those of arrays, and marks none of them.
            None => Root { has_integers: is_guarded, ..Root::new(kinds::ANONYMOUS, segment.start) },
        };
        let from =
            pointer.map_or(segment.start, |pointer| pointer.saturating_sub(RED_ZONE).max(segment.start));
        around(skipped, from, segment.known_end(), |from, to| marking.from_root(from, to, root));
    }
    garbage(marking);
}

/// What objects own that nothing points to: Ruby frees it with them. Addresses that they have as integers are nobody's.
fn garbage(marking: &mut Marking<'_, '_, Words<'_>>) {
    let root = Root { has_integers: false, ..Root::new(kinds::GARBAGE, 1) };
    marking.has_integers = false;
    for index in 0..marking.nodes.list.len() {
        let Some(node) = marking.nodes.list.get(index).copied() else { break };
        if node.site == OBJECT && node.state == State::Unreached {
            marking.close(index, root);
            marking.from_root(node.start, node.end(), root);
        }
    }
    marking.has_integers = true;
}

/// The parts of a range that are not skipped.
fn around(skipped: &[(usize, usize)], from: usize, to: usize, mut visit: impl FnMut(usize, usize)) {
    let mut at = from;
    let mut next = skipped.partition_point(|range| range.1 <= from);
    while at < to {
        let (start, end) = skipped.get(next).copied().unwrap_or((to, to));
        let stop = start.clamp(at, to);
        if at < stop {
            visit(at, stop);
        }
        at = end.max(at);
        if start >= to {
            return;
        }
        next += 1;
    }
}

/// Ruby 3.1 and 3.2 have short arrays and the like in memory of their own, without malloc, where each has a head: its
/// length, a mark, and its object. What is between them is out of use.
fn transient(image: &Image<'_>, slot: usize, stride: usize, mut visit: impl FnMut(usize, usize)) {
    const HEAD: usize = 16;
    const MARK: u64 = 0xfeab;
    for at in (slot + 16..slot + stride).step_by(8) {
        let Some(block) = image.pointer(at).filter(|block| *block >= HEAD && block.is_multiple_of(8)) else {
            continue;
        };
        let (Some(head), Some(object)) = (image.word(block - HEAD), image.pointer(block - 8)) else {
            continue;
        };
        let bytes = ((head & 0x7fff) as usize * 8).saturating_sub(HEAD);
        if object == slot && head >> 16 & 0xffff == MARK && bytes > 0 {
            visit(block, bytes);
        }
    }
}

/// Addresses in code are at any place.
fn code(segment: &Segment<'_>, marking: &mut Marking<'_, '_, Words<'_>>) {
    let root = Root::new(kinds::CODE, segment.start);
    for page in segment.bytes.chunks(PAGE).filter(|page| page.iter().any(|byte| *byte != 0)) {
        for part in page.windows(8) {
            if let Ok(part) = part.try_into() {
                marking.from_word(u64::from_le_bytes(part) as usize, root);
            }
        }
    }
}
