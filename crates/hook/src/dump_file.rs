//! Where a raw dump goes: a new file beside the final name, which is renamed when it is complete.
//!
//! The folder may be writable for everybody (such as `/tmp`), and the process may be dying. So nothing that existed
//! before is opened: it might be a pipe without a reader, or a file that somebody made to get the report. Nothing
//! waits. The temporary name cannot be guessed and must be free. At the final name a file or a link is replaced, by
//! renaming. A device, a pipe, a socket or a folder stays, and then there is no dump.

use core::ffi::{CStr, c_char, c_int};

use memintro_abi::Status;

/// Longest path of a dump, with its NUL.
pub(crate) const MAX_PATH: usize = 4096;

/// Number of names that are tried. A random name that exists already was almost certainly planted.
const TRIES: u32 = 8;
/// `memintro-`, 16 digits, `.partial` and NUL.
const NAME_BYTES: usize = 40;

/// What is added to a file's name for the name of its claim, and what the claim, a symbolic link, leads to before the
/// process id. `lib/memintro/support/output_owner.rb` makes claims and has the same texts.
const CLAIM: &[u8] = b".memintro-claim";
const CLAIM_TARGET: [u8; 27] = *b"memintro-report-of-process-";
/// Longest name of a file that can have a claim.
const CLAIMED_NAME_BYTES: usize = 255 - CLAIM.len();

/// A dump that is being written.
pub(crate) struct DumpFile<'a> {
    folder: c_int,
    file: c_int,
    beside: [u8; NAME_BYTES],
    name: &'a CStr,
}

impl<'a> DumpFile<'a> {
    /// Makes the temporary file for `path`, which is cut into folder and name.
    pub(crate) fn create(path: &'a mut PathBuffer) -> Result<Self, Status> {
        if !path.is_replaceable_place() {
            return Err(Status::IO);
        }
        let (folder, name) = path.parts().ok_or(Status::BAD_OPTION)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: a terminated path.
        let folder = unsafe { libc::open(folder.as_ptr(), flags) };
        if folder < 0 {
            return Err(Status::IO);
        }
        let mut made = Self { folder, file: -1, beside: [0; NAME_BYTES], name };
        let flags = libc::O_WRONLY
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_NOFOLLOW
            | libc::O_NONBLOCK
            | libc::O_NOCTTY
            | libc::O_CLOEXEC;
        let mut tries = 0;
        while made.is_replaceable() && tries < TRIES {
            made.choose_name(tries);
            // SAFETY: a terminated name.
            made.file = unsafe { libc::openat(folder, made.beside.as_ptr().cast(), flags, 0o600) };
            if made.file >= 0 {
                return Ok(made);
            }
            // SAFETY: the location of errno is valid for the calling thread.
            if unsafe { *libc::__errno_location() } != libc::EEXIST {
                break;
            }
            tries += 1;
        }
        // SAFETY: our own descriptor.
        unsafe { libc::close(folder) };
        Err(Status::IO)
    }

    /// The descriptor to write to.
    pub(crate) fn descriptor(&self) -> c_int {
        self.file
    }

    /// Gives the file its name, and removes the claim of the process on that name.
    pub(crate) fn complete(self) -> Status {
        // SAFETY: our own descriptor, terminated names.
        let renamed = unsafe {
            libc::close(self.file);
            libc::renameat(self.folder, self.beside.as_ptr().cast(), self.folder, self.name.as_ptr()) == 0
        };
        if !renamed {
            return self.take_away();
        }
        self.remove_claim();
        // SAFETY: our own descriptor.
        unsafe { libc::close(self.folder) };
        Status::OK
    }

    /// Removes the claim, if there is one. A file of that name that is not a claim stays.
    fn remove_claim(&self) {
        let name = self.name.to_bytes();
        if name.len() > CLAIMED_NAME_BYTES {
            return;
        }
        let mut claim = [0u8; 256];
        for (place, byte) in claim.iter_mut().zip(name.iter().chain(CLAIM)) {
            *place = *byte;
        }
        let mut target = [0u8; CLAIM_TARGET.len()];
        // SAFETY: our own descriptor, a terminated name of at most 255 bytes, and room for as many bytes as are asked for.
        unsafe {
            let claim = claim.as_ptr().cast();
            let read = libc::readlinkat(self.folder, claim, target.as_mut_ptr().cast(), target.len());
            if read.unsigned_abs() == target.len() && target == CLAIM_TARGET {
                libc::unlinkat(self.folder, claim, 0);
            }
        }
    }

    /// Removes the temporary file.
    pub(crate) fn abandon(self) -> Status {
        // SAFETY: our own descriptor.
        unsafe { libc::close(self.file) };
        self.take_away()
    }

    fn take_away(self) -> Status {
        // SAFETY: our own descriptor, a terminated name.
        unsafe {
            libc::unlinkat(self.folder, self.beside.as_ptr().cast(), 0);
            libc::close(self.folder);
        }
        Status::IO
    }

    /// Whether the name is free, or is the name of a file or a link. A link counts as such, whatever it leads to.
    fn is_replaceable(&self) -> bool {
        // SAFETY: zero is a valid stat, the name is terminated.
        unsafe {
            let mut found: libc::stat = core::mem::zeroed();
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            libc::fstatat(self.folder, self.name.as_ptr(), &raw mut found, flags) != 0
                || matches!(found.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFLNK)
        }
    }

    fn choose_name(&mut self, salt: u32) {
        let digits = unguessable(salt);
        let digit = |place: u32| {
            let value = (digits >> (60 - 4 * place)) & 15;
            b"0123456789abcdef".get(value as usize).copied().unwrap_or(b'0')
        };
        let name =
            b"memintro-".iter().copied().chain((0..16).map(digit)).chain(b".partial\0".iter().copied());
        for (place, byte) in self.beside.iter_mut().zip(name) {
            *place = byte;
        }
    }
}

/// The kernel's random bits. Without any, the random bits that the program got at its start, and the time.
fn unguessable(salt: u32) -> u64 {
    let mut number = 0u64;
    let into = (&raw mut number).cast::<libc::c_void>();
    // SAFETY: room for eight bytes; without waiting.
    let given = unsafe { libc::syscall(libc::SYS_getrandom, into, size_of::<u64>(), libc::GRND_NONBLOCK) };
    if given == 8 {
        return number;
    }
    // SAFETY: AT_RANDOM is the address of 16 bytes, or 0; a valid timespec.
    unsafe {
        let start = libc::getauxval(libc::AT_RANDOM) as *const u64;
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        let start = if start.is_null() { 0 } else { start.read_unaligned() };
        let time = (now.tv_sec as u64).wrapping_mul(1_000_000_007).wrapping_add(now.tv_nsec as u64);
        (start ^ time ^ u64::from(salt)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Text of limited length. A text that is too long is marked as unusable.
pub(crate) struct PathBuffer {
    used: usize,
    overflow: bool,
    text: [u8; MAX_PATH],
}

impl PathBuffer {
    pub(crate) const fn new() -> Self {
        Self { used: 0, overflow: false, text: [0; MAX_PATH] }
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.overflow = false;
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match self.text.get_mut(self.used) {
                Some(place) if self.used < MAX_PATH - 1 => {
                    *place = byte;
                    self.used += 1;
                }
                _ => self.overflow = true,
            }
        }
    }

    pub(crate) fn push_number(&mut self, mut number: u64, base: u64) {
        let mut digits = [0u8; 20];
        let mut first = digits.len();
        while let Some(place) = first.checked_sub(1).and_then(|place| digits.get_mut(place)) {
            *place = b"0123456789abcdef".get((number % base) as usize).copied().unwrap_or(b'0');
            first = first.wrapping_sub(1);
            number /= base;
            if number == 0 {
                break;
            }
        }
        self.push(digits.get(first..).unwrap_or_default());
    }

    /// Fills it with a path in which `%p` stands for the process id.
    pub(crate) fn expand(&mut self, template: &[u8], append_pid: bool) {
        // SAFETY: a plain system call.
        let pid = u64::from(unsafe { libc::getpid() }.unsigned_abs());
        let mut has_pid = false;
        let mut rest = template;
        while let [first, tail @ ..] = rest {
            if let [b'%', b'p', after @ ..] = rest {
                self.push_number(pid, 10);
                has_pid = true;
                rest = after;
            } else {
                self.push(&[*first]);
                rest = tail;
            }
        }
        if append_pid && !has_pid {
            self.push(b".");
            self.push_number(pid, 10);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.text.get(..self.used).unwrap_or_default()
    }

    /// Names below this belong to the system: a link such as `/dev/stdout` must not become a file.
    fn is_replaceable_place(&self) -> bool {
        let path = self.bytes();
        let is_machines = path.starts_with(b"/dev/") || path.starts_with(b"/proc/");
        !is_machines || path.starts_with(b"/dev/shm/")
    }

    /// The folder and the name in it, each NUL-terminated. The path is cut in place for that.
    fn parts(&mut self) -> Option<(&CStr, &CStr)> {
        if self.overflow || self.used == 0 {
            return None;
        }
        *self.text.get_mut(self.used)? = 0;
        let text: *const c_char = self.text.as_ptr().cast();
        let slash = self.bytes().iter().rposition(|byte| *byte == b'/');
        let name = slash.map_or(0, |slash| slash + 1);
        if name == self.used {
            return None;
        }
        let folder = match slash {
            None => c".",
            Some(0) => c"/",
            Some(slash) => {
                *self.text.get_mut(slash)? = 0;
                // SAFETY: terminated by what was just written.
                unsafe { CStr::from_ptr(text) }
            }
        };
        // SAFETY: terminated above, and in the same buffer.
        Some((folder, unsafe { CStr::from_ptr(text.add(name)) }))
    }
}
