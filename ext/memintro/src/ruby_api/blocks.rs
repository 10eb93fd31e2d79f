//! Live blocks: those of a call site, and their sums by call site and age.
//!
//! Rule for neighbours: code that visits the table runs while nothing is recorded, so it only fills Rust vectors.
//! Ruby objects are made after the visit.

use std::ffi::c_void;

use magnus::{Error, RArray, RHash, RModule, Ruby, function, prelude::*};
use memintro_abi::{BlockRecord, SITE_ALONE};
use memintro_analysis::estimates::Weighed;
use memintro_analysis::sites::Aged;

use super::native::{check, visit};
use super::site_rows::cells_row;
use crate::contents;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("live_by_site", function!(live_by_site, 1))?;
    native.define_singleton_method("blocks", function!(blocks, 2))
}

fn live_by_site(ruby: &Ruby, min_age: u32) -> Result<RHash, Error> {
    let hash = ruby.hash_new();
    for (site, sum) in sums(ruby, min_age)?.into_iter().enumerate().filter(|(_, sum)| sum.is_any()) {
        hash.aset(site, sum.row(ruby)?)?;
    }
    Ok(hash)
}

/// Live blocks of at least that age, by number of site.
pub(super) fn sums(ruby: &Ruby, min_age: u32) -> Result<Vec<Sum>, Error> {
    unsafe extern "C" fn add(context: *mut c_void, record: *const BlockRecord) {
        // SAFETY: the context is the vector below, the record is valid during the visit.
        let (sums, record) = unsafe { (&mut *context.cast::<Vec<Sum>>(), &*record) };
        let site = record.site as usize;
        if site >= sums.len() {
            sums.resize(site + 1, Sum::default());
        }
        if let Some(sum) = sums.get_mut(site) {
            sum.add(record);
        }
    }
    let mut sums: Vec<Sum> = Vec::new();
    let Some(api) = contents::settled() else { return Ok(sums) };
    // SAFETY: the callback fits the record, the context outlives the visit.
    let status = unsafe { (api.blocks)(u32::MAX, min_age, (&raw mut sums).cast(), add) };
    check(ruby, status)?;
    Ok(sums)
}

/// Live blocks of a call site: those that were counted, and those that the samples stand for.
#[derive(Clone, Default)]
pub(super) struct Sum {
    bytes: Weighed,
    blocks: Weighed,
}

impl Sum {
    pub(super) fn add(&mut self, block: &BlockRecord) {
        self.bytes.add(block.weight, block.size);
        self.blocks.add(block.weight, 1);
    }

    /// Whether there is any such block.
    pub(super) fn is_any(&self) -> bool {
        self.blocks.sum().value > 0
    }

    /// The same as plain figures.
    pub(super) fn aged(&self) -> Aged {
        Aged { bytes: self.bytes.sum(), blocks: self.blocks.sum(), ..Aged::default() }
    }

    fn is_estimated(&self) -> bool {
        self.blocks.is_estimated()
    }

    /// Bytes, blocks and, if they are estimates, variance and skew of each.
    pub(super) fn row(&self, ruby: &Ruby) -> Result<RArray, Error> {
        cells_row(ruby, &[self.bytes.sum(), self.blocks.sum()], self.is_estimated())
    }
}

/// For a line with all its stacks, or for one stack alone: a line may be a stack, too.
fn blocks(ruby: &Ruby, site: u32, is_stack: bool) -> Result<RArray, Error> {
    let site = if is_stack { site | SITE_ALONE } else { site };
    let array = ruby.ary_new();
    let Some(api) = contents::settled() else { return Ok(array) };
    // SAFETY: the callback fits the record, the context outlives the visit.
    let records =
        visit::<BlockRecord>(ruby, |context, push| unsafe { (api.blocks)(site, 0, context, push) })?;
    for record in records {
        array.push(record.address)?;
        array.push(record.size)?;
        array.push(record.age)?;
        array.push(record.weight)?;
    }
    Ok(array)
}
