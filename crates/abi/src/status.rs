//! States and codes that cross the boundary. All are plain integers with named values.

/// What a function of the hook answers. Zero is success.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub i32);

impl Status {
    /// Done.
    pub const OK: Self = Self(0);
    /// Nothing to do: already in the state asked for.
    pub const UNCHANGED: Self = Self(1);
    /// Done, and what was collected before is still there.
    pub const SWITCHED: Self = Self(2);
    /// The kernel gave no memory for the table of blocks.
    pub const NO_MEMORY: Self = Self(-1);
    /// An option has a value that the hook cannot honour.
    pub const BAD_OPTION: Self = Self(-2);
    /// `MEMINTRO_DISABLE=1` is set, or the process is privileged (`AT_SECURE`).
    pub const DISABLED: Self = Self(-3);
    /// The allocator's functions were not found.
    pub const NO_ALLOCATOR: Self = Self(-4);
    /// A test allocation was not seen although the hook is in place: another library answers first.
    pub const NOT_SEEN: Self = Self(-5);
    /// Another thread is starting or stopping, or does not get on with what it records.
    pub const BUSY: Self = Self(-6);
    /// A file could not be written; `errno` says why.
    pub const IO: Self = Self(-7);
    /// This process was forked while the figures were being changed and nobody could wait for that: they are lost here.
    pub const FIGURES_LOST: Self = Self(-8);
}

/// How allocations are followed.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode(pub u32);

impl Mode {
    /// Not tracking.
    pub const OFF: Self = Self(0);
    /// Every block, exactly.
    pub const FULL: Self = Self(1);
    /// A sample of the blocks, from which the figures are estimated.
    pub const SAMPLED: Self = Self(2);
}

/// How the hook came into the process.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin(pub u32);

impl Origin {
    /// First in `LD_PRELOAD`.
    pub const PRELOADED: Self = Self(0);
    /// Loaded into a running process; it sees what it has patched.
    pub const LOADED: Self = Self(1);
}

/// What a call site is.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteKind(pub u32);

impl SiteKind {
    /// A Ruby `path:line`.
    pub const RUBY: Self = Self(0);
    /// A native return address.
    pub const NATIVE: Self = Self(1);
    /// `(other)`, `(boot)`, `(gc)`.
    pub const PSEUDO: Self = Self(2);
}

/// What the VM answers to "who is asking?".
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameKind(pub u32);

impl FrameKind {
    /// No Ruby frame: the native caller is the site.
    pub const NATIVE: Self = Self(0);
    /// A Ruby line, which [`crate::Frame::key`] stands for.
    pub const RUBY: Self = Self(1);
    /// The collector is running.
    pub const GC: Self = Self(2);
}

/// What became of a relocation slot that names a function of the malloc family.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotState(pub u32);

impl SlotState {
    /// Holds our function.
    pub const PATCHED: Self = Self(0);
    /// Held neither the real function nor its own unbound stub: somebody else's choice, left alone.
    pub const FOREIGN: Self = Self(1);
    /// Was ours once and no longer is.
    pub const LOST: Self = Self(2);
    /// The module could not be read; it was skipped.
    pub const MALFORMED: Self = Self(3);
    /// The kernel refused to make the page writable.
    pub const REFUSED: Self = Self(4);
}
