//! Ways to roots in less memory than references take: for each object its holder, and the name of the
//! holder's reference.

use crate::graph::{Edge, Graph};
use crate::reach::{Holder, Tree, reach};
use crate::steps::{More, Path, Step, edge_name, path_parts, root_edge_to};

/// More holders of one way are left out; those of the same kind in a row are one.
const MOST_STEPS: usize = 30;
const BY_INDEX: u32 = 1 << 31;
const BY_CLASS: u32 = u32::MAX;

/// The shortest way from each object to a root.
#[derive(Debug)]
pub struct Ways {
    tree: Tree,
    /// The number of the edge's name, its place with [`BY_INDEX`], or [`BY_CLASS`] where the holder is an object of it.
    edges: Vec<u32>,
}

impl Ways {
    /// Finds them all.
    pub fn find(graph: &Graph) -> Ways {
        let tree = reach(graph, None, &[]);
        let mut edges = vec![BY_CLASS; graph.len()];
        for holder in 0..graph.len() as u32 {
            for edge in graph.edges(holder) {
                let mine = &mut edges[edge.to as usize];
                // The first reference, or the first later one with a meaningful name.
                if tree.holder(edge.to) == Holder::Object(holder)
                    && (*mine == BY_CLASS || (!graph.tells(*mine) && graph.tells(edge.name)))
                {
                    *mine = if edge.name == 0 { BY_INDEX | edge.index.min(BY_INDEX - 2) } else { edge.name };
                }
            }
        }
        Ways { tree, edges }
    }

    /// The holders of an object in one line.
    pub fn text(&self, graph: &Graph, object: u32) -> String {
        self.parts(graph, object).map_or("nothing".to_string(), |parts| parts.join(" ← "))
    }

    /// The parts of that line; none if no root leads to the object.
    pub fn parts(&self, graph: &Graph, object: u32) -> Option<Vec<String>> {
        let (mut steps, mut here): (Vec<Step>, u32) = (Vec::new(), object);
        // The common part of the step before and others of its kind.
        let mut before = None;
        let root = loop {
            match self.tree.holder(here) {
                Holder::None => return None,
                Holder::Root(root) => break root,
                Holder::Object(holder) => {
                    let kind = (graph.kind_of[holder as usize], self.edges[here as usize]);
                    let is_full = steps.len() >= MOST_STEPS;
                    match steps.last_mut() {
                        Some(last) if before == Some(kind) && !matches!(last.more, More::Gap(_)) => {
                            last.more = last.more.and(1);
                        }
                        // The last one stands for all behind it.
                        Some(last) if is_full => last.more = More::Gap(last.more.most().saturating_add(1)),
                        _ => steps.push(Step::one(holder, self.edge(graph, holder, here))),
                    }
                    before = Some(kind);
                    here = holder;
                }
            }
        };
        let root_edge = root_edge_to(graph, root, here);
        Some(path_parts(graph, &Path { steps, root, root_edge }))
    }

    /// The tree that it is of.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The name of the holder's reference to an object.
    pub fn edge(&self, graph: &Graph, holder: u32, object: u32) -> Option<String> {
        edge_of(graph, holder, object, self.edges[object as usize])
    }

    /// The tree, and for each object the code of its name for [`edge_of`].
    pub fn into_parts(self) -> (Tree, Vec<u32>) {
        (self.tree, self.edges)
    }
}

/// Whether a reference has no name, but its place.
pub fn edge_is_place(edge: u32) -> bool {
    edge != BY_CLASS && edge & BY_INDEX != 0
}

/// The name of the holder's reference to an object.
pub fn edge_of(graph: &Graph, holder: u32, object: u32, edge: u32) -> Option<String> {
    let named = |index, name| edge_name(graph, holder, Edge { to: object, index, name });
    match edge {
        BY_CLASS => Some("class".to_string()),
        place if place & BY_INDEX != 0 => named(place & !BY_INDEX, 0),
        name => named(0, name),
    }
}
