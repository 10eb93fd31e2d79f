//! Start and stop: the tracker and, in a process that was not preloaded, the patches.

use core::sync::atomic::Ordering;

use memintro_abi::{Mode, StartOptions, Status};

use crate::changes::exclusively;
use crate::functions;
use crate::in_band;
use crate::patch::{self, Outcome};
use crate::real::{Family, is_resolved};
use crate::shared::{DISABLED, PRELOADED, mode};
use crate::state;
use crate::stubs::STUBS;

/// Begins to track with empty figures. Does nothing if tracking is on with the same options.
pub(crate) fn start(options: &StartOptions) -> Status {
    if DISABLED.load(Ordering::Relaxed) {
        return Status::DISABLED;
    }
    let options = match state::normalised(options) {
        Ok(options) => options,
        Err(status) => return status,
    };
    exclusively(|| {
        if state::is_active_with(&options) {
            return Status::UNCHANGED;
        }
        functions::resolve();
        if !functions::has_allocator() {
            return Status::NO_ALLOCATOR;
        }
        let begins = state::begins_anew(&options);
        // First, so that no answer to the program includes the bytes of a record.
        in_band::want(begins && in_band::is_possible_with(&options) && install_asking());
        if !begins {
            in_band::leave();
        }
        // Before the first event: a record goes stale if the slot through which its block is freed is patched
        // later. Tracking that misses some slots would look complete.
        let status = if install().unwritten > 0 && begins {
            in_band::leave();
            state::deactivate();
            Status::NO_MEMORY
        } else {
            state::activate(&options)
        };
        if mode() == Mode::OFF {
            patch::remove();
        } else {
            // Patches modules that were loaded meanwhile.
            patch::refresh();
        }
        status
    })
}

/// Stops tracking. Threads that are inside a stub or a body go on to the real function.
pub(crate) fn stop() -> Status {
    exclusively(|| {
        if mode() == Mode::OFF {
            return Status::UNCHANGED;
        }
        // While answers to programs still leave out the bytes of records.
        in_band::leave();
        // Before slots are restored one by one, because later frees of followed blocks may not be seen.
        state::deactivate();
        patch::remove();
        Status::OK
    })
}

/// Whether all modules will ask this library for the size of a block.
fn install_asking() -> bool {
    let outcome = patch::install(STUBS, |function| function.family == Family::Asking);
    outcome.foreign + outcome.refused + outcome.unwritten + outcome.malformed == 0
}

/// In a preloaded process, C's functions are symbols of this library and need no patch.
fn install() -> Outcome {
    let is_preloaded = PRELOADED.load(Ordering::Relaxed);
    patch::install(STUBS, |function| match function.family {
        Family::C => !is_preloaded,
        // If they are wanted, they are patched already.
        Family::Asking => false,
        // An allocator without its own strdup uses libc's, which calls malloc.
        Family::Text => is_resolved(function),
        Family::Operator | Family::Extended | Family::Loader => true,
    })
}
