//! States and codes that cross the boundary. All are plain integers with named values.

/// The result of a function of the hook. Zero is success.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub i32);

impl Status {
    /// Done.
    pub const OK: Self = Self(0);
    /// Nothing to do: it is already in the requested state.
    pub const UNCHANGED: Self = Self(1);
    /// Done, and the figures from before are still there.
    pub const SWITCHED: Self = Self(2);
    /// The kernel gave no memory for the table of blocks.
    pub const NO_MEMORY: Self = Self(-1);
    /// An option has a value that the hook does not support.
    pub const BAD_OPTION: Self = Self(-2);
    /// `MEMINTRO_DISABLE=1` is set, or the process is privileged (`AT_SECURE`).
    pub const DISABLED: Self = Self(-3);
    /// The allocator's functions were not found.
    pub const NO_ALLOCATOR: Self = Self(-4);
    /// A test allocation was not seen although the hook is in place: another library defines malloc in front of it.
    pub const NOT_SEEN: Self = Self(-5);
    /// Another thread is starting or stopping, or does not finish what it records.
    pub const BUSY: Self = Self(-6);
    /// A file could not be written; `errno` says why.
    pub const IO: Self = Self(-7);
    /// This process was forked while the figures were being changed and could not be awaited: they are unusable here.
    pub const FIGURES_LOST: Self = Self(-8);
    /// The kernel no longer lets this process read its own memory, where records of blocks are.
    pub const UNREADABLE: Self = Self(-9);
}

/// How allocations are followed.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode(pub u32);

impl Mode {
    /// Not tracking.
    pub const OFF: Self = Self(0);
    /// All blocks, exactly.
    pub const FULL: Self = Self(1);
    /// A sample of the blocks, from which the figures are estimated.
    pub const SAMPLED: Self = Self(2);
}

/// How the hook was loaded into the process.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin(pub u32);

impl Origin {
    /// First in `LD_PRELOAD`.
    pub const PRELOADED: Self = Self(0);
    /// Loaded into a running process; it sees calls through the slots that it has patched.
    pub const LOADED: Self = Self(1);
}

/// The kind of a call site.
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

/// The VM's answer about the running thread.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameKind(pub u32);

impl FrameKind {
    /// No Ruby frame: the native caller is the site.
    pub const NATIVE: Self = Self(0);
    /// A Ruby line, which [`crate::Frame::key`] identifies.
    pub const RUBY: Self = Self(1);
    /// The collector is running.
    pub const GC: Self = Self(2);
}

/// The state of a relocation slot that names a function of the malloc family.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotState(pub u32);

impl SlotState {
    /// It holds the hook's function.
    pub const PATCHED: Self = Self(0);
    /// It held neither the real function nor its own unbound stub, but another library's function, and was not
    /// changed.
    pub const FOREIGN: Self = Self(1);
    /// It held the hook's function once and no longer does.
    pub const LOST: Self = Self(2);
    /// The module could not be read; it was skipped.
    pub const MALFORMED: Self = Self(3);
    /// The kernel refused to make the page writable.
    pub const REFUSED: Self = Self(4);
}
