//! One row of a report: a call site, a whole stack, the totals, a line of a stack. Their kinds were checked
//! ([`crate::answers`]).

use memintro_abi::{
    BlockFigures, Estimated, Field, Figures, ObjectFigures, SITE_FIGURES, SiteKind, SiteRecord, Unit,
};
use serde_json::Value;

use super::super::json::of_words;
use super::Counted;
use crate::answers::Place;
use crate::sites::{Aged, Caller, Callers, Frame, Site, Sites};

/// The members of an object, and where it is.
#[derive(Clone, Copy)]
struct Object<'a> {
    value: &'a Value,
    place: Place<'a>,
}

impl Object<'_> {
    /// A figure as records have it: what is negative is above the middle.
    fn whole(&self, name: &str) -> u64 {
        self.value.get(name).map_or(0, whole)
    }

    /// A number that only estimates have.
    fn float(&self, name: &str) -> Result<f64, String> {
        self.value
            .get(name)
            .and_then(Value::as_f64)
            .ok_or_else(|| format!("{} is missing", Place::Member(&self.place, name)))
    }

    fn float_or_zero(&self, name: &str) -> f64 {
        self.value.get(name).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn is(&self, name: &str) -> bool {
        self.value.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The doubts of a figure. `origin` is the figure whose samples say what one sample of it stands for; none of a sum of
    /// ages.
    fn doubts(&self, name: &str, origin: Option<&str>) -> Result<Estimated, String> {
        let error = self.float(&format!("{name}_standard_error"))?;
        let own = self.float_or_zero(&format!("{name}_per_sample"));
        let of_origin = origin.map_or(0.0, |origin| self.float_or_zero(&format!("{origin}_per_sample")));
        let one = own.max(of_origin);
        let variance = (error * error - one * one).max(0.0);
        Ok(Estimated { value: 0, variance, skew: variance * own })
    }
}

fn whole(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned)).unwrap_or(0)
}

/// A record from its fields: each is asked for its value, its variance and its skew.
fn words(
    fields: &[Field],
    mut of: impl FnMut(&'static str) -> Result<Estimated, String>,
) -> Result<Vec<u64>, String> {
    let mut words = Vec::with_capacity(3 * fields.len());
    for field in fields {
        let found = of(field.name)?;
        words.push(found.value);
        if field.c_type == "memintro_estimated" {
            words.extend([found.variance.to_bits(), found.skew.to_bits()]);
        }
    }
    Ok(words)
}

pub(super) fn totals(value: &Value, place: Place<'_>) -> Result<Figures, String> {
    let of = Object { value, place };
    let is_estimated = of.is("estimated");
    let words = words(Figures::FIELDS, |name| {
        let exact = |value| Ok(Estimated::exact(value));
        match name {
            "estimated" => exact(u64::from(is_estimated)),
            "sites" | "generation" => exact(0),
            _ => {
                let value = of.whole(name);
                let is_sum = Figures::VALUES.iter().position(|one| *one == name).is_some_and(|at| at < 4);
                if !is_estimated || !is_sum {
                    return exact(value);
                }
                // Nothing was sampled: the mean distance of samples says what may have been missed.
                if value == 0 && of.float_or_zero(&format!("{name}_per_sample")) <= 0.0 {
                    return exact(0);
                }
                let origin = if name.ends_with("_bytes") { "allocated_bytes" } else { "allocations" };
                Ok(Estimated { value, ..of.doubts(name, Some(origin))? })
            }
        }
    })?;
    Ok(of_words(words, Figures::read))
}

fn kind(value: &Value) -> SiteKind {
    match value.as_str() {
        Some("ruby") => SiteKind::RUBY,
        Some("native") => SiteKind::NATIVE,
        _ => SiteKind::PSEUDO,
    }
}

/// A text, or bytes that are not UTF-8, as snapshots have them.
fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Object(map) => super::super::json::bytes_of_base64(map.get("base64")?.as_str()?),
        _ => None,
    }
}

/// An empty record of a site.
#[must_use]
pub fn record(id: usize, kind: SiteKind, line: u32) -> SiteRecord {
    SiteRecord {
        id: u32::try_from(id).unwrap_or(u32::MAX),
        kind,
        path: std::ptr::null(),
        path_len: 0,
        line,
        address: 0,
        module_offset: 0,
        module_build: 0,
        blocks: BlockFigures::default(),
        old_blocks: Estimated::default(),
        old_bytes: Estimated::default(),
        objects: ObjectFigures::default(),
        stack: 0,
    }
}

pub(super) fn add_site(
    sites: &mut Sites,
    value: &Value,
    place: Place<'_>,
    counted: Counted,
) -> Result<(), String> {
    let of = Object { value, place };
    let kind = value.get("kind").map_or(SiteKind::PSEUDO, kind);
    let path = value.get("path").filter(|path| kind == SiteKind::RUBY && !path.is_null());
    let name = path.or_else(|| value.get("name")).and_then(text).unwrap_or_default();
    let mut record = record(sites.list.len(), kind, of.whole("lineno") as u32);
    record.objects = objects(of)?;
    record.blocks = blocks(&of, &record.objects)?;
    let old = old(&of, &record.blocks);
    if let Some((bytes, blocks)) = old {
        (record.old_bytes, record.old_blocks) = (bytes, blocks);
    }
    let aged = (counted == Counted::Old).then(|| aged(&of)).transpose()?;
    let callers = native_callers(value).map(|callers| {
        sites.callers.push(callers);
        (sites.callers.len() - 1) as u32
    });
    sites.texts.push(name);
    let text = (sites.texts.len() - 1) as u32;
    sites.list.push(Site { record, text, aged, callers, stack: None, knows_old: old.is_some() });
    Ok(())
}

fn blocks(of: &Object<'_>, objects: &ObjectFigures) -> Result<BlockFigures, String> {
    let marked = of.whole("live_bytes").wrapping_sub(of.whole("growth"));
    let unit = |name: &str| SITE_FIGURES.iter().find(|figure| figure.name == name).map(|figure| figure.unit);
    let estimated = if of.is("estimated") {
        let found = words(BlockFigures::FIELDS, |name| {
            if name == "estimated" || name == "age_covariance" || name.starts_with("max_") {
                return Ok(Estimated::default());
            }
            let (name, unit) =
                if name == "marked_bytes" { ("growth", Some(Unit::Bytes)) } else { (name, unit(name)) };
            of.doubts(
                name,
                match unit {
                    Some(Unit::Bytes | Unit::Change) => Some("total_bytes"),
                    Some(Unit::Ages | Unit::Age | Unit::MeanAge) => None,
                    _ => Some("allocations"),
                },
            )
        })?;
        let doubts = of_words(found, BlockFigures::read);
        let is_none =
            doubts.sums().iter().all(|of| of.variance <= 0.0) && doubts.marked_bytes.variance <= 0.0;
        // Only the objects were sampled.
        (objects.estimated == 0 || !is_none).then_some(doubts)
    } else {
        None
    };
    let doubts = estimated.unwrap_or_default();
    let of_sum = |name: &str| {
        let at = BlockFigures::VALUES.iter().position(|one| *one == name)?;
        doubts.sums().get(at).copied()
    };
    let found = words(BlockFigures::FIELDS, |name| match name {
        "estimated" => Ok(Estimated::exact(u64::from(estimated.is_some()))),
        "age_covariance" => Ok(Estimated::default()),
        "marked_bytes" => Ok(Estimated { value: marked, ..doubts.marked_bytes }),
        _ => Ok(Estimated { value: of.whole(name), ..of_sum(name).unwrap_or_default() }),
    })?;
    let mut blocks = of_words(found, BlockFigures::read);
    if estimated.is_some() {
        blocks.age_covariance = covariance(of, &blocks)?;
    }
    Ok(blocks)
}

/// What gives the mean lifespan its standard error.
fn covariance(of: &Object<'_>, blocks: &BlockFigures) -> Result<f64, String> {
    let (mean, error) = (of.float_or_zero("mean_lifespan"), of.float("mean_lifespan_standard_error")?);
    let own = error * blocks.frees.value as f64;
    Ok(if mean > 0.0 {
        (mean * mean).mul_add(blocks.frees.variance, blocks.age_total.variance - own * own) / (2.0 * mean)
    } else {
        0.0
    })
}

/// Bytes and blocks that outlived a collection.
fn old(of: &Object<'_>, blocks: &BlockFigures) -> Option<(Estimated, Estimated)> {
    let one = |name: &str, origin: &str| {
        let value = of.value.get(name).filter(|value| !value.is_null()).map(whole)?;
        let doubts = of.doubts(name, Some(origin)).ok().filter(|_| blocks.estimated != 0).unwrap_or_default();
        Some(Estimated { value, ..doubts })
    };
    Some((one("old_bytes", "total_bytes")?, one("old_blocks", "allocations")?))
}

/// What counts as live where only blocks and objects of some age do.
fn aged(of: &Object<'_>) -> Result<Aged, String> {
    let one = |name: &str, is_estimated: bool| {
        let error = if is_estimated { of.float(&format!("{name}_standard_error"))? } else { 0.0 };
        Ok::<_, String>(Estimated { value: of.whole(name), variance: error * error, skew: 0.0 })
    };
    let is_estimated = of.is("estimated");
    let objects = of.value.get("objects").filter(|objects| objects.is_object());
    let mut aged = Aged {
        bytes: one("live_bytes", is_estimated)?,
        blocks: one("live_blocks", is_estimated)?,
        ..Aged::default()
    };
    if let Some(objects) = objects {
        let are_sampled = objects.get("allocations_variance").is_some_and(Value::is_number);
        (aged.objects, aged.object_bytes) =
            (one("live_objects", are_sampled)?, one("object_bytes", are_sampled)?);
    }
    Ok(aged)
}

fn objects(of: Object<'_>) -> Result<ObjectFigures, String> {
    let Some(value) = of.value.get("objects").filter(|objects| objects.is_object()) else {
        return Ok(ObjectFigures::default());
    };
    let of = Object { value, place: Place::Member(&of.place, "objects") };
    let are_sampled = value.get("allocations_variance").is_some_and(Value::is_number);
    let found = words(ObjectFigures::FIELDS, |name| {
        if name == "estimated" {
            return Ok(Estimated::exact(u64::from(are_sampled)));
        }
        let doubt = |kind: &str| {
            let name = format!("{name}_{kind}");
            // What was live at the mark has none.
            if are_sampled && ObjectFigures::DOUBTS.contains(&name.as_str()) {
                of.float(&name)
            } else {
                Ok(0.0)
            }
        };
        Ok(Estimated { value: of.whole(name), variance: doubt("variance")?, skew: doubt("skew")? })
    })?;
    Ok(of_words(found, ObjectFigures::read))
}

fn native_callers(site: &Value) -> Option<Callers> {
    let found = site.get("native_callers")?;
    let count = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_u64).and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
    };
    let caller = |one: &Value| {
        let frames = one.get("frames")?.as_array()?;
        Some(Caller {
            frames: frames.iter().map(|frame| frame.as_str().map(str::to_owned)).collect::<Option<_>>()?,
            location: one.get("location").and_then(Value::as_str).map(str::to_owned),
            samples: count(one, "samples"),
            live_samples: count(one, "live_samples"),
            share: one.get("share").and_then(Value::as_f64).unwrap_or(0.0),
            live_share: one.get("live_share").and_then(Value::as_f64),
        })
    };
    Some(Callers {
        samples: count(found, "samples"),
        live_samples: count(found, "live_samples"),
        list: found.get("callers")?.as_array()?.iter().filter_map(caller).collect(),
    })
}

/// Path, line and label.
pub(super) fn frame(value: &Value) -> Option<Frame> {
    let [path, line, label] = value.as_array()?.as_slice() else { return None };
    Some(Frame {
        path: text(path)?,
        line: u32::try_from(line.as_u64()?).ok()?,
        label: if label.is_null() { None } else { Some(text(label)?) },
    })
}

/// A row as [`crate::report`] writes it: kind, name, line, figures, variances, old, objects, and numbers of frames.
pub(super) fn add_stack(stacks: &mut Sites, value: &Value) {
    let (record, name, knows_old, frames) = stack(value, stacks.list.len());
    stacks.texts.push(name);
    let text = (stacks.texts.len() - 1) as u32;
    let stack = frames.map(|frames| {
        stacks.stacks.push(frames);
        (stacks.stacks.len() - 1) as u32
    });
    stacks.list.push(Site { record, text, aged: None, callers: None, stack, knows_old });
}

type Row = (SiteRecord, Vec<u8>, bool, Option<Vec<u32>>);

fn stack(value: &Value, id: usize) -> Row {
    let figures = BlockFigures::VALUES.len();
    let cell = |at: usize| value.get(at).unwrap_or(&Value::Null);
    let list = |at: usize| cell(3 + figures + at).as_array();
    let numbers =
        |at: usize| list(at).map(|list| list.iter().filter_map(Value::as_f64).collect::<Vec<f64>>());
    let mut record = record(id, kind(cell(0)), whole(cell(2)) as u32);
    let values: Vec<u64> = (3..3 + figures).map(|at| whole(cell(at))).collect();
    let old = numbers(1);
    record.blocks = super::super::json::blocks_of(&values, numbers(0).as_deref());
    if let Some(old) = &old {
        (record.old_bytes, record.old_blocks) = super::super::json::old_of(old);
    }
    if let Some(objects) = numbers(2) {
        record.objects = super::super::json::objects_of(&objects);
    }
    let frames = list(3).map(|frames| frames.iter().map(|number| whole(number) as u32).collect());
    (record, text(cell(1)).unwrap_or_default(), old.is_some(), frames)
}

/// Stacks come before or after their frames.
pub(super) fn check_frames(stacks: &Sites, frames: usize) -> Result<(), String> {
    for (number, stack) in stacks.stacks.iter().enumerate() {
        if let Some(index) = stack.iter().find(|index| **index as usize >= frames) {
            return Err(format!("stacks[{number}] has the frame {index}, and there are {frames}"));
        }
    }
    Ok(())
}
