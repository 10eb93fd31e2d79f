//! The classes of tracked objects.

use std::collections::HashMap;

use memintro_abi::BlockRecord;
use memintro_analysis::estimates::Weighed;

use super::classes::Labels;
use super::functions;
use super::walk::Trouble;
use crate::atlas::Object;

/// Live objects of one call site and class.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) objects: Weighed,
    pub(crate) bytes: Weighed,
}

impl Sum {
    fn add(&mut self, object: &BlockRecord) {
        self.objects.add(object.weight, 1);
        self.bytes.add(object.weight, object.size);
    }

    fn add_all(&mut self, other: &Self) {
        self.objects.add_all(&other.objects);
        self.bytes.add_all(&other.bytes);
    }

    /// Those of objects and of bytes; `None` if all were followed.
    pub(crate) fn standard_errors(&self) -> Option<(f64, f64)> {
        self.objects.is_estimated().then(|| (self.objects.standard_error(), self.bytes.standard_error()))
    }
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
        let slot = unsafe { Object::read(object.address as usize) };
        if slot.is_object() {
            let sum: &mut Sum = sums.entry((object.site, labels.of(vm, slot))).or_default();
            sum.add(object);
        }
    }
    let named = sums.into_iter().map(|((site, label), sum)| ((site, labels.text(label).to_vec()), sum));
    Ok(named.fold(HashMap::new(), |mut named, (key, sum)| {
        let all: &mut Sum = named.entry(key).or_default();
        all.add_all(&sum);
        named
    }))
}
