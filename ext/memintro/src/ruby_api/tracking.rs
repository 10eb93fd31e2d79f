//! Starts and stops tracking, with the test allocation that shows whether anything is seen.

use magnus::{Error, RModule, Ruby, Symbol, function, prelude::*};
use memintro_abi::{Figures, HookApi, Mode, START_SETTINGS, StartOptions, Status};

use super::native::{check, hook};
use super::trial::{self, Trial};
use super::without_gvl::without_gvl;
use super::{errors, request, tracking_hold};
use crate::process::mappings;
use crate::{callers, contents, objects};

/// Live blocks that a stop moves in about 10 ms, with the GVL. With more, other Ruby threads run meanwhile; they cannot start or stop.
const MANY: u64 = 1 << 17;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("start", function!(start, 2))?;
    native.define_singleton_method("stop", function!(stop, 0))
}

/// Values of settings in the order of [`START_SETTINGS`]; 0 is the default.
fn start(ruby: &Ruby, mode: u32, values: [u64; START_SETTINGS.len()]) -> Result<Symbol, Error> {
    if let Some(message) = mappings::scarcity() {
        return Err(errors::error(ruby, "ExhaustedError", message));
    }
    let api = hook(ruby)?;
    let options = StartOptions::new(Mode(mode), values);
    let status = begin_tracking(ruby, api, &options)?;
    tracking_hold::let_be();
    callers::follow_mode(ruby, api);
    Ok(ruby.to_symbol(match status {
        Status::OK => "ok",
        Status::SWITCHED => "switched",
        _ => "unchanged",
    }))
}

/// To be filled in.
pub(super) fn no_options() -> StartOptions {
    StartOptions::new(Mode::OFF, [0; START_SETTINGS.len()])
}

/// Starts, or switches to these options.
pub(super) fn begin_tracking(ruby: &Ruby, api: &HookApi, options: &StartOptions) -> Result<Status, Error> {
    // SAFETY: the options are valid during the call.
    let status = unsafe { (api.start)(&raw const *options) };
    check(ruby, status)?;
    let goes_on = status != Status::OK;
    let error = if goes_on {
        trial::unseen().map(|message| errors::error(ruby, "NotSeenError", message))
    } else {
        match trial::tracked(api, || trial::try_an_allocation(api)) {
            Trial::Seen => None,
            Trial::Dropped => Some(errors::from_status(ruby, Status::NO_MEMORY)),
            Trial::Unseen => Some(errors::error(ruby, "NotSeenError", trial::not_seen(api))),
        }
    };
    if let Some(error) = error {
        (api.stop)();
        return Err(error);
    }
    if goes_on {
        if status == Status::SWITCHED {
            tracking_hold::mode_changes();
        }
        return Ok(status);
    }
    request::figures_begin_anew();
    // The test allocation does not belong to the program.
    check(ruby, (api.clear)())?;
    Ok(status)
}

fn stop(ruby: &Ruby) -> Result<bool, Error> {
    let Some(api) = contents::settled() else { return Ok(false) };
    objects::stop();
    tracking_hold::let_be();
    end_tracking(ruby, api)
}

/// Stops; `false` if nothing was tracked.
pub(super) fn end_tracking(ruby: &Ruby, api: &HookApi) -> Result<bool, Error> {
    let mut figures = Figures::default();
    // SAFETY: the caller's own record.
    unsafe { (api.totals)(&raw mut figures) };
    let is_long = figures.allocations.value.wrapping_sub(figures.frees.value) > MANY;
    let status = if is_long { without_gvl(|| (api.stop)())? } else { (api.stop)() };
    if status == Status::OK {
        request::figures_begin_anew();
    }
    check(ruby, status)?;
    Ok(status == Status::OK)
}
