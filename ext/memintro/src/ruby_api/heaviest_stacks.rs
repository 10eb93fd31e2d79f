//! The heaviest whole stacks of the first lines of a report. Of all others nothing is copied: a program may have a hundred
//! thousand.

use std::collections::HashMap;
use std::slice;

use magnus::{Error, Ruby};
use memintro_abi::{HookApi, SiteKind, SiteRecord, StackFrame};
use memintro_analysis::figures::Reader;
use memintro_analysis::sites::Sites;
use memintro_analysis::text::stacks::{Frame, MOST_FRAMES, MOST_LINES, MOST_STACKS, OfLine, Stack};

use super::native::{check, visit_each};
use super::stacks;
use crate::hook_link;

/// A stack's figure, its call site, and the number of its innermost frame.
type Heavy = (f64, u32, u32);

/// The heaviest stacks of the first lines; nothing if call sites are lines.
pub(super) fn of_first(ruby: &Ruby, sites: &Sites, figure: Reader) -> Result<Vec<OfLine>, Error> {
    let Some(api) = hook_link::found().filter(|_| stacks::stack_depth() > 1) else { return Ok(Vec::new()) };
    let mut known: Vec<[Option<Heavy>; MOST_STACKS]> = vec![[None; MOST_STACKS]; sites.list.len()];
    let places: HashMap<(&[u8], u32), usize> =
        sites.list.iter().enumerate().filter_map(|(at, site)| Some((line(&site.record)?, at))).collect();
    let mut take = |record: &SiteRecord| {
        let Some(&at) = line(record).filter(|_| record.stack != 0).and_then(|line| places.get(&line)) else {
            return;
        };
        let Some(heaviest) = known.get_mut(at) else { return };
        let mut next = (figure.of_record(record).approximate(), record.id, record.stack as u32);
        for place in heaviest {
            match place {
                Some(other) if !is_before(&next, other) => {}
                Some(other) => std::mem::swap(other, &mut next),
                None => {
                    *place = Some(next);
                    return;
                }
            }
        }
    };
    let status = visit_each(
        // SAFETY: the callback fits the record, the context outlives the visit.
        |context, call| unsafe { (api.stacks)(context, call) },
        &mut take,
    );
    check(ruby, status)?;
    let with_any = known.iter().enumerate().filter(|(_, heaviest)| heaviest.iter().any(Option::is_some));
    Ok(with_any.take(MOST_LINES).map(|(site, heaviest)| of_line(api, site, heaviest)).collect())
}

/// Greater figures first, then the earlier site.
fn is_before(one: &Heavy, other: &Heavy) -> bool {
    other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)).is_lt()
}

/// Path and line, if it is a line of Ruby.
fn line(record: &SiteRecord) -> Option<(&[u8], u32)> {
    // SAFETY: the interner keeps the path until a clear or start, which need the GVL that we hold.
    let path = || unsafe { slice::from_raw_parts(record.path, record.path_len as usize) };
    (record.kind == SiteKind::RUBY && !record.path.is_null()).then(|| (path(), record.line))
}

fn of_line(api: &HookApi, site: usize, heaviest: &[Option<Heavy>]) -> OfLine {
    let stacks = heaviest.iter().flatten().map(|&(figure, _, innermost)| {
        let mut stack = Stack { figure, ..Stack::default() };
        let mut next = stacks::frame(api, innermost).map_or(0, |frame| frame.caller);
        while let Some(frame) = (next != 0).then(|| stacks::frame(api, next)).flatten() {
            if stack.callers.len() < MOST_FRAMES {
                stack.callers.push(caller(&frame));
            } else {
                stack.left_out += 1;
            }
            next = frame.caller;
        }
        stack
    });
    OfLine { site, stacks: stacks.collect() }
}

fn caller(frame: &StackFrame) -> Frame {
    // SAFETY: as for the path of a line.
    let text = |bytes: *const u8, len: u32| unsafe { slice::from_raw_parts(bytes, len as usize) }.to_vec();
    let mut place = text(frame.path, frame.path_len);
    place.extend_from_slice(format!(":{}", frame.line).as_bytes());
    Frame { place, label: (!frame.label.is_null()).then(|| text(frame.label, frame.label_len)) }
}
