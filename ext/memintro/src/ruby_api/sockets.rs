//! Removes the file of a control socket through its folder's descriptor. Between a check of a path and an unlink by
//! that path, another user could replace the folder.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use magnus::{Error, RModule, RString, function, prelude::*};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("remove_socket", function!(remove_socket, 4))
}

/// Whether `name` was removed from `folder`. It is removed only if the folder is no symbolic link and only `uid` may
/// write to it, and if `name` in it is a socket (with `inode`, if that is given).
fn remove_socket(folder: RString, uid: u32, name: RString, inode: Option<u64>) -> bool {
    // SAFETY: both are copied at once.
    let (folder, name) =
        unsafe { (CString::new(folder.as_slice().to_vec()), CString::new(name.as_slice().to_vec())) };
    match (folder, name) {
        (Ok(folder), Ok(name)) => removed(&folder, uid, &name, inode).is_some(),
        _ => false,
    }
}

fn removed(folder: &CStr, uid: u32, name: &CStr, inode: Option<u64>) -> Option<()> {
    if !is_socket_name(name.to_bytes()) {
        return None;
    }
    let folder = open(folder)?;
    // SAFETY: an open descriptor, a record to fill; zero is a valid one.
    let found = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(folder.as_raw_fd(), &raw mut stat) == 0).then_some(stat)
    }?;
    if found.st_uid != uid || found.st_mode & 0o077 != 0 {
        return None;
    }
    // SAFETY: an open descriptor, a terminated name, a record to fill; zero is a valid one.
    let file = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        (libc::fstatat(folder.as_raw_fd(), name.as_ptr(), &raw mut stat, flags) == 0).then_some(stat)
    }?;
    if file.st_mode & libc::S_IFMT != libc::S_IFSOCK || inode.is_some_and(|inode| inode != file.st_ino) {
        return None;
    }
    // SAFETY: an open descriptor and a terminated name.
    (unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) } == 0).then_some(())
}

fn open(folder: &CStr) -> Option<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a terminated path; no other code has the descriptor.
    unsafe {
        let descriptor = libc::open(folder.as_ptr(), flags);
        (descriptor >= 0).then(|| OwnedFd::from_raw_fd(descriptor))
    }
}

/// `PID.sock`, or `PID.new` before it listens, so that the name cannot leave the folder.
fn is_socket_name(name: &[u8]) -> bool {
    let pid = name.strip_suffix(b".sock").or_else(|| name.strip_suffix(b".new"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
}
