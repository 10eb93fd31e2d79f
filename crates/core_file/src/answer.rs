//! Searches, and has what was found written as the JSON of `Memintro::Leaks`.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use memintro_analysis::advice::Advice;
use memintro_analysis::leaks::groups::each_run;
use memintro_analysis::leaks::mark::{Marking, ranks};
use memintro_analysis::leaks::nodes::{NO_HOLDER, Node, Nodes, State, TOP, leaf_entries};
use memintro_analysis::leaks::ranges;
use memintro_analysis::leaks::report::{self, Anchor, Leaks, MOST_ANCHORED, Verdict};
use memintro_analysis::leaks::unused::Read;
use memintro_analysis::text::units::hundredths;

use crate::classes::Classes;
use crate::followed::Followed;
use crate::image::Image;
use crate::malloc::{Malloc, allocator};
use crate::modules::Names;
use crate::ruby::{Heap, type_name};
use crate::search::{self, OBJECT, Words, kinds};

/// Groups of each verdict; the others count in the sums.
const MOST_GROUPS: usize = 1000;
/// First words of a block that are looked at.
const FIRST_WORDS: usize = 4;
const T_IMEMO: u32 = 0x1a;

struct Group {
    site: u32,
    size: usize,
    /// Call site and bytes of the leaked block that holds them; 0 bytes: there is none.
    holder: (u32, usize),
    count: usize,
    youngest: u32,
    oldest: u32,
    first: Node,
}

/// What everything is named by.
struct Naming<'a, 'b> {
    image: &'a Image<'b>,
    heap: &'a Heap,
    classes: &'a Classes<'b>,
    followed: &'a Followed,
    first_words: bool,
}

impl Naming<'_, '_> {
    fn site(&self, site: u32) -> Option<&str> {
        self.followed.sites.get(&site).map(String::as_str)
    }
}

/// Searches, and writes JSON. `followed`: what is known of the call sites of blocks, or why nothing is.
#[must_use]
pub fn write(
    image: &Image<'_>,
    malloc: Malloc,
    heap: &Heap,
    followed: Result<Followed, String>,
    first_words: bool,
) -> String {
    let Malloc { nodes: blocks, ranges, free, mut notes, is_part, .. } = malloc;
    let own = search::own_ranges(image);
    let classes = Classes::find(image, heap);
    explain(image, heap, &classes, own.as_deref(), &mut notes);
    let followed = followed.unwrap_or_else(|why| {
        notes.push(format!("lines and ages of blocks are missing: {why}"));
        Followed { mode: "off", ..Followed::default() }
    });
    notes.extend(followed.notes.iter().cloned());
    let mut skipped = ranges.clone();
    skipped.extend(heap.pages.iter().map(|page| (page.body, page.body + heap.page_bytes)));
    skipped.extend(own.unwrap_or_default());
    skipped.extend(search::short_lived(image));
    if is_part {
        skipped.extend(blocks.iter().map(|node| (node.start, node.end())));
    }
    let count = ranges::join(&mut skipped);
    skipped.truncate(count);
    let mut list = together(blocks, search::objects(image, heap), heap);
    let (mut top, mut leaves) = (vec![0; TOP], vec![0; leaf_entries(&list)]);
    let count = list.len();
    let mut nodes = Nodes::new(&mut list, &mut top, &mut leaves);
    let (mut waiting, mut candidates) = (vec![0; count * ranks::COUNT], vec![0; count]);
    let begun = Instant::now();
    let words = Words::new(image, nodes.list, &ranges, heap);
    let owners = search::owners(&words, &classes, &mut nodes, &mut waiting);
    let mut marking = Marking::new(&mut nodes, &words, &mut waiting, None);
    search::search(image, &skipped, (&words, is_part), &mut marking);
    let searched = marking.searched;
    marking.sort_unreached(&mut candidates);
    let took = begun.elapsed().as_secs_f64() * 1e3;
    let list = &*nodes.list;
    let blocks = |states: &[State]| {
        let chosen = list.iter().filter(|node| node.site != OBJECT && states.contains(&node.state));
        chosen.fold((0_usize, 0_usize), |sum, node| (sum.0 + 1, sum.1 + node.bytes))
    };
    let (leaked, indirect) = (blocks(&[State::Leaked]), blocks(&[State::Indirect]));
    let scanned = blocks(&[State::Leaked, State::Indirect, State::Reached, State::Unreached]);
    let naming = Naming { image, heap, classes: &classes, followed: &followed, first_words };
    let mut rows = Vec::new();
    for (verdict, state) in [(Verdict::Leaked, State::Leaked), (Verdict::IndirectlyLeaked, State::Indirect)] {
        for group in groups(list, state) {
            rows.push(row(&naming, &nodes, verdict, &group));
        }
    }
    rows.extend(held(&naming, list, &owners));
    if !is_part {
        rows.push(report::Group {
            verdict: Verdict::FreeButKept,
            count: free.0 as i64,
            bytes: free.1 as i64,
            ..report::Group::default()
        });
    }
    let signed = |(blocks, bytes): (usize, usize)| (blocks as i64, bytes as i64);
    let leaks = Leaks {
        lost: [signed(leaked), signed(indirect), (0, 0)],
        scanned: signed(scanned),
        free_bytes: (!is_part).then_some(free.1 as i64),
        allocator: allocator(image).to_owned(),
        judges_chunks: !is_part,
        mode: followed.mode.to_owned(),
        searched: (searched as i64, hundredths(took)),
        notes,
        groups: rows,
        ..Leaks::default()
    };
    // Nothing can be asked of a process that has ended.
    format!("{}\n", leaks.judged(&[], Advice::Commands, 0).json(image.pid))
}

/// Blocks and objects in the order of their addresses. Blocks in which pages of Ruby's heap are, are none.
fn together(mut list: Vec<Node>, objects: Vec<Node>, heap: &Heap) -> Vec<Node> {
    list.retain(|node| {
        let next = heap.pages.partition_point(|page| page.end <= node.start);
        heap.pages.get(next).is_none_or(|page| page.body >= node.end())
    });
    list.extend(objects);
    list.sort_by_key(|node| (node.start, node.site == OBJECT));
    let mut end = 0;
    list.retain(|node| {
        let is_apart = node.start >= end;
        end = if is_apart { node.end() } else { end };
        is_apart
    });
    list
}

/// What a core file does not say.
fn explain(
    image: &Image<'_>,
    heap: &Heap,
    classes: &Classes<'_>,
    own: Option<&[(usize, usize)]>,
    notes: &mut Vec<String>,
) {
    let left_out = image.left_out();
    if left_out > 0 {
        notes.push(format!(
            "{} KiB of memory that the process could write are not in the file (/proc/PID/coredump_filter, MADV_DONTDUMP): a \
             block that only they point to looks leaked",
            left_out >> 10
        ));
    }
    if heap.pages.is_empty() {
        notes.push(
            "no pages of Ruby's heap were found, so its free slots count as in use, and a leaked block may be taken for held"
                .to_owned(),
        );
    }
    if !classes.are_known() {
        notes.push("names of classes were not found, so objects are called by their types".to_owned());
    }
    notes.push("garbage in a core file is not collected: what it owns counts as held".to_owned());
    if own.is_some_and(<[_]>::is_empty) {
        notes.push("memintro's own memory was not found, so addresses in it hold blocks".to_owned());
    }
}

fn holder(list: &[Node], node: &Node) -> (u32, usize) {
    if node.state != State::Indirect || node.holder == NO_HOLDER {
        return (0, 0);
    }
    list.get(node.holder as usize).map_or((0, 0), |holder| (holder.site, holder.bytes))
}

/// Groups of one state, those with most bytes first.
fn groups(list: &[Node], state: State) -> Vec<Group> {
    let mut numbers = numbers(list, |node| node.state == state);
    let mut found = Vec::new();
    let key = |node: &Node| (node.site, node.bytes, holder(list, node));
    each_run(&mut numbers, list, key, |(site, size, holder), run| {
        if let Some(first) = run.first().and_then(|number| list.get(*number as usize)) {
            let ages = || run.iter().filter_map(|number| list.get(*number as usize)).map(|node| node.age);
            let (youngest, oldest) = (ages().min().unwrap_or(0), ages().max().unwrap_or(0));
            found.push(Group { site, size, holder, count: run.len(), youngest, oldest, first: *first });
        }
    });
    found.sort_by_key(|group| (std::cmp::Reverse(group.size * group.count), group.first.start));
    found.truncate(MOST_GROUPS);
    found
}

fn numbers(list: &[Node], is_wanted: impl Fn(&Node) -> bool) -> Vec<u32> {
    list.iter().enumerate().filter(|(_, node)| is_wanted(node)).map(|(index, _)| index as u32).collect()
}

fn row(naming: &Naming<'_, '_>, nodes: &Nodes<'_>, verdict: Verdict, group: &Group) -> report::Group {
    let site = naming.site(group.site).map(str::to_owned);
    let holder = (group.holder.1 > 0).then(|| naming.site(group.holder.0));
    let words = || {
        let words = first_words(naming.image, nodes, naming.heap, &group.first);
        (words.into_iter().map(str::to_owned).collect(), format!("{:#x}", group.first.start))
    };
    report::Group {
        verdict,
        size: Some(group.size as i64),
        count: group.count as i64,
        bytes: (group.size * group.count) as i64,
        ages: (site.is_some() && naming.followed.knows_ages)
            .then_some((group.youngest.into(), group.oldest.into())),
        held_by: holder.map(|site| {
            let from = site.map_or_else(String::new, |site| format!(" from {site}"));
            format!("a leaked block of {} bytes{from}", group.holder.1)
        }),
        first_words: naming.first_words.then(words),
        site,
        ..report::Group::default()
    }
}

/// What kind of word each of the first ones is, never what it holds.
fn first_words(image: &Image<'_>, nodes: &Nodes<'_>, heap: &Heap, node: &Node) -> Vec<&'static str> {
    let words = (0..FIRST_WORDS.min(node.bytes / 8)).filter_map(|index| image.word(node.start + index * 8));
    words
        .map(|word| {
            let address = word as usize;
            let text = word.to_le_bytes();
            let length = text.iter().position(|byte| *byte == 0).unwrap_or(8);
            let (before, after) = text.split_at(length);
            let is_text = length > 2
                && before.iter().all(|byte| (0x20..0x7f).contains(byte))
                && after.iter().all(|byte| *byte == 0);
            let next = heap.pages.partition_point(|page| page.end <= address);
            match word {
                0 => "zero",
                _ if word < 1 << 32 => "a number",
                // An address may consist of the bytes of printable characters.
                _ if nodes.find(address).is_some() => "a block's address",
                _ if heap.pages.get(next).is_some_and(|page| page.start <= address) => "an object",
                _ if is_text => "text",
                _ if image.segment(address).is_some() => "an address",
                _ => "other bytes",
            }
        })
        .collect()
}

/// What holds a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Holder {
    /// Objects of a class, and whether nothing points to them.
    Class(usize, bool),
    /// Objects of a type that has no class.
    Type(u32),
    /// The kind of a root, and its key.
    Root(u8, usize),
}

/// The object that has the block as its own, or the nearest through which it is reached, or else the root; and the number of
/// that object.
fn holder_of(classes: &Classes<'_>, list: &[Node], node: &Node, owner: (u32, u8)) -> (Holder, u32) {
    const FARTHEST: usize = 64;
    let of_object = |number: u32, object: &Node| {
        let class = classes.class_at(object.start).filter(|_| object.age != T_IMEMO);
        let is_garbage = object.kind == kinds::GARBAGE;
        let holder = class.map_or(Holder::Type(object.age), |class| Holder::Class(class, is_garbage));
        (holder, number)
    };
    let (number, rank) = owner;
    // What an object only seems to point to is named by what is known better.
    if let Some(object) = list.get(number as usize).filter(|_| rank <= node.rank) {
        return of_object(number, object);
    }
    let mut at = node;
    for _ in 0..FARTHEST {
        match list.get(at.holder as usize).filter(|_| node.kind != kinds::GARBAGE) {
            Some(holder) if holder.site == OBJECT => return of_object(at.holder, holder),
            Some(holder) => at = holder,
            None => break,
        }
    }
    (Holder::Root(node.kind, node.root), NO_HOLDER)
}

/// What something holds, by call site, those with most bytes first, and what holds most of each.
fn held(naming: &Naming<'_, '_>, list: &[Node], owners: &[(u32, u8)]) -> Vec<report::Group> {
    #[derive(Default)]
    struct Site {
        count: usize,
        bytes: usize,
        by_holder: HashMap<Holder, (usize, HashSet<u32>)>,
    }
    let mut sites: HashMap<u32, Site> = HashMap::new();
    let is_held = |node: &Node| node.site != OBJECT && node.state == State::Reached;
    for (node, owner) in list.iter().zip(owners).filter(|(node, _)| is_held(node)) {
        let site = sites.entry(node.site).or_default();
        site.count += 1;
        site.bytes += node.bytes;
        let (holder, object) = holder_of(naming.classes, list, node, *owner);
        let held = site.by_holder.entry(holder).or_default();
        held.0 += node.bytes;
        held.1.insert(object);
    }
    let mut sites: Vec<(u32, Site)> = sites.into_iter().collect();
    sites.sort_by_key(|(number, site)| (std::cmp::Reverse(site.bytes), *number));
    let row = |(number, site): (u32, Site)| {
        let mut holders: Vec<_> = site.by_holder.into_iter().collect();
        holders.sort_by_key(|(holder, (bytes, _))| (std::cmp::Reverse(*bytes), *holder));
        let mut holders = holders.into_iter();
        let (holder, (most, objects)) = holders.next()?;
        let owner = match holder {
            Holder::Class(class, _) => {
                naming.classes.name_of(class).map(|(name, _)| (name, objects.len() as i64))
            }
            _ => None,
        };
        let also = |(other, (bytes, objects)): (Holder, (usize, HashSet<u32>))| {
            (anchor(naming, other, objects.len()).text(), bytes as i64)
        };
        Some(report::Group {
            verdict: Verdict::Anchored,
            site: naming.site(number).map(str::to_owned),
            count: site.count as i64,
            bytes: site.bytes as i64,
            held_by: Some(anchor(naming, holder, objects.len()).text()),
            held_bytes: Some(most as i64),
            owner,
            also_held: holders.next().map(also),
            ..report::Group::default()
        })
    };
    sites.into_iter().take(MOST_ANCHORED).filter_map(row).collect()
}

fn anchor(naming: &Naming<'_, '_>, holder: Holder, count: usize) -> Anchor {
    let (kind, root) = match holder {
        Holder::Class(class, is_garbage) => {
            return Anchor::Objects(count as i64, class_text(naming.classes, class, is_garbage));
        }
        Holder::Type(kind) => return Anchor::Objects(1, format!("of type {}", type_name(kind as u8))),
        Holder::Root(kind, root) => (kind, root),
    };
    match kind {
        kinds::DATA => {
            let name = Names::default().of(naming.image, root);
            Anchor::Static(name.unwrap_or_else(|| "of a module that is not known".to_owned()))
        }
        kinds::STACK if !(1..1 << 22).contains(&root) => Anchor::Stack("a thread".to_owned()),
        kinds::STACK => Anchor::Stack(format!("thread {root}")),
        kinds::GARBAGE => Anchor::Garbage,
        kinds::UNFOLLOWED => Anchor::Untracked,
        kinds::FIBER => Anchor::Fiber,
        kinds::CODE => Anchor::Code,
        _ => Anchor::Mapped,
    }
}

/// Such as `of class A`.
fn class_text(classes: &Classes<'_>, class: usize, is_garbage: bool) -> String {
    let garbage = if is_garbage { " that nothing points to, which Ruby had not collected" } else { "" };
    match classes.name_of(class) {
        Some((name, true)) => format!("of class {name}{garbage}"),
        Some((name, false)) => format!("of a class without a name below {name}{garbage}"),
        None => format!("of a class that has no name{garbage}"),
    }
}
