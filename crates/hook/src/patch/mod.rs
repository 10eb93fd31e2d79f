//! Writes the stubs into the relocation slots of a running process, and restores the slots.
//!
//! | file | holds |
//! |---|---|
//! | [`modules`] | what is loaded, as the loader tells it |
//! | [`mod@resolve`] | the real functions, and the modules that define them |
//! | [`judge`] | whether a slot may be ours |
//! | [`slot`] | reading and writing one slot, read-only or not |
//! | [`sweep`] | all modules, in either direction |
//! | [`loaded_modules`] | what was loaded at one moment |
//! | [`book`] | which slots were found and what they held |
//! | [`claim`] | one thread at a time |
//!
//! Rules for neighbours:
//! - Slots are touched only inside a callback of `dl_iterate_phdr`: the loader's lock keeps the module there.
//! - No thread waits for the claim while the loader's list is locked, so the two cannot block each other. [`refresh`]
//!   waits only for a fork that holds patching, and may be called from anywhere but malloc.
//! - The loader itself and the vDSO are never patched. libc is, because `strdup` and `getline` allocate through its
//!   slots.

mod book;
mod claim;
mod judge;
mod loaded_modules;
mod modules;
mod names;
mod resolve;
mod slot;
mod sweep;
pub(crate) mod walkers;

use core::ffi::c_int;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

use memintro_abi::{Mode, ModuleRecord, PatchEntry};
use memintro_tracker::stack;

use crate::functions::FUNCTIONS;
use crate::real::{Family, Function, Stub};
use crate::shared;

pub(crate) use loaded_modules::LoadedModules;
pub(crate) use modules::{build_at, code_around, init, loads, path_of};
pub(crate) use resolve::{look_up, next, resolve};
use sweep::Direction;

/// Counts of slots (`modules`, `malformed`: of modules) that were found and changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Modules that were read.
    pub(crate) modules: u32,
    /// Slots that were changed.
    pub(crate) patched: u32,
    /// Slots that hold a function of another library.
    pub(crate) foreign: u32,
    /// Modules that could not be read.
    pub(crate) malformed: u32,
    /// Slots whose page the kernel refused to make writable.
    pub(crate) refused: u32,
    /// Slots that were patched and were found changed; most of them are patched again.
    pub(crate) lost: u32,
    /// Slots and modules for whose record there was no memory.
    pub(crate) unwritten: u32,
}

/// Whether C's functions, and those that ask for a block's size, are libc's.
pub(crate) fn is_all_of_libc() -> bool {
    let is_of_c = |function: &Function| matches!(function.family, Family::C | Family::Asking);
    resolve::are_of_libc(
        FUNCTIONS.iter().enumerate().filter(|(_, function)| is_of_c(function)).map(|(index, _)| index),
    )
}

/// Patches those of `stubs` whose functions are wanted into all modules.
pub(crate) fn install(stubs: &'static [Stub], is_wanted: impl Fn(&Function) -> bool) -> Outcome {
    let wanted = stubs.iter().enumerate().filter(|(_, stub)| is_wanted(stub.function));
    let mask = wanted.fold(0, |mask, (index, _)| mask | resolve::bit(index));
    claim::exclusively(|book| {
        book.stubs = stubs;
        book.wanted |= mask;
        sweep::everything(book, Direction::In)
    })
    // The owner of the claim did not release it in time, so nothing was done.
    .unwrap_or(Outcome { unwritten: 1, ..Outcome::default() })
}

/// Patches modules that were loaded since, and verifies all slots. If another thread is doing that, that
/// thread repeats it.
pub(crate) fn refresh() {
    if shared::mode() != Mode::OFF {
        // A stack overflow in the middle would leave the claim taken.
        stack::touch_pages::<2>();
        claim::if_free(sweep::again);
    }
}

/// Called for each dlopen. With `RTLD_DEEPBIND` a library searches itself and what it needs before it searches the
/// usual scope.
pub(crate) fn about_to_load(mode: c_int) {
    modules::count_load();
    if mode & libc::RTLD_DEEPBIND != 0 {
        sweep::DEEP_BINDING.store(true, Ordering::Relaxed);
    }
}

/// Restores the values that [`install`] replaced, in slots that still hold a stub.
pub(crate) fn remove() -> Outcome {
    claim::exclusively(|book| {
        if book.wanted == 0 {
            return Outcome::default();
        }
        let outcome = sweep::everything(book, Direction::Out);
        book.clear();
        outcome
    })
    .unwrap_or_default()
}

/// Visits each slot that was found and each module that could not be read, with their present values. `visit` must
/// not call [`install`] or [`remove`].
pub(crate) fn visit(visit: &mut dyn FnMut(&PatchEntry)) {
    claim::exclusively(|book| {
        sweep::again(book);
        book.entries(|entry| visit(&entry));
    })
    .unwrap_or_default();
}

/// Visits all loaded modules. The loader's list is locked meanwhile.
pub(crate) fn each_module(mut visit: impl FnMut(&ModuleRecord)) {
    stack::touch_pages::<3>();
    modules::walk(|loaded| {
        visit(&loaded.record());
        ControlFlow::Continue(())
    });
}

/// Called before a fork, so that no change is half done. Returns whether it got the claim.
pub(crate) fn before_fork(sleeps: u32) -> bool {
    claim::hold(sleeps)
}

/// Called after a fork, in both processes, if [`before_fork`] returned true.
pub(crate) fn after_fork() {
    claim::let_go();
}

/// Called in the child if [`before_fork`] returned false. The owner of the claim no longer exists, unless it is this
/// thread, which goes on after the signal handler that forked.
pub(crate) fn abandoned_by_fork() {
    if !claim::is_mine() {
        claim::reset();
    }
}

// One bit for each function.
const _: () = assert!(FUNCTIONS.len() <= 64);
