//! In the copy: which call sites asked for the blocks of each owner.

use std::ffi::c_void;

use memintro_abi::{BlockRecord, HookApi, Status};
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::owners::{Owner, Owners};

use super::answer::AnswerWriter;
use crate::copy::own_memory::slice;

/// Sites with a greater number are left out; the hook's limit is less unless somebody raised it.
const MOST_SITES: usize = 1 << 18;
/// Sites that are written for each owner.
const LISTED: usize = 20;
const ROWS: [Owner; 4] = [Owner::Native, Owner::Objects, Owner::Iseqs, Owner::Internal];

#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: f64,
    blocks: f64,
}

struct Sums<'a, 'b> {
    owners: &'a Owners<'b>,
    of_rows: [&'static mut [Sum]; 4],
    end: usize,
}

/// Writes the sites with most live bytes. `None` if the hook could not be read at this instant.
pub(super) fn list(api: &HookApi, owners: &Owners<'_>, answer: &mut AnswerWriter<'_>) -> Option<()> {
    let of_rows = [slice(MOST_SITES)?, slice(MOST_SITES)?, slice(MOST_SITES)?, slice(MOST_SITES)?];
    let mut sums = Sums { owners, of_rows, end: 0 };
    // SAFETY: the callback fits the record, and its context outlives the visit.
    let status = unsafe { (api.blocks)(u32::MAX, 0, (&raw mut sums).cast(), add) };
    if status != Status::OK {
        return None;
    }
    for (row, sites) in ROWS.iter().zip(&mut sums.of_rows) {
        for _ in 0..LISTED {
            let largest =
                sites.iter_mut().enumerate().take(sums.end).max_by(|a, b| a.1.bytes.total_cmp(&b.1.bytes));
            let Some((site, sum)) = largest.filter(|(_, sum)| sum.bytes > 0.0) else { break };
            let sum = std::mem::take(sum);
            let numbers = [*row as u64, site as u64, sum.bytes.round() as u64, sum.blocks.round() as u64];
            answer.add("site", &numbers.map(Word::Number));
        }
    }
    Some(())
}

unsafe extern "C" fn add(context: *mut c_void, record: *const BlockRecord) {
    // SAFETY: the context is that of `list`, and the record is valid during the visit.
    let (sums, record) = unsafe { (&mut *context.cast::<Sums<'_, '_>>(), &*record) };
    let owner = usize::try_from(record.address).map_or(Owner::Nothing, |block| sums.owners.of_block(block));
    // What objects of extensions lead to is in the row of what has no owner.
    let owner = if owner == Owner::Reached { Owner::Native } else { owner };
    let Some(row) = ROWS.iter().position(|row| *row == owner) else { return };
    let site = record.site as usize;
    if let Some(sum) = sums.of_rows.get_mut(row).and_then(|sites| sites.get_mut(site)) {
        sum.bytes += record.size as f64 * record.weight;
        sum.blocks += record.weight;
        sums.end = sums.end.max(site + 1);
    }
}
