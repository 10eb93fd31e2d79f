//! The raw dump, which the hook writes without formatting, locking or allocating.
//!
//! Layout, native endian: one [`DumpHeader`], then `sites` times a [`DumpSite`] each followed by its name's bytes
//! (Ruby: the path; native: the module's path, `+0x` and the offset in it; pseudo: the name), padded to 8.
//!
//! Where call sites are whole stacks, a trie follows: `texts` times a length of 8 bytes and so many bytes, padded to 8;
//! `frames` times a [`DumpFrame`]; `nodes` times a [`DumpNode`]; and `stacks` times a [`DumpSite`] without a name, for
//! each site as it was kept: a whole stack, or what has none.
//!
//! For programs without Ruby, stacks may follow: one [`DumpStacks`], then `count` times a [`DumpStack`] each followed by
//! `words` pairs of a distance from the stack pointer and the word there, then `maps_len` bytes of /proc/self/maps. Only
//! words that point into code or into the stack are written.

use crate::{BlockFigures, Figures, ObjectFigures, SiteKind};

/// First eight bytes of a raw dump.
pub const DUMP_MAGIC: [u8; 8] = *b"MEMINTR\x01";

/// Exit status in the dump of a process that was not ended by `_exit`, so that the status is not known.
pub const EXIT_STATUS_UNKNOWN: i32 = i32::MIN;

/// The header of a raw dump.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DumpHeader {
    /// [`DUMP_MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::VERSION`] of the writer.
    pub version: u32,
    /// Process id.
    pub pid: u32,
    /// Seconds since 1970.
    pub time: u64,
    /// Fatal signal, or 0.
    pub signal: u32,
    /// Exit status given to `_exit`, 0 with a signal, or [`EXIT_STATUS_UNKNOWN`].
    pub exit_status: i32,
    /// Number of sites that follow.
    pub sites: u64,
    /// Number of paths and labels of stacks; 0, as the next three, if call sites were lines.
    pub texts: u64,
    /// Number of frames.
    pub frames: u64,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of sites as they were kept.
    pub stacks: u64,
    /// Mean distance of two sampled bytes; 0 if there was no sampling.
    pub sample_bytes: u64,
    /// Totals.
    pub figures: Figures,
}

/// One call site of a raw dump.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DumpSite {
    /// The kind of site.
    pub kind: SiteKind,
    /// Ruby: the line. Others: the number of the site.
    pub line: u32,
    /// Bytes of the name that follows, without the padding.
    pub name_len: u32,
    /// Always 0.
    pub padding: u32,
    /// Number of the site; of a whole stack, that of its innermost line.
    pub id: u32,
    /// Of a whole stack: the number of its innermost node, from 1. Otherwise 0.
    pub node: u32,
    /// The figures of its blocks.
    pub blocks: BlockFigures,
    /// The VM's objects that were made here; all 0 unless they were tracked.
    pub objects: ObjectFigures,
}

/// A line of code.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DumpFrame {
    /// Number of the path among the texts, from 0.
    pub path: u32,
    /// Line, from 1.
    pub line: u32,
    /// Number of the label among the texts, from 1; 0: there is none.
    pub label: u32,
    /// Always 0.
    pub padding: u32,
}

/// A line of a stack.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DumpNode {
    /// Number of the caller's node, from 1, which comes earlier in the file; 0: there is none.
    pub caller: u32,
    /// Number of the frame, from 1.
    pub frame: u32,
}

/// First eight bytes of the stacks of a raw dump.
pub const STACKS_MAGIC: [u8; 8] = *b"STACKS\x01\0";

/// What comes before the stacks of a raw dump.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DumpStacks {
    /// [`STACKS_MAGIC`].
    pub magic: [u8; 8],
    /// Number of stacks.
    pub count: u64,
    /// Bytes of the maps behind them.
    pub maps_len: u64,
}

/// One stack of a raw dump.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DumpStack {
    /// Number of its site.
    pub site: u64,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register.
    pub bp: u64,
    /// Number of pairs that follow.
    pub words: u64,
}
