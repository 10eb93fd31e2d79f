//! Finds the objects that are reachable from the roots, by the shortest ways.
//!
//! Dumps do not list the class among an object's references. So a class without other holders, such as an
//! anonymous one, counts as held by its objects; all other classes count as held only by references of the
//! dump.

use crate::graph::{Edge, Graph, MOST_OBJECTS};
use crate::kinds::Kind;
use crate::pages::NONE;
use crate::read::line::Type;

/// One bit for each object.
#[derive(Clone, Debug)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// No object.
    pub fn none(objects: usize) -> Bits {
        Bits { words: vec![0; objects.div_ceil(64)] }
    }

    /// Whether the object is among them.
    #[inline]
    pub fn has(&self, object: u32) -> bool {
        self.words[object as usize / 64] & (1 << (object % 64)) != 0
    }

    /// Adds an object.
    #[inline]
    pub fn add(&mut self, object: u32) {
        self.words[object as usize / 64] |= 1 << (object % 64);
    }

    /// Each object, in order.
    pub fn each(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(|(at, word)| {
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| at as u32 * 64 + bit)
        })
    }

    /// Takes an object out.
    #[inline]
    pub fn remove(&mut self, object: u32) {
        self.words[object as usize / 64] &= !(1 << (object % 64));
    }
}

/// For each object, its holder on the shortest way from a root.
#[derive(Debug)]
pub struct Tree {
    parents: Vec<u32>,
}

/// The holder of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nothing.
    None,
    /// A category of roots.
    Root(usize),
    /// An object.
    Object(u32),
}

impl Tree {
    /// The holder of the object.
    #[inline]
    pub fn holder(&self, object: u32) -> Holder {
        match self.parents[object as usize] {
            NONE => Holder::None,
            root if root >= MOST_OBJECTS => Holder::Root((root - MOST_OBJECTS) as usize),
            holder => Holder::Object(holder),
        }
    }

    /// Whether a root leads to the object.
    #[inline]
    pub fn reaches(&self, object: u32) -> bool {
        self.parents[object as usize] != NONE
    }
}

/// The object that is the class of each kind's objects, or [`NONE`].
pub fn classes_of_kinds(graph: &Graph) -> Vec<u32> {
    let at = |class| if class == 0 { NONE } else { graph.pages.object_at(class) };
    graph.kinds.list.iter().map(|kind| at(kind.class)).collect()
}

/// Whether the objects of each kind are threads or fibers.
fn kinds_with_stacks(graph: &Graph) -> Vec<bool> {
    let sort = |kind: &Kind| graph.kinds.texts.bytes_of(kind.sort);
    graph
        .kinds
        .list
        .iter()
        .map(|kind| kind.kind == Type::Data && matches!(sort(kind), b"VM/thread" | b"fiber"))
        .collect()
}

/// Visits all objects from the roots except those in `without`, and never follows the root edges in `cut`:
/// pairs of a root and an object. Nameless references on the stack of a thread or fiber come late, because
/// they are gone when the call returns. Words on machine stacks come last, because some are stale, so other
/// roots take precedence.
pub fn reach(graph: &Graph, without: Option<&Bits>, cut: &[(usize, u32)]) -> Tree {
    let mut parents = vec![NONE; graph.len()];
    let skipped = |object: u32| without.is_some_and(|bits| bits.has(object));
    let (stacks, surer): (Vec<usize>, Vec<usize>) =
        (0..graph.roots.len()).partition(|root| graph.is_machine_stack(*root));
    let mut front = Vec::new();
    // Named references are preferred to unnamed ones.
    let seed = |roots: &[usize], parents: &mut [u32], front: &mut Vec<u32>| {
        for (wanted, &root) in
            [true, false].into_iter().flat_map(|wanted| roots.iter().map(move |root| (wanted, root)))
        {
            for edge in graph.root_edges(root).filter(|edge| graph.tells(edge.name) == wanted) {
                let free = parents[edge.to as usize] == NONE && !skipped(edge.to);
                if free && !cut.contains(&(root, edge.to)) {
                    parents[edge.to as usize] = MOST_OBJECTS + root as u32;
                    front.push(edge.to);
                }
            }
        }
    };
    seed(&surer, &mut parents, &mut front);
    let mut left = Some(&stacks);
    let classes = classes_of_kinds(graph);
    let mut seen_kinds = vec![false; classes.len()];
    // Classes of reached objects, with the first of their objects.
    let mut late: Vec<(u32, u32)> = Vec::new();
    let has_stack = kinds_with_stacks(graph);
    // Objects on stacks of threads and fibers, with these.
    let mut on_stacks: Vec<(u32, u32)> = Vec::new();
    let mut next = Vec::new();
    loop {
        while !front.is_empty() {
            for &object in &front {
                let kind = graph.kind_of[object as usize] as usize;
                if !seen_kinds[kind] {
                    seen_kinds[kind] = true;
                    late.push((classes[kind], object));
                }
                if has_stack[kind] {
                    let passes = |edge: &Edge| {
                        has_stack[graph.kind_of[edge.to as usize] as usize] || graph.tells(edge.name)
                    };
                    on_stacks.extend(
                        graph.edges(object).filter(|edge| !passes(edge)).map(|edge| (edge.to, object)),
                    );
                    for edge in graph.edges(object).filter(passes) {
                        if parents[edge.to as usize] == NONE && !skipped(edge.to) {
                            parents[edge.to as usize] = object;
                            next.push(edge.to);
                        }
                    }
                    continue;
                }
                for &target in graph.targets(object) {
                    if target != NONE && parents[target as usize] == NONE && !skipped(target) {
                        parents[target as usize] = object;
                        next.push(target);
                    }
                }
            }
            front.clear();
            std::mem::swap(&mut front, &mut next);
        }
        for (class, object) in late.drain(..) {
            if class != NONE && parents[class as usize] == NONE && !skipped(class) {
                parents[class as usize] = object;
                front.push(class);
            }
        }
        if front.is_empty() {
            for (target, object) in on_stacks.drain(..) {
                if parents[target as usize] == NONE && !skipped(target) {
                    parents[target as usize] = object;
                    front.push(target);
                }
            }
        }
        if front.is_empty() {
            let Some(stacks) = left.take() else { return Tree { parents } };
            seed(stacks, &mut parents, &mut front);
        }
    }
}

/// Forgets words on machine stacks that refer to objects which another root reaches.
pub fn drop_stale_words(graph: &mut Graph, tree: &Tree) {
    for root in 0..graph.roots.len() {
        if graph.is_machine_stack(root) {
            graph.drop_root_edges(root, |object| tree.holder(object) != Holder::Root(root));
        }
    }
}

/// The classes that only their objects hold: for each kind the class, or [`NONE`].
pub fn late_classes(graph: &Graph, tree: &Tree) -> Vec<u32> {
    let mut classes = classes_of_kinds(graph);
    for class in &mut classes {
        if *class != NONE {
            let by_reference = match tree.holder(*class) {
                Holder::Object(holder) => graph.targets(holder).contains(class),
                Holder::Root(_) => true,
                Holder::None => true,
            };
            if by_reference {
                *class = NONE;
            }
        }
    }
    classes
}
