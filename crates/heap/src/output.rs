//! Files that are there whole or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A name beside the file, of this process.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

/// Puts a file that was written in the place of the one that was meant, or removes it if writing failed.
pub(crate) fn settle<T>(written: &Path, path: &Path, outcome: io::Result<T>) -> io::Result<T> {
    let outcome = outcome.and_then(|value| fs::rename(written, path).map(|()| value));
    if outcome.is_err() {
        let _ = fs::remove_file(written);
    }
    outcome
}
