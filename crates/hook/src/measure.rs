//! Measurements: what one thread and the process did between two moments, and which of the new blocks are
//! still live.
//!
//! Begin and end are read while the world is paused, so the figures of the process belong to the same instant as those
//! of the thread. What is noted between them is in [`memintro_tracker::births`].

use core::ffi::c_void;

use memintro_abi::{BirthRecord, MeasureFigures, MeasuredSite, Mode, Status, Visitor};
use memintro_tracker::stack;
use memintro_tracker::threads::ThreadState;

use crate::figures;
use crate::shared::{self, BIRTHS, SITES, THREADS};
use crate::{state, thread};

/// Figures of this moment.
fn figures_of(own: &ThreadState, moment: u32) -> MeasureFigures {
    MeasureFigures {
        moment,
        owner: own.measuring.owner(),
        lost: BIRTHS.lost(),
        thread: figures::of_thread(own),
        process: figures::of_process(),
    }
}

/// Runs `action` for the calling thread while the world is paused, after all earlier events of this thread
/// are recorded.
fn paused(action: impl FnOnce(&ThreadState) -> Status) -> Status {
    stack::touch_pages::<3>();
    let Some(own) = thread::kept() else { return Status::BUSY };
    THREADS.catch_up(own);
    let done = state::paused(|_| action(own));
    done.unwrap_or_else(|| state::done(done))
}

/// See [`memintro_abi::HookApi::measure_begin`].
pub(crate) unsafe extern "C" fn begin(figures: *mut MeasureFigures) -> Status {
    // The caller needs a state to be measured.
    if thread::own().is_none() {
        return Status::NO_MEMORY;
    }
    paused(|own| {
        if shared::mode() != Mode::FULL {
            return Status::BAD_OPTION;
        }
        let Some(moment) = BIRTHS.begin(&own.measuring, state::budget() / 4) else {
            return Status::BAD_OPTION;
        };
        // SAFETY: the caller's own record.
        unsafe { figures.write(figures_of(own, moment)) };
        Status::OK
    })
}

/// See [`memintro_abi::HookApi::measure_end`].
pub(crate) unsafe extern "C" fn end(
    begun: *const MeasureFigures,
    ended: *mut MeasureFigures,
    context: *mut c_void,
    visit: Visitor<MeasuredSite>,
) -> Status {
    paused(|own| {
        // SAFETY: the caller's own record.
        let begun = unsafe { (*begun).moment };
        let moment = BIRTHS.end(&own.measuring, begun, &mut |site, sum| {
            let record = MeasuredSite {
                site: SITES.leaf_of(site),
                allocations: sum.allocations,
                total_bytes: sum.total_bytes,
            };
            // SAFETY: the caller's own callback and context.
            unsafe { visit(context, &raw const record) };
        });
        // SAFETY: the caller's own record.
        unsafe { ended.write(figures_of(own, moment)) };
        Status::OK
    })
}

/// See [`memintro_abi::HookApi::measure_close`].
pub(crate) unsafe extern "C" fn close(
    begun: *const MeasureFigures,
    ended: *const MeasureFigures,
    context: *mut c_void,
    visit: Visitor<BirthRecord>,
) -> Status {
    paused(|own| {
        // SAFETY: the caller's own records.
        let (from, until) = unsafe { ((*begun).moment, (*ended).moment) };
        BIRTHS.for_each(from, until, &mut |_, birth| {
            let record =
                BirthRecord { size: birth.size, site: SITES.leaf_of(birth.site), owner: birth.owner };
            // SAFETY: the caller's own callback and context.
            unsafe { visit(context, &raw const record) };
        });
        BIRTHS.close(&own.measuring);
        Status::OK
    })
}
