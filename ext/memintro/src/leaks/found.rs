//! Writes what was found: blocks by verdict, call site and size, and by what the others are held.

use memintro_analysis::account::lines::Word;
use memintro_analysis::leaks::groups::each_run;
use memintro_analysis::leaks::nodes::{Content, NO_HOLDER, NO_SITE, Node, Nodes, State};

use super::child::Plan;
use super::roots::kinds;
use crate::account::HeapPage;
use crate::account::answer::AnswerWriter;
use crate::account::frozen::read;
use crate::atlas::types::T_DATA;
use crate::copy::own_memory::slice;
use crate::heap::Vm;

/// Groups that are written of each verdict; the others are summed up.
const MOST_GROUPS: usize = 1000;
/// Call sites of blocks that something holds, those with most bytes.
const MOST_ANCHORED: usize = 200;
/// Classes of objects that hold blocks, those with most bytes.
const MOST_OWNERS: usize = 100;
/// First words of a block that are looked at.
const FIRST_WORDS: usize = 4;

/// Numbers of verdicts, as the Ruby side has them.
const LEAKED: u64 = 0;
const INDIRECT: u64 = 1;
const UNDECIDED: u64 = 2;

#[derive(Clone, Copy, Default)]
struct Group {
    site: u32,
    size: usize,
    holder: (u32, usize),
    first: u32,
    count: u64,
    bytes: u64,
    youngest: u32,
    oldest: u32,
}

pub(super) fn write(plan: &Plan<'_>, nodes: &mut Nodes<'_>, answer: &mut AnswerWriter<'_>) -> Option<()> {
    let classes = Classes::number(nodes.list)?;
    let nodes = &*nodes;
    let list = &*nodes.list;
    let (mut count, mut bytes) = (0, 0);
    for node in list.iter().filter(|node| node.state != State::Free) {
        count += 1;
        bytes += node.bytes as u64;
    }
    answer.add("scanned", &[count, bytes].map(Word::Number));
    let numbers = slice::<u32>(list.len())?;
    let groups = slice::<Group>(list.len())?;
    for (verdict, state) in
        [(LEAKED, State::Leaked), (INDIRECT, State::Indirect), (UNDECIDED, State::Undecided)]
    {
        let chosen = choose(list, numbers, |node| node.state == state)?;
        write_groups(plan, nodes, verdict, chosen, groups, answer);
    }
    let chosen =
        choose(list, numbers, |node| node.state == State::Reached && node.content != Content::Nothing)?;
    write_held(list, &classes, chosen, answer)?;
    let chosen = choose(list, numbers, |node| {
        node.state == State::Reached && node.content != Content::Nothing && node.kind == kinds::OBJECT
    })?;
    write_owners(plan, list, &classes, chosen, answer)
}

fn choose<'a>(
    list: &[Node],
    numbers: &'a mut [u32],
    is_wanted: impl Fn(&Node) -> bool,
) -> Option<&'a mut [u32]> {
    let mut used = 0;
    for (index, _) in list.iter().enumerate().filter(|(_, node)| is_wanted(node)) {
        *numbers.get_mut(used)? = index as u32;
        used += 1;
    }
    numbers.get_mut(..used)
}

/// What holds a leaked block: its call site and size.
fn holder(list: &[Node], node: &Node) -> (u32, usize) {
    if node.state != State::Indirect || node.holder == NO_HOLDER {
        return (NO_SITE, 0);
    }
    list.get(node.holder as usize).map_or((NO_SITE, 0), |holder| (holder.site, holder.bytes))
}

fn write_groups(
    plan: &Plan<'_>,
    nodes: &Nodes<'_>,
    verdict: u64,
    numbers: &mut [u32],
    groups: &mut [Group],
    answer: &mut AnswerWriter<'_>,
) {
    let list = &*nodes.list;
    let mut used = 0;
    let key = |node: &Node| (node.site, node.bytes, holder(list, node));
    each_run(numbers, list, key, |(site, size, holder), run| {
        let mut group = Group { site, size, holder, youngest: u32::MAX, ..Group::default() };
        group.first = run.first().copied().unwrap_or(0);
        for node in run.iter().filter_map(|number| list.get(*number as usize)) {
            group.count += 1;
            group.bytes += node.bytes as u64;
            group.youngest = group.youngest.min(node.age);
            group.oldest = group.oldest.max(node.age);
        }
        if let Some(place) = groups.get_mut(used) {
            *place = group;
            used += 1;
        }
    });
    let Some(groups) = groups.get_mut(..used) else { return };
    groups.sort_unstable_by_key(|group| (std::cmp::Reverse(group.bytes), group.first));
    let (mut blocks, mut bytes) = (0, 0);
    for (index, group) in groups.iter().enumerate() {
        blocks += group.count;
        bytes += group.bytes;
        if index >= MOST_GROUPS {
            continue;
        }
        let numbers = [
            verdict,
            u64::from(group.site),
            group.size as u64,
            group.count,
            group.bytes,
            u64::from(group.youngest),
            u64::from(group.oldest),
            u64::from(group.holder.0),
            group.holder.1 as u64,
        ];
        answer.add("group", &numbers.map(Word::Number));
        if plan.wanted.first_words
            && let Some(node) = list.get(group.first as usize)
        {
            let words = first_words(plan.pages, nodes, node);
            answer.add("words", &words.map(Word::Number));
        }
    }
    answer.add("verdict", &[verdict, groups.len() as u64, blocks, bytes].map(Word::Number));
}

/// What holds blocks of one call site.
#[derive(Clone, Copy, Default)]
struct Holder {
    kind: u8,
    /// For an object the place of its class, else the root.
    label: usize,
    bytes: u64,
    /// How many roots of this kind and label they are.
    roots: u64,
}

/// Blocks of one call site that something holds.
#[derive(Clone, Copy, Default)]
struct HeldSite {
    site: u32,
    blocks: u64,
    bytes: u64,
    /// What holds most bytes of it, and what comes next.
    holders: [Holder; 2],
}

impl HeldSite {
    fn add(&mut self, holder: Holder) {
        let [first, second] = &mut self.holders;
        if holder.bytes > first.bytes || first.kind == 0 {
            (*first, *second) = (holder, *first);
        } else if holder.bytes > second.bytes {
            *second = holder;
        }
    }
}

/// Classes of objects that hold blocks: each has a place. A table in which a class is looked for from the place on that its
/// address gives.
struct Classes {
    places: &'static mut [usize],
}

impl Classes {
    const MOST: usize = 1 << 18;

    /// Gives each block that an object holds the place of that object's class, instead of an age, which is told of other
    /// blocks alone.
    fn number(list: &mut [Node]) -> Option<Self> {
        let mut found = Self { places: slice::<usize>(Self::MOST)? };
        let is_one = |node: &&mut Node| node.state == State::Reached && node.kind == kinds::OBJECT;
        for node in list.iter_mut().filter(is_one) {
            // SAFETY: a slot that holds an object, whose second word is its class; Ruby goes from one class to the next.
            let class = unsafe { rb_sys::rb_class_real(read(node.root + 8)) } as usize;
            node.age = found.place(class);
        }
        Some(found)
    }

    fn place(&mut self, class: usize) -> u32 {
        let first = class / 8 % Self::MOST;
        let (before, after) = self.places.split_at_mut(first);
        let mut all = after.iter_mut().enumerate().map(|(number, place)| (number + first, place));
        let mut rest = before.iter_mut().enumerate();
        let is_its = |place: &usize| *place == class || *place == 0;
        let found = all.find(|(_, place)| is_its(place)).or_else(|| rest.find(|(_, place)| is_its(place)));
        found.map_or(0, |(number, place)| {
            *place = class;
            number as u32
        })
    }

    /// What distinguishes blocks that roots of one kind hold.
    fn label(&self, node: &Node) -> usize {
        match node.kind {
            kinds::OBJECT => node.age as usize,
            _ => node.root,
        }
    }

    /// For an object its class, else the root.
    fn named(&self, kind: u8, label: usize) -> u64 {
        match kind {
            kinds::OBJECT => self.places.get(label).copied().unwrap_or(0) as u64,
            _ => label as u64,
        }
    }
}

/// By call site, and what holds most bytes of each.
fn write_held(
    list: &[Node],
    classes: &Classes,
    numbers: &mut [u32],
    answer: &mut AnswerWriter<'_>,
) -> Option<()> {
    let all = slice::<HeldSite>(numbers.len())?;
    let mut used = 0;
    let (mut blocks, mut bytes) = (0, 0);
    // What holds the blocks at hand, and their call site.
    let mut open: Option<(u32, Holder)> = None;
    each_run(
        numbers,
        list,
        |node| (node.site, node.kind, classes.label(node), node.root),
        |(site, kind, label, _), run| {
            let nodes = run.iter().filter_map(|number| list.get(*number as usize));
            let sum: u64 = nodes.map(|node| node.bytes as u64).sum();
            blocks += run.len() as u64;
            bytes += sum;
            let goes_on =
                open.is_some_and(|(of, holder)| (of, holder.kind, holder.label) == (site, kind, label));
            if !goes_on {
                let before = open.replace((site, Holder { kind, label, ..Holder::default() }));
                if let (Some((_, holder)), Some(held)) = (before, all.get_mut(used)) {
                    held.add(holder);
                }
                used += usize::from(before.is_some_and(|(of, _)| of != site));
            }
            if let (Some((_, holder)), Some(held)) = (&mut open, all.get_mut(used)) {
                holder.bytes += sum;
                holder.roots += 1;
                held.site = site;
                held.blocks += run.len() as u64;
                held.bytes += sum;
            }
        },
    );
    if let (Some((_, holder)), Some(held)) = (open, all.get_mut(used)) {
        held.add(holder);
    }
    let all = all.get_mut(..used + usize::from(open.is_some()))?;
    all.sort_unstable_by_key(|held| (std::cmp::Reverse(held.bytes), held.site));
    for held in all.iter().take(MOST_ANCHORED) {
        let [first, second] = held.holders;
        let numbers = [
            u64::from(held.site),
            held.blocks,
            held.bytes,
            u64::from(first.kind),
            classes.named(first.kind, first.label),
            first.bytes,
            first.roots,
            u64::from(second.kind),
            classes.named(second.kind, second.label),
            second.bytes,
            second.roots,
        ];
        answer.add("anchored", &numbers.map(Word::Number));
    }
    answer.add("anchored_all", &[blocks, bytes].map(Word::Number));
    Some(())
}

/// Objects of one class that hold blocks.
#[derive(Clone, Copy, Default)]
struct Owners {
    /// The place of the class.
    class: u32,
    objects: u64,
    blocks: u64,
    bytes: u64,
    /// Those that have blocks of a C extension, of which it tells Ruby little or nothing.
    silent: u64,
    /// Those of which most bytes were followed, and the bytes that were.
    followed: u64,
    followed_bytes: u64,
}

/// By class, those that hold most bytes first.
fn write_owners(
    plan: &Plan<'_>,
    list: &[Node],
    classes: &Classes,
    numbers: &mut [u32],
    answer: &mut AnswerWriter<'_>,
) -> Option<()> {
    let all = slice::<Owners>(numbers.len())?;
    let mut used = 0;
    each_run(
        numbers,
        list,
        |node| (node.age, node.root),
        |(class, slot), run| {
            let nodes = || run.iter().filter_map(|number| list.get(*number as usize));
            let bytes: u64 = nodes().map(|node| node.bytes as u64).sum();
            let followed: u64 =
                nodes().filter(|node| node.site != NO_SITE).map(|node| node.bytes as u64).sum();
            let is_new = used == 0 || all.get(used - 1).is_none_or(|owners| owners.class != class);
            used += usize::from(is_new);
            if let Some(owners) = all.get_mut(used - 1) {
                owners.class = class;
                owners.objects += 1;
                owners.blocks += run.len() as u64;
                owners.bytes += bytes;
                owners.silent += u64::from(is_silent(plan, slot, bytes));
                owners.followed += u64::from(followed * 2 > bytes);
                owners.followed_bytes += followed;
            }
        },
    );
    let all = all.get_mut(..used)?;
    all.sort_unstable_by_key(|owners| (std::cmp::Reverse(owners.bytes), owners.class));
    for owners in all.iter().take(MOST_OWNERS) {
        let numbers = [
            classes.named(kinds::OBJECT, owners.class as usize),
            owners.objects,
            owners.blocks,
            owners.bytes,
            owners.silent,
            owners.followed,
            owners.followed_bytes,
        ];
        answer.add("owner", &numbers.map(Word::Number));
    }
    Some(())
}

/// Whether this is an object of an extension that tells Ruby less than a quarter of these bytes.
fn is_silent(plan: &Plan<'_>, slot: usize, bytes: u64) -> bool {
    /// Less is not worth asking.
    const LEAST: u64 = 256;
    let pages = plan.pages;
    let page = pages.get(pages.partition_point(|page| page.end <= slot)).filter(|page| page.start <= slot);
    let Some((page, vm)) = page.zip(Vm::get()).filter(|_| bytes >= LEAST) else { return false };
    let is_data = page
        .identity(slot)
        .is_some_and(|(kind, _, class)| kind == T_DATA && !plan.machinery.has(slot, kind, class));
    is_data && vm.object(slot, page.stride as u64).1 < bytes / 4
}

/// Where the block is; what kind of word each is, and for an address of a module, the address: never what it holds.
fn first_words(pages: &[HeapPage], nodes: &Nodes<'_>, node: &Node) -> [u64; 2 * FIRST_WORDS + 1] {
    const ZERO: u64 = 1;
    const NUMBER: u64 = 2;
    const TEXT: u64 = 3;
    const BLOCK: u64 = 4;
    const OBJECT: u64 = 5;
    const ADDRESS: u64 = 6;
    const OTHER: u64 = 7;
    let mut found = [0; 2 * FIRST_WORDS + 1];
    let (place, words) = found.split_at_mut(1);
    place.fill(node.start as u64);
    for (index, pair) in words.chunks_exact_mut(2).enumerate().take(node.bytes / 8) {
        // SAFETY: within a block.
        let word = unsafe { read(node.start + index * 8) };
        let address = word as usize;
        let text = word.to_le_bytes();
        let length = text.iter().position(|byte| *byte == 0).unwrap_or(8);
        let is_text = length > 2
            && text.iter().take(length).all(|byte| (0x20..0x7f).contains(byte))
            && text.iter().skip(length).all(|byte| *byte == 0);
        let (kind, value) = match word {
            0 => (ZERO, 0),
            _ if word < 1 << 32 => (NUMBER, 0),
            // An address may consist of the bytes of printable characters.
            _ if nodes.find(address).is_some() => (BLOCK, 0),
            _ if pages.iter().any(|page| (page.start..page.end).contains(&address)) => (OBJECT, 0),
            _ if is_text => (TEXT, 0),
            _ if word < 1 << 47 => (ADDRESS, word),
            _ => (OTHER, 0),
        };
        pair.copy_from_slice(&[kind, value]);
    }
    found
}
