//! Searches, and writes what was found as the JSON of `Memintro::Leaks`.

use std::collections::HashMap;
use std::time::Instant;

use memintro_analysis::leaks::groups::each_run;
use memintro_analysis::leaks::mark::Marking;
use memintro_analysis::leaks::nodes::{NO_SITE, NOBODY, Node, Nodes, State, TOP, leaf_entries};
use memintro_analysis::leaks::unused::{self, Read};
use serde_json::{Value, json};

use crate::Wanted;
use crate::classes::Classes;
use crate::image::Image;
use crate::malloc::Malloc;
use crate::modules::Names;
use crate::ruby::{Heap, type_name};
use crate::search::{self, OBJECT, Words, kinds};

/// The layout of this JSON (lib/memintro/malloc/leaks.rb).
const LAYOUT: u32 = 1;
/// Groups of each verdict; the others count in the sums.
const MOST_GROUPS: usize = 1000;
/// First words of a block that are looked at.
const FIRST_WORDS: usize = 4;
/// Beside the kinds of roots: the key is the object's class, or its type.
const HELD_BY_OBJECT: u8 = 100;
const HELD_BY_TYPE: u8 = 101;
const T_IMEMO: u32 = 0x1a;

struct Group {
    size: usize,
    holder: usize,
    count: usize,
    first: Node,
}

/// Searches, and writes JSON.
#[must_use]
pub fn write(image: &Image<'_>, malloc: Malloc, heap: &Heap, wanted: Wanted) -> String {
    let Malloc { nodes: blocks, ranges, free, mut notes, .. } = malloc;
    let mut list = together(blocks, search::objects(image, heap), heap);
    let own = search::own_ranges(image);
    let classes = Classes::find(image, heap);
    explain(image, heap, &classes, own.as_deref(), &mut notes);
    let mut skipped = ranges.clone();
    skipped.extend(heap.pages.iter().map(|page| (page.body, page.body + heap.page_bytes)));
    skipped.extend(own.unwrap_or_default());
    skipped.extend(search::short_lived(image));
    let count = unused::join(&mut skipped);
    skipped.truncate(count);
    let (mut top, mut leaves) = (vec![0; TOP], vec![0; leaf_entries(&list)]);
    let count = list.len();
    let mut nodes = Nodes::new(&mut list, &mut top, &mut leaves);
    let (mut waiting, mut candidates) = (vec![0; count], vec![0; count]);
    let begun = Instant::now();
    let words = Words::new(image, nodes.list, &ranges, heap);
    let mut marking = Marking::new(&mut nodes, &words, &mut waiting, None);
    search::search(image, &skipped, &mut marking);
    let searched = marking.searched;
    marking.sort_unreached(&mut candidates);
    let took = begun.elapsed().as_secs_f64() * 1e3;
    let list = &*nodes.list;
    let blocks = |states: &[State]| {
        let chosen = list.iter().filter(|node| node.site == NO_SITE && states.contains(&node.state));
        chosen.fold((0_usize, 0_usize), |sum, node| (sum.0 + 1, sum.1 + node.bytes))
    };
    let (leaked, indirect) = (blocks(&[State::Leaked]), blocks(&[State::Indirect]));
    let scanned = blocks(&[State::Leaked, State::Indirect, State::Reached, State::Unreached]);
    let mut rows = Vec::new();
    for (verdict, state) in [("leaked", State::Leaked), ("indirectly_leaked", State::Indirect)] {
        for group in groups(list, state) {
            rows.push(row(image, &nodes, heap, verdict, &group, wanted));
        }
    }
    rows.extend(held(image, &classes, list));
    rows.push(json!({ "verdict": "free_but_kept", "count": free.0, "bytes": free.1 }));
    let answer = json!({
        "memintro_leaks": LAYOUT,
        "pid": image.pid,
        "leaked_blocks": leaked.0,
        "leaked_bytes": leaked.1,
        "indirectly_leaked_blocks": indirect.0,
        "indirectly_leaked_bytes": indirect.1,
        "undecided_blocks": 0,
        "undecided_bytes": 0,
        "scanned_blocks": scanned.0,
        "scanned_bytes": scanned.1,
        "free_bytes": free.1,
        "allocator": "glibc",
        "basis": "chunks",
        "mode": "off",
        "copies": 0,
        "searched_bytes": searched,
        "search_ms": (took * 100.0).round() / 100.0,
        "pause_ms": 0.0,
        "notes": notes,
        "groups": rows,
    });
    format!("{answer}\n")
}

/// Blocks and objects in the order of their addresses. Blocks in which pages of Ruby's heap are, are none.
fn together(mut list: Vec<Node>, objects: Vec<Node>, heap: &Heap) -> Vec<Node> {
    list.retain(|node| {
        let next = heap.pages.partition_point(|page| page.end <= node.start);
        heap.pages.get(next).is_none_or(|page| page.body >= node.end())
    });
    list.extend(objects);
    list.sort_by_key(|node| (node.start, node.site != NO_SITE));
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
    let why = match own {
        None => "memintro was not in this process, and nothing else writes them down",
        Some(_) => {
            "memintro's hook was in this process, but only the live process reads what it had followed (memintro leaks PID)"
        }
    };
    let named = if classes.are_known() {
        ""
    } else {
        " Names of classes were not found, so objects are called by their types."
    };
    notes.push(format!(
        "lines and ages of blocks are missing: {why}.{named} Nobody collects garbage in a core file: what garbage owns counts as \
         held"
    ));
    if own.is_some_and(<[_]>::is_empty) {
        notes.push("memintro's own memory was not found, so addresses in it hold blocks".to_owned());
    }
}

fn holder_bytes(list: &[Node], node: &Node) -> usize {
    if node.state != State::Indirect || node.holder == NOBODY {
        return 0;
    }
    list.get(node.holder as usize).map_or(0, |holder| holder.bytes)
}

/// Groups of one state, those with most bytes first.
fn groups(list: &[Node], state: State) -> Vec<Group> {
    let mut numbers = numbers(list, |node| node.state == state);
    let mut found = Vec::new();
    let key = |node: &Node| (node.bytes, holder_bytes(list, node));
    each_run(&mut numbers, list, key, |(size, holder), run| {
        if let Some(first) = run.first().and_then(|number| list.get(*number as usize)) {
            found.push(Group { size, holder, count: run.len(), first: *first });
        }
    });
    found.sort_by_key(|group| (std::cmp::Reverse(group.size * group.count), group.first.start));
    found.truncate(MOST_GROUPS);
    found
}

fn numbers(list: &[Node], is_wanted: impl Fn(&Node) -> bool) -> Vec<u32> {
    list.iter().enumerate().filter(|(_, node)| is_wanted(node)).map(|(index, _)| index as u32).collect()
}

fn row(
    image: &Image<'_>,
    nodes: &Nodes<'_>,
    heap: &Heap,
    verdict: &str,
    group: &Group,
    wanted: Wanted,
) -> Value {
    let mut row = json!({
        "verdict": verdict,
        "size": group.size,
        "count": group.count,
        "bytes": group.size * group.count,
    });
    let Some(fields) = row.as_object_mut() else { return row };
    if group.holder > 0 {
        fields.insert("held_by".into(), json!(format!("a leaked block of {} bytes", group.holder)));
    }
    if wanted.first_words {
        fields.insert("first_words".into(), json!(first_words(image, nodes, heap, &group.first)));
        fields.insert("example".into(), json!(format!("{:#x}", group.first.start)));
    }
    row
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
                _ if is_text => "text",
                _ if nodes.find(address).is_some() => "a block's address",
                _ if heap.pages.get(next).is_some_and(|page| page.start <= address) => "an object",
                _ if image.segment(address).is_some() => "an address",
                _ => "other bytes",
            }
        })
        .collect()
}

/// What holds a block: the nearest object, or else the root.
fn root_of(classes: &Classes<'_>, list: &[Node], node: &Node) -> (u8, usize) {
    const FARTHEST: usize = 64;
    let mut at = node;
    for _ in 0..FARTHEST {
        match list.get(at.holder as usize).filter(|_| node.kind != kinds::GARBAGE) {
            Some(holder) if holder.site == OBJECT => {
                let class = classes.of(holder.start).filter(|_| holder.age != T_IMEMO);
                return class.map_or((HELD_BY_TYPE, holder.age as usize), |class| (HELD_BY_OBJECT, class));
            }
            Some(holder) => at = holder,
            None => break,
        }
    }
    (node.kind, node.root)
}

/// All blocks that something holds, and what holds most of them.
fn held(image: &Image<'_>, classes: &Classes<'_>, list: &[Node]) -> Option<Value> {
    let mut by_root: HashMap<(u8, usize), usize> = HashMap::new();
    let (mut count, mut bytes) = (0_usize, 0_usize);
    for node in list.iter().filter(|node| node.site == NO_SITE && node.state == State::Reached) {
        count += 1;
        bytes += node.bytes;
        *by_root.entry(root_of(classes, list, node)).or_default() += node.bytes;
    }
    let ((kind, root), most) = by_root.into_iter().max_by_key(|(root, bytes)| (*bytes, *root))?;
    let of_it = if most == bytes { String::new() } else { format!(" ({} KiB of it)", most.div_ceil(1024)) };
    let held_by = match kind {
        kinds::DATA => {
            let name = Names::default()
                .of(image, root)
                .unwrap_or_else(|| "of a module that is not known".to_owned());
            format!("a static, {name}")
        }
        kinds::STACK if !(1..1 << 22).contains(&root) => "the stack of a thread".to_owned(),
        kinds::STACK => format!("the stack of thread {root}"),
        HELD_BY_OBJECT => {
            classes.object_of(root).unwrap_or_else(|| "a Ruby object of a class that has no name".to_owned())
        }
        HELD_BY_TYPE => format!("a Ruby object of type {}", type_name(root as u8)),
        kinds::GARBAGE => "objects that nothing points to, which Ruby had not collected".to_owned(),
        kinds::CODE => "code that was made at run time".to_owned(),
        _ => "memory that was mapped past malloc".to_owned(),
    };
    Some(
        json!({ "verdict": "anchored", "count": count, "bytes": bytes, "held_by": format!("{held_by}{of_it}") }),
    )
}
