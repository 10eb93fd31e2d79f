//! `Memintro::Native.sites` and `.stacks`: all call sites, by line and as they are kept, each whole stack by itself.

use magnus::{Error, RArray, RModule, Ruby, function, prelude::*};
use memintro_abi::{HookApi, SiteRecord, StackFrame, Status};

use super::native::{check, visit_each};
use super::site_rows::rows;
use super::sites;
use crate::hook_link;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("sites", function!(lines, 0))?;
    native.define_singleton_method("stacks", function!(stacks, 0))?;
    native.define_singleton_method("stack_depth", function!(stack_depth, 0))
}

/// The most lines of a call site: 1 if sites are lines.
pub(super) fn stack_depth() -> u64 {
    hook_link::found().map_or(1, |api| {
        let mut options = super::tracking::no_options();
        // SAFETY: a valid record.
        unsafe { (api.options)(&raw mut options) };
        options.stack_depth
    })
}

/// Rows of all call sites at one instant; none if there is no hook.
fn lines(ruby: &Ruby) -> Result<RArray, Error> {
    rows(ruby, &sites::all(ruby)?, false)
}

/// Rows as of `sites`, whose last cell is the stack.
fn stacks(ruby: &Ruby) -> Result<RArray, Error> {
    match sites::whole(ruby)? {
        Some(stacks) => rows(ruby, &stacks, true),
        None => Ok(ruby.ary_new()),
    }
}

/// All call sites, each whole stack by itself.
pub(super) fn records(ruby: &Ruby, api: &HookApi) -> Result<Vec<SiteRecord>, Error> {
    let mut records: Vec<SiteRecord> = Vec::new();
    let status = visit_each(
        // SAFETY: the callback fits the record, the context outlives the visit.
        |context, call| unsafe { (api.stacks)(context, call) },
        |record| records.push(*record),
    );
    check(ruby, status)?;
    Ok(records)
}

/// The frame of this number; its texts are kept until a clear or start, which need the GVL.
pub(super) fn frame(api: &HookApi, number: u32) -> Option<StackFrame> {
    let mut frame = StackFrame::NONE;
    // SAFETY: a valid record.
    let status = unsafe { (api.stack_frame)(number, &raw mut frame) };
    (status == Status::OK).then_some(frame)
}
