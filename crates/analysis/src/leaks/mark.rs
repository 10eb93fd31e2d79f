//! Reaches blocks from roots.
//!
//! A word points to a block if it is an address in it; interior pointers count. So does half of an odd word: Ruby keeps
//! an address that it has as an integer in that form.
//!
//! Several words may lead to a block. The one that says most surely whose the block is gives it its root: each root has a
//! rank ([`ranks`]), and so has what it reaches. All roots are taken before any block is searched, and blocks of a lower rank are
//! searched before those of a higher one, the nearest to their roots first. So an old word on a stack names no block that
//! an object has as its own. A word that is not the address of a block's beginning ranks behind those that are.
//!
//! Roots of one kind may be the caller's own: what it keeps for itself holds no block that was followed, so an address of
//! one there is a stale word or a note, and reaches nothing.
//!
//! What no root reaches falls into blocks that nothing points to, and blocks that only those point to. Of blocks that
//! point to one another in a circle, one stands for all. [`Marking::sort_unreached`] finds these: it first goes from each
//! unreached block, in the order of addresses, to all that it reaches; where it has to begin anew is a candidate. A
//! candidate that a later one reaches is none. So it goes a second time, from the last candidate to the first, and those
//! where it has to begin anew are the ones that nothing else points to.

use super::nodes::{Content, NO_HOLDER, NO_SITE, Node, Nodes, State};

/// The memory that is searched.
pub trait Memory {
    /// Visits the words of a range, as far as it is there.
    fn words(&self, from: usize, to: usize, visit: impl FnMut(usize, usize));

    /// The same without what is known to be out of use.
    fn words_in_use(&self, from: usize, to: usize, visit: impl FnMut(usize, usize)) {
        self.words(from, to, visit);
    }

    /// Those of a block that are looked at. Returns the bytes of the block, or 0 if nothing of it is.
    fn words_of(&self, node: &Node, visit: impl FnMut(usize, usize)) -> u64 {
        let (from, to) = (node.start, node.start + node.bytes);
        match node.content {
            Content::All => self.words(from, to, visit),
            Content::InUse => self.words_in_use(from, to, visit),
            Content::Nothing => return 0,
        }
        node.bytes as u64
    }

    /// Says that this address will be read soon.
    fn fetch(&self, _address: usize) {}
}

/// How surely a root says whose a block is, the surest first.
pub mod ranks {
    /// An object of Ruby that has the block as its own.
    pub const OWNER: u8 = 0;
    /// A static of a library.
    pub const STATIC: u8 = 1;
    /// An object from which all of Ruby's own structures are reached, such as a thread.
    pub const MACHINERY: u8 = 2;
    /// Any of these, by a word that may be something else than an address, or is one of the middle of a block.
    pub const LOOSE: u8 = 3;
    /// Memory of which nothing is known.
    pub const MEMORY: u8 = 4;
    /// A stack or a register.
    pub const STACK: u8 = 5;
    /// What names a block only if nothing else does.
    pub const LAST: u8 = 6;
    /// How many there are.
    pub const COUNT: usize = 7;
}

/// So many bytes behind the beginning of a block, an address in it still counts as that of the block: some libraries keep
/// a head of their own before what they hand out.
const HEAD: usize = 16;

/// What a range of roots is.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// A number of the caller's.
    pub kind: u8,
    /// One of [`ranks`].
    pub rank: u8,
    /// Another number of the caller's; 0: the address of the word itself.
    pub key: usize,
    /// Whether integers of Ruby may be there.
    pub has_integers: bool,
}

impl Root {
    /// Where integers may be.
    #[must_use]
    pub fn new(kind: u8, key: usize, rank: u8) -> Self {
        Self { kind, rank, key, has_integers: true }
    }
}

/// From where a word leads to a block.
#[derive(Clone, Copy)]
struct Whence {
    kind: u8,
    rank: u8,
    root: usize,
    holder: u32,
}

/// Numbers of blocks that wait to be searched, by rank. Each has its part of the caller's memory, and each block waits at
/// most once in each.
#[derive(Debug)]
struct Queues<'a> {
    places: &'a mut [u32],
    /// Places of each part.
    room: usize,
    /// For each rank: those that have been taken, and those that have been filled.
    taken: [usize; ranks::COUNT],
    filled: [usize; ranks::COUNT],
}

impl Queues<'_> {
    fn push(&mut self, rank: u8, index: usize) {
        let rank = usize::from(rank).min(ranks::COUNT - 1);
        let Some(filled) = self.filled.get_mut(rank).filter(|filled| **filled < self.room) else { return };
        if let Some(place) = self.places.get_mut(rank * self.room + *filled) {
            *place = index as u32;
            *filled += 1;
        }
    }

    /// The rank and number of the next block, and that of one that comes soon after it.
    fn next(&mut self) -> Option<(u8, usize, Option<usize>)> {
        const SOON: usize = 6;
        let mut counts = self.taken.iter_mut().zip(self.filled).enumerate();
        let (rank, (taken, filled)) = counts.find(|(_, (taken, filled))| **taken < *filled)?;
        let at = rank * self.room + *taken;
        *taken += 1;
        let soon = self.places.get(at + SOON).filter(|_| *taken + SOON <= filled).copied();
        let index = self.places.get(at).copied()? as usize;
        if *taken == filled {
            self.empty(rank);
        }
        Some((rank as u8, index, soon.map(|soon| soon as usize)))
    }

    fn empty(&mut self, rank: usize) {
        for counts in [&mut self.taken, &mut self.filled] {
            if let Some(count) = counts.get_mut(rank) {
                *count = 0;
            }
        }
    }
}

/// A search.
#[derive(Debug)]
pub struct Marking<'a, 'b, M> {
    /// The blocks.
    pub nodes: &'a mut Nodes<'b>,
    memory: &'a M,
    waiting: Queues<'a>,
    /// The kind of the caller's own roots, if it has any.
    own: Option<u8>,
    /// Bytes that were searched.
    pub searched: u64,
    /// Whether integers of Ruby in blocks count that a rank before the last one reaches.
    pub has_integers: bool,
}

impl<'a, 'b, M: Memory> Marking<'a, 'b, M> {
    /// `waiting` has [`ranks::COUNT`] entries for each block. `own`: the kind of the caller's own roots, if it has any.
    pub fn new(nodes: &'a mut Nodes<'b>, memory: &'a M, waiting: &'a mut [u32], own: Option<u8>) -> Self {
        let room = waiting.len() / ranks::COUNT;
        let empty = [0; ranks::COUNT];
        let waiting = Queues { places: waiting, room, taken: empty, filled: empty };
        Self { nodes, memory, waiting, own, searched: 0, has_integers: true }
    }

    /// Takes a range of roots: what it leads to is found by [`Marking::follow`].
    pub fn from_root(&mut self, from: usize, to: usize, root: Root) {
        self.searched += to.saturating_sub(from) as u64;
        let memory = self.memory;
        memory.words(from, to, |at, word| {
            let key = if root.key == 0 { at } else { root.key };
            self.look(word, root.has_integers, Whence::of(root, key));
        });
    }

    /// Takes one word of a root.
    pub fn from_word(&mut self, word: usize, root: Root) {
        self.look(word, root.has_integers, Whence::of(root, root.key));
    }

    /// Reaches all blocks to which the roots lead that were taken so far.
    pub fn follow(&mut self) {
        let memory = self.memory;
        while let Some((rank, index, soon)) = self.waiting.next() {
            if let Some(soon) = soon.and_then(|soon| self.nodes.list.get(soon)) {
                memory.fetch(soon.start);
            }
            // What a lower rank has reached meanwhile was searched then.
            let Some(node) = self.nodes.list.get(index).copied().filter(|node| node.rank == rank) else {
                continue;
            };
            let whence = Whence { kind: node.kind, rank, root: node.root, holder: index as u32 };
            let has_integers = self.has_integers && rank != ranks::LAST;
            let searched = memory.words_of(&node, |_, word| self.look(word, has_integers, whence));
            self.searched += searched;
        }
    }

    /// Takes a block for reached, without looking into it.
    pub fn close(&mut self, index: usize, root: Root) {
        if let Some(node) = self.nodes.list.get_mut(index) {
            node.content = Content::Nothing;
            node.state = State::Reached;
            node.kind = root.kind;
            node.rank = 0;
            node.root = root.key;
        }
    }

    /// Takes a block that nothing reached for one that something may reach, with all that it reaches.
    pub fn doubt(&mut self, index: usize, root: Root) {
        if let Some(node) = self.nodes.list.get_mut(index).filter(|node| node.state == State::Unreached) {
            node.state = State::Undecided;
            node.kind = root.kind;
            node.rank = root.rank;
            node.root = root.key;
            self.waiting.push(root.rank, index);
            self.follow();
        }
    }

    #[inline]
    fn look(&mut self, word: usize, has_integers: bool, whence: Whence) {
        self.look_at(word, false, whence);
        if has_integers && word & 1 == 1 {
            self.look_at(word >> 1, true, whence);
        }
    }

    #[inline]
    fn look_at(&mut self, address: usize, as_integer: bool, whence: Whence) {
        let Some(index) = self.nodes.find(address) else { return };
        let Some(node) = self.nodes.list.get_mut(index) else { return };
        let is_exact = !as_integer && address - node.start <= HEAD && address.is_multiple_of(8);
        let rank = if is_exact { whence.rank } else { whence.rank.max(ranks::LOOSE) };
        let is_better = match node.state {
            State::Unreached => true,
            State::Reached => rank < node.rank,
            _ => false,
        };
        if !is_better || self.own == Some(whence.kind) && node.site != NO_SITE {
            return;
        }
        node.state = State::Reached;
        node.kind = whence.kind;
        node.rank = rank;
        node.root = whence.root;
        node.holder = whence.holder;
        self.waiting.push(rank, index);
    }

    /// Tells leaked blocks from those that leaked ones hold. `candidates` has as many entries as there are blocks.
    pub fn sort_unreached(&mut self, candidates: &mut [u32]) {
        let mut count = 0;
        for index in 0..self.nodes.list.len() {
            if self.is(index, State::Unreached) {
                if let Some(place) = candidates.get_mut(count) {
                    *place = index as u32;
                    count += 1;
                }
                self.flood(index, State::Unreached, State::Visited);
            }
        }
        for candidate in candidates.iter().take(count).rev() {
            let index = *candidate as usize;
            if self.is(index, State::Visited) {
                self.flood(index, State::Visited, State::Indirect);
                if let Some(node) = self.nodes.list.get_mut(index) {
                    node.state = State::Leaked;
                    node.holder = NO_HOLDER;
                }
            }
        }
    }

    /// Takes a leaked block for one that something may hold, with all that it holds.
    pub(super) fn doubt_leaked(&mut self, index: usize, root: Root) {
        if let Some(node) = self.nodes.list.get_mut(index).filter(|node| node.state == State::Leaked) {
            node.state = State::Indirect;
            node.kind = root.kind;
            node.root = root.key;
            self.flood(index, State::Indirect, State::Undecided);
        }
    }

    fn is(&self, index: usize, state: State) -> bool {
        self.nodes.list.get(index).is_some_and(|node| node.state == state)
    }

    /// Gives all blocks of one state that this one reaches another state, and this one as their holder.
    fn flood(&mut self, start: usize, from: State, to: State) {
        let memory = self.memory;
        self.turn(start, start, from, to);
        while let Some((_, index, _)) = self.waiting.next() {
            let Some(node) = self.nodes.list.get(index).copied() else { continue };
            memory.words_of(&node, |_, word| {
                for address in [word, if word & 1 == 1 { word >> 1 } else { 0 }] {
                    if let Some(found) = self.nodes.find(address) {
                        self.turn(found, start, from, to);
                    }
                }
            });
        }
    }

    fn turn(&mut self, index: usize, holder: usize, from: State, to: State) {
        if let Some(node) = self.nodes.list.get_mut(index).filter(|node| node.state == from) {
            node.state = to;
            node.holder = holder as u32;
            self.waiting.push(0, index);
        }
    }
}

impl Whence {
    fn of(root: Root, key: usize) -> Self {
        Self { kind: root.kind, rank: root.rank, root: key, holder: NO_HOLDER }
    }
}
