//! The contract between the malloc hook and the readers of its figures.
//!
//! The hook is a library of its own that is first in a process (preloaded) or is loaded later. The Ruby extension
//! finds it by the symbol [`HOOK_API_SYMBOL`] and calls it only through the [`HookApi`] table. Everything here is
//! `#[repr(C)]`, so that the two may be built separately. [`VERSION`] is compared first.
//!
//! Rule for neighbours: this crate depends on nothing. Its only behaviour is how figures add up and are read.
#![no_std]

mod account;
mod allocators;
mod dump;
mod figures;
mod hook_api;
mod lists;
mod records;
mod settings;
mod status;

pub use account::{AccountPart, AccountRow, Needs};
pub use allocators::{ALLOCATORS, Allocator, GivesBack, Named, Tells};
pub use dump::{
    DUMP_MAGIC, DumpFrame, DumpHeader, DumpNode, DumpSite, DumpStack, DumpStacks, EXIT_STATUS_UNKNOWN,
    STACKS_MAGIC,
};
pub use figures::{
    Adds, BlockFigures, Column, Field, Figure, Figures, OBJECT_FIGURES, ObjectFigures, SITE_FIGURES,
    TOTAL_FIGURES, Unit,
};
pub use hook_api::{
    ContentsOf, HookApi, Judge, MOST_PLACES_OF_CONTENTS, ObjectWords, OtherProcess, PageOf, PatchEntry,
    Visitor, VmSource, VmWords,
};
pub use records::{
    BirthRecord, BlockRecord, CALLER_STACK_BYTES, CallerSample, Estimated, Frame, MarkedPage, MeasureFigures,
    MeasuredSite, ModuleRecord, OtherState, OwnRange, SiteRecord, StackFrame, ThreadFigures,
};
pub use settings::{START_SETTINGS, StartOptions, StartSetting};
pub use status::{FrameKind, Mode, Origin, SiteKind, SlotState, Status};

/// Version of this contract. It changes with the number of figures and settings. Whenever another type here changes its layout, or a
/// function its meaning, [`REVISION`] must change.
pub const VERSION: u32 = REVISION * 1000
    + (SITE_FIGURES.len() + OBJECT_FIGURES.len() + TOTAL_FIGURES.len() + START_SETTINGS.len()) as u32;
/// See [`VERSION`].
pub const REVISION: u32 = 17;

/// The exported symbol under which the hook offers its [`HookApi`] table (NUL-terminated).
pub const HOOK_API_SYMBOL: &core::ffi::CStr = c"memintro_hook_api";

/// Stands in the hook's library before the address of the list of memory that the hook has mapped: pairs of start and
/// end, by which the reader of a core file tells the hook's memory from the program's.
pub const RANGES_SIGN: [u8; 16] = *b"MEMINTRO RANGES1";
/// Pairs in that list. Thousands of threads and call sites need fewer.
pub const MOST_RANGES: usize = 2048;

/// Site id of the pseudo-site for all further sites once `max_sites` is reached.
pub const SITE_OTHER: u32 = 0;
/// Site id of the pseudo-site for what Ruby allocates before its first line runs.
pub const SITE_BOOT: u32 = 1;
/// Site id of the pseudo-site for what the collector itself allocates.
pub const SITE_GC: u32 = 2;
/// First site id that stands for a real call site.
pub const FIRST_REAL_SITE: u32 = 3;
/// What a [`Judge`] says of an object: it is garbage.
pub const OBJECT_IS_DEAD: u32 = 0;
/// It lives, and may die in the next collection.
pub const OBJECT_IS_YOUNG: u32 = 1;
/// It lives, and dies only in a collection that looks at all objects.
pub const OBJECT_IS_OLD: u32 = 2;
/// Beside a site id, which has 24 bits: the line without its whole stacks.
pub const SITE_ALONE: u32 = 1 << 31;
/// Instead of a site id: all sites, each whole stack by itself.
pub const EACH_SITE: u32 = u32::MAX - 1;
