//! Ways to roots in less memory than references take: for each object its holder, and what that calls it.

use crate::graph::{Edge, Graph};
use crate::reach::{Holder, Tree, reach};
use crate::steps::{Path, Step, edge_name, path_text, root_edge_to};

/// More holders of one way are left out.
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
    pub fn of(graph: &Graph) -> Ways {
        let tree = reach(graph, None, &[]);
        let mut edges = vec![BY_CLASS; graph.len()];
        for holder in 0..graph.len() as u32 {
            for edge in graph.edges(holder) {
                let mine = &mut edges[edge.to as usize];
                // The first reference, or the first after it whose name tells something.
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
        let (mut steps, mut here) = (Vec::new(), object);
        loop {
            match self.tree.holder(here) {
                Holder::None => return "nothing".to_string(),
                Holder::Root(root) => {
                    return path_text(
                        graph,
                        &Path { steps, root, root_edge: root_edge_to(graph, root, here) },
                    );
                }
                Holder::Object(holder) => {
                    // The last one stands for all behind it.
                    if steps.len() < MOST_STEPS {
                        steps.push(Step {
                            object: holder,
                            edge: self.edge(graph, holder, here),
                            repeated: false,
                        });
                    } else if let Some(last) = steps.last_mut() {
                        last.repeated = true;
                    }
                    here = holder;
                }
            }
        }
    }

    /// The tree that it is of.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What the holder of an object calls it.
    pub fn edge(&self, graph: &Graph, holder: u32, object: u32) -> Option<String> {
        let edge = |index, name| edge_name(graph, holder, Edge { to: object, index, name });
        match self.edges[object as usize] {
            BY_CLASS => Some("class".to_string()),
            place if place & BY_INDEX != 0 => edge(place & !BY_INDEX, 0),
            name => edge(0, name),
        }
    }
}
