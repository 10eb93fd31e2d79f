//! The classes of tracked objects.

use std::collections::HashMap;

use memintro_abi::BlockRecord;

use super::classes::Labels;
use super::functions;
use super::walk::Trouble;
use crate::atlas::Object;

/// Live objects of one call site and class.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) objects: f64,
    pub(crate) bytes: f64,
    /// Variances and skews, 0 where all objects were followed.
    variances: [f64; 2],
    skews: [f64; 2],
}

impl Sum {
    fn add(&mut self, object: &BlockRecord) {
        let (weight, size) = (object.weight, object.size as f64);
        let variance = weight * (weight - 1.0);
        let skew = variance * (weight - 1.0);
        self.add_all(&Self {
            objects: weight,
            bytes: weight * size,
            variances: [variance, variance * size * size],
            skews: [skew, skew * size.powi(3)],
        });
    }

    fn add_all(&mut self, other: &Self) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.variances = [0, 1].map(|at: usize| self.variances[at] + other.variances[at]);
        self.skews = [0, 1].map(|at: usize| self.skews[at] + other.skews[at]);
    }

    /// Those of objects and of bytes, as if one object more had been sampled; `None` if all were followed.
    pub(crate) fn standard_errors(&self) -> Option<(f64, f64)> {
        let error = |variance: f64, skew: f64| (variance + (skew / variance).powi(2)).sqrt();
        (self.variances[0] > 0.0)
            .then(|| (error(self.variances[0], self.skews[0]), error(self.variances[1], self.skews[1])))
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
