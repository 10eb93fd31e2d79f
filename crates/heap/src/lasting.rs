//! Finds lasting objects, which every program has, such as classes and the VM's own objects. They do not
//! explain where memory went. Also the sentence about the largest of the others.

use crate::answer::{commas, human, percent};
use crate::dominators::Dominators;
use crate::graph::{Edge, Graph};
use crate::intern::Map;
use crate::reach::{Bits, Holder, Tree};
use crate::read::line::Type;
use crate::steps::{class_of, short};
use crate::tally::Count;
use crate::ways::Ways;
use std::cmp::Reverse;

/// Global variables that every program has, with long lists.
const LISTS: [&[u8]; 5] = [b"$LOADED_FEATURES", b"$\"", b"$LOAD_PATH", b"$:", b"$-I"];

/// Ruby's names for the types of threads, fibers and Ractors.
const THREAD: &[u8] = b"VM/thread";
const FIBER: &[u8] = b"fiber";
const RACTOR: &[u8] = b"ractor";

/// Whether its type may be the answer.
pub(crate) fn may_be_large(graph: &Graph, object: u32) -> bool {
    match graph.type_of(object) {
        Type::Class | Type::Module | Type::Iclass | Type::Node => false,
        Type::Imemo => class_of(graph, object) == "imemo_env",
        _ => !matches!(sort(graph, object), THREAD | FIBER | RACTOR),
    }
}

/// The lasting objects. The walk visits each object once.
pub(crate) struct Lasting<'a> {
    graph: &'a Graph,
    tree: &'a Tree,
    /// Objects that have been decided, and those of them that are the VM's.
    known: Bits,
    vms: Bits,
    way: Vec<u32>,
}

impl<'a> Lasting<'a> {
    pub(crate) fn new(graph: &'a Graph, tree: &'a Tree) -> Lasting<'a> {
        let none = || Bits::none(graph.len());
        let (mut known, mut vms, mut named) = (none(), none(), none());
        for root in 0..graph.roots.len() {
            let has_names = matches!(
                graph.edge_names.bytes_of(graph.roots[root].name),
                b"machine_context" | b"finalizers"
            );
            for Edge { to, name, .. } in graph.root_edges(root) {
                if tree.holder(to) != Holder::Root(root) {
                    continue;
                }
                if !known.has(to) {
                    known.add(to);
                    vms.add(to);
                }
                // The first meaningful name counts.
                if has_names || (graph.tells(name) && !named.has(to)) {
                    named.add(to);
                    if has_names || !LISTS.contains(&graph.edge_names.bytes_of(name)) {
                        vms.remove(to);
                    }
                }
            }
        }
        Lasting { graph, tree, known, vms, way: Vec::new() }
    }

    /// Whether every program has the object while it runs: a class or module, code, a live thread, or an
    /// object that the VM itself holds without a name.
    pub(crate) fn is_always_there(&mut self, object: u32) -> bool {
        let graph = self.graph;
        match (sort(graph, object), self.tree.holder(object)) {
            (THREAD | FIBER | RACTOR, Holder::Root(_)) => true,
            (THREAD, Holder::Object(holder)) => sort(graph, holder) == RACTOR,
            (FIBER, Holder::Object(holder)) => sort(graph, holder) == THREAD && self.is_always_there(holder),
            _ => !may_be_large(graph, object) || self.is_of_vm(object),
        }
    }

    /// Whether a root holds the object without a name, or by one that every program has; or only lists and texts
    /// of the VM that such a root holds.
    pub(crate) fn is_of_vm(&mut self, object: u32) -> bool {
        let mut here = object;
        let is_vms = loop {
            if self.known.has(here) {
                break self.vms.has(here);
            }
            self.way.push(here);
            match self.tree.holder(here) {
                Holder::Object(holder) if is_hidden(self.graph, here) && is_hidden(self.graph, holder) => {
                    here = holder;
                }
                _ => break false,
            }
        };
        for walked in self.way.drain(..) {
            self.known.add(walked);
            if is_vms {
                self.vms.add(walked);
            }
        }
        is_vms
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

/// The contents of an object: the class whose objects retain most of it, and a second one, if its objects
/// retain more than a third. For a holder of only one large object, the contents of that object.
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
