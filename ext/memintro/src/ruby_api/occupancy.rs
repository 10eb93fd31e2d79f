//! How full the heap's pages are, as Ruby sees it.

use magnus::{Error, RArray, RModule, Ruby, function, prelude::*};

use super::heap::checked;
use super::names;
use crate::heap::pages;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("occupancy", function!(occupancy, 0))
}

/// `[[[slot_size, pages, slots, live, sparse_pages, sparse_live, empty_pages], …], [[name, count, pages], …]]`
fn occupancy(ruby: &Ruby) -> Result<(RArray, RArray), Error> {
    let (pools, holders) = checked(ruby, pages::occupancy())?;
    let pool_rows = ruby.ary_new_capa(pools.len());
    for pool in &pools {
        pool_rows.push((
            pool.slot_size,
            pool.pages,
            pool.slots,
            pool.live,
            pool.sparse_pages,
            pool.sparse_live,
            pool.empty_pages,
        ))?;
    }
    let holder_rows = ruby.ary_new_capa(holders.len());
    for holder in &holders {
        let name = names::string(ruby, &holder.name);
        name.freeze();
        holder_rows.push((name, holder.count, holder.pages))?;
    }
    Ok((pool_rows, holder_rows))
}
