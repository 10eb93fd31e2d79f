//! Start and stop: the tracker and, in a process that was not preloaded, the patches.

use core::sync::atomic::Ordering;

use memintro_abi::{Mode, StartOptions, Status};
use memintro_tracker::stack;

use crate::functions::{FUNCTIONS, Family};
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

/// In a process that was preloaded, C's functions are this library's symbols.
fn install() -> Outcome {
    let is_preloaded = PRELOADED.load(Ordering::Relaxed);
    patch::install(FUNCTIONS.iter().filter(|function| match function.family {
        Family::C => !is_preloaded,
        // Who has no strdup of its own uses libc's, which calls malloc.
        Family::Text => real::is_resolved(function),
        Family::Operator | Family::Extended | Family::Loader => true,
    }))
}

/// Looks for modules that came since, and verifies what was patched.
pub(crate) fn refresh() {
    if state::mode() != Mode::OFF {
        // A stack overflow in the middle would leave the claim taken.
        stack::touch_pages::<2>();
        patch::refresh();
    }
}
