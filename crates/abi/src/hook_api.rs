//! The table of functions that the hook offers, and the two that the VM's side lends it.

use core::ffi::{c_char, c_void};

use crate::{
    BlockRecord, Figures, Frame, FrameKind, Mode, Origin, SiteRecord, SlotState, Status, ThreadFigures,
};

/// Options of a start. Zero means "the default".
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartOptions {
    /// How to track.
    pub mode: Mode,
    /// Most call sites to keep apart; the rest share `(other)`.
    pub max_sites: u32,
    /// Most bytes that tracking may use.
    pub max_tracker_bytes: u64,
    /// [`Mode::SAMPLED`]: mean distance of two sampled bytes, at most 2^30.
    pub sample_bytes: u64,
    /// [`Mode::SAMPLED`]: what the draws depend on; by default the clock, and in a forked child its number too.
    pub seed: u64,
}

/// What the extension lends the hook once Ruby is there. All functions must be callable from any thread,
/// inside malloc: they allocate nothing and take no lock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmSource {
    /// Who is asking? Sets `frame`'s key and detail for [`FrameKind::RUBY`]; always sets its generation.
    pub frame: unsafe extern "C" fn(frame: *mut Frame) -> FrameKind,
    /// Sets path and line of a frame just answered. The path is null if there is none after all; the line is 0 where no
    /// line runs. A key of 0 says that the next frame of the same key may be elsewhere.
    pub locate: unsafe extern "C" fn(frame: *mut Frame),
    /// GC generation now.
    pub generation: unsafe extern "C" fn() -> u32,
}

/// One relocation slot or module, for `doctor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PatchEntry {
    /// Path of the module, NUL-terminated; valid during the visit.
    pub module: *const c_char,
    /// Name of the function, NUL-terminated; null for a malformed module.
    pub symbol: *const c_char,
    /// Address of the slot.
    pub slot: u64,
    /// What it holds now.
    pub value: u64,
    /// What became of it.
    pub state: SlotState,
}

/// A callback with its context.
pub type Visitor<T> = unsafe extern "C" fn(context: *mut c_void, record: *const T);

/// The table of functions that the hook offers. Every function may be called from any thread that is not
/// inside malloc; none raises, panics or calls Ruby.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HookApi {
    /// [`crate::VERSION`] of the hook.
    pub version: u32,
    /// `size_of::<HookApi>()` of the hook.
    pub size: u32,
    /// How the hook came here.
    pub origin: extern "C" fn() -> Origin,
    /// What it does now.
    pub mode: extern "C" fn() -> Mode,
    /// Begin to track, with empty figures. While tracking, another mode or mean takes over and what was collected
    /// stays ([`Status::SWITCHED`]); other limits begin anew.
    pub start: unsafe extern "C" fn(options: *const StartOptions) -> Status,
    /// Stop tracking. Figures stay readable until the next start.
    pub stop: extern "C" fn() -> Status,
    /// Lend the VM's functions; null takes them back (before the VM goes away).
    pub set_vm: unsafe extern "C" fn(source: *const VmSource) -> Status,
    /// This thread's allocations are not tracked from here on; answers the new depth.
    pub untracked_enter: extern "C" fn() -> u32,
    /// Undoes one `untracked_enter`; answers the new depth.
    pub untracked_leave: extern "C" fn() -> u32,
    /// Makes the live bytes of each site the baseline of growth.
    pub mark: extern "C" fn() -> Status,
    /// Forgets all figures and blocks.
    pub clear: extern "C" fn() -> Status,
    /// Sets all counters of call sites and totals to zero; live blocks are still known.
    pub reset: extern "C" fn() -> Status,
    /// Fills the totals.
    pub totals: unsafe extern "C" fn(figures: *mut Figures),
    /// Fills the calling thread's traffic.
    pub thread_totals: unsafe extern "C" fn(figures: *mut ThreadFigures),
    /// Visits every call site with at least one event, all at one instant. An error: it visited none.
    pub sites: unsafe extern "C" fn(context: *mut c_void, visit: Visitor<SiteRecord>) -> Status,
    /// Visits live blocks of at least `min_age` GC generations; `site` `u32::MAX` is all sites. What happens during the
    /// visit is recorded after it. An error: it visited none.
    pub blocks: unsafe extern "C" fn(
        site: u32,
        min_age: u32,
        context: *mut c_void,
        visit: Visitor<BlockRecord>,
    ) -> Status,
    /// Looks for modules that were loaded since, and verifies all slots. Nothing to do when preloaded.
    pub refresh: extern "C" fn() -> Status,
    /// Visits the slots that were found, for `doctor`.
    pub patches: unsafe extern "C" fn(context: *mut c_void, visit: Visitor<PatchEntry>),
    /// Path of the module that answers the real `malloc`; writes at most `len` bytes with the NUL.
    pub allocator: unsafe extern "C" fn(buffer: *mut c_char, len: usize) -> Status,
    /// Writes a raw dump of all sites and totals to `path` (beside it, then renamed; mode 0600). Async-signal-safe.
    pub dump: unsafe extern "C" fn(path: *const c_char) -> Status,
    /// The raw dump that `_exit` and fatal signals leave goes to `path` (copied; at most 4,095 bytes); null: no dump.
    pub dump_at_exit: unsafe extern "C" fn(path: *const c_char) -> Status,
    /// Mean distance of two sampled bytes in the last [`Mode::SAMPLED`]; 0 before the first.
    pub sample_bytes: extern "C" fn() -> u64,
}
