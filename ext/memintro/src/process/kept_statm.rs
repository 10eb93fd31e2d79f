//! `/proc/self/statm` through a descriptor that stays open: opening it each time costs three times the reading.
//!
//! The file belongs to the process that opened it, so a forked child opens its own. Programs close descriptors that
//! they do not know (a daemon closes all), and the number may then belong to another file, so it is checked before
//! each use.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use procfs::FromRead;
use procfs::process::StatM;

use super::{Sizes, Trouble};

struct Kept {
    pid: libc::pid_t,
    descriptor: RawFd,
    device: u64,
    inode: u64,
}

/// It is not freed when it is replaced, which happens once for each fork, because a reader in another Ractor may
/// still use it.
static KEPT: AtomicPtr<Kept> = AtomicPtr::new(ptr::null_mut());

/// RSS and address space of this process.
pub(crate) fn own_statm() -> Result<Sizes, Trouble> {
    // SAFETY: always succeeds. The kernel is asked because Ruby's own note of it is wrong in a child of C's fork.
    let pid = unsafe { libc::getpid() };
    let before = KEPT.load(Ordering::Acquire);
    // SAFETY: null, or one that was published and is never freed.
    let kept = unsafe { before.as_ref() };
    if let Some(sizes) = kept.filter(|kept| kept.pid == pid && kept.is_still_open()).and_then(Kept::read) {
        return Ok(sizes);
    }
    let fresh = Box::new(open(pid).map_err(unreadable)?);
    let sizes = fresh.read().ok_or_else(|| unreadable(std::io::Error::last_os_error()))?;
    publish(before, fresh);
    Ok(sizes)
}

fn publish(before: *mut Kept, fresh: Box<Kept>) {
    let fresh = Box::into_raw(fresh);
    let unwanted = match KEPT.compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => before,
        Err(_) => fresh,
    };
    // SAFETY: null, or one of ours; never freed.
    if let Some(unwanted) = unsafe { unwanted.as_ref() }
        && unwanted.is_still_open()
    {
        // SAFETY: the descriptor is ours, and cannot be found any more.
        drop(unsafe { File::from_raw_fd(unwanted.descriptor) });
    }
}

fn open(pid: libc::pid_t) -> std::io::Result<Kept> {
    let file = File::open("/proc/self/statm")?;
    // Where a stream of the program is closed, its number is left free.
    let file = if file.as_raw_fd() > libc::STDERR_FILENO { file } else { file.try_clone()? };
    let (device, inode) = identity(file.as_raw_fd()).ok_or_else(std::io::Error::last_os_error)?;
    Ok(Kept { pid, descriptor: file.into_raw_fd(), device, inode })
}

impl Kept {
    fn is_still_open(&self) -> bool {
        identity(self.descriptor) == Some((self.device, self.inode))
    }

    fn read(&self) -> Option<Sizes> {
        let mut text = [0; 128];
        // SAFETY: the descriptor is open; the file is forgotten again, so it is not closed.
        let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(self.descriptor) });
        let length = file.read_at(&mut text, 0).ok()?;
        StatM::from_read(text.get(..length)?).ok().map(Sizes::from)
    }
}

fn identity(descriptor: RawFd) -> Option<(u64, u64)> {
    // SAFETY: zero is a valid stat, and fstat fills it or fails.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

fn unreadable(error: std::io::Error) -> Trouble {
    Trouble::Unreadable("/proc/self/statm".to_owned(), super::in_words(&error))
}
