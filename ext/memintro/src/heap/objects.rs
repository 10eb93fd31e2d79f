//! Counts all objects by class, and those of the VM by kind.

use super::classes::{Label, Labels};
use super::greatest;
use super::walk::{self, Trouble};
use crate::atlas::types::T_IMEMO;

/// Objects with the same name.
pub(crate) struct Row {
    pub(crate) name: Vec<u8>,
    pub(crate) internal: bool,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    bytes: u64,
}

/// The counts of a walk.
pub(crate) struct Histogram {
    labels: Labels,
    /// Two sums for each text: of visible objects, and of internal ones.
    sums: Vec<[Sum; 2]>,
}

/// Counts each object, internal ones included, under its name.
pub(crate) fn histogram() -> Result<Histogram, Trouble> {
    let mut labels = Labels::new()?;
    let mut sums: Vec<[Sum; 2]> = Vec::new();
    walk::each_page(|vm, page| {
        for slot in page.slots().filter(|slot| slot.is_object()) {
            let Label { text, internal } = labels.of(vm, slot);
            let index = text as usize;
            if index >= sums.len() {
                sums.resize(index + 64, [Sum::default(); 2]);
            }
            let sum = &mut sums[index][usize::from(internal)];
            sum.count += 1;
            sum.bytes += vm.bytes_of(slot);
        }
    })?;
    Ok(Histogram { labels, sums })
}

impl Histogram {
    /// The rows with the most objects or bytes. Reads nothing of Ruby's.
    pub(crate) fn rows(self, by_count: bool, limit: Option<usize>) -> Vec<Row> {
        let mut rows = Vec::new();
        for (name, sums) in self.labels.into_texts().iter().zip(self.sums) {
            for (internal, sum) in [false, true].into_iter().zip(sums) {
                if sum.count > 0 {
                    rows.push(Row { name: name.clone(), internal, count: sum.count, bytes: sum.bytes });
                }
            }
        }
        greatest(&mut rows, by_count, limit);
        rows
    }
}

/// The VM's own objects by kind, most bytes first.
pub(crate) fn internals() -> Result<Vec<Row>, Trouble> {
    let mut sums = [Sum::default(); 16];
    let mut names: [Option<String>; 16] = Default::default();
    let mut buffer = Vec::new();
    walk::each_page(|vm, page| {
        for slot in page.select(&mut buffer, |slot| slot.kind() == T_IMEMO) {
            let kind = slot.imemo_kind();
            sums[kind].count += 1;
            sums[kind].bytes += vm.bytes_of(*slot);
            if names[kind].is_none() {
                names[kind] = Some(vm.name_of_imemo(kind));
            }
        }
    })?;
    let rows = names.into_iter().zip(sums).filter_map(|(name, sum)| {
        name.map(|name| Row { name: name.into_bytes(), internal: true, count: sum.count, bytes: sum.bytes })
    });
    let mut rows = rows.collect();
    greatest(&mut rows, false, None);
    Ok(rows)
}

fn greatest(rows: &mut Vec<Row>, by_count: bool, limit: Option<usize>) {
    let figure = |row: &Row| if by_count { row.count } else { row.bytes };
    greatest::keep(rows, limit, figure, |a, b| a.name.cmp(&b.name).then(a.internal.cmp(&b.internal)));
}
