//! Tables of a whole dump: by class, type and line, by generation, by retained bytes.

use crate::answer::{Answer, commas, counted, human, percent, taking};
use crate::dominators::Dominators;
use crate::graph::{About, Graph};
use crate::intern::Map;
use crate::kinds::NO_GENERATION;
use crate::lasting::{self, Lasting};
use crate::options::Options;
use crate::steps::{object_json, own_name, short};
use crate::tally::{Count, Tally};
use crate::ways::Ways;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// Depth of the tree that is shown.
const DEPTH: usize = 6;

fn sorted<K: Ord + Clone>(groups: impl IntoIterator<Item = (K, Count)>) -> Vec<(K, Count)> {
    let mut groups: Vec<(K, Count)> = groups.into_iter().collect();
    groups.sort_by(|a, b| (Reverse(a.1.bytes), &a.0).cmp(&(Reverse(b.1.bytes), &b.0)));
    groups
}

/// Answers `histo`: objects and bytes by class, type or line.
pub fn histo(tally: &Tally, options: &Options) -> Result<Answer, String> {
    let by = options.by.as_deref().unwrap_or("class");
    let mut groups: Map<String, Count> = Map::default();
    for (kind, count) in tally.counts.iter().enumerate() {
        let name = match by {
            "type" => tally.kinds.list[kind].kind.name().to_string(),
            "line" => tally.kinds.site(kind as u32).unwrap_or_else(|| "(unknown)".to_string()),
            _ => tally.kinds.class_of(kind as u32),
        };
        groups.entry(name).or_default().merge(*count);
    }
    let groups = sorted(groups);
    let total = tally.total();
    let Some((first, most)) = groups.first() else {
        return Err("there is no object in the dump".to_string());
    };
    let mut answer = Answer::new(format!(
        "{} {}, {} of it {first} ({})",
        taking(total.objects, "object"),
        human(total.bytes),
        percent(most.bytes, total.bytes),
        counted(most.objects, "object")
    ));
    if by == "line" && !tally.about.sites {
        answer.note(format!("the dump has no lines of allocation: {}", tally.about.how_to_note()));
    }
    if by == "line" {
        sampled(&mut answer, &tally.about);
    }
    let rows: Vec<Vec<String>> = groups
        .iter()
        .take(options.top)
        .map(|(name, count)| {
            vec![human(count.bytes), percent(count.bytes, total.bytes), commas(count.objects), name.clone()]
        })
        .collect();
    answer.table(&["bytes", "share", "objects", by], &rows);
    rest(&mut answer, &groups, options.top, by);
    let rows: Vec<Value> = groups
        .iter()
        .take(options.top)
        .map(|(name, count)| json!({ by: name, "objects": count.objects, "bytes": count.bytes }))
        .collect();
    answer.field("by", by).field("more", (groups.len() - rows.len()) as u64).field("rows", rows);
    Ok(answer)
}

/// Counts of a sample are not those of the heap.
pub fn sampled(answer: &mut Answer, about: &About) {
    if about.one_in > 0 {
        answer.note(format!(
            "births of one object in about {} are known: multiply what has a line or a generation",
            commas(u64::from(about.one_in))
        ));
    }
}

fn rest<K>(answer: &mut Answer, groups: &[(K, Count)], top: usize, noun: &str) {
    if groups.len() <= top {
        return;
    }
    let bytes: u64 = groups[top..].iter().map(|(_, count)| count.bytes).sum();
    let count = (groups.len() - top) as u64;
    let noun = if noun == "class" && count > 1 { "classe" } else { noun };
    answer.line(format!("  … {} in {} more", human(bytes), counted(count, noun)));
}

/// Answers `generations`: objects and bytes by the generation of their allocation.
pub fn generations(tally: &Tally, options: &Options) -> Result<Answer, String> {
    let mut groups: Map<u32, (Count, Map<u32, Count>)> = Map::default();
    for (at, count) in tally.counts.iter().enumerate() {
        let group = groups.entry(tally.kinds.list[at].generation).or_default();
        group.0.merge(*count);
        group.1.entry(tally.kinds.label_number(at as u32)).or_default().merge(*count);
    }
    let total = tally.total();
    if total.objects == 0 {
        return Err("there is no object in the dump".to_string());
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    // The one without a number is the first: it is the oldest.
    groups.sort_by_key(|(generation, _)| generation.wrapping_add(1));
    let known: Vec<_> = groups.iter().filter(|(generation, _)| *generation != NO_GENERATION).collect();
    let sentence = match known.iter().max_by_key(|(_, (count, _))| count.bytes) {
        Some((generation, (count, _))) => format!(
            "{} in {}; most bytes, {}, are of generation {generation}",
            counted(total.objects, "object"),
            counted(known.len() as u64, "generation"),
            human(count.bytes)
        ),
        None => format!("None of the {} tells its generation", counted(total.objects, "object")),
    };
    let mut answer = Answer::new(sentence);
    if known.is_empty() {
        answer.note(format!("the dump has no generations: {}", tally.about.how_to_note()));
    }
    sampled(&mut answer, &tally.about);
    let most = |classes: &Map<u32, Count>| {
        let first = classes.iter().max_by_key(|(label, count)| (count.bytes, Reverse(**label)));
        first.map(|(label, _)| tally.kinds.texts.text(*label)).unwrap_or_default()
    };
    let mut rows = Vec::new();
    let mut listed = Vec::new();
    for (generation, (count, classes)) in &groups {
        let number = (*generation != NO_GENERATION).then_some(*generation);
        let name = number.map_or("(unknown)".to_string(), |number| number.to_string());
        rows.push(vec![name, commas(count.objects), human(count.bytes), most(classes)]);
        listed.push(
            json!({ "generation": number, "objects": count.objects, "bytes": count.bytes, "class": most(classes) }),
        );
    }
    // The youngest come last, because people read the end of a list in a terminal.
    let hidden = rows.len().saturating_sub(options.top);
    if hidden > 0 {
        answer.line(format!("  … {} before these", counted(hidden as u64, "generation")));
    }
    answer.table(&["generation", "objects", "bytes", "most bytes"], &rows[hidden..]);
    answer.field("rows", listed);
    Ok(answer)
}

/// Answers `top`: the objects that retain most, or are largest themselves.
pub fn top(graph: &mut Graph, options: &Options) -> Result<Answer, String> {
    if graph.is_empty() {
        return Err("there is no object in the dump".to_string());
    }
    let own = options.by.as_deref() == Some("bytes");
    let total = graph.total_bytes();
    let ways = Ways::find(graph);
    let tree = if own { None } else { Some(Dominators::compute(graph)) };
    let graph = &*graph;
    let mut lasting = Lasting::new(graph, ways.tree());
    // Bytes, the object, and its number in the tree.
    let mut list: Vec<(u64, u32, u32)> = match &tree {
        None => (0..graph.len() as u32).map(|object| (graph.size(object), object, 0)).collect(),
        Some(tree) => (1..tree.len())
            .map(|number| (tree.retained[number], tree.order[number], number as u32))
            .filter(|(_, object, _)| options.all || !lasting.is_always_there(*object))
            .collect(),
    };
    let most = options.top.min(list.len());
    if most > 0 && most < list.len() {
        list.select_nth_unstable_by_key(most - 1, |(bytes, object, _)| (Reverse(*bytes), *object));
        list.truncate(most);
    }
    list.sort_by_key(|(bytes, object, _)| (Reverse(*bytes), *object));
    let Some(&(bytes, first, number)) = list.first() else {
        let nothing = tree.as_ref().is_none_or(|tree| tree.is_empty());
        return Err(match nothing {
            true => "no root leads to any object".to_string(),
            false => "there is nothing but what is always there; --all lists that".to_string(),
        });
    };
    let mut answer = Answer::new(match &tree {
        Some(tree) => lasting::sentence(graph, &ways, tree, number, total),
        None => format!(
            "{} at {:#x} takes {}, {} of the heap; held by {}",
            short(graph, first),
            graph.address(first),
            human(bytes),
            percent(bytes, total),
            ways.text(graph, first)
        ),
    });
    let rows: Vec<Vec<String>> = list
        .iter()
        .map(|(bytes, object, _)| {
            let (name, _) = lasting::named(graph, &ways, *object);
            let address = format!("{:#x}", graph.address(*object));
            vec![human(*bytes), percent(*bytes, total), human(graph.size(*object)), address, name]
        })
        .collect();
    answer.table(
        &[
            if own { "bytes" } else { "retained" },
            "share",
            "own bytes",
            "address",
            "object, and what holds it",
        ],
        &rows,
    );
    if !own && !options.all {
        answer.line("  --all also lists classes, threads and the VM's own objects");
    }
    let rows: Vec<Value> = list
        .iter()
        .map(|(bytes, object, _)| {
            let mut fields = object_json(graph, *object);
            fields["retained_bytes"] = if own { Value::Null } else { (*bytes).into() };
            fields["held_by"] = ways.text(graph, *object).into();
            fields
        })
        .collect();
    answer.field("by", if own { "bytes" } else { "retained_bytes" }).field("rows", rows);
    Ok(answer)
}

/// Retained bytes of each class: of its objects that no other object of the class dominates.
pub fn retained_by_class(graph: &Graph, tree: &Dominators) -> Vec<(u32, Count)> {
    let (starts, children) = tree.children();
    let label = |number: u32| graph.kinds.label_number(graph.kind_of[tree.order[number as usize] as usize]);
    let mut above: Map<u32, u32> = Map::default();
    let mut classes: Map<u32, Count> = Map::default();
    // The way from the root to here: numbers, and which child comes next.
    let mut way: Vec<(u32, u32)> = vec![(0, starts[0])];
    while let Some((number, next)) = way.last_mut() {
        if *next == starts[*number as usize + 1] {
            if *number != 0 {
                above.entry(label(*number)).and_modify(|count| *count -= 1);
            }
            way.pop();
            continue;
        }
        let child = children[*next as usize];
        *next += 1;
        let around = above.entry(label(child)).or_default();
        let count = classes.entry(label(child)).or_default();
        count.objects += 1;
        if *around == 0 {
            count.bytes = count.bytes.saturating_add(tree.retained[child as usize]);
        }
        *around += 1;
        way.push((child, starts[child as usize]));
    }
    sorted(classes)
}

/// Answers `dominators`: classes by what they retain, and the tree from the top.
pub fn dominators(graph: &mut Graph, options: &Options) -> Result<Answer, String> {
    let total = graph.total_bytes();
    let tree = Dominators::compute(graph);
    if tree.is_empty() {
        return Err("no root leads to any object".to_string());
    }
    let classes = retained_by_class(graph, &tree);
    let (starts, children) = tree.children();
    let is_plain = |number: &u32| lasting::may_be_large(graph, tree.order[*number as usize]);
    let most = (1..tree.len() as u32)
        .filter(is_plain)
        .max_by_key(|number| (tree.retained[*number as usize], Reverse(*number)));
    let first = most.unwrap_or(children[0]);
    let mut answer = Answer::new(format!(
        "{} retains most: {}, {} of the heap",
        short(graph, tree.order[first as usize]),
        human(tree.retained[first as usize]),
        percent(tree.retained[first as usize], total)
    ));
    let rows: Vec<Vec<String>> = classes
        .iter()
        .take(options.top)
        .map(|(label, count)| {
            let name = graph.kinds.texts.text(*label);
            vec![human(count.bytes), percent(count.bytes, total), commas(count.objects), name]
        })
        .collect();
    answer.table(&["retained", "share", "objects", "class"], &rows);
    answer.line("");
    let mut shown = 0;
    let mut left: Vec<(u32, usize)> = vec![(0, 0)];
    let least = total / 200;
    while let Some((number, depth)) = left.pop() {
        if number != 0 {
            shown += 1;
            let object = tree.order[number as usize];
            answer.line(format!(
                "  {:>10} {:>6}  {}{} {:#x}",
                human(tree.retained[number as usize]),
                percent(tree.retained[number as usize], total),
                "  ".repeat(depth - 1),
                short(graph, object),
                graph.address(object)
            ));
        }
        if depth < DEPTH && shown < options.top {
            let mine = &children[starts[number as usize] as usize..starts[number as usize + 1] as usize];
            let large = mine.iter().filter(|child| tree.retained[**child as usize] >= least);
            let some: Vec<_> = large.take(5).map(|child| (*child, depth + 1)).collect();
            left.extend(some.into_iter().rev());
        }
    }
    let unreachable = total - tree.retained[0];
    if unreachable > 0 {
        answer.note(format!(
            "no root leads to {} of the heap: garbage, or held by references that the dump lacks",
            human(unreachable)
        ));
    }
    let rows: Vec<Value> = classes
        .iter()
        .take(options.top)
        .map(|(label, count)| {
            let name = graph.kinds.texts.text(*label);
            json!({ "class": name, "objects": count.objects, "retained_bytes": count.bytes })
        })
        .collect();
    let nodes = json_tree(graph, &tree, &starts, &children, options.top);
    answer.field("classes", rows).field("tree", nodes).field("unreachable_bytes", unreachable);
    Ok(answer)
}

/// The upper part of the tree: for each object its most retaining children.
fn json_tree(graph: &Graph, tree: &Dominators, starts: &[u32], children: &[u32], top: usize) -> Vec<Value> {
    fn node(
        graph: &Graph,
        tree: &Dominators,
        at: (&[u32], &[u32]),
        number: u32,
        depth: usize,
        top: usize,
    ) -> Value {
        let object = tree.order[number as usize];
        let mine = &at.1[at.0[number as usize] as usize..at.0[number as usize + 1] as usize];
        let below = if depth == 0 { 0 } else { top };
        json!({
            "address": format!("{:#x}", graph.address(object)), "class": crate::steps::class_of(graph, object),
            "name": own_name(graph, object), "bytes": graph.size(object),
            "retained_bytes": tree.retained[number as usize], "children_count": mine.len(),
            "children": mine.iter().take(below).map(|child| node(graph, tree, at, *child, depth - 1, top.min(5)))
                .collect::<Vec<_>>(),
        })
    }
    let first = &children[starts[0] as usize..starts[1] as usize];
    first.iter().take(top).map(|number| node(graph, tree, (starts, children), *number, 3, 5)).collect()
}
