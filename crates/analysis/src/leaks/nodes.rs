//! All blocks in the order of their addresses, and which of them an address is in.
//!
//! A table has an entry for each 2 MiB of the address space, and where blocks are, one for each 512 bytes: the first
//! block that reaches into them. So a look-up reads two entries, and then searches among a few blocks.

/// Bytes of one entry of the second table: few enough for the blocks in them to be close together in the list.
const UNIT: usize = 512;
/// Those of one entry of the first table.
const LEAF: usize = 2 << 20;
const LEAF_UNITS: usize = LEAF / UNIT;
/// Entries of the first table: addresses of programs have 47 bits.
pub const TOP: usize = (1 << 47) / LEAF;
/// Larger blocks are not in the second table.
const LARGE: usize = 1 << 30;
/// More blocks than this are not in one unit: jemalloc, tcmalloc and mimalloc have some of 8 bytes.
const MOST_OF_A_UNIT: usize = UNIT / 8 + 1;

/// No call site is known of the block.
pub const NO_SITE: u32 = u32::MAX;
/// No block.
pub const NO_HOLDER: u32 = u32::MAX;

/// What a block is found to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nothing has reached it yet.
    #[default]
    Unreached,
    /// A root reaches it.
    Reached,
    /// It is free, in a cache of the allocator.
    Free,
    /// Nothing points to it.
    Leaked,
    /// Only leaked blocks point to it.
    Indirect,
    /// Nothing reached it, and it is not known yet which of the two it is.
    Visited,
    /// Nothing reached it, but something may: at another instant it was not so.
    Undecided,
}

/// What of a block is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    /// All words.
    #[default]
    All,
    /// Those that are in use ([`super::unused`]).
    InUse,
    /// None.
    Nothing,
}

/// A block.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its first address.
    pub start: usize,
    /// Bytes that were asked for; of a block that was not followed, those that it may use.
    pub bytes: usize,
    /// What the root was that reached it: a number of the caller's.
    pub root: usize,
    /// Its call site, or [`NO_SITE`].
    pub site: u32,
    /// Its age in collections.
    pub age: u32,
    /// The leaked block that holds it, or the block through which a root reaches it; [`NO_HOLDER`] if that is the root.
    pub holder: u32,
    /// What it is found to be.
    pub state: State,
    /// The kind of the root: a number of the caller's.
    pub kind: u8,
    /// The rank of the word that led to it ([`super::mark::ranks`]).
    pub rank: u8,
    /// What of it is looked at.
    pub content: Content,
}

impl Node {
    /// A block that nothing has reached.
    #[must_use]
    pub fn new(start: usize, bytes: usize) -> Self {
        Self {
            start,
            bytes,
            root: 0,
            site: NO_SITE,
            age: 0,
            holder: NO_HOLDER,
            state: State::Unreached,
            kind: 0,
            rank: 0,
            content: Content::All,
        }
    }

    /// The address after its last byte; a block of no bytes has one.
    #[must_use]
    #[inline]
    pub fn end(&self) -> usize {
        self.start.saturating_add(self.bytes.max(1))
    }
}

/// The list and its tables.
#[derive(Debug)]
pub struct Nodes<'a> {
    /// In the order of their addresses. None overlap.
    pub list: &'a mut [Node],
    top: &'a [u32],
    leaves: &'a [u32],
    low: usize,
    span: usize,
    has_large: bool,
}

/// How many entries the second table needs for these blocks.
#[must_use]
pub fn leaf_entries(list: &[Node]) -> usize {
    let (mut count, mut last) = (0, usize::MAX);
    for node in list.iter().filter(|node| node.bytes < LARGE) {
        for leaf in node.start / LEAF..=(node.end() - 1) / LEAF {
            count += usize::from(last != leaf);
            last = leaf;
        }
    }
    count * LEAF_UNITS
}

impl<'a> Nodes<'a> {
    /// `list` is sorted. The tables are zero at first: `top` has [`TOP`] entries, `leaves` as many as [`leaf_entries`]
    /// says.
    pub fn new(list: &'a mut [Node], top: &'a mut [u32], leaves: &'a mut [u32]) -> Self {
        let mut next_leaf = 0_usize;
        for (index, node) in list.iter().enumerate().filter(|(_, node)| node.bytes < LARGE) {
            for unit in node.start / UNIT..=(node.end() - 1) / UNIT {
                let Some(entry) = top.get_mut(unit / LEAF_UNITS) else { break };
                if *entry == 0 {
                    next_leaf += 1;
                    *entry = next_leaf as u32;
                }
                let place = (*entry as usize - 1) * LEAF_UNITS + unit % LEAF_UNITS;
                if let Some(first) = leaves.get_mut(place).filter(|first| **first == 0) {
                    *first = index as u32 + 1;
                }
            }
        }
        let low = list.first().map_or(0, |node| node.start);
        let span = list.last().map_or(0, |node| node.end() - low);
        let has_large = list.iter().any(|node| node.bytes >= LARGE);
        Self { list, top, leaves, low, span, has_large }
    }

    /// Whether any block may be there. Most words are no addresses, so this comes first.
    #[inline]
    #[must_use]
    pub fn may_be_in(&self, address: usize) -> bool {
        address.wrapping_sub(self.low) < self.span
    }

    /// The block that an address is in.
    #[inline]
    #[must_use]
    pub fn find(&self, address: usize) -> Option<usize> {
        if !self.may_be_in(address) {
            return None;
        }
        self.among(address).or_else(|| if self.has_large { self.anywhere(address) } else { None })
    }

    #[inline]
    fn among(&self, address: usize) -> Option<usize> {
        let leaf = (*self.top.get(address / LEAF)? as usize).checked_sub(1)?;
        let first = *self.leaves.get(leaf * LEAF_UNITS + address / UNIT % LEAF_UNITS)? as usize;
        let first = first.checked_sub(1)?;
        let end = self.list.len().min(first + MOST_OF_A_UNIT);
        let before = self.list.get(first..end)?.partition_point(|node| node.start <= address);
        let index = (first + before).checked_sub(1)?;
        (address < self.list.get(index)?.end() && before > 0).then_some(index)
    }

    /// The same without the tables.
    #[must_use]
    pub fn anywhere(&self, address: usize) -> Option<usize> {
        let index = self.list.partition_point(|node| node.start <= address).checked_sub(1)?;
        (address < self.list.get(index)?.end()).then_some(index)
    }
}
