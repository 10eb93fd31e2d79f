//! Who calls the top lines: the heaviest whole stacks of each.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write;

use memintro_abi::{SiteKind, Unit};

use super::names::{Names, printable};
use super::units::{bytes, count};
use super::{Options, dressed, line};
use crate::figures::{self, Reader};
use crate::report::Report;
use crate::sites::{Site, Sites};

/// Most lines that get their callers, stacks of each, and callers of a stack that are shown.
pub const MOST_LINES: usize = 5;
/// Most stacks of a line.
pub const MOST_STACKS: usize = 3;
/// Most callers of a stack.
pub const MOST_FRAMES: usize = 4;

/// A stack without its innermost line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// The figure by which stacks are sorted.
    pub figure: f64,
    /// The callers of the line, the innermost first, at most [`MOST_FRAMES`].
    pub callers: Vec<Frame>,
    /// How many are left out.
    pub left_out: usize,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// `path:line`.
    pub place: Vec<u8>,
    /// The method or block.
    pub label: Option<Vec<u8>>,
}

/// The stacks of a line, the greatest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfLine {
    /// The index of the line among the sites.
    pub site: usize,
    /// The stacks.
    pub stacks: Vec<Stack>,
}

/// The heaviest stacks of the first lines of a report; nothing if call sites are lines.
#[must_use]
pub fn heaviest(report: &Report, figure: Reader) -> Vec<OfLine> {
    let Some(stacks) = &report.stacks else { return Vec::new() };
    let mut by_line: HashMap<(&[u8], u32), Vec<&Site>> = HashMap::new();
    for stack in
        stacks.list.iter().filter(|stack| stack.stack.is_some() && stack.record.kind == SiteKind::RUBY)
    {
        by_line.entry((stacks.text(stack), stack.record.line)).or_default().push(stack);
    }
    let lines = report.sites.list.iter().enumerate().filter(|(_, site)| site.record.kind == SiteKind::RUBY);
    lines
        .filter_map(|(site, one)| {
            let mut all = by_line.remove(&(report.sites.text(one), one.record.line))?;
            all.sort_by(|one, other| is_heavier(figure, one, other));
            let of = all.iter().take(MOST_STACKS).map(|stack| without_line(stacks, stack, figure));
            Some(OfLine { site, stacks: of.collect() })
        })
        .take(MOST_LINES)
        .collect()
}

/// Greater figures first, then the earlier site.
fn is_heavier(figure: Reader, one: &Site, other: &Site) -> Ordering {
    let of = |site| figure.of(site).approximate();
    of(other).total_cmp(&of(one)).then(one.record.id.cmp(&other.record.id))
}

fn without_line(stacks: &Sites, site: &Site, figure: Reader) -> Stack {
    let frames = stacks.frames_of(site);
    let callers = frames.iter().skip(1);
    Stack {
        figure: figure.of(site).approximate(),
        left_out: callers.len().saturating_sub(MOST_FRAMES),
        callers: callers
            .take(MOST_FRAMES)
            .map(|frame| Frame {
                place: [&frame.path, format!(":{}", frame.line).as_bytes()].concat(),
                label: frame.label.clone(),
            })
            .collect(),
    }
}

pub(super) fn write(text: &mut String, options: &Options, names: &Names, sites: &Sites, of: &[OfLine]) {
    if of.is_empty() {
        return;
    }
    text.push('\n');
    line(text, &dressed(options, "1", "Their heaviest callers:"));
    let is_bytes = figures::sortable(options.by)
        .is_some_and(|reader| matches!(reader.figure.unit, Unit::Bytes | Unit::Change));
    for one in of {
        let Some(site) = sites.list.get(one.site) else { continue };
        line(text, &names.short(&sites.name(site), true));
        for stack in &one.stacks {
            let figure =
                if is_bytes { bytes(stack.figure as i64) } else { count(stack.figure.round() as i64) };
            let _ = writeln!(text, "  {figure:>10}  {}", named(names, stack));
        }
    }
}

fn named(names: &Names, stack: &Stack) -> String {
    let mut named: Vec<String> = stack.callers.iter().map(|frame| of_frame(names, frame)).collect();
    if stack.left_out > 0 {
        named.push(format!("{} more", stack.left_out));
    }
    if named.is_empty() { "no caller".to_owned() } else { named.join(" < ") }
}

fn of_frame(names: &Names, frame: &Frame) -> String {
    let label = frame.label.as_ref().map_or_else(String::new, |label| format!("{} ", printable(label)));
    label + &names.short(&frame.place, true)
}
