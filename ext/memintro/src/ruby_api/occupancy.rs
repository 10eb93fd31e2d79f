//! How full the heap's pages are, for Ruby.

use magnus::{Error, RArray, RHash, RModule, Ruby, Value, function, prelude::*};
use memintro_analysis::heap::Pool;

use super::heap::checked;
use super::names;
use super::slices::yield_rows;
use super::without_gvl::without_gvl;
use crate::heap::pages;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("occupancy", function!(occupancy, 1))
}

/// The figures of a pool as Ruby gets them.
pub(super) fn pool_row(pool: &Pool) -> (u64, u64, u64, u64, u64, u64, u64) {
    (pool.slot_size, pool.pages, pool.slots, pool.live, pool.sparse_pages, pool.sparse_live, pool.empty_pages)
}

/// `[[slot_size, pages, slots, live, sparse_pages, sparse_live, empty_pages], …]`. Yields slices of `[[name, count,
/// pages], …]`, most pages first. The collector's counters after the walk, before another thread runs, go into the
/// hash. `GC.stat` has filled the hash before, so this makes no object.
fn occupancy(ruby: &Ruby, counters: RHash) -> Result<RArray, Error> {
    let found = checked(ruby, pages::occupancy())?;
    let _: Value = ruby.class_object().const_get::<_, RModule>("GC")?.funcall("stat", (counters,))?;
    let rows = without_gvl(|| found.rows())?;
    let pool_rows = ruby.ary_new_capa(rows.pools.len());
    for pool in &rows.pools {
        pool_rows.push(pool_row(pool))?;
    }
    yield_rows(ruby, &rows.holders, |holder| {
        let name = names::string(ruby, &holder.name);
        name.freeze();
        (name, holder.count, holder.pages)
    })?;
    Ok(pool_rows)
}
