//! The table of functions that the hook offers, and the functions of the VM that the hook calls.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize};

use crate::{
    BirthRecord, BlockRecord, CallerSample, Figures, Frame, FrameKind, MarkedPage, MeasureFigures,
    MeasuredSite, Mode, ModuleRecord, Origin, OtherState, OwnRange, SiteRecord, SlotState, StackFrame,
    StartOptions, Status, ThreadFigures,
};

/// The functions that the extension gives the hook once Ruby is there. All of them must be callable from any thread,
/// inside malloc: they allocate nothing and take no lock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmSource {
    /// Finds who is asking. Sets `frame`'s key and detail for [`FrameKind::RUBY`]; always sets its generation.
    pub frame: unsafe extern "C" fn(frame: *mut Frame) -> FrameKind,
    /// Sets path and line of a frame that was returned just now. The path is null if there is none after all; the
    /// line is 0 if no line runs. A key of 0 means that the next frame with the same key may be elsewhere.
    pub locate: unsafe extern "C" fn(frame: *mut Frame),
    /// Number of collections so far. A GC generation is its lower half.
    pub generation: unsafe extern "C" fn() -> usize,
    /// As `frame`, but key and detail stand for the so many innermost lines of Ruby. A key of 0 stands for none.
    pub stack_key: unsafe extern "C" fn(frame: *mut Frame, depth: u32) -> FrameKind,
    /// Visits the so many innermost lines of the stack whose key was returned just now, the innermost first, which is
    /// that of `locate`. Sets the key to 0 if it may stand for other lines the next time. `scratch` has room for so
    /// many words. Each record's `frame` is its place in the stack, from 1; 0: its texts depend on more than on what runs
    /// in that frame. A line of 0 says that the frame in this place has none, and is left out.
    pub stack: unsafe extern "C" fn(
        frame: *mut Frame,
        depth: u32,
        scratch: *mut u64,
        words: u32,
        context: *mut c_void,
        visit: Visitor<StackFrame>,
    ),
    /// Up to where the machine stack of the calling thread, or of its fiber, may be read from this address on; 0: not
    /// known. To be called only after an answer of [`FrameKind::RUBY`].
    pub stack_end: unsafe extern "C" fn(address: usize) -> usize,
    /// Where the hook may look instead of calling `frame`; null: nowhere.
    pub words: Option<&'static VmWords>,
    /// The same instead of calling `stack_key`, for keys of its own; null: it has to be called.
    pub stack_words: Option<&'static VmWords>,
}

/// Where the VM keeps what identifies the running line. The extension has found these places while the program runs, and
/// has checked them against the VM's own answers. It may change them at any time. What they tell is [`VmSource::frame`]'s
/// answer, if that is [`FrameKind::RUBY`].
#[repr(C)]
#[derive(Debug)]
pub struct VmWords {
    /// Bytes from a frame to its caller's; 0: nothing else here may be used, except `collections` if that is not null. Stored
    /// last.
    pub stride: AtomicUsize,
    /// Distance from the thread pointer of the word that points to the calling thread's execution context, or is null.
    pub context: AtomicIsize,
    /// Keys are program counters with these bits flipped.
    pub marks: AtomicUsize,
    /// Distance in the context of the half word in which, if all of `masks` is set, `frame` has to be called.
    pub mask: AtomicUsize,
    /// See `mask`.
    pub masks: AtomicU32,
    /// Bits of `collecting` of which any is set while the VM collects.
    pub collecting_mask: AtomicU32,
    /// See `collecting_mask`.
    pub collecting: AtomicPtr<u32>,
    /// Number of collections so far: what `generation` answers; null: not known.
    pub collections: AtomicPtr<usize>,
    /// Distance from the thread pointer of the word that points to the VM's thread, or is null.
    pub thread: AtomicIsize,
    /// Distance in the thread of a word that is 0 while it holds the VM's lock.
    pub without_lock: AtomicUsize,
    /// Number of collections when the VM last marked, plus 1; 0: not known. For readers of core files, who cannot ask
    /// the VM.
    pub last_marked: AtomicUsize,
}

impl VmWords {
    /// Words that are all unknown, except perhaps the number of collections.
    #[must_use]
    pub const fn unknown(collections: *mut usize) -> Self {
        Self {
            stride: AtomicUsize::new(0),
            context: AtomicIsize::new(0),
            marks: AtomicUsize::new(0),
            // The first half word of a context is that of an address, and is never all ones.
            mask: AtomicUsize::new(0),
            masks: AtomicU32::new(u32::MAX),
            collecting_mask: AtomicU32::new(0),
            collecting: AtomicPtr::new(core::ptr::null_mut()),
            collections: AtomicPtr::new(collections),
            thread: AtomicIsize::new(0),
            without_lock: AtomicUsize::new(0),
            last_marked: AtomicUsize::new(0),
        }
    }
}

/// The places where the VM keeps data of a new object, found and checked by the extension at run time.
#[repr(C)]
#[derive(Debug)]
pub struct ObjectWords {
    /// Distance of the object in an event's argument; 0: nothing else here may be used but `otherwise`. Stored last.
    pub object: AtomicUsize,
    /// Bytes of each slot; 0: they differ by page.
    pub slot_bytes: AtomicUsize,
    /// Bytes of a page, a power of two, at whose beginning is the address of its structure.
    pub page_bytes: AtomicUsize,
    /// Distance in that structure of the 16 bits with the bytes of each slot.
    pub slot_bytes_at: AtomicUsize,
    /// The handler of events that have to be looked at more closely. It calls [`HookApi::object_made`].
    pub otherwise: unsafe extern "C" fn(data: u64, argument: *mut c_void),
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
    /// Its value now.
    pub value: u64,
    /// Its state.
    pub state: SlotState,
}

/// A callback with its context.
pub type Visitor<T> = unsafe extern "C" fn(context: *mut c_void, record: *const T);

/// Says whether the object in a slot lives: [`crate::OBJECT_IS_DEAD`], [`crate::OBJECT_IS_YOUNG`] or
/// [`crate::OBJECT_IS_OLD`]. It may call nothing of the hook's.
pub type Judge = unsafe extern "C" fn(context: *mut c_void, slot: usize) -> u32;

/// Says where the marks of the page are that has this slot; `false`: each of its slots has to be judged. There is an object
/// in the slot, which a marking that has just ended has looked at.
pub type PageOf = unsafe extern "C" fn(context: *mut c_void, slot: usize, page: *mut MarkedPage) -> bool;

/// Fills in where words of the object in a slot point to, of which one may be the block with the object's contents. `false`: it
/// has none outside of its slot. It may call nothing of the hook's, and nothing that allocates.
pub type ContentsOf = unsafe extern "C" fn(
    context: *mut c_void,
    slot: usize,
    places: *mut [usize; MOST_PLACES_OF_CONTENTS],
) -> bool;

/// Words of an object that may point to its contents.
pub const MOST_PLACES_OF_CONTENTS: usize = 3;

/// The memory of another process, and who asks what the hook of it had followed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OtherProcess {
    /// By how many bytes the hook was loaded at a higher address there, modulo the size of the address space.
    pub moved: usize,
    /// For the functions below.
    pub context: *mut c_void,
    /// Reads a word of its memory; `false` if that is not known.
    pub word: unsafe extern "C" fn(context: *mut c_void, address: usize, word: *mut usize) -> bool,
    /// Each live block that was followed, with the site of its line.
    pub block: Visitor<BlockRecord>,
    /// Then each call site: number, kind, path, line and offset alone.
    pub site: Visitor<SiteRecord>,
}

/// The table of functions that the hook offers. Each function may be called from any thread that is not inside
/// malloc. None raises, panics or calls Ruby.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HookApi {
    /// [`crate::VERSION`] of the hook.
    pub version: u32,
    /// `size_of::<HookApi>()` of the hook.
    pub size: u32,
    /// How the hook was loaded.
    pub origin: extern "C" fn() -> Origin,
    /// The present mode.
    pub mode: extern "C" fn() -> Mode,
    /// Begins to track, with empty figures. If tracking is on, another mode or mean takes over and the present
    /// figures stay ([`Status::SWITCHED`]); with other limits tracking begins again.
    pub start: unsafe extern "C" fn(options: *const StartOptions) -> Status,
    /// Stops tracking. Figures stay readable until the next start.
    pub stop: extern "C" fn() -> Status,
    /// Gives the hook the VM's functions; null removes them (before the VM ends).
    pub set_vm: unsafe extern "C" fn(source: *const VmSource) -> Status,
    /// From here on this thread's allocations are not tracked. Returns the new depth.
    pub untracked_enter: extern "C" fn() -> u32,
    /// Undoes one `untracked_enter`; returns the new depth.
    pub untracked_leave: extern "C" fn() -> u32,
    /// Makes the live bytes of each site the baseline of growth.
    pub mark: extern "C" fn() -> Status,
    /// Forgets all figures and blocks.
    pub clear: extern "C" fn() -> Status,
    /// Sets all counters of call sites and totals to zero; live blocks are still known.
    pub reset: extern "C" fn() -> Status,
    /// Fills the totals.
    pub totals: unsafe extern "C" fn(figures: *mut Figures),
    /// Fills the calling thread's figures.
    pub thread_totals: unsafe extern "C" fn(figures: *mut ThreadFigures),
    /// Visits each call site with at least one event, all at one instant. On an error it visits none.
    pub sites: unsafe extern "C" fn(context: *mut c_void, visit: Visitor<SiteRecord>) -> Status,
    /// Visits live blocks of at least `min_age` GC generations; `site` `u32::MAX` means all sites. With
    /// [`crate::SITE_ALONE`] in its bits, those of a line's stacks are left out. With [`crate::EACH_SITE`], blocks of all
    /// sites are visited, and have the site of their whole stack, otherwise that of its line. Events during the visit are recorded
    /// after it. On an error it visits none.
    pub blocks: unsafe extern "C" fn(
        site: u32,
        min_age: u32,
        context: *mut c_void,
        visit: Visitor<BlockRecord>,
    ) -> Status,
    /// Finds modules that were loaded since, and verifies all slots. Does nothing if the hook was preloaded.
    pub refresh: extern "C" fn() -> Status,
    /// Visits the slots that were found, for `doctor`.
    pub patches: unsafe extern "C" fn(context: *mut c_void, visit: Visitor<PatchEntry>),
    /// Path of the module with the real `malloc`; writes at most `len` bytes with the NUL.
    pub allocator: unsafe extern "C" fn(buffer: *mut c_char, len: usize) -> Status,
    /// Writes a raw dump of all sites and totals to `path` (beside it, then renamed; mode 0600). Async-signal-safe.
    pub dump: unsafe extern "C" fn(path: *const c_char) -> Status,
    /// Sets the path of the raw dump that `_exit` and fatal signals write (copied; at most 4,095 bytes); null: no
    /// dump.
    pub dump_at_exit: unsafe extern "C" fn(path: *const c_char) -> Status,
    /// Tracks the VM's objects from now on, as long as blocks are tracked; with `false` no more.
    pub track_objects: extern "C" fn(on: bool) -> Status,
    /// An object was made in this slot, by this thread. If the frame's key is not 0, it is that of the running line, as
    /// [`VmSource::frame`] answers it, and spares the hook the question.
    pub object_made: unsafe extern "C" fn(slot: usize, bytes: usize, frame: *mut Frame),
    /// The object in this slot was freed.
    pub object_freed: extern "C" fn(slot: usize),
    /// The object of one slot is in another one now.
    pub object_moved: extern "C" fn(from: usize, to: usize),
    /// A marking has ended, and nothing was swept since: asks the judge about each object that may have died, which are
    /// all objects or only those that it has never called old. Those that are dead count as freed. `page` spares it what
    /// pages tell.
    pub objects_marked:
        unsafe extern "C" fn(all: bool, context: *mut c_void, judge: Judge, page: Option<PageOf>) -> Status,
    /// Visits live objects, as `blocks` does.
    pub objects: unsafe extern "C" fn(context: *mut c_void, visit: Visitor<BlockRecord>) -> Status,
    /// Mean distance of two sampled bytes in the last [`Mode::SAMPLED`]; 0 before the first.
    pub sample_bytes: extern "C" fn() -> u64,
    /// Fills in the options in force; the mode is the present one.
    pub options: unsafe extern "C" fn(options: *mut StartOptions),
    /// Begins a measurement of the calling thread, and fills in the figures of this moment.
    /// [`Status::BAD_OPTION`]: too many of its measurements are within each other.
    pub measure_begin: unsafe extern "C" fn(figures: *mut MeasureFigures) -> Status,
    /// Ends the calling thread's measurement that began with these figures, and fills in those of this moment. Visits
    /// what the thread allocated meanwhile, by call site; a site may come more than once.
    pub measure_end: unsafe extern "C" fn(
        begun: *const MeasureFigures,
        ended: *mut MeasureFigures,
        context: *mut c_void,
        visit: Visitor<MeasuredSite>,
    ) -> Status,
    /// Visits the live blocks that were born between these two moments. To be called once for each measurement that
    /// has begun, after its end, by the same thread: it forgets what the measurement needed.
    pub measure_close: unsafe extern "C" fn(
        begun: *const MeasureFigures,
        ended: *const MeasureFigures,
        context: *mut c_void,
        visit: Visitor<BirthRecord>,
    ) -> Status,
    /// As `sites`, but each stack by itself, and of a line only what no stack of it has.
    pub stacks: unsafe extern "C" fn(context: *mut c_void, visit: Visitor<SiteRecord>) -> Status,
    /// Fills in one line of a stack by its number in [`SiteRecord`], or in `caller` of the line before. Its texts stay
    /// valid until the next start or clear. [`Status::BAD_OPTION`]: there is none.
    pub stack_frame: unsafe extern "C" fn(number: u32, frame: *mut StackFrame) -> Status,
    /// Visits the memory that the hook has mapped for itself. Takes no lock.
    pub own_memory: unsafe extern "C" fn(context: *mut c_void, visit: Visitor<OwnRange>),
    /// As `track_objects`, but follows one object in `mean`, each as likely as any other.
    pub sample_objects: extern "C" fn(mean: u64) -> Status,
    /// An object was made in this slot, by this thread, and is to be followed. Returns how many objects are passed over
    /// before the next one.
    pub object_drawn: extern "C" fn(slot: usize, bytes: usize) -> u64,
    /// How many objects are passed over before the first one.
    pub object_distance: extern "C" fn() -> u64,
    /// Calls back at once, while no other thread records. Events meanwhile are recorded after it. On an error it does not
    /// call back.
    pub at_one_instant:
        unsafe extern "C" fn(context: *mut c_void, run: unsafe extern "C" fn(context: *mut c_void)) -> Status,
    /// From now on copies registers and stack for some allocations of each call site; with `false` no more. `notify` is
    /// called inside malloc, a limited number of times in a second, when copies should be taken away by `take_callers`.
    /// It may be null. Between these two addresses is the VM's code: allocations of other code come first.
    /// [`Status::BAD_OPTION`]: not on this processor.
    pub sample_callers:
        extern "C" fn(on: bool, notify: Option<extern "C" fn()>, vm_start: usize, vm_end: usize) -> Status,
    /// Visits these copies and forgets them. Takes no lock. Returns which start or clear numbers of sites belong to now.
    pub take_callers: unsafe extern "C" fn(context: *mut c_void, visit: Visitor<CallerSample>) -> u32,
    /// Whether the block of a sample is live: `false` also if that is not known any more. Takes no lock.
    pub is_live: extern "C" fn(block: u64, serial: u32) -> bool,
    /// Visits all loaded modules. The loader's list is locked meanwhile, so none is unloaded.
    pub modules: unsafe extern "C" fn(context: *mut c_void, visit: Visitor<ModuleRecord>),
    /// Visits what the hook of another process had followed, when that process ended. It was of this very build; its data
    /// and all that it had mapped are mapped here for reading and writing, at the addresses that they had there. Makes no
    /// system call and takes no lock. If that memory is damaged, anything may happen: to be called in a process that may
    /// end.
    pub other_process: unsafe extern "C" fn(other: *const OtherProcess, state: *mut OtherState),
    /// Lends the words that `object_event` reads. They stay as long as this process does.
    pub object_words: unsafe extern "C" fn(words: *const ObjectWords),
    /// Handles the VM's event of a new object: does what the words' `otherwise` does, in less time. To be given to the VM
    /// after `object_words`.
    pub object_event: unsafe extern "C" fn(data: u64, argument: *mut c_void),
    /// Puts blocks down to the lines of the objects whose contents they are, if the collector has asked for them: with all that
    /// is counted of them, as if those lines had allocated them. Under the VM's lock, outside of a collection. Returns at once
    /// if the collector has allocated nothing since.
    pub contents_to_lines: unsafe extern "C" fn(context: *mut c_void, contents: ContentsOf) -> Status,
}
