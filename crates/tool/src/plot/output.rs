//! Writes a file completely or not at all: under another name first, then renames it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes `bytes` into `path`. A reader sees the old file or the new one; after a failure the old one is still there.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Renaming a file over /dev/stdout or a named pipe would destroy it.
    if fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_char_device() || kind.is_fifo() || kind.is_socket() || kind.is_block_device()
    }) {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    // A symbolic link stays; its target is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let beside = beside(&path);
    let written = write_new(&beside, bytes).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file: File =
        OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    file.write_all(bytes)?;
    // Some file systems report a full disk only here.
    file.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_and_leaves_nothing_beside() {
        let folder = std::env::temp_dir().join(format!("memintro-tool-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.svg");
        replace(&path, b"old").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(replace(&folder.join("none").join("a.svg"), b"x").is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        replace(Path::new("/dev/null"), b"x").unwrap();
        assert!(replace(Path::new("/dev/full"), b"x").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
