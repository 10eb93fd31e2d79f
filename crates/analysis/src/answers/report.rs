//! What reports and snapshots have in common, by the lists of figures.

use std::sync::LazyLock;

use memintro_abi::{Adds, BlockFigures, Figure, ObjectFigures, SITE_FIGURES, TOTAL_FIGURES, Unit};

use super::kinds::{all, count, fields, flag, line, list, name, number, object, path, signed, variance};
use super::{Field, Kind};
use crate::report::Process;

/// Most rows of a list.
const MOST_ROWS: usize = 1 << 24;

/// What estimates have besides their values: standard errors, intervals, and of some what one sample stands for.
fn estimates(names: &[&'static str], per_sample: &[&'static str]) -> Vec<Field> {
    let mut fields = errors(names);
    let interval = |name| Field::optional(format!("{name}_interval"), list(number(), 2));
    fields.extend(names.iter().map(interval));
    fields.extend(per_sample.iter().map(|name| Field::optional(format!("{name}_per_sample"), number())));
    fields
}

pub(super) fn errors(names: &[&'static str]) -> Vec<Field> {
    names.iter().map(|name| Field::optional(format!("{name}_standard_error"), number())).collect()
}

fn names(figures: &[Figure], of: impl Fn(&Figure) -> bool) -> Vec<&'static str> {
    figures.iter().filter(|figure| of(figure)).map(|figure| figure.name).collect()
}

/// The totals of a process.
pub(super) static TOTALS: LazyLock<Kind> = LazyLock::new(|| {
    let figures = TOTAL_FIGURES.iter().filter_map(|figure| match figure.adds {
        Adds::State => None,
        Adds::Derived => Some(Field::new(figure.name, signed())),
        _ => Some(Field::new(figure.name, count())),
    });
    let estimated = names(TOTAL_FIGURES, Figure::is_estimated);
    object! {
        ..figures;
        estimated?: flag();
        ..estimates(&estimated, &names(TOTAL_FIGURES, |figure| figure.adds == Adds::Sum));
    }
});

/// A call site.
pub(super) static SITE: LazyLock<Kind> = LazyLock::new(|| {
    let figures = SITE_FIGURES.iter().map(|figure| match (figure.unit, figure.adds) {
        (Unit::MeanAge, _) => Field::optional(figure.name, number()),
        // Not every process has them.
        (_, Adds::Old | Adds::Object) => Field::optional(figure.name, signed()),
        _ => Field::new(figure.name, signed()),
    });
    let objects = object! {
        ..all(&ObjectFigures::VALUES, &signed());
        ..ObjectFigures::ESTIMATES.iter().flat_map(|name| {
            ["variance", "skew"].map(|doubt| Field::optional(format!("{name}_{doubt}"), variance()))
        });
    };
    let estimated = names(SITE_FIGURES, Figure::is_estimated);
    object! {
        kind: Kind::OneOf(&["ruby", "native", "pseudo"]);
        name: name();
        path?: name();
        lineno?: line();
        ..figures;
        estimated?: flag();
        objects?: objects;
        native_callers?: native_callers();
        ..estimates(&estimated, &estimated);
    }
});

fn native_callers() -> Kind {
    let caller = object! {
        frames: list(path(), 16);
        location?: path();
        samples: count();
        live_samples: count();
        share: number();
        live_share?: number();
    };
    object! {
        samples: count();
        live_samples: count();
        callers: list(caller, 64);
    }
}

/// What is known of a process.
static PROCESS: LazyLock<Kind> = LazyLock::new(|| Kind::Object(Process::fields(), None));

/// A line of a stack.
static FRAME: LazyLock<Kind> = LazyLock::new(|| {
    Kind::Row(fields! {
        path: name();
        line: line();
        label?: name();
    })
});

/// A whole stack, as [`crate::report`] writes it.
static STACK: LazyLock<Kind> = LazyLock::new(|| {
    Kind::Row(fields! {
        kind: Kind::OneOf(&["ruby", "native", "pseudo"]);
        name: name();
        line: line();
        ..all(&BlockFigures::VALUES, &Kind::Estimate);
        age_covariance?: variance();
        old?: list(Kind::Estimate, 2);
        objects?: list(Kind::Estimate, ObjectFigures::VALUES.len());
        frames?: list(line(), MOST_ROWS);
    })
});

/// What a table needs to know of the sites that are left out.
static RENDERING: LazyLock<Kind> = LazyLock::new(|| {
    object! {
        app_root?: path();
        left_out: count();
        live_bytes: signed();
        variance?: variance();
    }
});

/// A list of call sites and perhaps of stacks.
pub(super) fn sites() -> Vec<Field> {
    let rows = |kind: &Kind| list(kind.clone(), MOST_ROWS);
    fields! {
        call_sites: rows(&SITE);
        rendering?: RENDERING.clone();
        frames?: rows(&FRAME);
        stacks?: rows(&STACK);
    }
}

/// A report.
pub(crate) static REPORT: LazyLock<Kind> = LazyLock::new(|| {
    object! {
        version: count();
        process: PROCESS.clone();
        totals: TOTALS.clone();
        ..sites();
    }
});

/// Sites with blocks of some age.
pub(crate) static OLD_SITES: LazyLock<Kind> = LazyLock::new(|| {
    object! {
        version?: count();
        process: PROCESS.clone();
        totals?: TOTALS.clone();
        ..sites();
    }
});
