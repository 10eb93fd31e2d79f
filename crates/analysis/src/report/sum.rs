//! Reports of several processes, added up: the figures of a call site are summed over all of them. Workers that were
//! forked from one master run the same lines.
//!
//! The variances of estimates are added, because each process draws its own sample: the standard error is the root of the
//! sum of squares. Blocks that were allocated before the fork are in the same sample of every worker; if there are many of
//! them, the true error is larger.

use std::collections::HashMap;

use memintro_abi::Figures;

use super::{Process, Report};
use crate::sites::{Frame, Site, Sites};

impl Report {
    /// The sum of reports; the first one's is the master's.
    #[must_use]
    pub fn sum(reports: &[Self]) -> Self {
        let mut totals = Figures::default();
        let mut sites = Adding::default();
        let mut stacks = Adding::default();
        for report in reports {
            totals.add(&report.totals);
            sites.add_all(&report.sites);
            // In a process without whole stacks, each line is a stack of its own.
            stacks.add_all(report.stacks.as_ref().unwrap_or(&report.sites));
        }
        let has_stacks = reports.iter().any(|report| report.stacks.is_some());
        Self {
            process: process(reports),
            totals,
            sites: sites.sum,
            stacks: has_stacks.then_some(stacks.sum),
            older_than: None,
            root: reports.iter().find_map(|report| report.root.clone()),
        }
    }
}

/// Kind, path or name, line, and lines of the whole stack.
type Key = (u32, Vec<u8>, u32, Option<Vec<Frame>>);

#[derive(Default)]
struct Adding {
    sum: Sites,
    places: HashMap<Key, usize>,
    frames: HashMap<Frame, u32>,
}

impl Adding {
    fn add_all(&mut self, sites: &Sites) {
        for site in &sites.list {
            let frames = site.stack.map(|_| sites.frames_of(site));
            let key = (site.record.kind.0, sites.text(site).to_vec(), site.record.line, frames);
            match self.places.get(&key) {
                Some(&place) => self.add(place, sites, site),
                None => self.push(key, sites, site),
            }
        }
        self.sum.left_out = self.sum.left_out.saturating_add(sites.left_out);
        self.sum.live_bytes_left_out = self.sum.live_bytes_left_out.wrapping_add(sites.live_bytes_left_out);
        if let Some(variance) = sites.variance_left_out {
            self.sum.variance_left_out = Some(self.sum.variance_left_out.unwrap_or(0.0) + variance);
        }
    }

    fn push(&mut self, key: Key, sites: &Sites, site: &Site) {
        let sum = &mut self.sum;
        let index = |length: usize| (length - 1) as u32;
        sum.texts.push(key.1.clone());
        let callers = sites.callers_of(site).map(|callers| {
            sum.callers.push(callers.clone());
            index(sum.callers.len())
        });
        let stack = key.3.as_ref().map(|frames| {
            let numbers = frames.iter().map(|frame| {
                *self.frames.entry(frame.clone()).or_insert_with(|| {
                    sum.frames.push(frame.clone());
                    index(sum.frames.len())
                })
            });
            let numbers = numbers.collect();
            sum.stacks.push(numbers);
            index(sum.stacks.len())
        });
        let mut record = site.record;
        record.id = sum.list.len() as u32;
        self.places.insert(key, sum.list.len());
        let text = index(sum.texts.len());
        sum.list.push(Site { record, text, callers, stack, ..*site });
    }

    fn add(&mut self, place: usize, sites: &Sites, site: &Site) {
        let Some(known) = self.sum.list.get_mut(place) else { return };
        known.record.add(&site.record);
        known.knows_old &= site.knows_old;
        // Those of the process that has more samples: shares of different processes cannot be added up.
        let Some(callers) = sites.callers_of(site) else { return };
        match known.callers.and_then(|index| self.sum.callers.get_mut(index as usize)) {
            Some(other) if callers.samples > other.samples => *other = callers.clone(),
            Some(_) => {}
            None => {
                known.callers = Some(self.sum.callers.len() as u32);
                self.sum.callers.push(callers.clone());
            }
        }
    }
}

/// Has the name of the first process; mode and the like are of those that track.
fn process(reports: &[Report]) -> Process {
    let all = || reports.iter().map(|report| &report.process);
    let Some(first) = all().next() else { return Process::default() };
    let tracking: Vec<_> = all().filter(|process| process.tracking == Some(true)).collect();
    let mode = match tracking.split_first() {
        Some((one, others)) if others.iter().any(|other| other.mode != one.mode) => Some("mixed".to_owned()),
        Some((one, _)) => one.mode.clone(),
        None => first.mode.clone(),
    };
    let of = if tracking.is_empty() { vec![first] } else { tracking.clone() };
    let mut means = reports
        .iter()
        .filter(|report| report.totals.estimated != 0)
        .map(|report| report.process.sample_bytes);
    let mean = means.next().flatten().filter(|mean| means.all(|other| other == Some(*mean)));
    Process {
        rss_bytes: None,
        processes: Some(reports.len().cast_signed() as i64),
        tracking: Some(!tracking.is_empty()),
        mode,
        preloaded: Some(of.iter().all(|process| process.preloaded == Some(true))),
        sample_bytes: mean,
        ..first.clone()
    }
}
