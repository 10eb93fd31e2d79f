//! `Memintro::Native.top_sites`: the call sites with the greatest figures, without making Ruby objects for the
//! others.
//!
//! A Rails process has ten thousand sites. A snapshot that takes a millisecond cannot make a row for each, and a
//! report of twenty need not.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use magnus::{Error, RArray, RModule, Ruby, Symbol, function, prelude::*};
use memintro_abi::SiteRecord;
use memintro_analysis::figures::{self, Reader};

use super::errors;
use super::native::visit_sites;
use super::site_rows::rows;
use super::sites;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("top_sites", function!(top_sites, 2))?;
    native.define_singleton_method("sortable?", function!(is_sortable, 1))
}

/// The greatest of the visited records, and the sums of the others.
pub(super) struct Greatest {
    figure: Reader,
    most: usize,
    /// The greatest; once there is no room for more, [`Greatest::ranks`] has their order.
    pub(super) kept: Vec<SiteRecord>,
    /// The least of them first. (What sorts in general lies elsewhere in this library: a report is to touch little of it.)
    ranks: BinaryHeap<Rank>,
    pub(super) left_out: usize,
    pub(super) live_bytes: i64,
    pub(super) variance: Option<f64>,
}

impl Greatest {
    /// From the present sites; if there is a limit, greatest first.
    pub(super) fn collect(ruby: &Ruby, figure: Reader, most: usize) -> Result<Self, Error> {
        errors::need_room(ruby)?;
        // No figure changes while records are visited, so there should be room already.
        let kept = Vec::with_capacity(most.clamp(64, 4096));
        let ranks = BinaryHeap::with_capacity(if most < usize::MAX { kept.capacity() } else { 0 });
        let mut greatest = Self { figure, most, kept, ranks, left_out: 0, live_bytes: 0, variance: None };
        visit_sites(ruby, |record| greatest.take(record))?;
        greatest.order();
        Ok(greatest)
    }

    fn take(&mut self, record: &SiteRecord) {
        if self.most == usize::MAX {
            self.kept.push(*record);
            return;
        }
        let mut rank =
            Rank { figure: self.figure.of_record(record).approximate(), id: record.id, at: self.kept.len() };
        if rank.at < self.most {
            self.kept.push(*record);
            self.ranks.push(rank);
            return;
        }
        let mut less = *record;
        if let Some(mut least) = self.ranks.peek_mut()
            && rank < *least
        {
            rank.at = least.at;
            *least = rank;
            if let Some(place) = self.kept.get_mut(rank.at) {
                less = std::mem::replace(place, less);
            }
        }
        self.leave_out(&less);
    }

    fn leave_out(&mut self, record: &SiteRecord) {
        self.left_out += 1;
        self.live_bytes = self.live_bytes.wrapping_add(figures::live_bytes(record));
        if record.blocks.estimated != 0 {
            let variance = record.blocks.total_bytes.variance - record.blocks.freed_bytes.variance;
            self.variance = Some(self.variance.unwrap_or(0.0) + variance);
        }
    }

    fn order(&mut self) {
        if self.most < usize::MAX {
            let ranks = std::mem::take(&mut self.ranks).into_sorted_vec();
            self.kept = ranks.iter().filter_map(|rank| self.kept.get(rank.at).copied()).collect();
        }
    }
}

/// The place of a record among others: greater figures first, then the earlier site.
#[derive(Clone, Copy)]
struct Rank {
    figure: f64,
    id: u32,
    /// The index of the record.
    at: usize,
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        other.figure.total_cmp(&self.figure).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rank {}

/// The rows of at most `count` sites, greatest first by that figure; and of the sites that are left out their number,
/// their live bytes, and the variance of these if any of them was sampled.
fn top_sites(ruby: &Ruby, count: usize, by: Symbol) -> Result<(RArray, usize, i64, Option<f64>), Error> {
    let sites = sites::collect(ruby, figure(ruby, &by.name()?)?, count)?;
    Ok((rows(ruby, &sites, false)?, sites.left_out, sites.live_bytes_left_out, sites.variance_left_out))
}

fn is_sortable(name: String) -> bool {
    figures::sortable(&name).is_some()
}

/// How to read the figure that `CallSite` calls so, to sort by it.
pub(super) fn figure(ruby: &Ruby, name: &str) -> Result<Reader, Error> {
    figures::sortable(name).ok_or_else(|| Error::new(ruby.exception_arg_error(), format!("no figure {name}")))
}
