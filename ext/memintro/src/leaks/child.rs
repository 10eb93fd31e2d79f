//! The copy's work. It allocates nothing, and ends the process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use memintro_abi::HookApi;
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::owners::Owners;
use memintro_analysis::account::space::Space;
use memintro_analysis::leaks::groups::doubt_small_groups;
use memintro_analysis::leaks::mark::{Marking, Root, ranks};
use memintro_analysis::leaks::nodes::{Node, Nodes, State, TOP, leaf_entries};

use super::memory::{self, Words};
use super::own_data::OwnData;
use super::registers::{self, Codes};
use super::roots::{self, Machinery, Roots, kinds};
use super::threads::Waiting;
use super::{Held, MOST_LISTED, Wanted, blocks, found, unused};
use crate::account::answer::{AnswerWriter, open, room_for_maps};
use crate::account::frozen::{self, Frozen};
use crate::account::{HeapPage, glibc, objects};
use crate::copy::own_memory::{read_all, slice};
use crate::copy::{self, Shared};

/// Sleeps of a millisecond until the host has said where stacks end.
const SLEEPS: u32 = 500;

pub(super) struct Plan<'a> {
    pub(super) wanted: Wanted,
    pub(super) pages: &'a [HeapPage],
    pub(super) held: &'a Held,
    pub(super) machinery: Machinery,
    /// The hook's own mappings.
    pub(super) own: &'a [(usize, usize)],
    /// Statics of memintro's libraries.
    pub(super) own_data: OwnData,
    /// The hook, while it tracks; and whether it follows only a part of the blocks.
    pub(super) hook: Option<&'static HookApi>,
    pub(super) sampled: bool,
    /// The smaps of the process that was copied.
    pub(super) maps: i32,
    pub(super) shared: &'a Shared,
    /// Blocks that were unreached in an earlier copy.
    pub(super) earlier: Option<&'a [(usize, usize)]>,
    pub(super) unused_stack: Option<(usize, usize)>,
    pub(super) lists: [usize; 4],
}

pub(super) fn run(plan: &Plan<'_>) -> ! {
    let text = plan.shared.start().wrapping_add(super::TEXT_AT);
    // SAFETY: the shared memory, which only this copy writes.
    let text = unsafe { std::slice::from_raw_parts_mut(text, super::TEXT_ROOM) };
    let mut answer = AnswerWriter::new(text, super::length(plan.shared));
    let done = scan(plan, &mut answer).is_some();
    copy::end(done)
}

fn scan(plan: &Plan<'_>, answer: &mut AnswerWriter<'_>) -> Option<()> {
    let own = read_all(open(c"/proc/self/smaps"), room_for_maps(slice)?)?;
    let mappings = memory::mappings(own)?;
    answer.figure("unreadable", mappings.unreadable);
    kept_back(plan, answer);
    let (areas, pages) = (mappings.areas, mappings.pages);
    let mut space = Space::new(areas, slice(Space::words(pages))?);
    if memory::fill(open(c"/proc/self/pagemap"), &mut space, mappings.regions).is_none() {
        answer.figure("no_pagemap", 1);
        return None;
    }
    let mut frozen = Frozen {
        space,
        regions: mappings.regions,
        is_spread: false,
        control_blocks: &mut [],
        malloc: None,
        owners: None,
    };
    let there = frozen.space.copy(slice(Space::words(pages))?);
    frozen::own_ranges(plan.own, &mut frozen, answer);
    objects::pages(plan.pages, &mut frozen, answer);
    let all = frozen.space.copy(slice(Space::words(pages))?);
    let followed: &mut [Node] = match plan.hook {
        Some(api) => blocks::followed(api)?,
        None => &mut [],
    };
    answer.figure("followed", followed.len() as u64);
    answer.figure("sampled", u64::from(plan.sampled));
    let mut arena = (0, 0);
    let mut chunks: Option<&mut [Node]> = None;
    if plan.wanted.glibc {
        if let Some((at, layout)) = glibc::find(&frozen, own) {
            arena = (at, at + layout.size);
        }
        frozen.owners = Some(Owners::new(areas, slice(Owners::bytes(pages))?));
        let before = answer.broken;
        glibc::walk(&mut frozen, own, None, answer)?;
        if let Some(owners) = frozen.owners.as_ref().filter(|_| answer.broken == before)
            && let Some((list, given_up)) = blocks::chunks(owners, &there, followed)
        {
            answer.figure("given_up", given_up);
            chunks = Some(list);
        }
    }
    answer.figure("chunks", u64::from(chunks.is_some()));
    let is_whole = chunks.is_some();
    let list = match chunks {
        Some(chunks) => chunks,
        // Most blocks are not known if they were drawn at random.
        None if followed.is_empty() || plan.sampled => return None,
        None => followed,
    };
    let leaves = slice(leaf_entries(list))?;
    let mut nodes = Nodes::new(list, slice(TOP)?, leaves);
    let count = nodes.list.len();
    let rest = if is_whole { &frozen.space } else { &all };
    // glibc's arena holds nothing, and is no block.
    let skipped = [arena, plan.unused_stack.unwrap_or((0, 0))];
    let (waiting, others) = threads(plan);
    let stacks = slice::<(usize, usize)>(waiting.len() + 1)?;
    let arguments = slice::<[usize; 6]>(waiting.len())?;
    for ((stack, registers), thread) in stacks.iter_mut().zip(arguments.iter_mut()).zip(waiting) {
        (*stack, *registers) = ((thread.stack_pointer, thread.thread), thread.arguments);
    }
    if let Some(last) = stacks.last_mut() {
        *last = (plan.held.stack, roots::CALLER);
    }
    let words = Words { there: &there, unused: &[] };
    let begun = processor_time();
    let fibers = unused::fibers(&nodes, &words, rest)?;
    let unused = unused::find(plan.pages, &mut nodes, &words, rest, &skipped, stacks)?;
    let words = Words { there: &there, unused };
    let mut marking = Marking::new(&mut nodes, &words, slice(count * ranks::COUNT)?, Some(kinds::OURS));
    for list in plan.lists {
        if let Some(index) = marking.nodes.find(list) {
            marking.close(index, Root::new(kinds::OURS, 1, ranks::LAST));
        }
    }
    let (unread, registers) = registers::unknown(&Codes::new(own)?, &there, waiting, others);
    answer.add("registers", &[unread, registers, others].map(Word::Number));
    objects_and_roots(
        plan,
        &there,
        &Roots {
            space: rest,
            regions: frozen.regions,
            kinds: mappings.kinds,
            stacks,
            fibers,
            own_data: plan.own_data.ranges(),
            skipped: unused,
            has_blocks: !is_whole,
            registers: &plan.held.registers,
            arguments,
        },
        &mut marking,
    );
    list_unreached(plan, marking.nodes.list);
    answer.figure("doubted", doubt(plan, &mut marking));
    let searched = marking.searched;
    marking.sort_unreached(slice(count)?);
    let took = processor_time().saturating_sub(begun);
    answer.add("searched", &[searched, took].map(Word::Number));
    doubt_small_groups(
        &mut marking,
        registers,
        (slice(count)?, slice(count)?),
        Root::new(kinds::REGISTER, 1, ranks::LAST),
    );
    found::write(plan, marking.nodes, answer)?;
    answer.figure("stage", 1);
    answer.figure("lost", answer.lost());
    Some(())
}

/// Nanoseconds of processor time of this copy.
fn processor_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid record.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn objects_and_roots(
    plan: &Plan<'_>,
    there: &Space<'_>,
    roots: &Roots<'_>,
    marking: &mut roots::Search<'_, '_, '_>,
) {
    roots::objects(plan.pages, there, &plan.machinery, marking);
    if roots.has_blocks {
        // What objects own may have been allocated before anything was followed.
        roots::owned(plan.pages, there, &plan.machinery, marking);
    }
    roots.search(marking);
    marking.follow();
}

/// Memory of the host that is not in the copy.
fn kept_back(plan: &Plan<'_>, answer: &mut AnswerWriter<'_>) {
    let Some(theirs) = room_for_maps(slice).and_then(|room| read_all(plan.maps, room)) else { return };
    let mut bytes = 0;
    memintro_analysis::account::maps::each(theirs, |mapping| {
        if mapping.is_kept_back && mapping.private && mapping.writable {
            bytes += mapping.rss + mapping.swap;
        }
    });
    answer.figure("kept_back", bytes);
}

/// The threads that wait, which the host has written, and how many others there are.
fn threads(plan: &Plan<'_>) -> (&'static [Waiting], u64) {
    let mut sleeps = 0;
    let mut ready = 0;
    while ready == 0 && sleeps < SLEEPS {
        ready = super::threads_word(plan.shared).load(Ordering::Acquire);
        copy::sleep(Duration::from_millis(u64::from(ready == 0)));
        sleeps += 1;
    }
    let count = usize::try_from(ready).unwrap_or(0).saturating_sub(1).min(super::MOST_THREADS);
    let first = plan.shared.start().wrapping_add(super::THREADS_AT).cast::<Waiting>();
    // SAFETY: within the mapping; the host has written so many, and writes no more.
    let waiting = unsafe { std::slice::from_raw_parts(first, count) };
    let others = super::others_word(plan.shared).load(Ordering::Relaxed);
    // Where the host did not come to it, there may be any number.
    (waiting, if ready == 0 { u64::from(u32::MAX) } else { others })
}

/// For a copy that comes later.
fn list_unreached(plan: &Plan<'_>, list: &[Node]) {
    let places = plan.shared.start().wrapping_add(super::LIST_AT).cast::<(usize, usize)>();
    let mut count = 0;
    for node in list.iter().filter(|node| node.state == State::Unreached).take(MOST_LISTED) {
        // SAFETY: within the mapping.
        unsafe { places.add(count).write((node.start, node.bytes)) };
        count += 1;
    }
    super::listed(plan.shared).store(count as u64, Ordering::Release);
}

/// What an earlier copy did not find unreached is not decided, and what it holds is not lost. Returns how many those were.
fn doubt(plan: &Plan<'_>, marking: &mut roots::Search<'_, '_, '_>) -> u64 {
    let mut count = 0;
    let Some(earlier) = plan.earlier.filter(|earlier| earlier.len() < MOST_LISTED) else { return count };
    for index in 0..marking.nodes.list.len() {
        let Some(node) = marking.nodes.list.get(index).copied() else { break };
        if node.state == State::Unreached && earlier.binary_search(&(node.start, node.bytes)).is_err() {
            marking.doubt(index, Root::new(kinds::DOUBT, 1, ranks::STACK));
            count += 1;
        }
    }
    count
}
