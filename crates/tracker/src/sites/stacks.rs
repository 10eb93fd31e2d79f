//! Whole stacks as call sites: a trie of lines, in the memory of the interner.
//!
//! A frame is a path, a line and a label; a node is a frame and the node of its caller, so that stacks share what they
//! have in common. A site is one node. It belongs to the site of its innermost line alone, which keeps the list of its
//! stacks, so that a line's sums need no memory when they are read.

use core::sync::atomic::Ordering;

use super::{Index, Inner, Kind, List, MAX_PATH_BYTES, Site, Sites, hash_bytes, mix, slice};
use crate::lock::SpinGuard;
use crate::mmap;

/// Most frames of a stack.
pub const MOST_FRAMES: usize = 64;

/// A path, a line and a label, by the numbers of their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct FrameEntry {
    path: u32,
    line: u32,
    /// The number plus 1; 0: there is none.
    label: u32,
}

/// A frame and the node of its caller, both plus 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Node {
    caller: u32,
    frame: u32,
}

impl Node {
    fn hash(self) -> u32 {
        mix((u64::from(self.caller) << 32) | u64::from(self.frame)) as u32
    }
}

/// The hash of the site with this node.
fn hash_of_node(node: u32) -> u32 {
    mix(u64::from(node) | 1 << 40) as u32
}

/// All stacks.
#[derive(Debug)]
pub(super) struct Trie {
    frames: List<FrameEntry>,
    frame_index: Index,
    nodes: List<Node>,
    node_index: Index,
}

impl Trie {
    pub(super) const fn new() -> Self {
        Self { frames: List::new(), frame_index: Index::new(), nodes: List::new(), node_index: Index::new() }
    }

    /// The number of a node, from 0.
    fn find(&self, node: Node) -> Option<u32> {
        self.node_index.find(node.hash(), |id| self.nodes.get(id) == Some(node))
    }

    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.frame_index.clear();
        self.nodes.clear();
        self.node_index.clear();
    }
}

/// A line of a stack, as it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Path of the file, and its length.
    pub path: (*const u8, u32),
    /// Name of the method, block or file; null if there is none.
    pub label: (*const u8, u32),
    /// Line, from 1.
    pub line: u32,
    /// Number of path, line and label, from 1.
    pub frame: u32,
    /// Number of the caller's line; 0: there is none.
    pub caller: u32,
}

impl Sites {
    /// The number of a frame, from 1, or `None` when the limits are reached.
    #[cold]
    pub fn frame(&self, path: &[u8], line: u32, label: Option<&[u8]>) -> Option<u32> {
        let text = |bytes: &'_ [u8]| bytes.len().min(MAX_PATH_BYTES);
        let mut inner = self.inner.lock_in_time()?;
        let path = path.get(..text(path))?;
        let path = self.path_id(&mut inner, path, hash_bytes(path))?;
        let label = match label {
            Some(label) => {
                let label = label.get(..text(label))?;
                self.path_id(&mut inner, label, hash_bytes(label))?.checked_add(1)?
            }
            None => 0,
        };
        let entry = FrameEntry { path, line, label };
        let hash = mix(mix((u64::from(path) << 32) | u64::from(line)) ^ u64::from(label)) as u32;
        let Inner { trie, room, .. } = &mut *inner;
        let found = trie.frame_index.find(hash, |id| trie.frames.get(id) == Some(entry));
        if found.is_some() {
            return found?.checked_add(1);
        }
        if !trie.frame_index.reserve(room) {
            return None;
        }
        let id = trie.frames.push(entry, room)?;
        trie.frame_index.add(hash, id, room);
        id.checked_add(1)
    }

    /// The number of a stack's site; `leaf` is that of its innermost line. `frames` are numbers of [`Sites::frame`], the
    /// innermost first. `None` when the limits are reached.
    #[cold]
    pub fn stack(&self, leaf: u32, frames: &[u32]) -> Option<u32> {
        let mut inner = self.inner.lock_in_time()?;
        let mut node = 0;
        for frame in frames.iter().rev() {
            node = self.node(&mut inner, Node { caller: node, frame: *frame })?;
        }
        let hash = hash_of_node(node);
        let found = self.with_node(&inner, node);
        if found.is_some() {
            return found;
        }
        let line = self.get(leaf)?;
        let id = self.add(&mut inner, hash)?;
        let site = self.get(id)?;
        self.has_rests.store(true, Ordering::Relaxed);
        let (path, len) = line.path();
        site.kind.store(Kind::Ruby as u32, Ordering::Relaxed);
        site.line.store(line.line(), Ordering::Relaxed);
        site.path.store(path.cast_mut(), Ordering::Relaxed);
        site.path_len.store(len, Ordering::Relaxed);
        site.rest.node.store(node, Ordering::Relaxed);
        site.rest.leaf.store(leaf, Ordering::Relaxed);
        site.counters.begin_within(&line.counters);
        site.rest.next.store(line.rest.next.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: a reader that follows the list sees the site.
        line.rest.next.store(id, Ordering::Release);
        Some(id)
    }

    /// The same of a stack that has one.
    #[cold]
    pub fn known_stack(&self, frames: &[u32]) -> Option<u32> {
        let inner = self.inner.lock_in_time()?;
        let mut node = 0;
        for frame in frames.iter().rev() {
            let entry = Node { caller: node, frame: *frame };
            node = inner.trie.find(entry)?.checked_add(1)?;
        }
        self.with_node(&inner, node)
    }

    fn with_node(&self, inner: &Inner, node: u32) -> Option<u32> {
        let is_it = |site: Site<'_>| node != 0 && site.node() == node;
        inner.sites.find(hash_of_node(node), |id| self.get(id).is_some_and(is_it))
    }

    fn node(&self, inner: &mut Inner, entry: Node) -> Option<u32> {
        let hash = entry.hash();
        let Inner { trie, room, .. } = inner;
        let found = trie.find(entry);
        if found.is_some() {
            return found?.checked_add(1);
        }
        if !trie.node_index.reserve(room) {
            return None;
        }
        let id = trie.nodes.push(entry, room)?;
        trie.node_index.add(hash, id, room);
        id.checked_add(1)
    }

    /// One line of a stack, by its number.
    pub fn stack_line(&self, number: u32) -> Option<Line> {
        let inner = self.inner.lock_in_time()?;
        let node = inner.trie.nodes.get(number.checked_sub(1)?)?;
        let frame = inner.trie.frames.get(node.frame.checked_sub(1)?)?;
        let text = |id: u32| inner.path_list.get(id).map(|entry| (entry.bytes, entry.len));
        let label = frame.label.checked_sub(1).and_then(text).unwrap_or((core::ptr::null(), 0));
        Some(Line {
            path: text(frame.path)?,
            label,
            line: frame.line,
            frame: node.frame,
            caller: node.caller,
        })
    }

    /// The site of the innermost line, for a site that is a whole stack; otherwise the site itself.
    #[inline]
    pub fn leaf_of(&self, id: u32) -> u32 {
        match self.get(id).map_or(0, |site| site.rest.leaf.load(Ordering::Relaxed)) {
            0 => id,
            leaf => leaf,
        }
    }

    /// The site and, if it is a line, all its stacks.
    pub fn with_stacks(&self, id: u32) -> impl Iterator<Item = (u32, Site<'_>)> {
        let is_line = self.get(id).is_some_and(|site| !site.is_stack());
        let mut next = Some(id);
        core::iter::from_fn(move || {
            let id = next?;
            let site = self.get(id)?;
            next = Some(site.rest.next.load(Ordering::Acquire)).filter(|next| is_line && *next != 0);
            Some((id, site))
        })
    }
}

/// The parts of all stacks at one instant. Nothing is added meanwhile.
#[derive(Debug)]
pub struct Tables<'a>(SpinGuard<'a, Inner>);

impl Sites {
    /// The tables; `None` if another thread, or this one before a signal, is in the middle of a change.
    pub fn tables(&self) -> Option<Tables<'_>> {
        self.inner.lock_in_time().map(Tables)
    }
}

impl Tables<'_> {
    /// Paths and labels in the order of their numbers, from 0.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        // SAFETY: each entry's bytes were copied into the string arena with this length.
        self.0.path_list.all().iter().map(|entry| unsafe { slice(entry.bytes, entry.len) })
    }

    /// Path, line and label of each frame, the label's number plus 1.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = (u32, u32, u32)> {
        self.0.trie.frames.all().iter().map(|frame| (frame.path, frame.line, frame.label))
    }

    /// Caller and frame of each node, both plus 1. A caller comes before whom it calls.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (u32, u32)> {
        self.0.trie.nodes.all().iter().map(|node| (node.caller, node.frame))
    }
}

/// A thread's cache of stacks, with room to make one. It takes memory with its first use. All-zero memory is a valid,
/// empty one.
#[derive(Debug)]
pub struct StackCache {
    memory: core::cell::Cell<*mut StackMemory>,
    /// There was no room for it.
    refused: core::cell::Cell<bool>,
}

/// The memory of a [`StackCache`]. All-zero memory is valid.
#[derive(Debug)]
#[repr(C)]
pub struct StackMemory {
    /// From keys of stacks to sites.
    pub sites: super::cache::StackSites<STACK_ENTRIES>,
    /// From what runs in one frame to the number of [`Sites::frame`], while it runs there: after a marking, most stacks are
    /// found by these.
    pub known_frames: super::cache::Cache<FRAME_ENTRIES>,
    /// For the VM's answers.
    pub scratch: core::cell::UnsafeCell<[u64; SCRATCH_WORDS]>,
    /// The frames of a stack.
    pub frames: [core::cell::Cell<u32>; MOST_FRAMES],
    /// The same by the place in the VM's stack, where frames without a line have places, too; 0: not to be remembered.
    pub places: [core::cell::Cell<u32>; MOST_FRAMES],
}

const STACK_ENTRIES: usize = 2048;
const FRAME_ENTRIES: usize = 1024;
/// Room for 512 frames of the VM, which has frames without lines between the others: address and line.
const SCRATCH_WORDS: usize = 768;

impl StackCache {
    /// The memory, if it has been taken.
    #[inline(always)]
    pub fn taken(&self) -> Option<&StackMemory> {
        // SAFETY: null, or zeroed memory of this size, which is never unmapped.
        unsafe { self.memory.get().as_ref() }
    }

    /// The memory, if the budget of call sites and the kernel have some. Called by the owner only.
    #[inline]
    pub fn memory(&self, sites: &Sites) -> Option<&StackMemory> {
        if self.memory.get().is_null() && !self.take(sites) {
            return None;
        }
        // SAFETY: zeroed memory of this size, which is never unmapped.
        unsafe { self.memory.get().as_ref() }
    }

    /// It is taken once and for all: the next owner of the thread's state has it, too.
    #[cold]
    fn take(&self, sites: &Sites) -> bool {
        if self.refused.get() {
            return false;
        }
        let bytes = size_of::<StackMemory>();
        let has_room = sites.inner.lock_in_time().is_some_and(|mut inner| inner.room.take_for_good(bytes));
        let memory = if has_room { mmap::map(bytes) } else { None };
        self.refused.set(memory.is_none());
        self.memory.set(memory.map_or(core::ptr::null_mut(), |memory| memory.as_ptr().cast()));
        memory.is_some()
    }

    /// Forgets everything.
    pub fn discard(&self) {
        self.refused.set(false);
        // SAFETY: as above.
        if let Some(memory) = unsafe { self.memory.get().as_ref() } {
            memory.sites.discard();
            memory.known_frames.discard();
        }
    }
}
