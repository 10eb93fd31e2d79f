//! Who holds all objects of a class: their shortest ways to a root, grouped by class and edge.

use crate::answer::{Answer, commas, human, percent};
use crate::graph::Graph;
use crate::intern::Map;
use crate::lists::sampled;
use crate::options::Options;
use crate::reach::Holder;
use crate::select::{described, select};
use crate::steps::{Path, Step, general_edge, own_name, path_json, path_text};
use crate::tally::Count;
use crate::ways::Ways;
use serde_json::Value;

const NO_KEY: u32 = u32::MAX;
/// A chain in which so many steps come again and again counts as one.
const LONGEST_PERIOD: usize = 4;

/// What the holders of many objects have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Common {
    /// The key of the holder's own holders; for a root its number.
    above: u32,
    label: u32,
    name: u32,
    at: u32,
    edge: u32,
}

/// Ways to roots, as a tree of what they have in common.
struct Keys<'a> {
    graph: &'a Graph,
    ways: &'a Ways,
    /// By root and object, the number of the reference's name.
    root_names: Map<(u32, u32), u32>,
    list: Vec<Common>,
    /// The first holder of each key, and whether the key stands for a chain.
    holders: Vec<(u32, bool)>,
    numbers: Map<Common, u32>,
    /// The key of each object's holders, once it is known.
    known: Vec<u32>,
    texts: crate::intern::Texts,
}

const ROOT_LABEL: u32 = u32::MAX;

impl<'a> Keys<'a> {
    fn new(graph: &'a Graph, ways: &'a Ways) -> Keys<'a> {
        let mut root_names = Map::default();
        for root in 0..graph.roots.len() {
            for edge in graph.root_edges(root).filter(|edge| graph.tells(edge.name)) {
                root_names.entry((root as u32, edge.to)).or_insert(edge.name);
            }
        }
        Keys {
            graph,
            ways,
            root_names,
            list: Vec::new(),
            holders: Vec::new(),
            numbers: Map::default(),
            known: vec![NO_KEY; graph.len()],
            texts: crate::intern::Texts::default(),
        }
    }

    /// The key of an object's holders; the object must be reachable.
    fn of(&mut self, object: u32, way: &mut Vec<u32>) -> u32 {
        way.clear();
        let mut here = object;
        let mut key = loop {
            if self.known[here as usize] != NO_KEY {
                break self.known[here as usize];
            }
            match self.ways.tree().holder(here) {
                Holder::Object(holder) => {
                    way.push(here);
                    here = holder;
                }
                Holder::Root(root) => break self.root(root, here),
                Holder::None => return NO_KEY,
            }
        };
        self.known[here as usize] = key;
        while let Some(below) = way.pop() {
            key = self.extended(key, here, below);
            self.known[below as usize] = key;
            here = below;
        }
        key
    }

    fn root(&mut self, root: usize, object: u32) -> u32 {
        let name = self.root_names.get(&(root as u32, object));
        let edge = name.map_or(String::new(), |name| self.graph.edge_names.text(*name));
        let edge = self.texts.number(edge.as_bytes());
        self.number(Common { above: root as u32, label: ROOT_LABEL, name: 0, at: 0, edge }, object)
    }

    /// The key of what `holder`, whose own holders have the key `above`, refers to.
    fn extended(&mut self, above: u32, holder: u32, object: u32) -> u32 {
        let kind = self.graph.kind_of[holder as usize];
        let edge = self.ways.edge(self.graph, holder, object).unwrap_or_default();
        let edge = self.texts.number(general_edge(self.graph, holder, &edge).as_bytes());
        let name = own_name(self.graph, holder).unwrap_or_default();
        let common = Common {
            above,
            label: self.graph.kinds.label_number(kind),
            name: self.texts.number(name.as_bytes()),
            at: self.graph.kinds.list[kind as usize].at,
            edge,
        };
        for period in 1..=LONGEST_PERIOD {
            if let Some(same) = self.comes_again(common, period) {
                self.holders[same as usize].1 = true;
                return same;
            }
        }
        self.number(common, holder)
    }

    /// Whether the last `period` steps with this one are the same as those before them. Returns the key of the latter.
    fn comes_again(&self, step: Common, period: usize) -> Option<u32> {
        let mut mine = step;
        let mut before = step.above;
        for _ in 1..period {
            before = self.step(before)?.above;
        }
        let same = before;
        for _ in 0..period {
            let theirs = self.step(before)?;
            if (mine.label, mine.name, mine.at, mine.edge)
                != (theirs.label, theirs.name, theirs.at, theirs.edge)
            {
                return None;
            }
            before = theirs.above;
            mine = self.list[mine.above as usize];
        }
        Some(same)
    }

    fn step(&self, key: u32) -> Option<Common> {
        Some(self.list[key as usize]).filter(|common| common.label != ROOT_LABEL)
    }

    fn number(&mut self, common: Common, holder: u32) -> u32 {
        let next = self.list.len() as u32;
        let number = *self.numbers.entry(common).or_insert(next);
        if number == next {
            self.list.push(common);
            self.holders.push((holder, false));
        }
        number
    }

    fn path(&self, key: u32) -> Path {
        let (mut steps, mut here) = (Vec::new(), key);
        let text = |number: u32| Some(self.texts.text(number)).filter(|text| !text.is_empty());
        while let Some(common) = self.step(here) {
            let (object, repeated) = self.holders[here as usize];
            steps.push(Step { object, edge: text(common.edge), repeated });
            here = common.above;
        }
        let root = self.list[here as usize];
        let mut path = Path { steps, root: root.above as usize, root_edge: text(root.edge) };
        path.shorten();
        path
    }
}

/// Answers `holders`.
pub fn holders(graph: &mut Graph, options: &Options) -> Result<Answer, String> {
    let chosen = select(graph, options)?;
    let ways = Ways::of(graph);
    // Nothing is looked up by its address from here on, and the ways know what is told of references.
    graph.pages.drop_ranks();
    graph.drop_names();
    let graph = &*graph;
    let mut keys = Keys::new(graph, &ways);
    let (mut all, mut unreachable) = (Count::default(), Count::default());
    let mut groups: Map<u32, Count> = Map::default();
    let mut way = Vec::new();
    for object in chosen.each(graph) {
        let bytes = graph.size(object);
        all.add(bytes);
        match keys.of(object, &mut way) {
            NO_KEY => unreachable.add(bytes),
            key => groups.entry(key).or_default().add(bytes),
        }
    }
    let mut groups: Vec<(u32, Count)> = groups.into_iter().collect();
    groups.sort_by_key(|(key, count)| (std::cmp::Reverse((count.objects, count.bytes)), *key));
    let what = described(options);
    let share = |count: &Count| format!("{} of {} {what}", commas(count.objects), commas(all.objects));
    let sentence = match groups.first() {
        Some((key, count)) => format!("{}: {}", share(count), path_text(graph, &keys.path(*key))),
        None if graph.finalizers_are_unknown() => format!(
            "Nothing that the dump tells of holds the {} {what}: no root leads to them, but a finalizer may, and those \
             are not among its roots.",
            commas(all.objects)
        ),
        None => format!("Nothing holds the {} {what}: no root leads to them.", commas(all.objects)),
    };
    let mut answer = Answer::new(sentence);
    if options.line.is_some() || options.generations.is_some() || options.older.is_some() {
        sampled(&mut answer, &graph.about);
    }
    let shown: Vec<Value> = groups
        .iter()
        .take(options.top)
        .map(|(key, count)| {
            let mut fields = path_json(graph, &keys.path(*key));
            fields.insert("objects".into(), count.objects.into());
            fields.insert("bytes".into(), count.bytes.into());
            fields.into()
        })
        .collect();
    answer.field("matched", all.objects).field("matched_bytes", all.bytes);
    answer.field("unreachable", unreachable.objects).field("unreachable_bytes", unreachable.bytes);
    answer.field("more_groups", (groups.len() - shown.len()) as u64).field("groups", shown);
    let rows: Vec<Vec<String>> = groups
        .iter()
        .take(options.top)
        .map(|(key, count)| {
            vec![
                commas(count.objects),
                percent(count.objects, all.objects),
                human(count.bytes),
                path_text(graph, &keys.path(*key)),
            ]
        })
        .collect();
    answer.table(&["objects", "share", "bytes", "held by"], &rows);
    if groups.len() > rows.len() {
        let rest: u64 = groups[rows.len()..].iter().map(|(_, count)| count.objects).sum();
        answer.line(format!(
            "  … {} in {} more ways",
            commas(rest),
            commas((groups.len() - rows.len()) as u64)
        ));
    }
    if unreachable.objects > 0 {
        answer.note(format!(
            "no root leads to {} of them ({}): they are garbage, or held where the dump does not tell",
            commas(unreachable.objects),
            human(unreachable.bytes)
        ));
    }
    Ok(answer)
}
