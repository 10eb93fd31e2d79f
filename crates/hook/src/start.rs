//! Start and stop: the tracker and, in a process that was not preloaded, the patches.

use core::sync::atomic::Ordering;

use memintro_abi::{Mode, StartOptions, Status};

use crate::functions::{self, FUNCTIONS};
use crate::patch::{self, Outcome};
use crate::real;
use crate::state::{self, DISABLED, PRELOADED};

/// Begins to track with empty figures; a no-op if that is what goes on already.
pub(crate) fn start(options: &StartOptions) -> Status {
    if DISABLED.load(Ordering::Relaxed) {
        return Status::DISABLED;
    }
    let options = match state::normalised(options) {
        Ok(options) => options,
        Err(status) => return status,
    };
    state::exclusively(|| {
        if state::is_active_with(&options) {
            return Status::UNCHANGED;
        }
        real::resolve();
        if !real::has_allocator() {
            return Status::NO_ALLOCATOR;
        }
        let status = state::activate(&options);
        // What begins with holes would be taken for the whole.
        if status.0 >= 0 && install().unwritten > 0 && status == Status::OK {
            patch::remove();
            state::deactivate();
            return Status::NO_MEMORY;
        }
        status
    })
}

/// Stops tracking. Other threads may be inside one of our functions: those go on to the real ones.
pub(crate) fn stop() -> Status {
    state::exclusively(|| {
        if state::mode() == Mode::OFF {
            return Status::UNCHANGED;
        }
        patch::remove();
        state::deactivate();
        Status::OK
    })
}

fn install() -> Outcome {
    if !PRELOADED.load(Ordering::Relaxed) {
        patch::install(FUNCTIONS.iter())
    } else if real::is_resolved(&functions::mallocx::FUNCTION) {
        // Only what a preloaded library must not export: jemalloc's own interface.
        patch::install(FUNCTIONS.iter().filter(|function| !function.exported))
    } else {
        Outcome::default()
    }
}

/// Looks for modules that came since, and verifies what was patched.
pub(crate) fn refresh() {
    if state::mode() != Mode::OFF {
        patch::refresh();
    }
}
