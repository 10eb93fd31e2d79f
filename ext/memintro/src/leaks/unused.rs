//! Which parts of Ruby's own blocks, and of its stacks, are out of use; and which mappings are stacks of fibers.

use memintro_analysis::account::PAGE;
use memintro_analysis::account::space::Space;
use memintro_analysis::leaks::nodes::{Content, Nodes};
use memintro_analysis::leaks::ranges;
use memintro_analysis::leaks::unused::{Blocks, Read};

use super::memory::Words;
use crate::account::HeapPage;
use crate::account::frozen::read;
use crate::account::objects::body_bytes;
use crate::atlas::{Object, RUBY};
use crate::copy::own_memory::slice;

/// Lists them in the order of their addresses, and tells the blocks of which they are parts. `rest`: memory that is not
/// malloc's. `more`: ranges that are known already. `running`: stack pointers of threads,
/// and their numbers.
pub(super) fn find(
    pages: &[HeapPage],
    nodes: &mut Nodes<'_>,
    words: &Words<'_>,
    rest: &Space<'_>,
    more: &[(usize, usize)],
    running: &[(usize, usize)],
) -> Option<&'static [(usize, usize)]> {
    // One for each block, and those of stacks and of the collector.
    const OTHERS: usize = 1 << 17;
    let ranges = slice::<(usize, usize)>(nodes.list.len() + OTHERS)?;
    let mut count = 0;
    let mut visit = |from: usize, to: usize| {
        if let Some(place) = ranges.get_mut(count) {
            *place = (from, to);
            count += 1;
        }
    };
    more.iter().for_each(|range| visit(range.0, range.1));
    let descriptions = slice::<usize>(pages.len())?;
    let body = body_bytes(pages);
    for (place, page) in descriptions.iter_mut().zip(pages) {
        // SAFETY: where a page of the heap begins.
        *place = unsafe { read(page.start & !(body - 1)) } as usize;
    }
    descriptions.sort_unstable();
    let blocks = Blocks { memory: words, list: &*nodes.list, is_malloc: |_| true };
    let is_mapped = |from: usize, to: usize| {
        // Pages of Ruby's heap have been claimed.
        let is_whole = rest.area(from).is_some_and(|area| area.holds(from, to));
        is_whole && rest.is_resident(from) && rest.is_resident(to - 8)
    };
    let is_running = |from: usize, to: usize| running.iter().any(|(pointer, _)| (from..to).contains(pointer));
    blocks.of_vm(descriptions, is_mapped, is_running, &mut visit);
    let used = slice::<usize>(nodes.list.len())?;
    // Most slots are in the memory page of the one before.
    let mut last = (0, false);
    let mut is_there = |slot: usize| {
        if last.0 != slot / PAGE {
            last = (slot / PAGE, words.there.is_resident(slot));
        }
        last.1
    };
    for page in pages {
        for slot in page.slots().filter(|slot| is_there(*slot)) {
            if let Some((kind, ..)) = page.identity(slot) {
                let object = (slot, kind as u8, page.stride);
                blocks.of_object(object, |at| nodes.find(at), used, &mut visit);
                mutex(slot, words, &mut visit);
            }
        }
    }
    blocks.room(used, &mut visit);
    let ranges = ranges.get_mut(..count)?;
    let count = ranges::join(ranges);
    let ranges = ranges.get(..count)?;
    for (from, _) in ranges {
        if let Some(index) = nodes.find(*from)
            && let Some(node) = nodes.list.get_mut(index).filter(|node| node.content == Content::All)
        {
            node.content = Content::InUse;
        }
    }
    Some(ranges)
}

/// An unlocked `Thread::Mutex` still has the thread that locked it last, and the mutex that this thread had locked before.
fn mutex(slot: usize, words: &Words<'_>, visit: &mut impl FnMut(usize, usize)) {
    let Some((from, to)) = RUBY.old_words_of_mutex else { return };
    // SAFETY: a slot that is there.
    let object = unsafe { Object::read(slot) };
    let structure = object.structure();
    // Its first word tells who has locked it.
    if object.type_name() == b"mutex"
        && words.there.is_resident(structure)
        && words.known(structure) == Some(0)
    {
        visit(structure + from, structure + to);
    }
}

/// Where stacks of fibers begin and end, in the order of their addresses. `rest`: as above.
pub(super) fn fibers(
    nodes: &Nodes<'_>,
    words: &Words<'_>,
    rest: &Space<'_>,
) -> Option<&'static [(usize, usize)]> {
    const MOST: usize = 1 << 16;
    let list = slice::<(usize, usize)>(MOST)?;
    let mut count = 0;
    let blocks = Blocks { memory: words, list: &*nodes.list, is_malloc: |_| true };
    let mapped = |start| rest.area(start).filter(|area| area.start == start).map(|area| area.end);
    blocks.fiber_stacks(mapped, |start, end| {
        if let Some(place) = list.get_mut(count) {
            *place = (start, end);
            count += 1;
        }
    });
    let list = list.get_mut(..count)?;
    list.sort_unstable();
    Some(list)
}
