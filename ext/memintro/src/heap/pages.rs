//! How full the heap's pages are, and which objects keep the emptiest of them.

use memintro_analysis::heap::{Holder, Occupancy as Rows, Pool};

use super::classes::{Label, Labels};
use super::functions::Functions;
use super::walk::{self, Page, Trouble};
use crate::atlas::types::T_NONE;

/// A page is sparse if at least one slot is taken, but less than one in this many.
const SPARSE_PART: u64 = 20;

#[derive(Clone, Copy, Default)]
struct Held {
    count: u64,
    pages: u64,
    last_page: u64,
}

/// Figures of the pages that were visited so far.
#[derive(Default)]
pub(super) struct Pages {
    pools: Vec<Pool>,
    held: Vec<Held>,
    number: u64,
}

impl Pages {
    /// Counts a page, and the objects on it if it is sparse and `shown`.
    pub(super) fn see(
        &mut self,
        vm: &Functions,
        labels: &mut Labels,
        page: Page,
        mut shown: impl FnMut(&Labels, Label) -> bool,
    ) {
        self.number += 1;
        let (mut slots, mut live) = (0_u64, 0_u64);
        for slot in page.slots() {
            slots += 1;
            live += u64::from(slot.kind() != T_NONE);
        }
        let sparse = live > 0 && live * SPARSE_PART < slots;
        let pool = pool_of(&mut self.pools, page.stride as u64);
        pool.pages += 1;
        pool.slots += slots;
        pool.live += live;
        pool.empty_pages += u64::from(live == 0);
        if !sparse {
            return;
        }
        pool.sparse_pages += 1;
        pool.sparse_live += live;
        for slot in page.slots().filter(|slot| slot.kind() != T_NONE) {
            let label = labels.of(vm, slot);
            if !shown(labels, label) {
                continue;
            }
            let index = label.text as usize;
            if index >= self.held.len() {
                self.held.resize(index + 64, Held::default());
            }
            let held = &mut self.held[index];
            held.count += 1;
            held.pages += u64::from(held.last_page != self.number);
            held.last_page = self.number;
        }
    }

    /// The pools, smallest slots first, and the holders, most pages first. Reads nothing of Ruby's.
    pub(super) fn rows(self, names: &[Vec<u8>]) -> Rows {
        let mut pools = self.pools;
        pools.sort_by_key(|pool| pool.slot_size);
        let holders = names.iter().zip(self.held).filter(|(_, held)| held.count > 0);
        let mut holders: Vec<Holder> = holders
            .map(|(name, held)| Holder { name: name.clone(), count: held.count, pages: held.pages })
            .collect();
        holders.sort_by(|a, b| (b.pages, b.count, &a.name).cmp(&(a.pages, a.count, &b.name)));
        Rows { pools, holders }
    }
}

/// The counts of a walk.
pub(crate) struct Occupancy {
    pages: Pages,
    labels: Labels,
}

/// Counts all pages, and the objects on the sparse ones.
pub(crate) fn occupancy() -> Result<Occupancy, Trouble> {
    let mut labels = Labels::new()?;
    let mut pages = Pages::default();
    walk::each_page(|vm, page| pages.see(vm, &mut labels, page, |_, _| true))?;
    Ok(Occupancy { pages, labels })
}

impl Occupancy {
    /// See [`Pages::rows`].
    pub(crate) fn rows(self) -> Rows {
        self.pages.rows(&self.labels.into_texts())
    }
}

fn pool_of(pools: &mut Vec<Pool>, slot_size: u64) -> &mut Pool {
    let index = pools.iter().position(|pool| pool.slot_size == slot_size).unwrap_or_else(|| {
        pools.push(Pool { slot_size, ..Pool::default() });
        pools.len() - 1
    });
    &mut pools[index]
}
