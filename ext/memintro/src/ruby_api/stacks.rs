//! `Memintro::Native.stacks`: call sites as they are kept, each whole stack by itself.

use std::collections::HashMap;

use magnus::{Error, IntoValue, RArray, RModule, Ruby, function, prelude::*};
use memintro_abi::{HookApi, SiteRecord, StackFrame, Status};

use super::names;
use super::native::{Paths, check, site_row, visit_each};
use crate::callers::Callers;
use crate::{contents, hook_link};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
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

/// Rows as of `sites`, whose last cell is the stack: arrays of path, line and label, the innermost first. It is nil where
/// there is none: of pseudo-sites, native callers, and lines alone.
fn stacks(ruby: &Ruby) -> Result<RArray, Error> {
    let array = ruby.ary_new();
    let Some(api) = contents::settled() else { return Ok(array) };
    let records = records(ruby, api)?;
    let mut paths = Paths::new(ruby);
    let mut frames = Frames { api, list: ruby.ary_new(), places: HashMap::new() };
    for record in &records {
        let row = site_row(ruby, record, &mut paths, &Callers::default())?;
        row.push(match record.stack {
            0 => None,
            number => Some(frames.stack(ruby, number as u32)?),
        })?;
        array.push(row)?;
    }
    Ok(array)
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

/// A frozen array of path, line and label for each frame, made once.
struct Frames<'a> {
    api: &'a HookApi,
    /// A Ruby array, so that the collector sees them.
    list: RArray,
    /// Indices in the array, by the number of the frame.
    places: HashMap<u32, isize>,
}

impl Frames<'_> {
    fn stack(&mut self, ruby: &Ruby, mut number: u32) -> Result<RArray, Error> {
        let stack = ruby.ary_new();
        while number != 0 {
            let Some(frame) = frame(self.api, number) else { break };
            stack.push(self.made(ruby, &frame)?)?;
            number = frame.caller;
        }
        stack.freeze();
        Ok(stack)
    }

    fn made(&mut self, ruby: &Ruby, frame: &StackFrame) -> Result<RArray, Error> {
        if let Some(place) = self.places.get(&frame.frame) {
            return self.list.entry(*place);
        }
        let text = |bytes: *const u8, len: u32| {
            // SAFETY: the interner keeps texts until a clear or start, which need the GVL that we hold.
            let bytes = unsafe { std::slice::from_raw_parts(bytes, len as usize) };
            let text = names::string(ruby, bytes);
            text.freeze();
            text.into_value_with(ruby)
        };
        let made = ruby.ary_new_capa(3);
        made.push(text(frame.path, frame.path_len))?;
        made.push(frame.line)?;
        made.push((!frame.label.is_null()).then(|| text(frame.label, frame.label_len)))?;
        made.freeze();
        self.places.insert(frame.frame, self.list.len().cast_signed());
        self.list.push(made)?;
        Ok(made)
    }
}
