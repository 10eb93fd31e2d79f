//! Stacks and their bytes: each frame once, and a row for each stack.

use std::collections::HashMap;

use memintro_abi::ObjectFigures;

use crate::estimates::{Estimates, left};
use crate::figures::computed;
use crate::sites::{Frame, Site, Sites};

/// Live bytes of malloc, bytes allocated, growth; and the same of the slots of objects.
pub(super) const FIGURES: usize = 6;
/// The first figure of objects.
pub(super) const OF_OBJECTS: usize = 3;

/// A stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Numbers of its frames, the outermost first.
    pub(super) frames: Vec<u32>,
    pub(super) figures: [i64; FIGURES],
    /// Variances of the figures, if some are estimates.
    pub(super) variances: Option<[f64; FIGURES]>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) frames: Vec<Frame>,
    pub(super) rows: Vec<Row>,
}

impl Table {
    pub(super) fn new(sites: &Sites) -> Self {
        let mut table = Self::default();
        let mut known: HashMap<Frame, u32> = HashMap::new();
        for site in &sites.list {
            let frames = sites.frames_of(site).into_iter().rev().map(|frame| {
                *known.entry(frame).or_insert_with_key(|frame| {
                    table.frames.push(frame.clone());
                    (table.frames.len() - 1) as u32
                })
            });
            let frames = frames.collect();
            table.rows.push(Row { frames, figures: figures(site), variances: variances(site) });
        }
        table
    }

    /// Lets all rows from this one on share a frame.
    pub(super) fn sum_beyond(&mut self, most: usize, name: String) {
        let rest = self.rows.split_off(most.min(self.rows.len()));
        let used = self.rows.iter().flat_map(|row| &row.frames).max().map_or(0, |last| *last as usize + 1);
        self.frames.truncate(used);
        self.frames.push(Frame { path: name.into_bytes(), line: 0, label: None });
        let mut sum = Row { frames: vec![used as u32], ..Row::default() };
        for row in rest {
            for (figure, part) in sum.figures.iter_mut().zip(row.figures) {
                *figure = figure.wrapping_add(part);
            }
            if let Some(variances) = row.variances {
                let all = sum.variances.get_or_insert_default();
                for (variance, part) in all.iter_mut().zip(variances) {
                    *variance += part;
                }
            }
        }
        self.rows.push(sum);
    }
}

fn figures(site: &Site) -> [i64; FIGURES] {
    let record = &site.record;
    let blocks =
        [site.live_bytes(), record.blocks.total_bytes.value.cast_signed(), computed::growth(record, None)];
    let objects = &record.objects;
    let slots = if *objects == ObjectFigures::default() {
        [0; 3]
    } else {
        let live = computed::object_bytes(record, None);
        let made = objects.total_bytes.value.cast_signed();
        [live, made, live.wrapping_sub(objects.marked_bytes.cast_signed())]
    };
    [blocks[0], blocks[1], blocks[2], slots[0], slots[1], slots[2]]
}

/// What objects were made since the mark has no variance of its own; it is not above that of all that were made.
fn variances(site: &Site) -> Option<[f64; FIGURES]> {
    if !site.is_estimated() {
        return None;
    }
    let of = Estimates::of(site);
    let objects = &site.record.objects;
    let (made, freed) = (objects.total_bytes.variance, objects.freed_bytes.variance);
    let live = left(&objects.total_bytes, &objects.freed_bytes).variance;
    Some([of.live_bytes.variance, of.total_bytes.variance, of.growth.variance, live, made, made + freed])
}
