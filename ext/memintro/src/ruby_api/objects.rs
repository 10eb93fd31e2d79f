//! `Memintro::Native.track_objects` and the classes of tracked objects.

use std::collections::{HashMap, HashSet};

use magnus::rb_sys::AsRawValue;
use magnus::{
    Error, Integer, RArray, RClass, RHash, RModule, RString, Ruby, Symbol, TryConvert, Value, function,
    prelude::*,
};
use memintro_abi::BlockRecord;

use super::blocks::Sum;
use super::heap::checked;
use super::names;
use super::native::check;
use crate::heap::watched::Wanted;
use crate::objects::{Objects, Refusal};
use crate::{
    contents, heap, hook_link, mark_bits, marked_objects, measure, object_events, objects, sampled_objects,
};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("track_objects", function!(track_objects, 1))?;
    native.define_singleton_method("reads_objects?", function!(objects::reads_new, 0))?;
    native.define_singleton_method("reads_marks?", function!(mark_bits::are_found, 0))?;
    native.define_singleton_method("object_classes", function!(object_classes, 1))?;
    native.define_singleton_method("measures_objects", function!(measure::objects::is_on, 0))?;
    native.define_singleton_method("hears_of_objects", function!(hears_of_objects, 0))?;
    native.define_singleton_method("hear_again", function!(hear_again, 0))?;
    native.define_singleton_method("old_objects", function!(old_objects, 1))?;
    native.define_singleton_method("object_ends_are_marks", function!(marked_objects::is_on, 0))?;
    native.define_singleton_method("tracked_objects", function!(tracked_objects, 0))
}

/// Whether Ruby tells anybody here of new objects.
fn hears_of_objects() -> bool {
    objects::is_on() || measure::objects::is_on()
}

/// Makes Ruby tell of objects again, where it has forgotten to.
fn hear_again(ruby: &Ruby) -> Result<(), Error> {
    if hears_of_objects() { object_events::hear_again(ruby) } else { Ok(()) }
}

/// Tracks none (false), all (true), those of an Array of classes and their names, a sample (a Symbol), or one in so many
/// (an Integer). nil if this Ruby has no way to.
fn track_objects(ruby: &Ruby, wanted: Value) -> Result<Option<bool>, Error> {
    let objects = match RArray::from_value(wanted) {
        Some(list) => Objects::Of(classes_and_names(list)?),
        None if Symbol::from_value(wanted).is_some() => Objects::Sampled(sampled_objects::MEAN),
        None if Integer::from_value(wanted).is_some() => Objects::Sampled(u64::try_convert(wanted)?.max(1)),
        None if wanted.to_bool() => Objects::All,
        None => Objects::None,
    };
    // Those that were tracked until now are forgotten.
    contents::settled();
    match objects::track(ruby, objects) {
        Ok(status) => check(ruby, status).map(|()| Some(wanted.to_bool())),
        Err(Refusal::Missing) => Ok(None),
        Err(Refusal::Classes(trouble)) => checked(ruby, Err(trouble)),
        Err(Refusal::Raised(error)) => Err(error),
    }
}

fn classes_and_names(list: RArray) -> Result<Wanted, Error> {
    let mut wanted = Wanted::default();
    for value in list {
        match RClass::from_value(value) {
            Some(class) => wanted.classes.push(class.as_raw()),
            None => {
                let name = RString::try_convert(value)?;
                // SAFETY: copied at once.
                wanted.names.push(unsafe { name.as_slice() }.to_vec());
            }
        }
    }
    Ok(wanted)
}

/// The live objects; none if there is no hook.
fn live(ruby: &Ruby) -> Result<Vec<BlockRecord>, Error> {
    let Some(api) = hook_link::found() else { return Ok(Vec::new()) };
    objects::check(api);
    objects::objects(api).or_else(|status| check(ruby, status).map(|()| Vec::new()))
}

/// For these call sites, by number of the site: `{ class => [objects, bytes] }`; of a sample, with the standard errors of
/// both.
fn object_classes(ruby: &Ruby, sites: Vec<u32>) -> Result<RHash, Error> {
    let hash = ruby.hash_new();
    let sites: HashSet<u32> = sites.into_iter().collect();
    let live = live(ruby)?;
    // SAFETY: the GVL is held, and nothing of Ruby's has run since.
    let sums = unsafe { heap::tracked::by_class(&live, |object| sites.contains(&object.site)) };
    for ((site, name), sum) in checked(ruby, sums)? {
        let classes = match hash.get(site) {
            Some(classes) => RHash::try_convert(classes)?,
            None => {
                let classes = ruby.hash_new();
                hash.aset(site, classes)?;
                classes
            }
        };
        let figures = ruby.ary_new_capa(4);
        figures.push(sum.objects.sum().value)?;
        figures.push(sum.bytes.sum().value)?;
        if let Some((of_objects, of_bytes)) = sum.standard_errors() {
            figures.push(of_objects)?;
            figures.push(of_bytes)?;
        }
        classes.aset(names::string(ruby, &name), figures)?;
    }
    Ok(hash)
}

/// Live objects of at least that age, by number of the site: bytes, objects and, of a sample, variances and skews.
fn old_objects(ruby: &Ruby, min_age: u32) -> Result<RHash, Error> {
    let hash = ruby.hash_new();
    for (site, sum) in sums(ruby, min_age)? {
        hash.aset(site, sum.row(ruby)?)?;
    }
    Ok(hash)
}

/// The same without Ruby objects; empty unless objects are tracked.
pub(super) fn sums(ruby: &Ruby, min_age: u32) -> Result<HashMap<u32, Sum>, Error> {
    let mut sums = HashMap::<u32, Sum>::new();
    if objects::is_on() {
        for object in live(ruby)?.iter().filter(|object| object.age >= min_age) {
            sums.entry(object.site).or_default().add(object);
        }
    }
    Ok(sums)
}

/// Slot, bytes, number of the site and age of each.
fn tracked_objects(ruby: &Ruby) -> Result<RArray, Error> {
    let rows = ruby.ary_new();
    for object in live(ruby)? {
        rows.push((object.address, object.size, object.site, object.age))?;
    }
    Ok(rows)
}
