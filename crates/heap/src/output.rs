//! Writes complete files or none.

use crate::intern::shown;
use crate::read::source::plain;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes a file under another name first, then renames it. A device or a named pipe is written as it is.
pub(crate) fn write<T>(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> Result<T, String> {
    let explain = |error: io::Error| format!("{}: {}", shown(path), plain(&error));
    let special = fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_char_device() || kind.is_fifo() || kind.is_socket() || kind.is_block_device()
    });
    if special {
        let mut out = BufWriter::new(OpenOptions::new().write(true).open(path).map_err(explain)?);
        return fill(&mut out).and_then(|value| out.flush().map(|()| value)).map_err(explain);
    }
    // A symbolic link stays; its target is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let beside = beside(&path);
    let written = write_new(&beside, fill).and_then(|value| fs::rename(&beside, &path).map(|()| value));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.map_err(explain)
}

/// The same for bytes in memory.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), String> {
    write(path, |out| out.write_all(bytes))
}

fn write_new<T>(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    let _ = fs::remove_file(path);
    let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let value = fill(&mut out)?;
    // Some file systems report a full disk only here.
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(value)
}

/// A name beside the file, of this process.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
