//! What is always there, such as classes and the VM's own objects, and so is no answer to the question what takes memory;
//! and the sentence about the largest of the others.

use crate::answer::{commas, human, percent};
use crate::dominators::Dominators;
use crate::graph::Graph;
use crate::intern::Map;
use crate::reach::{Holder, Tree};
use crate::read::line::Type;
use crate::steps::{class_of, short};
use crate::tally::Count;
use crate::ways::Ways;
use std::cmp::Reverse;

/// Global variables that every program has, with long lists.
const LISTS: [&[u8]; 5] = [b"$LOADED_FEATURES", b"$\"", b"$LOAD_PATH", b"$:", b"$-I"];

/// What Ruby calls the types of threads, fibers and Ractors.
const THREAD: &[u8] = b"VM/thread";
const FIBER: &[u8] = b"fiber";
const RACTOR: &[u8] = b"ractor";

/// Whether an object is there in every program, as long as that runs: a class or module, code, a thread that lives, or what
/// the VM itself holds without a name.
pub(crate) fn is_always_there(graph: &Graph, tree: &Tree, object: u32) -> bool {
    match (sort(graph, object), tree.holder(object)) {
        (THREAD | FIBER | RACTOR, Holder::Root(_)) => true,
        (THREAD, Holder::Object(holder)) => sort(graph, holder) == RACTOR,
        (FIBER, Holder::Object(holder)) => {
            sort(graph, holder) == THREAD && is_always_there(graph, tree, holder)
        }
        _ => !may_be_large(graph, object) || is_of_vm(graph, tree, object),
    }
}

/// Whether it may be the answer, as far as its type tells.
pub(crate) fn may_be_large(graph: &Graph, object: u32) -> bool {
    match graph.type_of(object) {
        Type::Class | Type::Module | Type::Iclass | Type::Node => false,
        Type::Imemo => class_of(graph, object) == "imemo_env",
        _ => !matches!(sort(graph, object), THREAD | FIBER | RACTOR),
    }
}

/// Whether a root holds the object without a name, or by one that every program has; or only lists and texts
/// of the VM that such a root holds.
pub(crate) fn is_of_vm(graph: &Graph, tree: &Tree, object: u32) -> bool {
    let mut here = object;
    loop {
        match tree.holder(here) {
            Holder::Root(root) => return is_nameless(graph, root, here),
            Holder::Object(holder) if is_hidden(graph, here) && is_hidden(graph, holder) => here = holder,
            _ => return false,
        }
    }
}

fn is_nameless(graph: &Graph, root: usize, object: u32) -> bool {
    match graph.edge_names.bytes_of(graph.roots[root].name) {
        b"machine_context" | b"finalizers" => false,
        _ => graph.most_telling(graph.root_edges(root).filter(|edge| edge.to == object)).is_none_or(|edge| {
            !graph.tells(edge.name) || LISTS.contains(&graph.edge_names.bytes_of(edge.name))
        }),
    }
}

/// Whether it is a list or a text without a class: one that only the VM sees.
pub(crate) fn is_hidden(graph: &Graph, object: u32) -> bool {
    let kind = &graph.kinds.list[graph.kind_of[object as usize] as usize];
    kind.class == 0 && matches!(kind.kind, Type::Array | Type::Hash | Type::String)
}

fn sort(graph: &Graph, object: u32) -> &[u8] {
    let kind = &graph.kinds.list[graph.kind_of[object as usize] as usize];
    if kind.kind == Type::Data { graph.kinds.texts.bytes_of(kind.sort) } else { b"" }
}

/// An object by the name of the variable that holds it, and the rest of its way: `CACHE (Array)`, `root vm`.
pub(crate) fn named(graph: &Graph, ways: &Ways, object: u32) -> (String, Option<String>) {
    let short = short(graph, object);
    let Some(parts) = ways.parts(graph, object) else { return (short, None) };
    match &parts[..] {
        [root] if root.starts_with("root ") => (short, None),
        [first, rest @ ..] => {
            let rest = rest.join(" ← ");
            // An element is named without its list, and one of a chain without the rest of that.
            let first = first.strip_suffix(" (Array)").or(first.strip_suffix(" (Hash)")).unwrap_or(first);
            let first = first
                .strip_suffix(" times")
                .and_then(|text| text.rsplit_once(", "))
                .map_or(first, |(one, _)| one);
            (format!("{first} ({short})"), (!rest.is_empty() && !rest.starts_with("root ")).then_some(rest))
        }
        [] => (short, None),
    }
}

/// `CACHE (Array) retains 6.2 MiB, 71.0% of the heap: 5,000 Foo`
pub(crate) fn sentence(graph: &Graph, ways: &Ways, tree: &Dominators, number: u32, total: u64) -> String {
    let (name, rest) = named(graph, ways, tree.order[number as usize]);
    let bytes = tree.retained[number as usize];
    let mut text = format!("{name} retains {}, {} of the heap", human(bytes), percent(bytes, total));
    if let Some(content) = content(graph, tree, number) {
        text += &format!(": {content}");
    }
    if let Some(rest) = rest {
        text += &format!("; held by {rest}");
    }
    text
}

/// What an object holds: the class whose objects retain most of it; a second one, if they retain more than a third. Of what
/// holds only one large object, that is asked.
fn content(graph: &Graph, tree: &Dominators, number: u32) -> Option<String> {
    const DEEPEST: usize = 5;
    let mut here = number;
    for _ in 0..DEEPEST {
        let children = (here as usize + 1..tree.len()).filter(|at| tree.parents[*at] == here);
        let mut classes: Map<u32, Count> = Map::default();
        let mut largest = 0;
        for child in children {
            let object = tree.order[child];
            let label = graph.kinds.label_number(graph.kind_of[object as usize]);
            classes.entry(label).or_default().add(tree.retained[child]);
            if tree.retained[child] > tree.retained.get(largest).copied().filter(|_| largest > 0).unwrap_or(0)
            {
                largest = child;
            }
        }
        if largest > 0 && tree.retained[largest] > tree.retained[here as usize] / 10 * 9 {
            here = largest as u32;
            continue;
        }
        let all = tree.retained[here as usize];
        let mut classes: Vec<(u32, Count)> = classes.into_iter().collect();
        classes.sort_by_key(|(label, count)| (Reverse(count.bytes), *label));
        let few = classes
            .iter()
            .enumerate()
            .take(2)
            .filter(|(at, (_, count))| *at == 0 || count.bytes.saturating_mul(3) > all);
        let texts: Vec<String> = few
            .map(|(_, (label, count))| {
                format!("{} {}", commas(count.objects), graph.kinds.texts.text(*label))
            })
            .collect();
        return (!texts.is_empty()).then(|| texts.join(" and "));
    }
    None
}
