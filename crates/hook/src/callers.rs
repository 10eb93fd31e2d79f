//! Samples of native callers: which C functions led from a line of Ruby, or from a native site, to malloc.
//!
//! The counters tell which allocation of a site is due ([`memintro_tracker::counters`]). For that one, registers and the
//! top of the stack are copied ([`memintro_tracker::captures`]), inside malloc. Nothing is unwound here: the extension
//! takes the copies away and does that, from the copied bytes, when figures are read, or when this asks it to.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memintro_abi::{CallerSample, FIRST_REAL_SITE, ModuleRecord, SiteKind, Status, Visitor};
use memintro_tracker::captures::{self, Birth, Captures, IS_SUPPORTED};
use memintro_tracker::mmap::Errno;
use memintro_tracker::sites::Kind;

use crate::patch;
use crate::shared::{self, EPOCH, FOLLOWED, PID, SITES};

/// Milliseconds between two requests to take copies away, and how many missed requests may be made up for.
/// This limits the work that copies cause to [`PLACES`] times 20 copies a second, however many call sites
/// there are.
const PAUSE_MS: u64 = 50;
const BURSTS: [u64; 2] = [64, 32];
/// Most allocations by the VM's own code have no other caller. They get half of the places and requests of
/// their own, so that hundreds of lines that run once at a program's start do not use up all places. A line
/// whose copy stands for this many allocations counts as much as a line that calls a library, because many
/// libraries allocate through the VM's functions.
const BY_VM: usize = 1;
const HEAVY: u32 = 32;
const PLACES_FOR_VM: usize = PLACES / 2;

/// Copies that wait to be taken away.
const PLACES: usize = 16;
/// Call sites of a program without Ruby whose first allocation is kept for its raw dump.
const KEPT_PLACES: usize = 1024;

static CAPTURES: Captures<PLACES> = Captures::new();
/// For a program without Ruby, where copies are not taken away.
static KEPT: Captures<KEPT_PLACES> = Captures::new();
static KEEPS: AtomicBool = AtomicBool::new(false);
static IS_WANTED: AtomicBool = AtomicBool::new(false);
static NOTIFY: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// The time up to which requests are used up, of either kind.
static USED_MS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The time of the request that is still open, or 0. It may be lost, and so holds for [`PAUSE_MS`] only.
static ASKED_MS: AtomicU64 = AtomicU64::new(0);
static VM_START: AtomicUsize = AtomicUsize::new(0);
static VM_END: AtomicUsize = AtomicUsize::new(0);

type Notify = extern "C" fn();

/// An allocation is due. It is recorded already, by its own thread, which is still inside malloc.
#[cold]
#[inline(never)]
pub(crate) fn sample(site: u32, weight: u32, address: usize, size: u64, caller: usize) {
    if site < FIRST_REAL_SITE {
        return;
    }
    let leaf = SITES.leaf_of(site);
    if leaf != site
        && let Some(line) = SITES.get(leaf)
    {
        line.counters.stack_was_due();
    }
    if !IS_WANTED.load(Ordering::Relaxed) {
        return;
    }
    if KEEPS.load(Ordering::Relaxed) {
        return keep(site, address, size);
    }
    let errno = Errno::save();
    let vm = VM_START.load(Ordering::Relaxed)..VM_END.load(Ordering::Relaxed);
    let by = usize::from(vm.contains(&caller) && weight < HEAVY);
    if by == BY_VM && CAPTURES.waiting() >= PLACES_FOR_VM {
        return notify(by);
    }
    // A child of vfork shares its parent's memory, but must not be tracked. SAFETY: a plain system call.
    if unsafe { libc::getpid() }.unsigned_abs() == PID.load(Ordering::Relaxed) {
        let epoch = EPOCH.load(Ordering::Relaxed);
        let is_ruby = SITES.get(leaf).is_some_and(|site| site.kind() == Kind::Ruby);
        let kind = if is_ruby { SiteKind::RUBY } else { SiteKind::NATIVE };
        let block = address as u64;
        let stack_end = |address| match shared::vm().filter(|_| is_ruby) {
            // SAFETY: the site was that of a running line, so the VM has answered with one just now.
            Some(vm) => unsafe { (vm.stack_end)(address) },
            None => 0,
        };
        CAPTURES.capture(stack_end, || {
            let serial = FOLLOWED.follow(block);
            Birth { site: leaf, kind, loads: patch::loads(), epoch, weight, serial, block, size }
        });
        if is_ruby {
            notify(by);
        }
    }
    drop(errno);
}

/// Keeps a copy of a site's first stack.
fn keep(site: u32, address: usize, size: u64) {
    if SITES.get(site).is_none_or(|site| site.counters.due() > 1) {
        return;
    }
    let epoch = EPOCH.load(Ordering::Relaxed);
    let loads = patch::loads();
    KEPT.capture(
        |_| 0,
        || Birth {
            site,
            kind: SiteKind::NATIVE,
            loads,
            epoch,
            weight: 1,
            serial: 0,
            block: address as u64,
            size,
        },
    );
}

/// From now on keeps the first stack of call sites, for the raw dump. Of programs without Ruby.
pub(crate) fn keep_for_dump() {
    know_first_stack();
    if IS_SUPPORTED && KEPT.init() {
        KEEPS.store(true, Ordering::Relaxed);
        IS_WANTED.store(true, Ordering::Release);
    }
}

/// Visits what is kept.
pub(crate) fn each_kept(mut visit: impl FnMut(&CallerSample)) {
    let epoch = EPOCH.load(Ordering::Relaxed);
    KEPT.each(|sample| {
        if sample.epoch == epoch {
            visit(sample);
        }
    });
}

/// Asks the extension to take the copies away, if half of the places are taken and it was not asked too often. The thread
/// runs Ruby.
fn notify(by: usize) {
    let Some(notify) = Some(NOTIFY.load(Ordering::Acquire)).filter(|notify| !notify.is_null()) else {
        return;
    };
    if CAPTURES.waiting() < PLACES / 2 {
        return;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid record.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    let now =
        now.tv_sec.unsigned_abs().wrapping_mul(1000).wrapping_add(now.tv_nsec.unsigned_abs() / 1_000_000);
    // Ruby runs the job later. Samples that are due until then must not use up the requests.
    let asked = ASKED_MS.load(Ordering::Relaxed);
    if asked != 0 && now.saturating_sub(asked) < PAUSE_MS {
        return;
    }
    let (Some(bucket), Some(burst)) = (USED_MS.get(by), BURSTS.get(by)) else { return };
    let used = bucket.load(Ordering::Relaxed);
    let next = used.max(now.saturating_sub(PAUSE_MS * burst)).wrapping_add(PAUSE_MS);
    if next > now || bucket.compare_exchange(used, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    ASKED_MS.store(now.max(1), Ordering::Relaxed);
    // SAFETY: `want` has stored a function of this type, which may be called inside malloc.
    unsafe { core::mem::transmute::<*mut (), Notify>(notify)() };
}

/// See [`memintro_abi::HookApi::sample_callers`].
pub(crate) extern "C" fn want(on: bool, notify: Option<Notify>, vm_start: usize, vm_end: usize) -> Status {
    if !IS_SUPPORTED {
        return Status::BAD_OPTION;
    }
    if on && !CAPTURES.init() {
        return Status::NO_MEMORY;
    }
    know_first_stack();
    NOTIFY.store(notify.map_or(ptr::null_mut(), |notify| notify as *mut ()), Ordering::Release);
    VM_START.store(vm_start, Ordering::Relaxed);
    VM_END.store(vm_end, Ordering::Relaxed);
    IS_WANTED.store(on, Ordering::Release);
    Status::OK
}

/// The loader keeps where the kernel has put the program's arguments.
fn know_first_stack() {
    let end = patch::look_up(c"__libc_stack_end").cast::<usize>();
    // SAFETY: null, or a variable of the loader's, which is never unloaded.
    if let Some(end) = unsafe { end.as_ref() } {
        captures::know_first_stack(*end);
    }
}

/// See [`memintro_abi::HookApi::take_callers`].
pub(crate) unsafe extern "C" fn take(context: *mut c_void, visit: Visitor<CallerSample>) -> u32 {
    ASKED_MS.store(0, Ordering::Relaxed);
    CAPTURES.drain(|sample| {
        // Another module may be at its addresses by now.
        if sample.loads != patch::loads() {
            return;
        }
        // SAFETY: the caller's own callback and context.
        unsafe { visit(context, sample) };
    });
    EPOCH.load(Ordering::Relaxed)
}

/// Called in a forked child.
pub(crate) fn in_child() {
    ASKED_MS.store(0, Ordering::Relaxed);
    CAPTURES.in_child();
}

/// See [`memintro_abi::HookApi::is_live`].
pub(crate) extern "C" fn is_live(block: u64, serial: u32) -> bool {
    FOLLOWED.is_live(block, serial)
}

/// See [`memintro_abi::HookApi::modules`].
pub(crate) unsafe extern "C" fn modules(context: *mut c_void, visit: Visitor<ModuleRecord>) {
    patch::each_module(|record| {
        // SAFETY: the caller's own callback and context.
        unsafe { visit(context, record) };
    });
}
