//! The raw dump: all sites and totals, written without formatting, allocating or locking.
//!
//! It must work in a signal handler of a thread that was anywhere, so it pauses the world only if that succeeds
//! soon, and otherwise reads what is there. It writes beside the path and renames.

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use memintro_abi::{DUMP_MAGIC, DumpHeader, DumpSite, SITE_BOOT, SITE_GC, SiteKind, Status};
use memintro_tracker::mmap;
use memintro_tracker::sites::{Kind, Site};

use crate::exit::MAX_PATH;
use crate::figures::{self, SiteFigures, is_used};
use crate::state::{self, SITES, THREADS};
use crate::{sampling, thread};

/// Rounds of waiting for other threads before a dump goes on without them; some tenths of a second.
const PATIENCE: u32 = 2_000;
const MAPS_BYTES: usize = 4 << 20;

/// Writes a dump to `path`, in which `%p` stands for the process id (appended when missing and asked for).
pub(crate) fn write(path: &CStr, append_pid: bool, signal: c_int, exit_status: c_int) -> Status {
    let mut target = PathBuffer::new();
    target.expand(path.to_bytes(), append_pid);
    let mut beside = PathBuffer::new();
    beside.push(target.bytes());
    beside.push(b".partial");
    let (Some(target), Some(beside)) = (target.finish(), beside.finish()) else { return Status::BAD_OPTION };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: terminated path, plain system call.
    let file = unsafe { libc::open(beside.as_ptr(), flags, 0o600) };
    if file < 0 {
        return Status::IO;
    }
    let mut out = Output { file, failed: false, used: 0, buffer: [MaybeUninit::uninit(); 2048] };
    let own = thread::own();
    let paused = own.as_ref().and_then(|own| THREADS.pause_for(own, PATIENCE));
    if paused.is_some() {
        state::flush();
    }
    write_all(&mut out, signal, exit_status);
    drop(paused);
    out.flush();
    // SAFETY: plain system calls on our own file and terminated paths.
    let renamed = unsafe {
        libc::close(file);
        if out.failed {
            libc::unlink(beside.as_ptr());
            false
        } else {
            libc::rename(beside.as_ptr(), target.as_ptr()) == 0
        }
    };
    if renamed { Status::OK } else { Status::IO }
}

fn write_all(out: &mut Output, signal: c_int, exit_status: c_int) {
    let sites = || {
        (0..SITES.count())
            .filter_map(|id| SITES.get(id).map(|site| (id, site)))
            .filter(|(id, site)| is_used(*id, site))
    };
    // SAFETY: plain system calls.
    let (pid, time) = unsafe { (libc::getpid().unsigned_abs(), libc::time(core::ptr::null_mut())) };
    out.value(&DumpHeader {
        magic: DUMP_MAGIC,
        version: memintro_abi::VERSION,
        pid,
        time: time.unsigned_abs(),
        signal: signal.unsigned_abs(),
        exit_status,
        sites: sites().count() as u64,
        sample_bytes: if sampling::has_estimates() { sampling::mean() } else { 0 },
        figures: figures::of_process(),
    });
    let maps = Maps::read();
    for (id, site) in sites() {
        let mut name = PathBuffer::new();
        let kind = match site.kind() {
            Kind::Ruby => SiteKind::RUBY,
            Kind::Native => {
                name_native(site, &maps, &mut name);
                SiteKind::NATIVE
            }
            Kind::Pseudo => {
                name.push(pseudo_name(id));
                SiteKind::PSEUDO
            }
        };
        let (path, path_len) = site.path();
        let name = if kind == SiteKind::RUBY {
            // SAFETY: the interner keeps the path with this length until a clear, which waits for the pause.
            unsafe { core::slice::from_raw_parts(path, path_len as usize) }
        } else {
            name.bytes()
        };
        let figures = SiteFigures::of(id, site, 0);
        out.value(&DumpSite {
            kind,
            line: site.line(),
            name_len: name.len() as u32,
            estimated: u32::from(figures.estimated),
            allocations: figures.allocations,
            frees: figures.frees,
            total_bytes: figures.total_bytes,
            freed_bytes: figures.freed_bytes,
            age_total: figures.age_total,
            max_lifespan: figures.max_lifespan,
            marked_bytes: figures.marked_bytes,
            variances: figures.variances,
        });
        out.bytes(name);
        out.bytes(b"\0\0\0\0\0\0\0".get(..name.len().wrapping_neg() & 7).unwrap_or_default());
    }
}

/// A place in a module that may not be loaded any more, or an address.
fn name_native(site: &Site, maps: &Maps, name: &mut PathBuffer) {
    let (path, path_len) = site.path();
    if path.is_null() {
        maps.name(site.address(), name);
        return;
    }
    // SAFETY: the interner keeps the path with this length until a clear, which waits for the pause.
    name.push(unsafe { core::slice::from_raw_parts(path, path_len as usize) });
    name.push(b"+0x");
    name.push_number(site.offset(), 16);
}

/// The name of a pseudo-site.
fn pseudo_name(id: u32) -> &'static [u8] {
    match id {
        SITE_BOOT => b"(boot)",
        SITE_GC => b"(gc)",
        _ => b"(other)",
    }
}

/// A small buffer in front of write(2).
struct Output {
    file: c_int,
    failed: bool,
    used: usize,
    buffer: [MaybeUninit<u8>; 2048],
}

impl Output {
    /// `T` is one of the dump's records: numbers only, without padding.
    fn value<T: Copy>(&mut self, value: &T) {
        // SAFETY: the records are made of numbers without padding, so all their bytes are initialised.
        self.bytes(unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) });
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.used == self.buffer.len() {
                self.flush();
            }
            let room = self.buffer.len() - self.used;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            // SAFETY: `now` fits into what is left of the buffer.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    now.as_ptr(),
                    self.buffer.as_mut_ptr().cast::<u8>().add(self.used),
                    now.len(),
                );
            }
            self.used += now.len();
            bytes = later;
        }
    }

    fn flush(&mut self) {
        let mut written = 0;
        while written < self.used && !self.failed {
            // SAFETY: the buffer is initialised up to `used`.
            let count = unsafe {
                libc::write(
                    self.file,
                    self.buffer.as_ptr().cast::<u8>().add(written).cast(),
                    self.used - written,
                )
            };
            match usize::try_from(count) {
                Ok(count @ 1..) => written += count,
                Err(_) if interrupted() => {}
                Ok(0) | Err(_) => self.failed = true,
            }
        }
        self.used = 0;
    }
}

/// Whether the last system call was cut short by a signal.
fn interrupted() -> bool {
    // SAFETY: the location of errno is valid for the calling thread.
    unsafe { *libc::__errno_location() == libc::EINTR }
}

/// Text of limited length; what does not fit marks it as unusable.
struct PathBuffer {
    used: usize,
    overflow: bool,
    text: [u8; MAX_PATH],
}

impl PathBuffer {
    const fn new() -> Self {
        Self { used: 0, overflow: false, text: [0; MAX_PATH] }
    }

    fn push(&mut self, bytes: &[u8]) {
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

    fn push_number(&mut self, number: u64, base: u64) {
        if number >= base {
            self.push_number(number / base, base);
        }
        self.push(
            b"0123456789abcdef".get((number % base) as usize..).and_then(|d| d.get(..1)).unwrap_or_default(),
        );
    }

    fn expand(&mut self, template: &[u8], append_pid: bool) {
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

    fn bytes(&self) -> &[u8] {
        self.text.get(..self.used).unwrap_or_default()
    }

    fn finish(&self) -> Option<&CStr> {
        if self.overflow || self.used == 0 {
            return None;
        }
        CStr::from_bytes_until_nul(&self.text).ok()
    }
}

/// A copy of /proc/self/maps: the one way to name a module that is safe in a signal handler.
struct Maps {
    text: Option<NonNull<u8>>,
    len: usize,
}

impl Maps {
    fn read() -> Self {
        let text = mmap::map(MAPS_BYTES);
        let mut maps = Self { text, len: 0 };
        let Some(text) = text else { return maps };
        // SAFETY: plain system calls; reads stay inside the mapping.
        unsafe {
            let file = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            while file >= 0 && maps.len < MAPS_BYTES {
                let count = libc::read(file, text.as_ptr().add(maps.len).cast(), MAPS_BYTES - maps.len);
                match usize::try_from(count) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => maps.len += count,
                }
            }
            libc::close(file);
        }
        maps
    }

    /// Writes `path+0xoffset` of the module that holds `address`, or the bare address.
    fn name(&self, address: u64, name: &mut PathBuffer) {
        let text = match self.text {
            // SAFETY: the mapping is filled up to `len`.
            Some(text) => unsafe { core::slice::from_raw_parts(text.as_ptr(), self.len) },
            None => &[],
        };
        let mut module: (&[u8], u64) = (b"", 0);
        for line in text.split(|byte| *byte == b'\n') {
            let (start, rest) = hexadecimal(line);
            let (end, _) = hexadecimal(rest.get(1..).unwrap_or_default());
            let path =
                line.iter().position(|byte| *byte == b'/').and_then(|at| line.get(at..)).unwrap_or_default();
            // A module's first mapping is its load address.
            if path != module.0 {
                module = (path, start);
            }
            if start <= address && address < end && !path.is_empty() {
                name.push(path);
                name.push(b"+");
                name.push(b"0x");
                name.push_number(address - module.1, 16);
                return;
            }
        }
        name.push(b"0x");
        name.push_number(address, 16);
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        if let Some(text) = self.text {
            // SAFETY: mapped in `read` with this length.
            unsafe { mmap::unmap(text, MAPS_BYTES) };
        }
    }
}

fn hexadecimal(text: &[u8]) -> (u64, &[u8]) {
    let mut value = 0u64;
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let Some(digit) = char::from(*first).to_digit(16) else { break };
        value = value.wrapping_mul(16).wrapping_add(u64::from(digit));
        rest = tail;
    }
    (value, rest)
}
