//! A file that has no name until it is whole.

use std::ffi::CString;
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::units;

/// Only its owner may read it.
const MODE: libc::mode_t = 0o600;

/// A file without a name is named by its descriptor here.
const DESCRIPTORS: &str = "/proc/self/fd";

/// A file beside its later name.
pub(super) struct NewFile {
    folder: File,
    file: File,
    path: PathBuf,
    /// Name of the file until it is complete, where the file system has none without a name.
    beside: Option<CString>,
}

impl NewFile {
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        let refused = |reason: String| format!("{} cannot be written: {reason}", path.display());
        path.file_name().ok_or_else(|| refused("this is a folder; give a file in it".to_owned()))?;
        if let Ok(found) = std::fs::symlink_metadata(path) {
            // Only a file may be replaced, and this never writes through a link.
            if !found.is_file() {
                let kind = if found.is_symlink() {
                    "it is a symbolic link; give the file that it leads to"
                } else if found.is_dir() {
                    "it is a folder; give a file in it"
                } else {
                    "it is no file"
                };
                return Err(refused(kind.to_owned()));
            }
            // SAFETY: reads a number.
            let user = unsafe { libc::geteuid() };
            if user != 0 && found.uid() != user {
                return Err(refused(format!("it belongs to another user ({})", found.uid())));
            }
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder =
            File::open(parent).map_err(|error| refused(format!("folder {}: {error}", parent.display())))?;
        let (file, beside) = open(&folder).map_err(|error| explain(path, &error, 0, true))?;
        // SAFETY: a file of our own. The mask of the process may have taken bits away.
        unsafe { libc::fchmod(file.as_raw_fd(), MODE) };
        Ok(Self { folder, file, path: path.to_owned(), beside })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    /// Gives it its name. A file system without unnamed files, such as NFS, may find only now that it has no room.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        if self.beside.is_some() {
            self.file.sync_all()?;
        }
        let beside = match self.beside.take() {
            Some(name) => name,
            None => {
                let name = random_name()?;
                let itself = CString::new(format!("{DESCRIPTORS}/{}", self.file.as_raw_fd()))?;
                // SAFETY: terminated names and open descriptors.
                check(unsafe {
                    libc::linkat(
                        libc::AT_FDCWD,
                        itself.as_ptr(),
                        self.folder.as_raw_fd(),
                        name.as_ptr(),
                        libc::AT_SYMLINK_FOLLOW,
                    )
                })?;
                name
            }
        };
        let name = self.path.file_name().unwrap_or_default();
        let name = CString::new(name.as_bytes())?;
        let folder = self.folder.as_raw_fd();
        // From here on, the temporary file is removed after a failure.
        self.beside = Some(beside.clone());
        // SAFETY: terminated names and an open folder.
        check(unsafe { libc::renameat(folder, beside.as_ptr(), folder, name.as_ptr()) })?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // SAFETY: a terminated name and an open folder.
            unsafe { libc::unlinkat(self.folder.as_raw_fd(), beside.as_ptr(), 0) };
        }
    }
}

/// A file without a name, or a file with a temporary name if the file system has no unnamed files, or if
/// there is no /proc to name it by.
fn open(folder: &File) -> Result<(File, Option<CString>), Error> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    let folder = folder.as_raw_fd();
    // SAFETY: an open folder and terminated names.
    let found = unsafe { libc::openat(folder, c".".as_ptr(), flags | libc::O_TMPFILE, MODE) };
    if found < 0 {
        let error = Error::last_os_error();
        if !matches!(
            error.raw_os_error(),
            Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL | libc::ENOENT)
        ) {
            return Err(error);
        }
    } else {
        // SAFETY: nothing else owns it.
        let file = unsafe { File::from_raw_fd(found) };
        if Path::new(DESCRIPTORS).exists() {
            return Ok((file, None));
        }
    }
    let name = random_name()?;
    // SAFETY: as above.
    let found = unsafe {
        libc::openat(folder, name.as_ptr(), flags | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW, MODE)
    };
    if found < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: nothing else owns it.
    Ok((unsafe { File::from_raw_fd(found) }, Some(name)))
}

/// Cannot be guessed, so that no other user can have put a file there.
fn random_name() -> Result<CString, Error> {
    let mut random = [0_u8; 8];
    // SAFETY: as much room as is said.
    if unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) } != random.len() as isize {
        return Err(Error::last_os_error());
    }
    Ok(CString::new(format!("memintro-{:016x}.partial", u64::from_ne_bytes(random)))?)
}

fn check(status: libc::c_int) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// The error, with advice.
pub(super) fn explain(path: &Path, error: &Error, written: u64, is_plain: bool) -> String {
    let so_far = units::bytes(i64::try_from(written).unwrap_or(i64::MAX));
    let smaller = if is_plain { " or a name that ends in .zst, which takes about a tenth" } else { "" };
    let shorter = if is_plain { ", or give a name that ends in .zst, which takes about a tenth" } else { "" };
    let advice = match error.raw_os_error() {
        Some(libc::ENOSPC) => {
            format!("the disk is full after {so_far}. Give a file on another disk{smaller}")
        }
        Some(libc::EDQUOT) => {
            format!("the user's quota is used up after {so_far}. Give a file on another disk{smaller}")
        }
        Some(libc::EFBIG) => {
            format!(
                "no file of this process may be larger than {so_far} (ulimit -f). Raise the limit{shorter}"
            )
        }
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            format!(
                "{error}. The process itself writes the file: give one in a folder that its user may write to"
            )
        }
        _ => error.to_string(),
    };
    format!("{} was not written, and nothing of it is left: {advice}", path.display())
}
