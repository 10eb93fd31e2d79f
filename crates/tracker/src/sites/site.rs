//! The data of a call site.

use core::ops::Deref;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::counters::Counters;

/// What kind of key a site has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// A Ruby `path:line`.
    Ruby = 0,
    /// A native return address.
    Native = 1,
    /// One of the fixed pseudo-sites.
    Pseudo = 2,
}

/// One call site.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    pub(super) common: &'a Common,
    pub(super) rest: &'a Rest,
}

impl Deref for Site<'_> {
    type Target = Common;

    fn deref(&self) -> &Common {
        self.common
    }
}

/// What each call site has. All-zero memory is a valid, unused one.
#[derive(Debug)]
#[repr(C)]
pub struct Common {
    pub(super) kind: AtomicU32,
    pub(super) line: AtomicU32,
    pub(super) path: AtomicPtr<u8>,
    pub(super) path_len: AtomicU32,
    pub(super) hash: AtomicU32,
    /// The counters of this site.
    pub counters: Counters,
}

/// Data that few call sites have. It lies apart, so the others take no memory for it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Rest {
    pub(super) address: AtomicU64,
    pub(super) offset: AtomicU64,
    pub(super) marked_bytes: AtomicU64,
    /// For a whole stack, the number of its innermost line in the trie, and of the site of that line alone; otherwise 0.
    pub(super) node: AtomicU32,
    pub(super) leaf: AtomicU32,
    /// The next site in the list of a line's stacks, which begins at the line's own site; 0: there is none.
    pub(super) next: AtomicU32,
}

/// The counters of a site's objects of the VM. They lie apart from the site, so they take no memory while no
/// objects are tracked. All-zero memory is a valid, empty one.
#[derive(Debug)]
#[repr(C)]
pub struct SiteObjects {
    /// The counters.
    pub counters: Counters,
    /// Bytes of live objects' slots at the last mark.
    pub marked_bytes: AtomicU64,
}

impl Common {
    /// The kind of key.
    pub fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Relaxed) {
            0 => Kind::Ruby,
            1 => Kind::Native,
            _ => Kind::Pseudo,
        }
    }

    /// The line of a Ruby site, otherwise 0.
    pub fn line(&self) -> u32 {
        if self.kind() == Kind::Ruby { self.line.load(Ordering::Relaxed) } else { 0 }
    }

    /// The path as pointer and length: of the file of a Ruby site, or of the module of a native site. Null and 0 if
    /// there is none.
    pub fn path(&self) -> (*const u8, u32) {
        (self.path.load(Ordering::Relaxed), self.path_len.load(Ordering::Relaxed))
    }

    /// The number of a native site's module; 0 if it is not known, and for other sites.
    pub(super) fn module(&self) -> u32 {
        if self.kind() == Kind::Native { self.line.load(Ordering::Relaxed) } else { 0 }
    }
}

impl<'a> Site<'a> {
    /// Live bytes at the last mark.
    pub fn marked_bytes(&self) -> &'a AtomicU64 {
        &self.rest.marked_bytes
    }

    /// Whether it is a whole stack.
    pub fn is_stack(&self) -> bool {
        self.node() != 0
    }

    /// The number of a whole stack's innermost line ([`super::Sites::stack_line`]); otherwise 0.
    pub fn node(&self) -> u32 {
        self.rest.node.load(Ordering::Relaxed)
    }

    /// The return address of a native site when it was last seen, otherwise 0.
    pub fn address(&self) -> u64 {
        self.rest.address.load(Ordering::Relaxed)
    }

    /// The offset of a native site in its module; the return address if the module is not known; 0 for other sites.
    pub fn offset(&self) -> u64 {
        self.rest.offset.load(Ordering::Relaxed)
    }
}

impl SiteObjects {
    /// All zero again. The caller has paused the world.
    pub(super) fn reset(&self) {
        if self.counters.is_any() {
            self.counters.reset();
        }
        store_if_new(&self.marked_bytes, 0);
    }
}

/// Stores a number. Memory that has it already is not written: it may be none yet.
pub(super) fn store_if_new(word: &AtomicU64, number: u64) {
    if word.load(Ordering::Relaxed) != number {
        word.store(number, Ordering::Relaxed);
    }
}
