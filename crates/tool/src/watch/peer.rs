//! Finds the user at the other end of a control socket, and connects with a time limit.

use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The owner of a socket's folder; an error if other users could put sockets there.
pub(super) fn owner_of_folder(path: &Path) -> Result<u32, String> {
    let folder = path.parent().ok_or_else(|| "the socket has no folder".to_string())?;
    let found = folder
        .symlink_metadata()
        .map_err(|error| format!("its socket's folder cannot be looked at: {error}"))?;
    if !found.is_dir() {
        return Err("its socket's folder is no folder".to_string());
    }
    if found.mode() & 0o077 != 0 {
        return Err("its socket's folder is open to others".to_string());
    }
    Ok(found.uid())
}

/// Connects. The kernel lets a client wait while the queue of clients that were not accepted is full.
pub(super) fn connect(path: &Path, patience: Duration) -> Result<UnixStream, Error> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: zero is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    // The last byte stays 0, as the end of the path.
    let room = address.sun_path.len() - 1;
    if bytes.len() > room || bytes.contains(&0) {
        return Err(ErrorKind::InvalidInput.into());
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    // SAFETY: makes a new descriptor.
    let stream = unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if descriptor < 0 {
            return Err(Error::last_os_error());
        }
        UnixStream::from(OwnedFd::from_raw_fd(descriptor))
    };
    // The time limit also applies to connecting.
    stream.set_write_timeout(Some(patience))?;
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: an open descriptor, and an address of that length.
    let done = unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), length) };
    if done == 0 { Ok(stream) } else { Err(Error::last_os_error()) }
}

/// The user who listens at the other end.
pub(super) fn user(stream: &UnixStream) -> Result<u32, Error> {
    // SAFETY: zero is a valid record.
    let mut found: libc::ucred = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: an open descriptor, a record to fill and its length.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if done == 0 { Ok(found.uid) } else { Err(Error::last_os_error()) }
}
