//! Groups ways to roots by common parts, so that many objects are held in few ways.

use crate::graph::Graph;
use crate::intern::{Map, Texts};
use crate::reach::{Bits, Holder, Tree};
use crate::read::line::Type;
use crate::steps::{More, Path, Step, general_edge, has_many_edges, own_name};
use crate::ways::{Ways, edge_is_place, edge_of};

/// The key of unreachable objects.
pub(crate) const NO_KEY: u32 = u32::MAX;
/// A chain that repeats at most this many steps counts as one holder.
const LONGEST_PERIOD: u32 = 4;
const ROOT_LABEL: u32 = u32::MAX;

/// The common holder of many objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Common {
    /// The key of the holder's own holders; for a root its number.
    above: u32,
    label: u32,
    name: u32,
    at: u32,
    edge: u32,
}

/// A representative of all holders with a key.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The first of them.
    holder: u32,
    /// How many steps of a chain are repeated; otherwise 0.
    period: u32,
    /// How many further holders the longest chain has. Known after [`Keys::measure`].
    most: u32,
}

/// Ways to roots, as a tree of their common parts.
pub(crate) struct Keys<'a> {
    graph: &'a Graph,
    tree: Tree,
    /// By root and object, the number of the reference's name.
    root_names: Map<(u32, u32), u32>,
    list: Vec<Common>,
    found: Vec<Found>,
    numbers: Map<Common, u32>,
    /// Keys of objects that holders of one kind and key hold by the same reference.
    alike: Map<(u32, u32, u32), u32>,
    /// Objects whose holders have a key.
    known: Bits,
    /// The key of each of these; for other objects, the name of the holder's reference.
    keys: Vec<u32>,
    texts: Texts,
    way: Vec<u32>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(graph: &'a Graph, ways: Ways) -> Keys<'a> {
        let mut root_names = Map::default();
        for root in 0..graph.roots.len() {
            for edge in graph.root_edges(root).filter(|edge| graph.tells(edge.name)) {
                root_names.entry((root as u32, edge.to)).or_insert(edge.name);
            }
        }
        let (tree, edges) = ways.into_parts();
        Keys {
            graph,
            tree,
            root_names,
            list: Vec::new(),
            found: Vec::new(),
            numbers: Map::default(),
            alike: Map::default(),
            known: Bits::none(graph.len()),
            keys: edges,
            texts: Texts::default(),
            way: Vec::new(),
        }
    }

    /// The tree of the ways.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The key of an object's holders.
    pub(crate) fn holders_key(&mut self, object: u32) -> u32 {
        self.way.clear();
        let mut here = object;
        let mut key = loop {
            if self.known.has(here) {
                break self.keys[here as usize];
            }
            match self.tree.holder(here) {
                Holder::Object(holder) => {
                    self.way.push(here);
                    here = holder;
                }
                Holder::Root(root) => {
                    let key = self.root(root, here);
                    self.set(here, key);
                    break key;
                }
                Holder::None => return NO_KEY,
            }
        };
        while let Some(below) = self.way.pop() {
            key = self.next(key, here, below);
            self.set(below, key);
            here = below;
        }
        key
    }

    /// The key of the objects that `holder` holds. It is cached, because all holders of a kind share it.
    fn next(&mut self, above: u32, holder: u32, object: u32) -> u32 {
        let edge = self.keys[object as usize];
        let kind = self.graph.kind_of[holder as usize];
        let alike = match self.graph.type_of(holder) {
            // Each has a name of its own.
            Type::Class | Type::Module => None,
            _ if edge_is_place(edge) => Some((above, kind, 0)),
            _ => Some((above, kind, edge ^ (u32::from(has_many_edges(self.graph, holder)) << 30))),
        };
        if let Some(key) = alike.and_then(|alike| self.alike.get(&alike)) {
            return *key;
        }
        let name = edge_of(self.graph, holder, object, edge);
        let key = self.extended(above, holder, name.as_deref());
        if let Some(alike) = alike {
            self.alike.insert(alike, key);
        }
        key
    }

    fn set(&mut self, object: u32, key: u32) {
        self.known.add(object);
        self.keys[object as usize] = key;
    }

    /// The key of the objects that a root refers to.
    pub(crate) fn root(&mut self, root: usize, object: u32) -> u32 {
        let name = self.root_names.get(&(root as u32, object));
        let edge = name.map_or(String::new(), |name| self.graph.edge_names.text(*name));
        let edge = self.texts.number(edge.as_bytes());
        self.number(Common { above: root as u32, label: ROOT_LABEL, name: 0, at: 0, edge }, object)
    }

    /// The key of the object that `holder` refers to by this name; the holders of `holder` have the key
    /// `above`.
    pub(crate) fn extended(&mut self, above: u32, holder: u32, edge: Option<&str>) -> u32 {
        let kind = self.graph.kind_of[holder as usize];
        let edge = general_edge(self.graph, holder, edge.unwrap_or_default());
        let name = own_name(self.graph, holder).unwrap_or_default();
        let common = Common {
            above,
            label: self.graph.kinds.label_number(kind),
            name: self.texts.number(name.as_bytes()),
            at: self.graph.kinds.list[kind as usize].at,
            edge: self.texts.number(edge.as_bytes()),
        };
        for period in 1..=LONGEST_PERIOD {
            if let Some(same) = self.comes_again(common, period) {
                self.found[same as usize].period = period;
                return same;
            }
        }
        self.number(common, holder)
    }

    /// Whether the last `period` steps with this one are the same as those before them. Returns the key of the latter.
    fn comes_again(&self, step: Common, period: u32) -> Option<u32> {
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
            self.found.push(Found { holder, period: 0, most: 0 });
        }
        number
    }

    /// Keys on the way with this one, the one next to the object first.
    fn on_way(&self, key: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(key), |key| Some(self.step(*key)?.above))
    }

    /// Counts the holders of chains on the ways with these keys.
    pub(crate) fn measure(&mut self, ways: &[u32]) {
        let chains: Vec<bool> = {
            let mut chains = vec![false; self.list.len()];
            for key in ways.iter().flat_map(|key| self.on_way(*key)) {
                chains[key as usize] = self.found[key as usize].period > 0;
            }
            chains
        };
        if !chains.contains(&true) {
            return;
        }
        let objects = self.graph.len() as u32;
        let members = (0..objects)
            .filter(|object| self.known.has(*object) && chains[self.keys[*object as usize] as usize]);
        // Holders that are not the last ones of a chain.
        let mut inner = Bits::none(self.graph.len());
        for above in members.clone().filter_map(|object| self.above_in_chain(object)) {
            inner.add(above);
        }
        let ends: Vec<u32> = members.filter(|object| !inner.has(*object)).collect();
        // Chains may have a part in common, which is counted for each of them.
        let mut left = u64::from(objects) * 4;
        for end in ends {
            let key = self.keys[end as usize] as usize;
            let (mut here, mut most) = (end, 0);
            while let Some(above) = self.above_in_chain(here).filter(|_| left > 0) {
                (here, most, left) = (above, most + self.found[key].period, left - 1);
            }
            self.found[key].most = self.found[key].most.max(most);
        }
    }

    /// The object of the same chain that comes one period before.
    fn above_in_chain(&self, object: u32) -> Option<u32> {
        let key = self.keys[object as usize];
        let mut here = object;
        for _ in 0..self.found[key as usize].period {
            let Holder::Object(holder) = self.tree.holder(here) else { return None };
            here = holder;
        }
        (self.known.has(here) && self.keys[here as usize] == key).then_some(here)
    }

    /// The way with this key, with the first holder of each kind.
    pub(crate) fn path(&self, key: u32) -> Path {
        let (mut steps, mut here) = (Vec::new(), key);
        let text = |number: u32| Some(self.texts.text(number)).filter(|text| !text.is_empty());
        while let Some(common) = self.step(here) {
            let Found { holder, period, most } = self.found[here as usize];
            let more = if most > 0 { More::Again { most, period } } else { More::None };
            steps.push(Step { object: holder, edge: text(common.edge), more });
            here = common.above;
        }
        let root = self.list[here as usize];
        let mut path = Path { steps, root: root.above as usize, root_edge: text(root.edge) };
        path.shorten(self.graph);
        path
    }
}
