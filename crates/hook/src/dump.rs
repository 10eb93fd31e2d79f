//! The raw dump: all sites and totals, written without formatting, allocating or locking.
//!
//! It must work in a signal handler, whatever the interrupted thread was doing. So it tries to pause the
//! world for a short time, and otherwise reads the figures without a pause. The handler may have a stack of 8
//! KiB, of which the kernel takes up to a half, so large buffers are in a [`Workspace`]. [`crate::dump_file`]
//! says where the dump goes and what it never replaces.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use memintro_abi::{
    BlockFigures, DUMP_MAGIC, DumpFrame, DumpHeader, DumpNode, DumpSite, EXIT_STATUS_UNKNOWN, ObjectFigures,
    SITE_BOOT, SITE_GC, Status,
};
use memintro_tracker::mmap;
use memintro_tracker::sites::{Kind, Site, Tables};
use memintro_tracker::threads::ThreadState;

use crate::dump_file::{DumpFile, PathBuffer};
use crate::dump_stacks::{self, Code};
use crate::figures::{self, is_used};
use crate::shared::{self, SITES, STACK_DEPTH, THREADS};
use crate::{in_band, objects, sampling, thread};

/// Sleeps of 50 µs for which a dump waits for other threads before it goes on without them: some tenths of a second.
const PATIENCE: u32 = 2_000;
const MAPS_BYTES: usize = 4 << 20;
const OUTPUT_BYTES: usize = 2048;

/// Buffers of a dump that are too large for a small stack. All zero is a valid, unused workspace.
struct Workspace {
    path: PathBuffer,
    name: PathBuffer,
    code: Code,
    output: [u8; OUTPUT_BYTES],
}

/// The workspace of a process that is ending, which may not get memory any more.
struct Last {
    taken: AtomicBool,
    space: UnsafeCell<Workspace>,
}
// SAFETY: the workspace is touched by the one thread that has set `taken`.
unsafe impl Sync for Last {}
static LAST: Last = Last {
    taken: AtomicBool::new(false),
    space: UnsafeCell::new(Workspace {
        path: PathBuffer::new(),
        name: PathBuffer::new(),
        code: Code::new(),
        output: [0; OUTPUT_BYTES],
    }),
};

/// Writes a dump to `path` now. `%p` in it stands for the process id.
pub(crate) fn write(path: &CStr) -> Status {
    let Some(memory) = mmap::map(size_of::<Workspace>()) else { return Status::NO_MEMORY };
    // SAFETY: zeroed memory of this size is a workspace, and no other thread knows of it.
    let space = unsafe { memory.cast::<Workspace>().as_mut() };
    let own = thread::own();
    let status = write_in(space, own.as_deref(), path, false, 0, EXIT_STATUS_UNKNOWN);
    // SAFETY: mapped above with this length, and not used any more.
    unsafe { mmap::unmap(memory, size_of::<Workspace>()) };
    status
}

/// Writes the dump of a process that is ending, from any handler, and only once. `append_pid` appends the process id
/// where `%p` is missing.
pub(crate) fn write_last(path: &CStr, append_pid: bool, signal: c_int, exit_status: c_int) -> Status {
    if LAST.taken.swap(true, Ordering::Acquire) {
        return Status::BUSY;
    }
    // A thread without a state must not create one here, because that may allocate. It borrows one and need not give
    // it back.
    // SAFETY: states are never unmapped.
    let own = thread::kept().or_else(|| THREADS.acquire().map(|state| unsafe { state.as_ref() }));
    // SAFETY: the thread that sets `taken` first is alone in the workspace until it is cleared.
    let status = write_in(unsafe { &mut *LAST.space.get() }, own, path, append_pid, signal, exit_status);
    LAST.taken.store(false, Ordering::Release);
    status
}

fn write_in(
    space: &mut Workspace,
    own: Option<&ThreadState>,
    path: &CStr,
    append_pid: bool,
    signal: c_int,
    exit_status: c_int,
) -> Status {
    // Most calls below are cancellation points, and a cancelled thread would leave the world paused.
    let _whole = Uncancelled::begin();
    let Workspace { path: target, name, code, output } = space;
    target.clear();
    target.expand(path.to_bytes(), append_pid);
    let file = match DumpFile::create(target) {
        Ok(file) => file,
        Err(status) => return status,
    };
    let mut out =
        Output { file: file.descriptor(), room: file_size_limit(), failed: false, used: 0, buffer: output };
    let mut paused = None;
    in_band::keeping(|| paused = own.and_then(|own| THREADS.pause_for(own, PATIENCE)));
    if paused.is_some() {
        shared::flush();
    }
    write_all(&mut out, name, code, signal, exit_status);
    in_band::keeping(|| drop(paused));
    out.flush();
    if out.failed { file.abandon() } else { file.complete() }
}

fn write_all(
    out: &mut Output<'_>,
    name: &mut PathBuffer,
    code: &mut Code,
    signal: c_int,
    exit_status: c_int,
) {
    // If the interner is in the middle of a change, there are lines only.
    let has_stacks = STACK_DEPTH.load(Ordering::Relaxed) > 1;
    let tables = if has_stacks { SITES.tables() } else { None };
    let count = SITES.count();
    let all = || (0..count).filter_map(|id| SITES.get(id).map(|site| (id, site)));
    let lines = || {
        all().filter(|(id, site)| {
            !site.is_stack() && SITES.with_stacks(*id).any(|(id, site)| is_used(id, site))
        })
    };
    // SAFETY: plain system calls.
    let (pid, time) = unsafe { (libc::getpid().unsigned_abs(), libc::time(core::ptr::null_mut())) };
    let of = |count: fn(&Tables<'_>) -> usize| tables.as_ref().map_or(0, |tables| count(tables) as u64);
    out.value(&DumpHeader {
        magic: DUMP_MAGIC,
        version: memintro_abi::VERSION,
        pid,
        time: time.unsigned_abs(),
        signal: signal.unsigned_abs(),
        exit_status,
        sites: lines().count() as u64,
        texts: of(|tables| tables.texts().len()),
        frames: of(|tables| tables.frames().len()),
        nodes: of(|tables| tables.nodes().len()),
        stacks: if tables.is_some() { u64::from(count) } else { 0 },
        sample_bytes: if sampling::has_estimates() { sampling::mean() } else { 0 },
        figures: figures::of_process(),
    });
    let maps = Maps::read();
    write_lines(out, name, &maps, lines());
    if let Some(tables) = tables {
        write_stacks(out, &tables, all());
    }
    maps.code(code);
    dump_stacks::write(code, maps.text(), |bytes| out.bytes(bytes));
}

fn write_lines<'a>(
    out: &mut Output<'_>,
    name: &mut PathBuffer,
    maps: &Maps,
    lines: impl Iterator<Item = (u32, Site<'a>)>,
) {
    for (id, site) in lines {
        name.clear();
        match site.kind() {
            Kind::Ruby => {}
            Kind::Native => name_native(site, maps, name),
            Kind::Pseudo => name.push(pseudo_name(id)),
        }
        let (path, path_len) = site.path();
        let name = if site.kind() == Kind::Ruby {
            // SAFETY: the interner keeps the path with this length until a clear, which waits for the pause.
            unsafe { core::slice::from_raw_parts(path, path_len as usize) }
        } else {
            name.bytes()
        };
        write_site(out, id, site, name.len() as u32, false);
        out.padded(name);
    }
}

/// The trie, and each site as it is kept. Those that have no event are written, too: their number must not depend on
/// threads that go on because there was no pause.
fn write_stacks<'a>(out: &mut Output<'_>, tables: &Tables<'_>, sites: impl Iterator<Item = (u32, Site<'a>)>) {
    for text in tables.texts() {
        out.value(&(text.len() as u64));
        out.padded(text);
    }
    for (path, line, label) in tables.frames() {
        out.value(&DumpFrame { path, line, label, padding: 0 });
    }
    for (caller, frame) in tables.nodes() {
        out.value(&DumpNode { caller, frame });
    }
    for (id, site) in sites {
        write_site(out, id, site, 0, true);
    }
}

/// The figures of a line with all its stacks, or those of a site alone. Never inlined, so that the stack that it needs
/// is not that of its caller.
#[inline(never)]
fn write_site(out: &mut Output<'_>, id: u32, site: Site<'_>, name_len: u32, alone: bool) {
    let mut record = DumpSite {
        kind: figures::kind(site),
        line: site.line(),
        name_len,
        padding: 0,
        id: SITES.leaf_of(id),
        node: if alone { site.node() } else { 0 },
        blocks: BlockFigures::default(),
        objects: ObjectFigures::default(),
    };
    for (part, site) in SITES.with_stacks(id).take(if alone { 1 } else { usize::MAX }) {
        figures::add_site(&mut record.blocks, part, site);
        objects::add(&mut record.objects, part, shared::generation());
    }
    out.value(&record);
}

/// A place in a module, which may not be loaded any more, or a bare address.
fn name_native(site: Site<'_>, maps: &Maps, name: &mut PathBuffer) {
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

/// While this lives, a cancellation of the calling thread is postponed.
struct Uncancelled(c_int);

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}
/// The value is the same in all C libraries of Linux.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

impl Uncancelled {
    fn begin() -> Self {
        let mut before = 0;
        // SAFETY: a valid place for the answer; it changes a bit of the calling thread's and may be called by a handler.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: as above; the state that it was in.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}

/// Buffers writes before write(2).
struct Output<'a> {
    file: c_int,
    /// Bytes that the file may still grow by.
    room: u64,
    failed: bool,
    used: usize,
    buffer: &'a mut [u8; OUTPUT_BYTES],
}

impl Output<'_> {
    /// `T` is one of the dump's records: numbers only, without padding.
    fn value<T: Copy>(&mut self, value: &T) {
        // SAFETY: the records are made of numbers without padding, so all their bytes are initialised.
        self.bytes(unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) });
    }

    /// The bytes, and zeroes up to the next multiple of 8.
    fn padded(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
        self.bytes(b"\0\0\0\0\0\0\0".get(..bytes.len().wrapping_neg() & 7).unwrap_or_default());
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.used == self.buffer.len() {
                self.flush();
            }
            let room = self.buffer.get_mut(self.used..).unwrap_or_default();
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            for (place, byte) in room.iter_mut().zip(now) {
                *place = *byte;
            }
            self.used += now.len();
            bytes = later;
        }
    }

    fn flush(&mut self) {
        let mut rest = self.buffer.get(..self.used).unwrap_or_default();
        // The kernel would end the process with SIGXFSZ, and so change how it ends.
        match self.room.checked_sub(rest.len() as u64) {
            Some(room) => self.room = room,
            None => self.failed = true,
        }
        while !rest.is_empty() && !self.failed {
            // SAFETY: a plain system call on initialised bytes.
            let count = unsafe { libc::write(self.file, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(count) {
                Ok(count @ 1..) => rest = rest.get(count..).unwrap_or_default(),
                Err(_) if interrupted() => {}
                Ok(0) | Err(_) => self.failed = true,
            }
        }
        self.used = 0;
    }
}

/// Bytes that a file of this process may have (ulimit -f).
fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a plain system call on a valid record, which stays as it is if the kernel refuses.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

/// Whether the last system call was interrupted by a signal.
fn interrupted() -> bool {
    // SAFETY: the location of errno is valid for the calling thread.
    unsafe { *libc::__errno_location() == libc::EINTR }
}

/// A copy of /proc/self/maps, which is the only way to name a module that is safe in a signal handler.
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

    fn text(&self) -> &[u8] {
        match self.text {
            // SAFETY: the mapping is filled up to `len`.
            Some(text) => unsafe { core::slice::from_raw_parts(text.as_ptr(), self.len) },
            None => &[],
        }
    }

    /// Fills in where code is.
    fn code(&self, code: &mut Code) {
        code.clear();
        for line in self.text().split(|byte| *byte == b'\n') {
            let (start, rest) = hexadecimal(line);
            let (end, rest) = hexadecimal(rest.get(1..).unwrap_or_default());
            if rest.get(3) == Some(&b'x') {
                code.add(start..end);
            }
        }
    }

    /// Writes `path+0xoffset` of the module that holds `address`, or the bare address.
    fn name(&self, address: u64, name: &mut PathBuffer) {
        let mut module: (&[u8], u64) = (b"", 0);
        for line in self.text().split(|byte| *byte == b'\n') {
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
