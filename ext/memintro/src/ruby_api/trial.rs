//! Checks whether allocations reach the hook at all: another library may define malloc in front of it.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use magnus::{Error, RModule, function, prelude::*};
use memintro_abi::{HookApi, Mode, Origin, ThreadFigures};

use crate::hook_link;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("unseen", function!(unseen, 0))
}

/// What the hook did with the test allocation.
pub(super) enum Trial {
    Seen,
    /// The hook had no memory to record it.
    Dropped,
    Unseen,
}

/// Makes one allocation as any library would, and reads what the hook did with it.
pub(super) fn try_an_allocation(api: &HookApi) -> Trial {
    let mut before = ThreadFigures::default();
    let mut after = ThreadFigures::default();
    // SAFETY: valid records; the block is given back at once. The volatile write keeps the pair from being
    // optimised away.
    unsafe {
        (api.thread_totals)(&raw mut before);
        let block = libc::malloc(1);
        if !block.is_null() {
            block.cast::<u8>().write_volatile(1);
        }
        libc::free(block);
        (api.thread_totals)(&raw mut after);
    }
    // Only the bytes of these figures are exact in each mode.
    if after.allocated_bytes > before.allocated_bytes {
        Trial::Seen
    } else if after.dropped > before.dropped {
        Trial::Dropped
    } else {
        Trial::Unseen
    }
}

pub(super) fn not_seen(api: &HookApi) -> String {
    let advice = "put memintro's hook first in LD_PRELOAD (`memintro run -- CMD` does), or do not preload it and use Memintro.start";
    // SAFETY: the loader's own text of the module's path.
    let path =
        |module: libc::Dl_info| unsafe { CStr::from_ptr(module.dli_fname) }.to_string_lossy().into_owned();
    let first = first_malloc().map_or_else(|| "another library".to_owned(), path);
    if (api.origin)() == Origin::PRELOADED {
        format!("{first} answers malloc before memintro's hook does, so nothing would be seen: {advice}")
    } else {
        format!(
            "a test allocation did not reach memintro's hook ({first} answers malloc): `memintro doctor` lists what was patched"
        )
    }
}

/// The module whose malloc a library is bound to by default.
fn first_malloc() -> Option<libc::Dl_info> {
    // SAFETY: a look-up by name.
    module_of(unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) })
}

/// The module of this address, if it has a name.
fn module_of(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: zero is a valid Dl_info, and any address may be asked for.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let is_found =
            !address.is_null() && libc::dladdr(address, &raw mut info) != 0 && !info.dli_fname.is_null();
        is_found.then_some(info)
    }
}

/// Whether the hook is the first malloc, or has seen an allocation. That never changes in the life of a process.
static IS_SEEN: AtomicBool = AtomicBool::new(false);

/// Why nothing is seen in a preloaded process that tracks, if that is so. The hook started tracking there, and could
/// not report it.
///
/// The test allocation is made only if another library is in front of the hook, which may pass calls on, as profilers
/// do. Otherwise the allocation would appear needlessly in the program's figures.
pub(super) fn unseen() -> Option<String> {
    let api = hook_link::found()?;
    let is_asked = (api.origin)() == Origin::PRELOADED && (api.mode)() != Mode::OFF;
    if !is_asked || IS_SEEN.load(Ordering::Relaxed) {
        return None;
    }
    if is_first(api) || !matches!(tracked(api, || try_an_allocation(api)), Trial::Unseen) {
        IS_SEEN.store(true, Ordering::Relaxed);
        return None;
    }
    Some(not_seen(api))
}

/// Whether a library is bound to the malloc of the hook by default.
fn is_first(api: &HookApi) -> bool {
    let hook = module_of(api.start as *const c_void);
    hook.zip(first_malloc()).is_some_and(|(hook, first)| hook.dli_fbase == first.dli_fbase)
}

/// Runs this as if the thread were tracked, even if it is not.
pub(super) fn tracked<T>(api: &HookApi, run: impl FnOnce() -> T) -> T {
    (api.untracked_enter)();
    let depth = (api.untracked_leave)();
    for _ in 0..depth {
        (api.untracked_leave)();
    }
    let answer = run();
    for _ in 0..depth {
        (api.untracked_enter)();
    }
    answer
}
