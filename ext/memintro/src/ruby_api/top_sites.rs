//! `Memintro::Native.top_sites`: the call sites with the greatest figures, without making Ruby objects for the
//! others.
//!
//! A Rails process has ten thousand sites. A snapshot that takes a millisecond cannot make a row for each, and a
//! report of twenty need not.

use std::cmp::Ordering;

use magnus::{Error, RArray, RModule, Ruby, Symbol, function, prelude::*};
use memintro_abi::SiteRecord;

use crate::callers::Callers;

use super::native::{Paths, site_row, visit_sites};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("top_sites", function!(top_sites, 2))
}

pub(super) type Figure = fn(&SiteRecord) -> f64;

/// The greatest of the visited records, and the sums of the others.
pub(super) struct Greatest {
    figure: Figure,
    most: usize,
    /// Records that may be among the greatest.
    pub(super) kept: Vec<SiteRecord>,
    pub(super) left_out: usize,
    pub(super) live_bytes: i64,
    pub(super) variance: Option<f64>,
}

impl Greatest {
    /// From the present sites, in any order.
    pub(super) fn collect(ruby: &Ruby, figure: Figure, most: usize) -> Result<Self, Error> {
        let mut greatest = Self::new(figure, most);
        visit_sites(ruby, |record| greatest.take(record))?;
        greatest.leave_out();
        Ok(greatest)
    }

    fn new(figure: Figure, most: usize) -> Self {
        // No figure changes while records are visited, so there should be room already.
        let kept = Vec::with_capacity(most.saturating_mul(2).clamp(64, 4096));
        Self { figure, most, kept, left_out: 0, live_bytes: 0, variance: None }
    }

    fn take(&mut self, record: &SiteRecord) {
        if self.kept.len() >= self.most.saturating_mul(2).max(64) {
            self.leave_out();
        }
        self.kept.push(*record);
    }

    fn leave_out(&mut self) {
        if self.kept.len() <= self.most {
            return;
        }
        let figure = self.figure;
        if self.most > 0 {
            self.kept.select_nth_unstable_by(self.most - 1, |one, other| order(figure, one, other));
        }
        self.left_out += self.kept.len() - self.most;
        for record in self.kept.drain(self.most..) {
            self.live_bytes = self.live_bytes.wrapping_add(live_bytes(&record));
            if record.estimated != 0 {
                let variance = record.variances.total_bytes - record.variances.freed_bytes;
                self.variance = Some(self.variance.unwrap_or(0.0) + variance);
            }
        }
    }
}

/// Greater figures first, then the earlier site.
fn order(figure: Figure, one: &SiteRecord, other: &SiteRecord) -> Ordering {
    figure(other).total_cmp(&figure(one)).then(one.id.cmp(&other.id))
}

/// The rows of at most `count` sites, greatest first by that figure; and of the sites that are left out their number,
/// their live bytes, and the variance of these if any of them was sampled.
fn top_sites(ruby: &Ruby, count: usize, by: Symbol) -> Result<(RArray, usize, i64, Option<f64>), Error> {
    let mut greatest = Greatest::collect(ruby, figure(ruby, &by.name()?)?, count)?;
    greatest.kept.sort_unstable_by(|one, other| order(greatest.figure, one, other));
    let rows = ruby.ary_new_capa(greatest.kept.len());
    let mut paths = Paths::new(ruby);
    let callers = Callers::now();
    for record in &greatest.kept {
        rows.push(site_row(ruby, record, &mut paths, &callers)?)?;
    }
    Ok((rows, greatest.left_out, greatest.live_bytes, greatest.variance))
}

/// How to read the figure that `CallSite` calls so, to sort by it. Sums of bytes above 2^53 may compare as equal.
pub(super) fn figure(ruby: &Ruby, name: &str) -> Result<Figure, Error> {
    Ok(match name {
        "allocations" => |record| record.allocations as f64,
        "frees" => |record| record.frees as f64,
        "total_bytes" => |record| record.total_bytes as f64,
        "freed_bytes" => |record| record.freed_bytes as f64,
        "live_bytes" => |record| live_bytes(record) as f64,
        "live_blocks" => |record| difference(record.allocations, record.frees) as f64,
        "mean_lifespan" => |record| match record.frees {
            0 => 0.0,
            frees => record.age_total as f64 / frees as f64,
        },
        "max_lifespan" => |record| record.max_lifespan as f64,
        "age_total" => |record| record.age_total as f64,
        "live_objects" => |record| difference(record.objects.allocations, record.objects.frees) as f64,
        "object_bytes" => |record| object_bytes(record) as f64,
        "object_allocations" => |record| record.objects.allocations as f64,
        "retained_bytes" => |record| live_bytes(record).wrapping_add(object_bytes(record)) as f64,
        "growth" => |record| live_bytes(record).wrapping_sub(record.marked_bytes.cast_signed()) as f64,
        _ => return Err(Error::new(ruby.exception_arg_error(), format!("no figure {name}"))),
    })
}

/// After `Mwrap.reset` frees can outweigh allocations.
fn difference(gone_up: u64, gone_down: u64) -> i64 {
    gone_up.wrapping_sub(gone_down).cast_signed()
}

fn object_bytes(record: &SiteRecord) -> i64 {
    difference(record.objects.total_bytes, record.objects.freed_bytes)
}

fn live_bytes(record: &SiteRecord) -> i64 {
    difference(record.total_bytes, record.freed_bytes)
}
