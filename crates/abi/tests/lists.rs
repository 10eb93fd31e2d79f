//! The files that other languages read are made from the lists of figures. `rake figures` writes them; without
//! `MEMINTRO_WRITE_LISTS` this test fails if one of them is out of date.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use memintro_abi::*;

#[path = "lists/allocators.rs"]
mod allocators;
#[path = "lists/c.rs"]
mod c;
#[path = "lists/docs.rs"]
mod docs;
#[path = "lists/ruby.rs"]
mod ruby;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn files_are_up_to_date() {
    let is_written = std::env::var_os("MEMINTRO_WRITE_LISTS").is_some();
    let mut stale = Vec::new();
    for (path, text) in [c::header(), ruby::lists(), ruby::signatures(), docs::page(), allocators::ruby()] {
        let file = root().join(path);
        if std::fs::read_to_string(&file).is_ok_and(|found| found == text) {
            continue;
        }
        if is_written {
            std::fs::write(&file, text).unwrap();
        } else {
            stale.push(path);
        }
    }
    assert!(stale.is_empty(), "not as the lists of figures say: {stale:?}; `rake figures` writes them");
}
