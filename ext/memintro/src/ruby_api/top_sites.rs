//! `Memintro::Native.top_sites`: the call sites with most live bytes, without making Ruby objects of the others.
//!
//! A Rails process has ten thousand sites; a snapshot that is to cost a millisecond cannot make a row of each.

use magnus::{Error, RArray, RModule, Ruby, function, prelude::*};
use memintro_abi::SiteRecord;

use super::native::{Paths, site_records, site_row};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("top_sites", function!(top_sites, 1))
}

/// The rows of at most `count` sites, greatest first, and how many sites there are.
fn top_sites(ruby: &Ruby, count: usize) -> Result<(RArray, usize), Error> {
    let mut records = site_records();
    let all = records.len();
    if count < all && count > 0 {
        records.select_nth_unstable_by_key(count - 1, key);
    }
    records.truncate(count);
    records.sort_unstable_by_key(key);
    let rows = ruby.ary_new_capa(records.len());
    let mut paths = Paths::new(ruby);
    for record in &records {
        rows.push(site_row(ruby, record, &mut paths)?)?;
    }
    Ok((rows, all))
}

/// More live bytes first, then the earlier site. After `Mwrap.reset` frees can outweigh allocations.
fn key(record: &SiteRecord) -> (std::cmp::Reverse<i64>, u32) {
    (std::cmp::Reverse(record.total_bytes.wrapping_sub(record.freed_bytes).cast_signed()), record.id)
}
