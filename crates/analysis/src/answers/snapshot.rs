//! A snapshot, as a file or an answer.

use std::sync::LazyLock;

use serde_json::Value;

use super::kinds::{
    all, count, divisor, fields, list, map, name, object, others_or_null, path, signed, word,
};
use super::report::{SITE, TOTALS};
use super::{Field, Json, Kind, Wrong, read};
use crate::report::Process;

const MOST_ROWS: usize = 1 << 24;

/// A snapshot.
pub static SNAPSHOT: LazyLock<Kind> = LazyLock::new(|| {
    object! {
        memintro_snapshot: count();
        version?: count();
        time: word();
        monotonic_s: divisor();
        parts: list(word(), 100);
        process: process();
        memory: map(signed());
        gc: counters();
        call_sites_left_out: signed();
        totals: TOTALS.clone();
        call_sites: list(SITE.clone(), MOST_ROWS);
        ..parts();
    }
});

/// Who was asked, and how it was tracked.
fn process() -> Kind {
    let mut fields = Process::fields();
    for field in &mut fields {
        field.is_optional = !["pid", "tracking"].contains(&&*field.name);
    }
    fields.extend(fields! {
        epoch?: signed();
        started?: signed();
    });
    Kind::Object(fields, others_or_null(Kind::Plain))
}

/// What a snapshot may lack.
fn parts() -> Vec<Field> {
    fields! {
        missing?: map(path());
        account?: map(signed());
        account_private?: map(signed());
        cgroup?: Kind::Object(fields! { path?: name(); }, others_or_null(signed()));
        gc_heaps?: map(counters());
        types?: rows();
        classes?: rows();
        internals?: rows();
        iseqs?: object! {
            count: signed();
            bytes: signed();
            paths: rows();
            locations: rows();
        };
        occupancy?: occupancy();
    }
}

/// What `GC.stat` says.
fn counters() -> Kind {
    Kind::Object(Vec::new(), others_or_null(Kind::Counter))
}

fn rows() -> Kind {
    let row = object! {
        name: name();
        count: signed();
        bytes?: signed();
    };
    list(row, MOST_ROWS)
}

/// What a heap and each of its pools have.
const PAGES: [&str; 6] = ["pages", "slots", "live_slots", "free_slots", "sparse_pages", "sparse_live_slots"];

fn occupancy() -> Kind {
    let pool = object! {
        slot_size: signed();
        ..all(&PAGES, &signed());
    };
    let holder = object! {
        name: name();
        count: signed();
        pages: signed();
    };
    let heap = fields! {
        ..all(&PAGES, &signed());
        empty_pages: signed();
        pools: list(pool, 1_000);
        holders: list(holder, MOST_ROWS);
    };
    Kind::Object(heap, others_or_null(Kind::Plain))
}

/// The number of a text's layout as it stands there; `None` if it has none.
///
/// # Errors
/// [`Wrong`] if it is no JSON object.
pub(crate) fn layout(text: &[u8], name: &'static str) -> Result<Option<String>, Wrong> {
    let kind = Kind::Object(vec![Field::optional(name, Kind::Plain)], None);
    Ok(shown(&read(text, &kind, "it", &Json)?, name))
}

fn shown(found: &Value, name: &str) -> Option<String> {
    found.get(name).filter(|value| !value.is_null()).map(ToString::to_string)
}

/// What says whether a text is a snapshot: the number of its layout, and whether it has call sites.
///
/// # Errors
/// [`Wrong`] if it is no JSON object.
pub fn head(text: &[u8]) -> Result<(Option<String>, bool), Wrong> {
    let kind = object! {
        memintro_snapshot?: Kind::Plain;
        call_sites?: Kind::Ignored;
    };
    let found = read(text, &kind, "it", &Json)?;
    Ok((shown(&found, "memintro_snapshot"), found.get("call_sites").is_some()))
}
