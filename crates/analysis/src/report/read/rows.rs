//! One row of a report: a call site, a whole stack, the totals, a line of a stack. Their kinds were checked
//! ([`crate::answers`]).

use memintro_abi::{
    Adds, BlockFigures, Estimated, Figures, ObjectFigures, SITE_FIGURES, SiteKind, SiteRecord, TOTAL_FIGURES,
    Unit,
};
use serde_json::Value;

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

/// A figure, or a list of its value, variance and skew.
fn estimated(value: &Value) -> Estimated {
    match value.as_array().map(Vec::as_slice) {
        Some([value, variance, skew]) => Estimated {
            value: whole(value),
            variance: variance.as_f64().unwrap_or(0.0),
            skew: skew.as_f64().unwrap_or(0.0),
        },
        _ => Estimated::exact(whole(value)),
    }
}

fn whole(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned)).unwrap_or(0)
}

pub(super) fn totals(value: &Value, place: Place<'_>) -> Result<Figures, String> {
    let of = Object { value, place };
    let is_estimated = of.is("estimated");
    let cell = |name: &'static str| {
        let figure = TOTAL_FIGURES.iter().find(|figure| figure.name == name);
        let value = of.whole(name);
        match figure.map(|figure| (figure.adds, figure.unit)) {
            // Nothing was sampled: the mean distance of samples says what may have been missed.
            Some((Adds::Sum, _)) if value == 0 && of.float_or_zero(&format!("{name}_per_sample")) <= 0.0 => {
                Ok(Estimated::default())
            }
            Some((Adds::Sum, unit)) if is_estimated => {
                let origin = if unit == Unit::Bytes { "allocated_bytes" } else { "allocations" };
                Ok(of.doubts(name, Some(origin))?.with(value))
            }
            Some((Adds::State, _)) => Ok(Estimated::default()),
            _ => Ok(Estimated::exact(value)),
        }
    };
    let cells: Vec<Estimated> = Figures::VALUES.into_iter().map(cell).collect::<Result<_, String>>()?;
    Ok(Figures::from_cells(cells, is_estimated))
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
    let cell = |name: &'static str| match name {
        "marked_bytes" => Estimated::exact(marked),
        _ => Estimated::exact(of.whole(name)),
    };
    let exact = || BlockFigures::VALUES.into_iter().map(cell);
    if !of.is("estimated") {
        return Ok(BlockFigures::from_cells(exact(), 0.0, false));
    }
    let estimate = |(name, cell): (&'static str, Estimated)| {
        let figure = SITE_FIGURES.iter().find(|figure| figure.name == name);
        let (name, origin) = match figure.map(|figure| (figure.adds, figure.unit)) {
            Some((Adds::Max, _)) => return Ok(cell),
            Some((_, Unit::Ages)) => (name, None),
            Some((_, Unit::Bytes)) => (name, Some("total_bytes")),
            Some(_) => (name, Some("allocations")),
            None => ("growth", Some("total_bytes")),
        };
        Ok(of.doubts(name, origin)?.with(cell.value))
    };
    let cells: Vec<Estimated> =
        BlockFigures::VALUES.into_iter().zip(exact()).map(estimate).collect::<Result<_, String>>()?;
    // Only the objects were sampled.
    if objects.estimated != 0 && cells.iter().all(|cell| cell.variance <= 0.0) {
        return Ok(BlockFigures::from_cells(exact(), 0.0, false));
    }
    let mut blocks = BlockFigures::from_cells(cells, 0.0, true);
    blocks.age_covariance = covariance(of, &blocks)?;
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
    let cell = |name: &'static str| {
        let doubt = |kind: &str| of.float(&format!("{name}_{kind}"));
        let exact = Estimated::exact(of.whole(name));
        // What was live at the mark has none.
        if are_sampled && ObjectFigures::ESTIMATES.contains(&name) {
            Ok(Estimated { variance: doubt("variance")?, skew: doubt("skew")?, ..exact })
        } else {
            Ok(exact)
        }
    };
    let cells: Vec<Estimated> = ObjectFigures::VALUES.into_iter().map(cell).collect::<Result<_, String>>()?;
    Ok(ObjectFigures::from_cells(cells, are_sampled))
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
    let mut record = record(id, kind(cell(0)), whole(cell(2)) as u32);
    let cells = (3..3 + figures).map(cell);
    let covariance = cell(3 + figures).as_f64();
    record.blocks =
        BlockFigures::from_cells(cells.map(estimated), covariance.unwrap_or(0.0), covariance.is_some());
    let old = list(1);
    if let Some([bytes, blocks]) = old.map(Vec::as_slice) {
        (record.old_bytes, record.old_blocks) = (estimated(bytes), estimated(blocks));
    }
    if let Some(objects) = list(2) {
        let are_sampled = objects.iter().any(Value::is_array);
        record.objects = ObjectFigures::from_cells(objects.iter().map(estimated), are_sampled);
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
