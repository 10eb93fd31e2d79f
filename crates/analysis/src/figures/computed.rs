//! The figures that are computed from others, each by a function of its name.

use memintro_abi::SiteRecord;

use crate::sites::Aged;

/// Live bytes of the blocks that count.
pub(crate) fn live_bytes(record: &SiteRecord, aged: Option<&Aged>) -> i64 {
    let blocks = &record.blocks;
    aged.map_or(difference(blocks.total_bytes.value, blocks.freed_bytes.value), |aged| of(aged.bytes.value))
}

/// Live blocks that count.
pub(crate) fn live_blocks(record: &SiteRecord, aged: Option<&Aged>) -> i64 {
    let blocks = &record.blocks;
    aged.map_or(difference(blocks.allocations.value, blocks.frees.value), |aged| of(aged.blocks.value))
}

/// Mean age at which blocks were freed.
pub(crate) fn mean_lifespan(record: &SiteRecord, _: Option<&Aged>) -> f64 {
    match record.blocks.frees.value {
        0 => 0.0,
        frees => record.blocks.age_total.value as f64 / frees as f64,
    }
}

/// Live bytes of all ages, less those at the mark.
pub(crate) fn growth(record: &SiteRecord, _: Option<&Aged>) -> i64 {
    live_bytes(record, None).wrapping_sub(of(record.blocks.marked_bytes.value))
}

/// Bytes of the blocks that have outlived a collection.
pub(crate) fn old_bytes(record: &SiteRecord, _: Option<&Aged>) -> u64 {
    record.old_bytes.value
}

/// How many these are.
pub(crate) fn old_blocks(record: &SiteRecord, _: Option<&Aged>) -> u64 {
    record.old_blocks.value
}

/// The VM's objects that count.
pub(crate) fn live_objects(record: &SiteRecord, aged: Option<&Aged>) -> i64 {
    let objects = &record.objects;
    aged.map_or(difference(objects.allocations.value, objects.frees.value), |aged| of(aged.objects.value))
}

/// Bytes of their slots.
pub(crate) fn object_bytes(record: &SiteRecord, aged: Option<&Aged>) -> i64 {
    let objects = &record.objects;
    aged.map_or(difference(objects.total_bytes.value, objects.freed_bytes.value), |aged| {
        of(aged.object_bytes.value)
    })
}

/// Objects made.
pub(crate) fn object_allocations(record: &SiteRecord, _: Option<&Aged>) -> u64 {
    record.objects.allocations.value
}

/// Live bytes of blocks and of slots.
pub(crate) fn retained_bytes(record: &SiteRecord, aged: Option<&Aged>) -> i64 {
    live_bytes(record, aged).wrapping_add(object_bytes(record, aged))
}

/// Frees can outweigh allocations after a reset.
fn difference(came: u64, went: u64) -> i64 {
    of(came.wrapping_sub(went))
}

fn of(value: u64) -> i64 {
    value.cast_signed()
}
