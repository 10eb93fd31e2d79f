//! Who calls the top lines, as `Memintro::Report::Callers` tells it in Ruby: the heaviest whole stacks of each.

use std::fmt::Write;

use memintro_abi::Unit;

use super::names::{Names, printable};
use super::units::{bytes, count};
use super::{Head, dressed, line};
use crate::figures;
use crate::sites::Sites;

/// Most lines that get their callers, stacks of each, and callers of a stack that are shown.
pub const MOST_LINES: usize = 5;
/// Most stacks of a line.
pub const MOST_STACKS: usize = 3;
/// Most callers of a stack.
pub const MOST_FRAMES: usize = 4;

/// A stack without its innermost line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// What stacks are sorted by.
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

pub(super) fn write(text: &mut String, head: &Head, names: &Names, sites: &Sites, of: &[OfLine], by: &str) {
    if of.is_empty() {
        return;
    }
    text.push('\n');
    line(text, &dressed(head, "1", "Their heaviest callers:"));
    let is_bytes =
        figures::sortable(by).is_some_and(|reader| matches!(reader.figure.unit, Unit::Bytes | Unit::Change));
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
