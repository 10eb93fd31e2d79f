//! The classes of tracked objects.

use std::collections::HashMap;

use memintro_abi::BlockRecord;

use super::classes::Labels;
use super::functions;
use super::slot::Slot;
use super::walk::Trouble;

/// Live objects of one call site and class.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// Sums of objects by call site and name of class. `meant` says which call sites count.
///
/// # Safety
/// The objects are live: nothing was freed or moved since they were read.
pub(crate) unsafe fn by_class(
    objects: &[BlockRecord],
    meant: impl Fn(&BlockRecord) -> bool,
) -> Result<HashMap<(u32, Vec<u8>), Sum>, Trouble> {
    let vm = functions::get().map_err(Trouble::Missing)?;
    let mut labels = Labels::new()?;
    let mut sums = HashMap::new();
    for object in objects.iter().filter(|object| meant(object)) {
        // SAFETY: the caller's promise.
        let slot = unsafe { Slot::read(object.address as usize) };
        if slot.is_object() {
            let sum: &mut Sum = sums.entry((object.site, labels.of(vm, slot))).or_default();
            sum.objects += 1;
            sum.bytes += object.size;
        }
    }
    let named = sums.into_iter().map(|((site, label), sum)| ((site, labels.text(label).to_vec()), sum));
    Ok(named.fold(HashMap::new(), |mut named, (key, sum)| {
        let all: &mut Sum = named.entry(key).or_default();
        all.objects += sum.objects;
        all.bytes += sum.bytes;
        named
    }))
}
