//! How full the heap's pages are, and what keeps the emptiest of them.

use super::classes::Labels;
use super::slot::T_NONE;
use super::walk::{self, Trouble};

/// A page is sparse while less than one slot in so many is taken, and one at least.
const SPARSE_PART: u64 = 20;

/// Pages whose slots have one size.
#[derive(Clone, Copy)]
pub(crate) struct Pool {
    pub(crate) slot_size: u64,
    pub(crate) pages: u64,
    pub(crate) slots: u64,
    pub(crate) live: u64,
    pub(crate) sparse_pages: u64,
    pub(crate) sparse_live: u64,
    pub(crate) empty_pages: u64,
}

/// What keeps sparse pages: objects of one name, and the pages that have one of them.
pub(crate) struct Holder {
    pub(crate) name: Vec<u8>,
    pub(crate) count: u64,
    pub(crate) pages: u64,
}

#[derive(Clone, Copy, Default)]
struct Held {
    count: u64,
    pages: u64,
    last_page: u64,
}

/// What a walk has counted.
pub(crate) struct Occupancy {
    pools: Vec<Pool>,
    labels: Labels,
    held: Vec<Held>,
}

/// All pages, and what is on the sparse ones.
pub(crate) fn occupancy() -> Result<Occupancy, Trouble> {
    let mut pools: Vec<Pool> = Vec::new();
    let mut labels = Labels::new()?;
    let mut held: Vec<Held> = Vec::new();
    let mut number = 0;
    walk::each_page(|vm, page| {
        number += 1;
        let (mut slots, mut live) = (0_u64, 0_u64);
        for slot in page.slots() {
            slots += 1;
            live += u64::from(slot.kind() != T_NONE);
        }
        let sparse = live > 0 && live * SPARSE_PART < slots;
        let pool = pool_of(&mut pools, page.stride as u64);
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
            let index = labels.of(vm, slot).text as usize;
            if index >= held.len() {
                held.resize(index + 64, Held::default());
            }
            let held = &mut held[index];
            held.count += 1;
            held.pages += u64::from(held.last_page != number);
            held.last_page = number;
        }
    })?;
    Ok(Occupancy { pools, labels, held })
}

impl Occupancy {
    /// The pools, smallest slots first, and the holders, most pages first. Touches nothing of Ruby's.
    pub(crate) fn rows(self) -> (Vec<Pool>, Vec<Holder>) {
        let mut pools = self.pools;
        pools.sort_by_key(|pool| pool.slot_size);
        let names = self.labels.into_texts();
        let holders = names.into_iter().zip(self.held).filter(|(_, held)| held.count > 0);
        let mut holders: Vec<Holder> =
            holders.map(|(name, held)| Holder { name, count: held.count, pages: held.pages }).collect();
        holders.sort_by(|a, b| (b.pages, b.count, &a.name).cmp(&(a.pages, a.count, &b.name)));
        (pools, holders)
    }
}

fn pool_of(pools: &mut Vec<Pool>, slot_size: u64) -> &mut Pool {
    let index = pools.iter().position(|pool| pool.slot_size == slot_size).unwrap_or_else(|| {
        pools.push(Pool {
            slot_size,
            pages: 0,
            slots: 0,
            live: 0,
            sparse_pages: 0,
            sparse_live: 0,
            empty_pages: 0,
        });
        pools.len() - 1
    });
    &mut pools[index]
}
