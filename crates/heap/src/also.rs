//! Finds what would still hold objects if their shortest ways were cut.
//!
//! A way is cut where it fans out: behind the last holder that many of the objects share, for example between
//! a list and its elements. Another way is a reference from a holder that stays to a part that was cut off.

use crate::graph::{Edge, Graph};
use crate::intern::Map;
use crate::keys::Keys;
use crate::lasting::is_hidden;
use crate::reach::{Bits, Holder, Tree};
use crate::read::line::Type;
use crate::steps::{class_of, edge_name};
use std::cmp::Reverse;

/// The keys of other ways, most objects first. Each has the number of references by which it holds the
/// objects, or holders of theirs that were cut off.
pub(crate) fn other_ways(graph: &Graph, keys: &mut Keys, objects: &Bits) -> Vec<(u32, u64)> {
    let mut cut = Cut::above(graph, keys.tree(), objects);
    let mut found: Map<u32, u64> = Map::default();
    for root in 0..graph.roots.len() {
        for edge in graph.root_edges(root).filter(|edge| cut.off.has(edge.to) && graph.tells(edge.name)) {
            if keys.tree().holder(edge.to) != Holder::Root(root) {
                *found.entry(keys.root(root, edge.to)).or_default() += cut.weight(edge.to);
            }
        }
    }
    // This holder's reference of one kind has been counted.
    let mut counted = Bits::none(graph.len());
    let mut others = Vec::new();
    for holder in 0..graph.len() as u32 {
        let is_other =
            |edge: &Edge| cut.off.has(edge.to) && keys.tree().holder(edge.to) != Holder::Object(holder);
        others.clear();
        for edge in graph.edges(holder).filter(is_other).filter(|edge| lasts(graph, holder, *edge)) {
            if !counted.has(edge.to) {
                counted.add(edge.to);
                others.push(edge);
            }
        }
        others.iter().for_each(|edge| counted.remove(edge.to));
        if others.is_empty()
            || !cut.leaves(keys.tree(), holder)
            || class_of(graph, holder).starts_with("Memintro::")
        {
            continue;
        }
        let above = keys.holders_key(holder);
        for edge in &others {
            let name = edge_name(graph, holder, *edge);
            *found.entry(keys.extended(above, holder, name.as_deref())).or_default() += cut.weight(edge.to);
        }
    }
    let mut found: Vec<(u32, u64)> = found.into_iter().collect();
    found.sort_by_key(|(key, count)| (Reverse(*count), *key));
    found
}

/// Whether Ruby does not drop the reference by itself, as it does with caches of code and words on a stack.
fn lasts(graph: &Graph, holder: u32, edge: Edge) -> bool {
    let name = graph.edge_names.bytes_of(edge.name);
    match graph.type_of(holder) {
        Type::Imemo => class_of(graph, holder) == "imemo_env",
        Type::Data => graph.tells(edge.name) && !name.starts_with(b"stack"),
        _ => true,
    }
}

/// The parts that are cut off.
struct Cut {
    /// The objects, and holders that none of the others shares.
    off: Bits,
    /// The objects at the cut: their holders are shared.
    at: Bits,
    /// How many of the objects depend on one of these, if there may be several.
    weights: Map<u32, u64>,
    /// Objects whose ways were examined, and those of them that are cut off.
    seen: Bits,
    lost: Bits,
}

impl Cut {
    fn above(graph: &Graph, tree: &Tree, objects: &Bits) -> Cut {
        let none = || Bits::none(graph.len());
        // Holders of one of the objects, and of several.
        let (mut one, mut many) = (none(), none());
        for object in objects.each() {
            let mut here = object;
            while let Holder::Object(holder) = tree.holder(here) {
                if many.has(holder) {
                    break;
                }
                if one.has(holder) {
                    many.add(holder)
                } else {
                    one.add(holder)
                }
                here = holder;
            }
        }
        let mut cut = Cut { off: none(), at: none(), weights: Map::default(), seen: none(), lost: none() };
        for object in objects.each() {
            let (mut here, mut highest) = (object, None);
            while highest.is_none() {
                match tree.holder(here) {
                    // Arrays share the elements of a hidden one.
                    Holder::Object(holder) if is_hidden(graph, holder) => {
                        here = holder;
                        *cut.weights.entry(holder).or_default() += 1;
                    }
                    Holder::Object(holder) if many.has(holder) || objects.has(holder) => highest = Some(here),
                    Holder::Object(holder) => here = holder,
                    _ => break,
                }
            }
            // Where they share nothing, next to the object.
            let highest = highest.unwrap_or(object);
            cut.at.add(highest);
            let mut here = object;
            cut.off.add(here);
            while here != highest
                && let Holder::Object(holder) = tree.holder(here)
            {
                cut.off.add(holder);
                here = holder;
            }
        }
        cut
    }

    fn weight(&self, object: u32) -> u64 {
        self.weights.get(&object).copied().unwrap_or(1)
    }

    /// Whether the object would still be held.
    fn leaves(&mut self, tree: &Tree, object: u32) -> bool {
        let mut here = object;
        let lost = loop {
            if self.seen.has(here) {
                break self.lost.has(here);
            }
            if self.at.has(here) {
                break true;
            }
            match tree.holder(here) {
                Holder::Object(holder) => here = holder,
                Holder::Root(_) => break false,
                Holder::None => break true,
            }
        };
        let mut here = object;
        while !self.seen.has(here) {
            self.seen.add(here);
            if lost {
                self.lost.add(here);
            }
            match tree.holder(here) {
                // Holders above the cut stay.
                Holder::Object(holder) if !self.at.has(here) => here = holder,
                _ => break,
            }
        }
        !lost
    }
}
