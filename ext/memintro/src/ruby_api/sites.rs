//! Takes the call sites of this process at one instant, in Rust's memory, without Ruby objects.

use std::collections::HashMap;

use magnus::{Error, Ruby};
use memintro_abi::{HookApi, SiteKind, SiteRecord, StackFrame};
use memintro_analysis::figures::{self, Reader};
use memintro_analysis::sites::{Aged, Caller, Callers, Frame, Site, Sites};
use memintro_native::SiteFigures;

use super::blocks;
use super::native::pseudo_name;
use super::objects;
use super::stacks;
use super::top_sites::Greatest;
use super::without_gvl::without_gvl;
use crate::{callers, contents, symbols};

/// At most so many sites, those with the greatest figure, greatest first. With an age, only sites with blocks or objects of
/// that age, and only these count as live.
pub(super) fn take(
    ruby: &Ruby,
    figure: Reader,
    most: Option<usize>,
    older_than: Option<u32>,
) -> Result<Sites, Error> {
    let most = most.unwrap_or(usize::MAX);
    let sums = older_than.map(|age| blocks::sums(ruby, age)).transpose()?;
    let objects = older_than.map(|age| objects::sums(ruby, age)).transpose()?.unwrap_or_default();
    let mut sites = collect(ruby, figure, if sums.is_some() { usize::MAX } else { most })?;
    without_gvl(move || {
        if let Some(sums) = &sums {
            keep_old(&mut sites, sums, &objects);
        }
        if sums.is_some() || most == usize::MAX {
            sites.sort(figure);
        }
        sites.list.truncate(most);
        sites
    })
}

/// All call sites at one instant, in the order of the table; none if there is no hook.
pub(super) fn all(ruby: &Ruby) -> Result<Sites, Error> {
    // Any figure, because nothing is sorted.
    collect(ruby, figures::first(), usize::MAX)
}

/// These sites alone, without their native callers.
pub(super) fn of(records: &[SiteRecord]) -> Sites {
    let mut texts = Texts::default();
    let list = records.iter().map(|record| texts.site(record)).collect();
    Sites { list, texts: texts.texts, ..Sites::default() }
}

/// At most so many sites, those with the greatest figure, greatest first, without leaving the GVL.
pub(super) fn greatest(ruby: &Ruby, figure: Reader, most: usize) -> Result<Sites, Error> {
    let mut sites = collect(ruby, figure, most)?;
    if most == usize::MAX {
        sites.sort(figure);
    }
    Ok(sites)
}

/// All call sites, each whole stack by itself; `None` if they are lines.
pub(super) fn whole(ruby: &Ruby) -> Result<Option<Sites>, Error> {
    let Some(api) = contents::settled().filter(|_| stacks::stack_depth() > 1) else { return Ok(None) };
    let mut sites = Sites::default();
    let mut texts = Texts::default();
    let mut known = HashMap::new();
    for record in &stacks::records(ruby, api)? {
        let stack = (record.stack != 0).then(|| {
            let stack = frames(api, record.stack as u32, &mut sites.frames, &mut known);
            sites.stacks.push(stack);
            (sites.stacks.len() - 1) as u32
        });
        sites.list.push(Site { stack, ..texts.site(record) });
    }
    sites.texts = texts.texts;
    Ok(Some(sites))
}

/// Numbers of the frames, the innermost first. `known` has them by the hook's numbers.
fn frames(api: &HookApi, mut next: u32, frames: &mut Vec<Frame>, known: &mut HashMap<u32, u32>) -> Vec<u32> {
    let mut stack = Vec::new();
    while let Some(frame) = (next != 0).then(|| stacks::frame(api, next)).flatten() {
        stack.push(*known.entry(frame.frame).or_insert_with(|| {
            frames.push(copied(&frame));
            (frames.len() - 1) as u32
        }));
        next = frame.caller;
    }
    stack
}

fn copied(frame: &StackFrame) -> Frame {
    let text = |bytes: *const u8, len: u32| {
        // SAFETY: the interner keeps texts until a clear or start, which need the GVL that we hold.
        unsafe { std::slice::from_raw_parts(bytes, len as usize) }.to_vec()
    };
    Frame {
        path: text(frame.path, frame.path_len),
        line: frame.line,
        label: (!frame.label.is_null()).then(|| text(frame.label, frame.label_len)),
    }
}

/// At most so many sites, greatest first; in any order if there is no limit. Only the texts must be copied while no other thread can clear them.
pub(super) fn collect(ruby: &Ruby, figure: Reader, most: usize) -> Result<Sites, Error> {
    let found = Greatest::collect(ruby, figure, most)?;
    // Room for all, because a map that grows runs more code: a report is to touch little of it.
    let mut texts = Texts { paths: HashMap::with_capacity(found.kept.len()), ..Texts::default() };
    let known = callers::Callers::now();
    let mut of_sites: Vec<Callers> = Vec::new();
    let list = found
        .kept
        .iter()
        .map(|record| {
            let callers = known.callers_of(record.id).map(|(figures, named)| {
                of_sites.push(native_callers(figures, &named));
                (of_sites.len() - 1) as u32
            });
            Site { callers, ..texts.site(record) }
        })
        .collect();
    Ok(Sites {
        list,
        texts: texts.texts,
        callers: of_sites,
        left_out: found.left_out,
        live_bytes_left_out: found.live_bytes,
        variance_left_out: found.variance,
        ..Sites::default()
    })
}

fn native_callers(figures: &SiteFigures, named: &[callers::Named<'_>]) -> Callers {
    let list = named.iter().map(|one| Caller {
        frames: one.names.iter().map(|name| name.text.clone()).collect(),
        location: callers::location(&one.names),
        samples: one.figures.samples,
        live_samples: one.figures.live_samples,
        share: one.figures.share,
        live_share: one.figures.live_share,
    });
    Callers { samples: figures.samples, live_samples: figures.live_samples, list: list.collect() }
}

/// The sites with blocks of that age, or with objects of that age.
fn keep_old(sites: &mut Sites, sums: &[blocks::Sum], objects: &HashMap<u32, blocks::Sum>) {
    sites.list.retain_mut(|site| {
        let aged = sums.get(site.record.id as usize).filter(|sum| sum.is_any()).map(blocks::Sum::aged);
        let slots = objects.get(&site.record.id);
        let slots_aged = slots.map(blocks::Sum::aged).unwrap_or_default();
        site.aged = (aged.is_some() || slots.is_some()).then(|| Aged {
            objects: slots_aged.blocks,
            object_bytes: slots_aged.bytes,
            ..aged.unwrap_or_default()
        });
        site.aged.is_some()
    });
}

/// Each path once, because a file has many lines.
#[derive(Default)]
struct Texts {
    texts: Vec<Vec<u8>>,
    /// By the interner's address and length.
    paths: HashMap<(usize, u32), u32>,
}

impl Texts {
    fn site(&mut self, record: &SiteRecord) -> Site {
        let text = match record.kind {
            SiteKind::RUBY => *self.paths.entry((record.path.addr(), record.path_len)).or_insert_with(|| {
                // SAFETY: the interner keeps the path until a clear or start, which need the GVL that we hold.
                let path = unsafe { std::slice::from_raw_parts(record.path, record.path_len as usize) };
                push(&mut self.texts, path.to_vec())
            }),
            SiteKind::NATIVE => push(&mut self.texts, symbols::name(record).into_bytes()),
            _ => push(&mut self.texts, pseudo_name(record.id).into()),
        };
        Site { record: *record, text, aged: None, callers: None, stack: None, knows_old: true }
    }
}

/// The index of the text that was pushed.
fn push(texts: &mut Vec<Vec<u8>>, text: Vec<u8>) -> u32 {
    texts.push(text);
    (texts.len() - 1) as u32
}
