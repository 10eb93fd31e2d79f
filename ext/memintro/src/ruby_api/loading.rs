//! Reading the Ruby files that a first start or a first question to the heap needs, at once. Ruby's `require` gives up its lock
//! some times for each file since 3.3, and beside threads that compute it gets it back after 0.1 s each time.

use std::ffi::CString;
use std::path::Path;

use magnus::{Error, RArray, Ruby, Symbol};

use super::without_gvl::without_gvl;

// In `lib/memintro`, each behind those that it requires. A spec compares the lists with what is loaded.
const OF_START: [&str; 3] = ["support/defaults", "malloc/tracking", "runtime/configured"];
const OF_TOTALS: [&str; 7] = [
    "support/units",
    "support/untracked_text",
    "support/estimates",
    "support/value_object",
    "support/figure_lists",
    "support/figures",
    "malloc/totals",
];
const OF_HEAP: [&str; 13] = [
    "support/advice",
    "support/arguments",
    "support/names",
    "support/json_text",
    "support/units",
    "support/untracked_text",
    "support/list",
    "support/value_object",
    "support/files",
    "heap/heap_copy",
    "heap/holder",
    "heap/holding",
    "heap/dumping",
];

/// Paths and texts of those for `start`, `totals` or `heap` that are not loaded. Empty if one of them cannot be read: Ruby's `require` is to say why. Also
/// empty in a folder whose name is not ASCII: Ruby takes what is provided for that.
pub(super) fn sources(ruby: &Ruby, purpose: Symbol, folder: String) -> Result<RArray, Error> {
    let names: &[&str] = match &*purpose.name()? {
        "start" => &OF_START,
        "totals" => &OF_TOTALS,
        _ => &OF_HEAP,
    };
    let mut paths = Vec::new();
    for name in names.iter().filter(|_| folder.is_ascii()) {
        let path = format!("{folder}/{name}.rb");
        if !is_provided(path.clone())? {
            paths.push(path);
        }
    }
    let (paths, texts) = without_gvl(|| {
        let texts: Result<Vec<String>, _> =
            paths.iter().map(|path| std::fs::read_to_string(Path::new(path))).collect();
        (paths, texts.unwrap_or_default())
    })?;
    let both = ruby.ary_new();
    for (path, text) in paths.iter().zip(&texts) {
        both.push(ruby.ary_new_from_values(&[ruby.str_new(path), ruby.str_new(text)]))?;
    }
    Ok(both)
}

/// Whether the file is loaded, or is being loaded by somebody.
pub(super) fn is_provided(path: String) -> Result<bool, Error> {
    let Ok(path) = CString::new(path) else { return Ok(false) };
    let mut found = 0;
    magnus::rb_sys::protect(|| {
        // SAFETY: a terminated text.
        found = unsafe { rb_sys::rb_provided(path.as_ptr()) };
        rb_sys::Qnil as rb_sys::VALUE
    })?;
    Ok(found != 0)
}

/// From now on the file counts as loaded.
pub(super) fn provide(path: String) -> Result<(), Error> {
    let Ok(path) = CString::new(path) else { return Ok(()) };
    // Ruby keeps this text.
    let path = path.into_raw();
    magnus::rb_sys::protect(|| {
        // SAFETY: a terminated text, which stays.
        unsafe { rb_sys::rb_provide(path) };
        rb_sys::Qnil as rb_sys::VALUE
    })?;
    Ok(())
}
