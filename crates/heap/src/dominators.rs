//! The dominator tree: object A dominates B if every way from a root to B leads through A. So without A, B
//! would be free, and A's retained bytes are those of all objects that it dominates, itself included. A word
//! on a machine stack counts only for objects that no other root reaches: a stale word would otherwise hide
//! all dominators above its object.
//!
//! This is the semi-NCA algorithm of Georgiadis and Tarjan. It uses no recursion, so it can handle ten
//! million objects in one chain.

use crate::graph::Graph;
use crate::pages::NONE;
use crate::reach::{drop_stale_words, late_classes, reach};

/// Objects by their numbers in the order of a depth-first walk. 0 is the holder of all roots.
#[derive(Debug, Default)]
pub struct Dominators {
    /// The object of each number; [`NONE`] for 0.
    pub order: Vec<u32>,
    /// The number of the direct dominator of each number.
    pub parents: Vec<u32>,
    /// Bytes that each number retains.
    pub retained: Vec<u64>,
}

/// The walk, and the holders of each number.
struct Walk {
    order: Vec<u32>,
    parents: Vec<u32>,
    /// Where the holders of each number begin in the list of all.
    starts: Vec<u32>,
    holders: Vec<u32>,
}

impl Dominators {
    /// Computes the tree, and removes the references and their names from the object graph, because both
    /// together would take too much memory.
    pub fn compute(graph: &mut Graph) -> Dominators {
        graph.drop_names();
        let tree = reach(graph, None, &[]);
        let late = late_classes(graph, &tree);
        drop_stale_words(graph, &tree);
        drop(tree);
        let walk = Walk::over(graph, &late);
        graph.drop_edges();
        Self::computed(graph, walk)
    }

    fn computed(graph: &Graph, walk: Walk) -> Dominators {
        let Walk { order, parents, starts, holders } = walk;
        let parents = semi_nca(parents, starts, holders);
        let mut retained: Vec<u64> = Vec::with_capacity(order.len());
        retained.extend(order.iter().map(|object| if *object == NONE { 0 } else { graph.size(*object) }));
        for number in (1..order.len()).rev() {
            let above = parents[number] as usize;
            retained[above] = retained[above].saturating_add(retained[number]);
        }
        Dominators { order, parents, retained }
    }

    /// How many numbers there are: one more than the reachable objects.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no object is reachable.
    pub fn is_empty(&self) -> bool {
        self.order.len() <= 1
    }

    /// The numbers that each number dominates directly: where each list begins, and all lists, most retained
    /// bytes first.
    pub fn children(&self) -> (Vec<u32>, Vec<u32>) {
        let (starts, mut children) = grouped(self.len(), |take| {
            (1..self.len()).for_each(|number| take(self.parents[number], number as u32));
        });
        for number in 0..self.len() {
            let mine = starts[number] as usize..starts[number + 1] as usize;
            children[mine].sort_by_key(|child| (std::cmp::Reverse(self.retained[*child as usize]), *child));
        }
        (starts, children)
    }
}

/// Sorts pairs of a group and a member by group: where each group begins, and all members.
fn grouped(groups: usize, each: impl Fn(&mut dyn FnMut(u32, u32))) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0_u32; groups + 1];
    each(&mut |group, _| starts[group as usize + 1] += 1);
    for at in 0..groups {
        starts[at + 1] += starts[at];
    }
    let mut members = vec![0; starts[groups] as usize];
    // While it fills, each start runs to the next one's.
    each(&mut |group, member| {
        members[starts[group as usize] as usize] = member;
        starts[group as usize] += 1;
    });
    for at in (0..groups).rev() {
        starts[at + 1] = starts[at];
    }
    starts[0] = 0;
    (starts, members)
}

impl Walk {
    fn over(graph: &Graph, late: &[u32]) -> Walk {
        let mut numbers = vec![NONE; graph.len()];
        let (mut order, mut parents) = (Vec::new(), Vec::new());
        order.reserve_exact(graph.len() + 1);
        parents.reserve_exact(graph.len() + 1);
        order.push(NONE);
        parents.push(0);
        // How many references of each number's object have been followed.
        let mut done: Vec<u32> = Vec::new();
        done.reserve_exact(graph.len() + 1);
        done.push(0);
        for root in 0..graph.roots.len() {
            for edge in graph.root_edges(root) {
                if numbers[edge.to as usize] == NONE {
                    number(edge.to, 0, &mut numbers, &mut order, &mut parents, &mut done);
                    descend(graph, late, &mut numbers, &mut order, &mut parents, &mut done);
                }
            }
        }
        drop(done);
        let (starts, holders) = holders(graph, late, &numbers, &order);
        Walk { order, parents, starts, holders }
    }
}

fn number(
    object: u32,
    parent: u32,
    numbers: &mut [u32],
    order: &mut Vec<u32>,
    parents: &mut Vec<u32>,
    done: &mut Vec<u32>,
) {
    numbers[object as usize] = order.len() as u32;
    order.push(object);
    parents.push(parent);
    done.push(0);
}

/// Continues from the last number until all objects below it have one.
fn descend(
    graph: &Graph,
    late: &[u32],
    numbers: &mut [u32],
    order: &mut Vec<u32>,
    parents: &mut Vec<u32>,
    done: &mut Vec<u32>,
) {
    let mut here = order.len() as u32 - 1;
    while here != 0 {
        let object = order[here as usize];
        let targets = graph.targets(object);
        let class = late[graph.kind_of[object as usize] as usize];
        let mut at = done[here as usize] as usize;
        let mut found = NONE;
        // The class comes behind all references.
        while at <= targets.len() && found == NONE {
            let target = if at < targets.len() { targets[at] } else { class };
            if target != NONE && numbers[target as usize] == NONE {
                found = target;
            }
            at += 1;
        }
        done[here as usize] = at as u32;
        if found == NONE {
            here = parents[here as usize];
        } else {
            number(found, here, numbers, order, parents, done);
            here = order.len() as u32 - 1;
        }
    }
}

/// The holders of each number.
fn holders(graph: &Graph, late: &[u32], numbers: &[u32], order: &[u32]) -> (Vec<u32>, Vec<u32>) {
    grouped(order.len(), |take| {
        for root in 0..graph.roots.len() {
            graph.root_edges(root).for_each(|edge| take(numbers[edge.to as usize], 0));
        }
        for (here, &object) in order.iter().enumerate().skip(1) {
            for &target in graph.targets(object) {
                if target != NONE {
                    take(numbers[target as usize], here as u32);
                }
            }
            let class = late[graph.kind_of[object as usize] as usize];
            if class != NONE {
                take(numbers[class as usize], here as u32);
            }
        }
    })
}

/// A number's semi-dominator is stored where the beginning of its holders was, which is no longer needed
/// then. The semi-dominator of a number that is not linked yet is the number itself.
fn semi_nca(mut parents: Vec<u32>, starts: Vec<u32>, holders: Vec<u32>) -> Vec<u32> {
    let count = parents.len();
    let mut dominators = parents.clone();
    let mut labels: Vec<u32> = (0..count as u32).collect();
    let mut semi = starts;
    let mut end = semi[count];
    let mut path = Vec::new();
    for number in (1..count as u32).rev() {
        let mut least = parents[number as usize];
        let start = semi[number as usize];
        for &holder in &holders[start as usize..end as usize] {
            least = least.min(if holder <= number {
                holder
            } else {
                semi[evaluate(holder, number + 1, &mut parents, &mut labels, &semi, &mut path) as usize]
            });
        }
        semi[number as usize] = least;
        end = start;
    }
    drop((labels, holders));
    for number in 1..count {
        let mut above = dominators[number];
        while above > semi[number] {
            above = dominators[above as usize];
        }
        dominators[number] = above;
    }
    dominators
}

/// The number with the least semi-dominator on the way from `from` up to those not yet linked; shortens the way.
fn evaluate(
    from: u32,
    linked: u32,
    parents: &mut [u32],
    labels: &mut [u32],
    semi: &[u32],
    path: &mut Vec<u32>,
) -> u32 {
    let mut here = from;
    if parents[here as usize] < linked {
        return labels[here as usize];
    }
    path.clear();
    while parents[here as usize] >= linked {
        path.push(here);
        here = parents[here as usize];
    }
    let mut above = here;
    let mut best = labels[above as usize];
    while let Some(below) = path.pop() {
        parents[below as usize] = parents[above as usize];
        let own = labels[below as usize];
        if semi[best as usize] < semi[own as usize] {
            labels[below as usize] = best;
        } else {
            best = own;
        }
        above = below;
    }
    labels[from as usize]
}
