//! Reaches blocks from roots.
//!
//! A word points to a block if it is an address in it; interior pointers count. So does half of an odd word: Ruby keeps
//! an address that it has as an integer in that form.
//!
//! Roots of one kind may be the caller's own: what it keeps for itself holds no block that was followed, so an address of
//! one there is a stale word or a note, and reaches nothing.
//!
//! What no root reaches falls into blocks that nothing points to, and blocks that only those point to. Of blocks that
//! point to one another in a circle, one stands for all. [`Marking::sort_unreached`] finds these: it first goes from each
//! unreached block, in the order of addresses, to all that it reaches; where it has to begin anew is a candidate. A
//! candidate that a later one reaches is none. So it goes a second time, from the last candidate to the first, and those
//! where it has to begin anew are the ones that nothing else points to.

use super::nodes::{Content, NO_SITE, NOBODY, Node, Nodes, State};

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

/// What a range of roots is.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// A number of the caller's.
    pub kind: u8,
    /// Another one; 0: the address of the word itself.
    pub key: usize,
    /// Whether integers of Ruby may be there.
    pub has_integers: bool,
}

impl Root {
    /// Where integers may be.
    #[must_use]
    pub fn new(kind: u8, key: usize) -> Self {
        Self { kind, key, has_integers: true }
    }
}

/// A search.
#[derive(Debug)]
pub struct Marking<'a, 'b, M> {
    /// The blocks.
    pub nodes: &'a mut Nodes<'b>,
    memory: &'a M,
    waiting: &'a mut [u32],
    used: usize,
    /// The kind of the caller's own roots, if it has any.
    own: Option<u8>,
    /// Bytes that were searched.
    pub searched: u64,
    /// Whether integers of Ruby in blocks count.
    pub has_integers: bool,
}

impl<'a, 'b, M: Memory> Marking<'a, 'b, M> {
    /// `waiting` has as many entries as there are blocks. `own`: the kind of the caller's own roots, if it has any.
    pub fn new(nodes: &'a mut Nodes<'b>, memory: &'a M, waiting: &'a mut [u32], own: Option<u8>) -> Self {
        Self { nodes, memory, waiting, used: 0, own, searched: 0, has_integers: true }
    }

    /// Searches a range of roots, and all blocks that it reaches.
    pub fn from_root(&mut self, from: usize, to: usize, root: Root) {
        self.searched += to.saturating_sub(from) as u64;
        let memory = self.memory;
        memory.words(from, to, |at, word| {
            let key = if root.key == 0 { at } else { root.key };
            self.look(word, root.has_integers, (root.kind, key, NOBODY));
        });
        self.drain();
    }

    /// Takes one word of a root, and all blocks that it reaches.
    pub fn from_word(&mut self, word: usize, root: Root) {
        self.look(word, root.has_integers, (root.kind, root.key, NOBODY));
        self.drain();
    }

    /// Takes a block for reached, without looking into it.
    pub fn close(&mut self, index: usize, root: Root) {
        if let Some(node) = self.nodes.list.get_mut(index) {
            node.content = Content::Nothing;
            node.state = State::Reached;
            node.kind = root.kind;
            node.root = root.key;
        }
    }

    /// Takes a block that nothing reached for one that something may reach, with all that it reaches.
    pub fn doubt(&mut self, index: usize, root: Root) {
        if let Some(node) = self.nodes.list.get_mut(index).filter(|node| node.state == State::Unreached) {
            node.state = State::Undecided;
            node.kind = root.kind;
            node.root = root.key;
            self.wait(index);
            self.drain();
        }
    }

    #[inline]
    fn look(&mut self, word: usize, has_integers: bool, whence: (u8, usize, u32)) {
        self.look_at(word, false, whence);
        if has_integers && word & 1 == 1 {
            self.look_at(word >> 1, true, whence);
        }
    }

    #[inline]
    fn look_at(&mut self, address: usize, as_integer: bool, (kind, root, holder): (u8, usize, u32)) {
        let Some(index) = self.nodes.find(address) else { return };
        if let Some(node) = self.nodes.list.get_mut(index).filter(|node| node.state == State::Unreached) {
            if self.own == Some(kind) && node.site != NO_SITE {
                return;
            }
            node.state = State::Reached;
            node.kind = kind;
            node.root = root;
            node.holder = holder;
            node.as_integer = as_integer;
            self.memory.fetch(node.start);
            self.wait(index);
        }
    }

    fn wait(&mut self, index: usize) {
        if let Some(place) = self.waiting.get_mut(self.used) {
            *place = index as u32;
            self.used += 1;
        }
    }

    fn next(&mut self) -> Option<usize> {
        self.used = self.used.checked_sub(1)?;
        self.waiting.get(self.used).map(|index| *index as usize)
    }

    fn drain(&mut self) {
        let memory = self.memory;
        while let Some(index) = self.next() {
            let Some(node) = self.nodes.list.get(index).copied() else { continue };
            let searched = memory.words_of(&node, |_, word| {
                self.look(word, self.has_integers, (node.kind, node.root, index as u32));
            });
            self.searched += searched;
        }
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
                    node.holder = NOBODY;
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
        while let Some(index) = self.next() {
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
            self.wait(index);
        }
    }
}
