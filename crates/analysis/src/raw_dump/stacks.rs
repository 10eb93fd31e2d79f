//! The whole stacks of a raw dump: texts, frames, nodes, and the call sites as they were kept.
//!
//! Each number is checked, and a node's caller must come before it. So no stack has an end that is never reached.

use std::collections::HashMap;

use memintro_abi::{DumpHeader, DumpSite, SiteKind};

use super::{Error, RawFigures, RawSite, Reader, read_site};

/// Most frames of a stack; what a file has beyond is left out.
pub const MOST_FRAMES: usize = 64;

/// The stacks.
#[derive(Debug)]
pub struct Stacks<'a> {
    texts: Vec<&'a [u8]>,
    /// Path, line and label plus 1.
    frames: Vec<(u32, u32, u32)>,
    /// Caller and frame, both plus 1.
    nodes: Vec<(u32, u32)>,
    all: Vec<RawStack>,
}

/// A call site as it was kept: a whole stack, or what has none.
#[derive(Debug, Clone, Copy)]
pub struct RawStack {
    /// The index of its line among the sites of the dump.
    pub site: usize,
    /// Its figures.
    pub figures: RawFigures,
    node: u32,
}

impl RawStack {
    /// Whether it is a whole stack.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.node != 0
    }
}

/// A line of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawFrame<'a> {
    /// Number of path, line and label.
    pub number: u32,
    /// Path of the file.
    pub path: &'a [u8],
    /// Line.
    pub line: u32,
    /// Name of the method, block or file.
    pub label: Option<&'a [u8]>,
}

impl<'a> Stacks<'a> {
    /// All call sites with figures.
    #[must_use]
    pub fn all(&self) -> &[RawStack] {
        &self.all
    }

    /// The lines of a stack, the innermost first; none of a site that has no stack.
    pub fn frames(&self, stack: &RawStack) -> impl Iterator<Item = RawFrame<'a>> {
        let mut next = stack.node;
        std::iter::from_fn(move || {
            let (caller, frame) = of(&self.nodes, next)?;
            next = caller;
            self.frame(frame)
        })
        .take(MOST_FRAMES)
    }

    fn frame(&self, number: u32) -> Option<RawFrame<'a>> {
        let (path, line, label) = of(&self.frames, number)?;
        let path = self.texts.get(path as usize)?;
        Some(RawFrame { number, path, line, label: of(&self.texts, label) })
    }
}

/// By a number from 1 on.
fn of<T: Copy>(all: &[T], number: u32) -> Option<T> {
    all.get((number as usize).checked_sub(1)?).copied()
}

/// Reads what follows the call sites. `None`: there are no stacks.
pub(super) fn read<'a>(
    reader: &mut Reader<'a>,
    header: &DumpHeader,
    sites: &[RawSite<'a>],
) -> Result<Option<Stacks<'a>>, Error> {
    if header.stacks == 0 {
        return Ok(None);
    }
    let mut stacks = Stacks { texts: Vec::new(), frames: Vec::new(), nodes: Vec::new(), all: Vec::new() };
    for _ in 0..header.texts {
        stacks.texts.push(text(reader).ok_or(Error::TruncatedStacks)?);
    }
    for _ in 0..header.frames {
        let frame = frame(reader).ok_or(Error::TruncatedStacks)?;
        let known = stacks.texts.len() as u64;
        if u64::from(frame.0) >= known || u64::from(frame.2) > known {
            return Err(Error::DamagedStacks);
        }
        stacks.frames.push(frame);
    }
    for number in 0..header.nodes {
        let (caller, frame) = node(reader).ok_or(Error::TruncatedStacks)?;
        if u64::from(caller) > number || frame == 0 || frame as usize > stacks.frames.len() {
            return Err(Error::DamagedStacks);
        }
        stacks.nodes.push((caller, frame));
    }
    let indices: HashMap<u32, usize> =
        sites.iter().enumerate().map(|(index, site)| (site.figures.0.id, index)).collect();
    for _ in 0..header.stacks {
        let (record, _) = read_site(reader).ok_or(Error::TruncatedStacks)?;
        stacks.all.extend(stack(&record, &stacks.nodes, &indices)?);
    }
    Ok(Some(stacks))
}

/// `None`: nothing has happened at it, or its line was not in use yet when the lines were written.
fn stack(
    record: &DumpSite,
    nodes: &[(u32, u32)],
    indices: &HashMap<u32, usize>,
) -> Result<Option<RawStack>, Error> {
    if !matches!(record.kind, SiteKind::RUBY | SiteKind::NATIVE | SiteKind::PSEUDO) {
        return Err(Error::UnknownKind(record.kind.0));
    }
    if record.node as usize > nodes.len() {
        return Err(Error::DamagedStacks);
    }
    let figures = RawFigures(*record);
    let site = indices.get(&record.id).filter(|_| figures.is_any());
    Ok(site.map(|site| RawStack { site: *site, figures, node: record.node }))
}

fn text<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(reader.u64()?).ok()?;
    reader.padded(len)
}

fn frame(reader: &mut Reader<'_>) -> Option<(u32, u32, u32)> {
    let frame = (reader.u32()?, reader.u32()?, reader.u32()?);
    reader.u32()?;
    Some(frame)
}

fn node(reader: &mut Reader<'_>) -> Option<(u32, u32)> {
    Some((reader.u32()?, reader.u32()?))
}
