//! Whole stacks of C functions as call sites, for the check of a native library in its tests.
//!
//! While it is on, the hook asks this file instead of [`crate::vm`] what allocates. The stack of the allocation is followed,
//! inside malloc, up to the interpreter (`memintro_native::flat`). If one of its frames is of a library that is watched, the
//! call site is that stack with the line of Ruby behind it; otherwise it is the line, as always. So each live block has its
//! own stack, and none is sampled.
//!
//! Modules that are loaded later become known in a postponed job, which is asked for when an allocation meets one.
//!
//! Whether all of that works is tried ([`probe`]): an allocation of this library's own must get its whole stack as its site.
//! And each stack with a watched frame is counted inside malloc ([`asked`]), to be compared with what the hook has recorded.

use std::ffi::{CStr, OsStr, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use memintro_abi::{EACH_SITE, Frame, FrameKind, HookApi, StackFrame, Status, Visitor, VmSource};
use memintro_native::flat::{FlatModule, Walked, Wanted, is_readable};
use memintro_native::{Flat, Flattener, Name, Names, Place, Registers};
use parking_lot::Mutex;

use crate::callers::{self, Running};
use crate::lookup::postponing::Postponed;
use crate::{hook_link, lookup, vm};

/// The tables, as malloc reads them. Former ones are never freed, because another thread may be reading them.
static FLAT: AtomicPtr<Flat> = AtomicPtr::new(std::ptr::null_mut());
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
static POSTPONED: OnceLock<Option<Postponed>> = OnceLock::new();
/// The page at which no module was known the last time.
static UNKNOWN_PAGE: AtomicU64 = AtomicU64::new(0);
/// Allocations at that page since.
static AGAIN: AtomicU32 = AtomicU32::new(0);
/// After so many of them the job is asked for once more: it may have been lost.
const ENOUGH: u32 = 100;
/// How often the job was asked for.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Code that a compiler makes at run time is in no module, so asking has an end.
const MOST_ASKED: u32 = 10_000;
/// Pages of code at which no module was known, each in a place by its number; 0: none. And whether a place was taken already.
static UNKNOWN_PAGES: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
static MORE_UNKNOWN: AtomicBool = AtomicBool::new(false);
/// Allocations whose stack had a frame of a library that is watched.
static ASKED_FOR: AtomicU64 = AtomicU64::new(0);
/// The stack pointer of a probe that is under way, or 0; and how far below it a stack is the probe's.
static PROBING: AtomicUsize = AtomicUsize::new(0);
const PROBE_STACK: usize = 16 << 10;
/// The line of what is allocated outside of Ruby.
const OUTSIDE: &CStr = c"(outside of Ruby)";
const PAGE: u64 = 4096;
/// Where the first thread's stack ends, or 0. The kernel keeps other mappings away from it by far more than the bytes below,
/// so what lies between a stack pointer there and its end is stack.
static STACK_END: AtomicU64 = AtomicU64::new(0);
const NEAR_STACK_END: u64 = 8 << 20;

struct Known {
    flattener: Flattener,
    ends: Vec<Range<u64>>,
    own: Vec<u64>,
    names: Vec<String>,
    root: PathBuf,
    called: Names,
}

impl Known {
    fn renew(&mut self, api: &'static HookApi) {
        let (own, names, root) = (&self.own, &self.names, &self.root);
        let wanted = |path: &[u8], code: &Range<u64>| {
            if own.iter().any(|address| code.contains(address)) {
                Wanted::Own
            } else if is_watched(path, names, root) {
                Wanted::Watched
            } else {
                Wanted::Kept
            }
        };
        if let Some(flat) = self.flattener.flatten(&Running(api), &self.ends, wanted) {
            // Release: a reader that sees the address may read the tables.
            FLAT.store(Box::into_raw(Box::new(flat)), Ordering::Release);
        }
    }
}

/// Whether this is a library that is named; without names, one in the folder that is not in its `vendor`.
fn is_watched(path: &[u8], names: &[String], root: &Path) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    if names.is_empty() {
        // A bundle may be below the folder, too.
        let own = path.strip_prefix(root).is_ok_and(|rest| rest.iter().all(|part| part != "vendor"));
        return own && path.extension().is_some_and(|it| it == "so");
    }
    let file = path.file_name().unwrap_or_default().as_bytes();
    names.iter().any(|name| {
        let rest = file.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest == b".so" || rest.starts_with(b".so."))
    })
}

/// Begins.
///
/// # Errors
/// In words, if this Ruby's interpreter, or this processor's stacks, cannot be followed, or the hook does not ask for them.
pub(crate) fn begin(api: &'static HookApi, names: Vec<String>, root: PathBuf) -> Result<(), &'static str> {
    let ends = callers::interpreter();
    if ends.is_empty() {
        return Err("native stacks cannot be followed on this Ruby");
    }
    let own = vec![begin as fn(_, _, _) -> _ as *const () as u64, api.take_callers as *const () as u64];
    let lasting = vec![
        lookup::address(callers::ALLOCATE) as u64,
        libc::dl_iterate_phdr as *const () as u64,
        own.first().copied().unwrap_or(0),
        own.last().copied().unwrap_or(0),
    ];
    let flattener = Flattener::new(lasting);
    let mut known = Known { flattener, ends, own, names, root, called: Names::default() };
    callers::untracked(api, || known.renew(api));
    *KNOWN.lock() = Some(known);
    POSTPONED.get_or_init(|| Postponed::new(run));
    // SAFETY: a look-up by name; the variable is a word that the loader has set before anything else ran.
    let stack_end =
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()).cast::<u64>().as_ref() };
    STACK_END.store(stack_end.copied().unwrap_or(0), Ordering::Relaxed);
    let Some(source) = vm::source() else {
        return Err("this Ruby does not show which line runs");
    };
    let source = VmSource { stack_key, stack, stack_words: None, ..source };
    // SAFETY: its functions live as long as this library, which Ruby never unloads.
    match unsafe { (api.set_vm)(&raw const source) } {
        Status::OK if flat().is_some() => Ok(()),
        Status::OK => Err("the list of loaded libraries could not be read"),
        _ => Err("other threads of the tests were inside malloc all the time when following was to begin"),
    }
}

/// Allocates a block as a library that is watched would, and visits what the hook knows of it. `visit` gets its address.
pub(crate) fn probe<R>(api: &HookApi, visit: impl FnOnce(u64) -> R) -> R {
    const PROBE_BYTES: usize = 120;
    let here = 0_u8;
    // Memintro's own work is untracked, and the block must not be.
    let depth = (api.untracked_enter)();
    for _ in 0..depth {
        (api.untracked_leave)();
    }
    PROBING.store((&raw const here).addr(), Ordering::Relaxed);
    // SAFETY: an ordinary block, freed below.
    let block = std::hint::black_box(unsafe { libc::malloc(PROBE_BYTES) });
    PROBING.store(0, Ordering::Relaxed);
    for _ in 1..depth {
        (api.untracked_enter)();
    }
    let told = visit(block.addr() as u64);
    // SAFETY: the block above.
    unsafe { libc::free(block) };
    told
}

/// How many allocations had a stack with a frame of a library that is watched, probes too.
pub(crate) fn asked() -> u64 {
    ASKED_FOR.load(Ordering::Acquire)
}

/// Looks again for modules that were loaded.
pub(crate) fn renew() {
    if let Some(api) = hook_link::found() {
        callers::untracked(api, || {
            if let Some(mut known) = KNOWN.try_lock()
                && let Some(known) = known.as_mut()
            {
                known.renew(api);
            }
        });
    }
}

/// Looks for the module of this path until it is known. `false`: it is not.
pub(crate) fn know(path: &[u8]) -> bool {
    const LOOKS: usize = 100;
    const PAUSE: Duration = Duration::from_millis(1);
    (0..LOOKS).any(|look| {
        if look > 0 {
            crate::copy::sleep(PAUSE);
        }
        renew();
        let is_it = |module: &FlatModule| module.path.get(1..) == Some(path);
        flat().is_some_and(|flat| flat.modules().iter().any(is_it))
    })
}

unsafe extern "C" fn run(_: *mut c_void) {
    renew();
}

/// Which sites blocks are shown with: stacks while this is on, otherwise lines.
pub(crate) fn all_sites() -> u32 {
    if FLAT.load(Ordering::Relaxed).is_null() { u32::MAX } else { EACH_SITE }
}

/// The libraries that are watched and loaded, each with whether it became known just now, though it has allocated before:
/// nothing of that was followed.
pub(crate) fn watched() -> Vec<(Vec<u8>, bool)> {
    let before = flat();
    renew();
    let Some(now) = flat() else { return Vec::new() };
    let known = |code: &Range<u64>| before.is_some_and(|flat| flat.find(code.start).is_some());
    let is_met = |code: &Range<u64>| {
        MORE_UNKNOWN.load(Ordering::Relaxed)
            || UNKNOWN_PAGES.iter().any(|page| code.contains(&page.load(Ordering::Relaxed)))
    };
    let modules = now.modules().iter().filter(|module| module.is_watched);
    modules
        .map(|module| {
            let code = module.pages();
            (module.path.get(1..).unwrap_or_default().to_vec(), !known(&module.code) && is_met(&code))
        })
        .collect()
}

/// A frame of a stack, as it is shown.
pub(crate) struct Shown {
    pub(crate) name: Name,
    pub(crate) path: Vec<u8>,
    pub(crate) is_watched: bool,
}

/// The names of frames: paths, without the NUL in front of them, and offsets.
pub(crate) fn named(frames: &[(Vec<u8>, u64)]) -> Vec<Shown> {
    let mut known = KNOWN.lock();
    let Some(known) = known.as_mut() else { return Vec::new() };
    let modules = known.flattener.modules();
    let places: Vec<Place> = frames
        .iter()
        .map(|(path, offset)| Place { module: modules.number_of(path).unwrap_or(u32::MAX), offset: *offset })
        .collect();
    let names = known.called.look_up(&places, modules);
    let shown = |(name, (path, _)): (Name, &(Vec<u8>, u64))| Shown {
        name,
        is_watched: is_watched(path, &known.names, &known.root),
        path: path.clone(),
    };
    names.into_iter().zip(frames).map(shown).collect()
}

fn flat() -> Option<&'static Flat> {
    // SAFETY: null, or tables that are never freed.
    unsafe { FLAT.load(Ordering::Acquire).as_ref() }
}

/// The key of the running stack, for the hook.
unsafe extern "C" fn stack_key(frame: *mut Frame, _depth: u32) -> FrameKind {
    // SAFETY: the hook's own record.
    let kind = unsafe { vm::frame(frame) };
    let Some(flat) = flat().filter(|_| kind != FrameKind::GC) else { return kind };
    let walked = follow(|of, mut stack| flat.recognize(of, |at| stack.word(at)));
    if let Some(unknown) = walked.unknown {
        meet(unknown, kind);
    }
    if !walked.is_watched {
        return kind;
    }
    ASKED_FOR.fetch_add(1, Ordering::Release);
    // SAFETY: as above.
    let frame = unsafe { &mut *frame };
    if kind == FrameKind::RUBY {
        if frame.key != 0 {
            frame.key = (frame.key ^ walked.hash as usize).max(1);
            frame.detail ^= (walked.hash >> 32) as u32;
        }
    } else {
        frame.key = (walked.hash as usize).max(1);
        frame.detail = 0;
    }
    FrameKind::RUBY
}

/// Visits the frames of the stack whose key was answered just now, for the hook.
unsafe extern "C" fn stack(
    frame: *mut Frame,
    _depth: u32,
    _scratch: *mut u64,
    _words: u32,
    told: *mut c_void,
    visit: Visitor<StackFrame>,
) {
    let Some(flat) = flat() else { return };
    // SAFETY: the hook's own record.
    let frame = unsafe { &mut *frame };
    let mut line = *frame;
    // SAFETY: a valid record; the line may be asked for only where the gate lets through.
    unsafe {
        if vm::frame(&raw mut line) == FrameKind::RUBY {
            vm::locate(&raw mut *frame);
        } else {
            (frame.path, frame.line) = (OUTSIDE.as_ptr(), 1);
        }
    }
    if frame.path.is_null()
        || frame.line == 0
        || !follow(|of, mut stack| flat.walk(of, |at| stack.word(at), |_| {})).is_watched
    {
        return;
    }
    let tell = |path: &[u8], line: u32| {
        let path_len = path.len() as u32;
        let frame = StackFrame { path: path.as_ptr(), path_len, line, ..StackFrame::NONE };
        // SAFETY: the caller's own callback and context.
        unsafe { visit(told, &raw const frame) };
    };
    let mut visit = |address: u64| {
        if let Some(module) = flat.find(address.wrapping_sub(1)) {
            tell(&module.path, module.offset(address) as u32);
        }
    };
    follow(|of, mut stack| flat.walk(of, |at| stack.word(at), &mut visit));
    // SAFETY: the VM's path is terminated and stays in place while this thread is in malloc.
    tell(unsafe { CStr::from_ptr(frame.path) }.to_bytes(), frame.line);
}

/// An allocation came from a place in no module that is known.
#[cold]
fn meet(unknown: u64, kind: FrameKind) {
    let page = unknown & !(PAGE - 1);
    if let Some(place) = UNKNOWN_PAGES.get((page / PAGE) as usize % UNKNOWN_PAGES.len()) {
        let taken = place.compare_exchange(0, page, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_err_and(|other| other != page) {
            MORE_UNKNOWN.store(true, Ordering::Relaxed);
        }
    }
    let is_new = UNKNOWN_PAGE.swap(page, Ordering::Relaxed) != page;
    if kind == FrameKind::RUBY
        && (is_new || AGAIN.fetch_add(1, Ordering::Relaxed) % ENOUGH == ENOUGH - 1)
        && ASKED.fetch_add(1, Ordering::Relaxed) < MOST_ASKED
        && let Some(Some(postponed)) = POSTPONED.get()
    {
        postponed.ask();
    }
}

/// The calling thread's stack.
struct Stack {
    sp: u64,
    /// Where it ends, or 0.
    own_end: u64,
    /// Up to here, all is there.
    certain: u64,
    /// A page that is there.
    known: u64,
}

impl Stack {
    #[inline]
    fn word(&mut self, address: u64) -> Option<u64> {
        let is_inside = address >= self.sp && (self.own_end == 0 || address < self.own_end);
        if !is_inside || !address.is_multiple_of(8) {
            return None;
        }
        let page = address & !(PAGE - 1);
        if page != self.known && address >= self.certain {
            if !is_readable(page) {
                return None;
            }
            self.known = page;
        }
        // SAFETY: a whole word of a page that is there.
        Some(unsafe { (address as *const u64).read_volatile() })
    }
}

/// Follows the calling thread's stack. `walk` gets its registers, and the stack.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn follow(walk: impl FnOnce(Registers, Stack) -> Walked) -> Walked {
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: reads registers.
    unsafe {
        std::arch::asm!(
            "lea {ip}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp",
            ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp, options(nostack, preserves_flags),
        );
    }
    let known = sp & !(PAGE - 1);
    let stack_end = STACK_END.load(Ordering::Relaxed);
    // Where this stack of Ruby's ends, if that is known: what comes after it is another thread's, and may go at any time.
    // SAFETY: of a thread without the GVL, or without an execution context, it says 0.
    let own_end = unsafe { vm::machine_stack::stack_end(sp as usize) } as u64;
    let certain = if stack_end.wrapping_sub(sp) < NEAR_STACK_END { stack_end } else { own_end };
    let stack = Stack { sp, own_end, certain, known };
    let mut walked = walk(Registers { ip, sp, bp }, stack);
    // The probe has no frame of a library that is watched: that it was followed to the interpreter counts.
    if PROBING.load(Ordering::Relaxed).wrapping_sub(sp as usize) < PROBE_STACK {
        walked.is_watched = walked.is_whole;
    }
    walked
}

#[cfg(not(target_arch = "x86_64"))]
fn follow(_: impl FnOnce(Registers, Stack) -> Walked) -> Walked {
    Walked { hash: 0, is_watched: false, is_whole: false, unknown: None }
}
