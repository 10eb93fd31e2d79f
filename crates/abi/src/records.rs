//! The figures, as they cross the boundary. Sizes are in bytes, ages in GC generations.
//!
//! Where blocks were sampled, figures are rounded estimates, with the variances of their errors. Variances of live
//! figures are differences, allocated less freed, because a freed block no longer adds to their error. A skew is the
//! covariance of an estimate with its own estimated variance, which is too low when the estimate is. Skews of live
//! figures are differences, too. A skew divided by its variance is how much of the figure one sampled block stands
//! for.

use crate::{BlockFigures, Figures, ObjectFigures, SiteKind};

/// A figure with what is known of its error: both doubts are 0 where the figure is exact.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Estimated {
    /// The figure, rounded.
    pub value: u64,
    /// The variance of its error.
    pub variance: f64,
    /// The covariance of the figure with that variance as it is estimated.
    pub skew: f64,
}

impl Estimated {
    /// A figure without an error.
    #[must_use]
    pub const fn exact(value: u64) -> Self {
        Self { value, variance: 0.0, skew: 0.0 }
    }

    /// The same figure with another value.
    #[must_use]
    pub const fn with(self, value: u64) -> Self {
        Self { value, ..self }
    }

    /// Variance and skew.
    #[must_use]
    pub const fn doubts(&self) -> [f64; 2] {
        [self.variance, self.skew]
    }

    /// How much of the figure one sampled block stands for; `None` if none was sampled.
    #[must_use]
    pub fn per_sample(&self) -> Option<f64> {
        (self.variance > 0.0).then(|| self.skew / self.variance)
    }

    /// Adds a part whose sample was drawn independently.
    pub fn add(&mut self, part: &Self) {
        self.value = self.value.wrapping_add(part.value);
        self.variance += part.variance;
        self.skew += part.skew;
    }

    /// Reads it from the numbers that make it up in memory.
    pub fn read(next: &mut dyn FnMut() -> Option<u64>) -> Option<Self> {
        Some(Self { value: next()?, variance: doubt(next()?), skew: doubt(next()?) })
    }
}

/// A variance must be a number, and not negative.
pub(crate) fn doubt(bits: u64) -> f64 {
    let value = f64::from_bits(bits);
    if value.is_finite() && value > 0.0 { value } else { 0.0 }
}

/// Figures of the calling thread since it was first seen.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct ThreadFigures {
    /// Bytes asked for. In sampled mode they are exact, too, but include failed calls.
    pub allocated_bytes: u64,
    /// Bytes of tracked blocks freed by this thread, whichever thread allocated them.
    pub freed_bytes: Estimated,
    /// Allocations.
    pub allocations: Estimated,
    /// Frees of tracked blocks.
    pub frees: Estimated,
    /// Allocations that could not be followed, and are in none of the figures above.
    pub dropped: u64,
    /// As in [`Figures`].
    pub estimated: u64,
    /// How many bytes a sampled block of the process stands for.
    pub bytes_per_sample: f64,
    /// How many blocks one stands for.
    pub blocks_per_sample: f64,
}

impl ThreadFigures {
    /// How much of the bytes freed, of the allocations and of the frees one sampled block stands for; that of the process if
    /// the thread has none.
    #[must_use]
    pub fn per_sample(&self) -> [f64; 3] {
        let blocks = self.allocations.per_sample().unwrap_or(self.blocks_per_sample);
        [
            self.freed_bytes.per_sample().unwrap_or(self.bytes_per_sample),
            blocks,
            self.frees.per_sample().unwrap_or(blocks),
        ]
    }
}

/// The figures at the begin or at the end of a measurement.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct MeasureFigures {
    /// The moment, as measurements count time.
    pub moment: u32,
    /// Number of the measuring thread.
    pub owner: u32,
    /// Blocks that no measurement could follow, since the process began.
    pub lost: u64,
    /// Of the thread.
    pub thread: ThreadFigures,
    /// Of the process.
    pub process: Figures,
}

/// What a thread allocated at a call site during a measurement.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MeasuredSite {
    /// Number of the site.
    pub site: u32,
    /// Allocations.
    pub allocations: u64,
    /// Bytes asked for.
    pub total_bytes: u64,
}

/// One live block that was born during a measurement.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BirthRecord {
    /// Bytes asked for.
    pub size: u64,
    /// Number of its call site.
    pub site: u32,
    /// Number of the thread that allocated it; 0 if that was measuring nothing.
    pub owner: u32,
}

/// One call site at one instant. A native one is a place in a module; if the module is not known (code outside of
/// modules, or a libc that does not tell), it is a return address. `path` stays valid until the next start or clear.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SiteRecord {
    /// Number of the site.
    pub id: u32,
    /// Its kind.
    pub kind: SiteKind,
    /// The path's bytes, not terminated. Ruby: the path of the file. Native: the path of the module, if it is known.
    /// Otherwise null.
    pub path: *const u8,
    /// Length of `path`.
    pub path_len: u32,
    /// Ruby: the line. Otherwise 0.
    pub line: u32,
    /// Native: the return address, or 0 if its module is no longer loaded. Otherwise 0.
    pub address: u64,
    /// Native: the return address's offset from its module's load address, if that is known. Otherwise 0.
    pub module_offset: u64,
    /// Tells apart modules that had the same path at different times.
    pub module_build: u64,
    /// The figures of its blocks.
    pub blocks: BlockFigures,
    /// Live blocks that have outlived at least one collection.
    pub old_blocks: Estimated,
    /// Their bytes.
    pub old_bytes: Estimated,
    /// The VM's objects that were made here; all 0 unless they are tracked.
    pub objects: ObjectFigures,
    /// Of a whole stack: the number of its innermost line. Otherwise 0.
    pub stack: u64,
}

impl SiteRecord {
    /// Adds the figures of another stack, site or process. Samples are drawn independently.
    pub fn add(&mut self, part: &Self) {
        self.blocks.add(&part.blocks);
        self.objects.add(&part.objects);
        self.old_bytes.add(&part.old_bytes);
        self.old_blocks.add(&part.old_blocks);
    }
}

/// One live block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BlockRecord {
    /// Its address.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Call site.
    pub site: u32,
    /// Age in GC generations (saturates at 131,071).
    pub age: u32,
    /// How many blocks it stands for: 1 unless it was sampled. 0, in a copy of the process: its owner has freed it, and the
    /// allocator does not have it back yet.
    pub weight: f64,
}

/// The VM's answer about the Ruby line that runs now.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Together with `detail`: equal in one GC generation only for the same path and line. Never 0.
    pub key: usize,
    /// See `key`.
    pub detail: u32,
    /// GC generation.
    pub generation: u32,
    /// NUL-terminated path, set by [`crate::VmSource::locate`]; valid during the current GC generation only.
    pub path: *const core::ffi::c_char,
    /// Line, from 1, set by [`crate::VmSource::locate`].
    pub line: u32,
}

/// What a marking has found out about a page of the VM's heap: a bit for each unit of it. A slot's is that of its first
/// byte.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MarkedPage {
    /// Where it begins.
    pub begin: usize,
    /// Its bytes, a power of two.
    pub bytes: usize,
    /// Bytes of a unit.
    pub unit: usize,
    /// Whether objects are marked.
    pub marked: *const u64,
    /// Whether those that are marked are old; null: [`crate::Judge`] tells.
    pub old: *const u64,
}

/// Memory of the hook's own.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OwnRange {
    /// Its first address.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
}

/// What tracking was in another process.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct OtherState {
    /// Number of the [`crate::Mode`].
    pub mode: u32,
    /// 1: its figures cannot be trusted.
    pub is_lost: u32,
    /// GC generation of its last instant.
    pub generation: u32,
    /// 1: the generation is known.
    pub knows_generation: u32,
    /// Parts of its tables that a thread was changing.
    pub changing: u64,
}

/// A line of a stack. The texts are not terminated; the label is null if there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackFrame {
    /// Path of the file.
    pub path: *const u8,
    /// The name of the method, block or file, as in a backtrace.
    pub label: *const u8,
    /// Length of `path`.
    pub path_len: u32,
    /// Length of `label`.
    pub label_len: u32,
    /// Line, from 1.
    pub line: u32,
    /// Number of this path, line and label.
    pub frame: u32,
    /// Number of the caller's line; 0: there is none.
    pub caller: u32,
}

impl StackFrame {
    /// Without texts, line and numbers.
    pub const NONE: Self = Self {
        path: core::ptr::null(),
        label: core::ptr::null(),
        path_len: 0,
        label_len: 0,
        line: 0,
        frame: 0,
        caller: 0,
    };
}

/// Bytes of a stack in a [`CallerSample`].
pub const CALLER_STACK_BYTES: usize = 8192 - 80;

/// What an allocation that was looked at more closely left behind: registers, and the top of the stack.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallerSample {
    /// Number of the call site: of a stack, that of its line.
    pub site: u32,
    /// Which start or clear that number belongs to.
    pub epoch: u32,
    /// How many allocations of the site it stands for, on average.
    pub weight: u32,
    /// Number of the sample, by which its block is known.
    pub serial: u32,
    /// Address of the block.
    pub block: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register.
    pub bp: u64,
    /// Bytes of the stack that were copied.
    pub len: u64,
    /// Kind of the site.
    pub kind: SiteKind,
    /// Changes whenever another module may be at the address of a former one.
    pub loads: u32,
    /// Not used.
    pub reserved: [u32; 2],
    /// The stack, from the stack pointer on.
    pub stack: [u8; CALLER_STACK_BYTES],
}

/// A loaded module, valid during the visit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleRecord {
    /// Path, NUL-terminated; empty for the program.
    pub path: *const core::ffi::c_char,
    /// Load address: what is added to the addresses in the file.
    pub base: u64,
    /// Address of the program headers.
    pub headers: *const core::ffi::c_void,
    /// How many there are.
    pub header_count: u64,
    /// How often modules were loaded, and unloaded, in this process.
    pub loaded: u64,
    /// See `loaded`.
    pub unloaded: u64,
}
