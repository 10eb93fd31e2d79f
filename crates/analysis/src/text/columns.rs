//! The columns of the table of call sites, by the list of figures.

use memintro_abi::{Adds, Column, ObjectFigures, Unit};

use super::shown;
use super::units::{bytes, count, counted, share, signed_bytes, whole};
use crate::estimates::{Estimate, Estimates};
use crate::figures::{self, Reader};
use crate::sites::{Site, Sites};

/// The figure whose share of all is shown behind it.
const SHARED: &str = "live_bytes";

/// From left to right: figures of objects, if any were tracked; those that always have a column; and the one that the
/// table is sorted by.
pub(super) struct Columns {
    objects: Vec<Reader>,
    blocks: Vec<Reader>,
    /// Whether objects of any site are a sample.
    are_sampled: bool,
}

impl Columns {
    pub(super) fn new(sites: &Sites, by: &str) -> Self {
        let has_objects = sites.list.iter().any(|site| site.record.objects != ObjectFigures::default());
        let objects = in_order(|column| match column {
            Column::Objects(place) if has_objects => Some(place),
            _ => None,
        });
        let mut blocks = in_order(|column| match column {
            Column::Always(place) => Some(place),
            _ => None,
        });
        // A raw dump does not say what is old.
        if !sites.list.iter().any(|site| site.knows_old) {
            blocks.retain(|reader| reader.figure.adds != Adds::Old);
        }
        blocks.extend(figures::sortable(by).filter(|reader| reader.figure.column == Column::Sorted));
        Self { objects, blocks, are_sampled: sites.has_sampled_objects() }
    }

    pub(super) fn titles(&self) -> Vec<&'static str> {
        let mut titles: Vec<_> = self.objects.iter().map(|reader| reader.figure.heading).collect();
        for reader in &self.blocks {
            titles.push(reader.figure.heading);
            if reader.figure.name == SHARED {
                titles.push("share");
            }
        }
        titles
    }

    /// Those of a site; `live` bytes are those of all sites.
    pub(super) fn cells(&self, site: &Site, live: i64) -> Vec<String> {
        let all = site.is_estimated().then(|| Estimates::of(site));
        let of_blocks = all.as_ref().filter(|_| site.record.blocks.estimated != 0);
        let of_objects = all.as_ref().filter(|_| site.has_sampled_objects());
        // A site of which no object was sampled may have some.
        let mark = if of_objects.is_none() && self.are_sampled { "~" } else { "" };
        let mut cells = Vec::new();
        for reader in &self.objects {
            let of = if reader.figure.name == "retained_bytes" { all.as_ref() } else { of_objects };
            let cell = cell(reader, site, of);
            cells.push(if cell.starts_with('~') { cell } else { format!("{mark}{cell}") });
        }
        for reader in &self.blocks {
            if reader.figure.adds == Adds::Old && !site.knows_old {
                cells.push("-".to_owned());
                continue;
            }
            cells.push(cell(
                reader,
                site,
                if reader.figure.adds == Adds::Object { of_objects } else { of_blocks },
            ));
            if reader.figure.name == SHARED {
                let mark = if of_blocks.is_some() && live > 0 { "~" } else { "" };
                cells.push(format!("{mark}{}", share(reader.of(site).whole(), live)));
            }
        }
        cells
    }
}

/// The figures that have a place, in the order of their places.
fn in_order(place: impl Fn(Column) -> Option<u32>) -> Vec<Reader> {
    let mut found: Vec<_> = figures::all().filter(|of| place(of.figure.column).is_some()).collect();
    found.sort_by_key(|of| place(of.figure.column));
    found
}

/// A figure of a site. `of` is there if blocks were sampled, or objects, if it is a figure of objects.
fn cell(reader: &Reader, site: &Site, of: Option<&Estimates>) -> String {
    let value = reader.of(site);
    let plain: fn(i64) -> String = match reader.figure.unit {
        Unit::Count | Unit::Ages => count,
        Unit::Bytes => bytes,
        Unit::Change => signed_bytes,
        Unit::Age => |age| counted(age, "GC"),
        Unit::MeanAge => return mean_age(value.approximate(), of.and_then(|of| reader.estimate(of))),
    };
    match of.map(|of| reader.estimate(of)) {
        None => plain(value.whole()),
        // The greatest of the sample.
        Some(None) => format!("~{}", plain(value.whole())),
        Some(Some(of)) if reader.figure.unit == Unit::Change => {
            format!("~{} ±{}", plain(value.whole()), bytes(whole(of.standard_error())))
        }
        Some(estimate) => shown(estimate, value.whole(), plain),
    }
}

fn mean_age(value: f64, estimate: Option<&Estimate>) -> String {
    match estimate {
        None => format!("{value:.1} GCs"),
        Some(of) => format!("~{value:.1} ±{:.1} GCs", of.standard_error()),
    }
}
