//! A process of its own that has the hook read the tables which a core file has of it, and writes what they say.
//!
//! The tables are mapped where they were. If they are damaged, their reader follows wild addresses, so this process may crash,
//! or never come to an end. Nothing depends on it: it has its limits of time, and once it has what it needs, the kernel lets
//! it only read, write and end.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memintro_abi::{BlockRecord, HOOK_API_SYMBOL, HookApi, OtherProcess, OtherState, SiteRecord, VERSION};
use memintro_analysis::leaks::unused::Read;
use object::{Object, ObjectSegment, SegmentFlags, elf};

use crate::followed::{IN_THE_WAY, hook, tags};
use crate::image::{Image, PAGE};
use crate::search::own_ranges;

/// Seconds of processor time, and how many bytes of tables give it a second more: the tables are read ten times faster.
const SECONDS: u64 = 6;
const BYTES_OF_SECOND: u64 = 16 << 20;
/// Seconds of any time.
const ALARM: u32 = 120;
/// Bytes of an answer that are written at once.
const BUFFER: usize = 1 << 16;
/// Paths of call sites are no longer.
const MOST_PATH: u32 = 16 << 10;

/// Reads what the hook had followed, and writes it to standard output. Returns the status to end with; does not return if it
/// has read it.
#[must_use]
pub fn run(core: &Path, hook: &Path) -> i32 {
    match read(core, hook) {
        Ok(status) => status,
        Err(why) => {
            let mut out = Out::new();
            out.add(why.as_bytes());
            out.write();
            1
        }
    }
}

fn read(core: &Path, hook_path: &Path) -> Result<i32, String> {
    limit();
    let mut copied = 0;
    let failed = |error: std::io::Error| format!("{}: {error}", core.display());
    let file = std::fs::File::open(core).map_err(failed)?;
    // SAFETY: bytes of any kind; a program that shortens the file meanwhile ends this process.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    let image = Image::read(&bytes)?;
    let (base, _) = hook(&image).ok_or("the hook is not in the file")?;
    let api = load(hook_path)?;
    let own_base = base_of(api).ok_or("the hook has no address")?;
    let mut wanted = data(hook_path, base)?;
    wanted.extend(own_ranges(&image).unwrap_or_default());
    let all: usize = wanted.iter().map(|(start, end)| end.saturating_sub(*start)).sum();
    for (start, end) in wanted {
        let (start, end) = (start & !(PAGE - 1), end.next_multiple_of(PAGE));
        if !map(start, end) {
            return Ok(IN_THE_WAY);
        }
        copied += copy(&image, start, end);
    }
    let most = limit_of(SECONDS + copied / BYTES_OF_SECOND);
    // SAFETY: a valid record.
    unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const most) };
    let mut out = Out { most: (all / 4) as u64, image: Some(&image), ..Out::new() };
    let other = OtherProcess {
        moved: base.wrapping_sub(own_base),
        context: (&raw mut out).cast(),
        word,
        block: add_block,
        site: add_site,
    };
    let mut state = OtherState::default();
    only_read_write_and_end();
    // SAFETY: records that outlive the call, and callbacks that fit them. The hook was loaded from this build, and its memory is
    // mapped; if it is damaged, this process may end, and it is not needed.
    unsafe { (api.other_process)(&raw const other, &raw mut state) };
    let both = u64::from(state.mode) | u64::from(state.is_lost) << 32;
    out.words(&[tags::END, both, u64::from(state.knows_generation), state.changing]);
    out.write();
    end(0)
}

/// No core file of this process, and an end in time or with its parent.
fn limit() {
    let none = limit_of(0);
    // SAFETY: system calls with valid arguments.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::alarm(ALARM);
    }
}

fn limit_of(most: u64) -> libc::rlimit {
    libc::rlimit { rlim_cur: most, rlim_max: most }
}

/// From now on the kernel ends this process if it asks for anything else, where it can be told so.
fn only_read_write_and_end() {
    // SAFETY: a system call with valid arguments.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
}

fn end(status: i32) -> ! {
    // The usual end of a process is not allowed any more.
    loop {
        // SAFETY: ends this thread, which is the only one.
        unsafe { libc::syscall(libc::SYS_exit, status) };
    }
}

fn load(path: &Path) -> Result<&'static HookApi, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "the hook's path has a NUL in it")?;
    // SAFETY: memintro's own library; its constructor only looks around.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(format!("{} could not be loaded", path.display()));
    }
    // SAFETY: the symbol is memintro's own; its first two words have been the same in every version.
    let api = unsafe { libc::dlsym(library, HOOK_API_SYMBOL.as_ptr()).cast::<HookApi>().as_ref() };
    api.filter(|api| api.version == VERSION && api.size as usize == size_of::<HookApi>())
        .ok_or_else(|| format!("{} is of another version", path.display()))
}

/// Where the library was loaded.
fn base_of(api: &'static HookApi) -> Option<usize> {
    // SAFETY: zero is a valid record, and the loader only reads its lists.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let is_known = unsafe { libc::dladdr(std::ptr::from_ref(api).cast(), &raw mut info) } != 0;
    is_known.then(|| info.dli_fbase.addr())
}

/// The hook's data in the process, where it was loaded at `base`.
fn data(path: &Path, base: usize) -> Result<Vec<(usize, usize)>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    let is_data = |flags| matches!(flags, SegmentFlags::Elf { p_type: elf::PT_LOAD, p_flags } if p_flags.0 & elf::PF_W.0 != 0);
    let parts = file.segments().filter(|segment| is_data(segment.flags())).map(|segment| {
        let start = base.wrapping_add(segment.address() as usize);
        (start, start.wrapping_add(segment.size() as usize))
    });
    let mut parts: Vec<_> = parts.filter(|(start, end)| start < end).collect();
    // Two of them may share a page.
    let mut end = 0;
    for part in &mut parts {
        part.0 = part.0.max(end);
        end = part.1.next_multiple_of(PAGE);
    }
    Ok(parts)
}

/// Maps zeroes there, if nothing is there yet.
fn map(start: usize, end: usize) -> bool {
    let Some(bytes) = end.checked_sub(start).filter(|bytes| *bytes > 0) else { return true };
    let place = std::ptr::without_provenance_mut::<c_void>(start);
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
    );
    // SAFETY: an anonymous mapping that replaces none.
    let found = unsafe { libc::mmap(place, bytes, access, flags, -1, 0) };
    // Kernels before 4.17 do not know the last flag, and take the address for a wish.
    found.addr() == start
}

/// Copies what the file has there, and returns how many bytes of it are in pages that are not empty.
fn copy(image: &Image<'_>, start: usize, end: usize) -> u64 {
    let mut copied = 0;
    let first = image.segments.partition_point(|segment| segment.known_end() <= start);
    for segment in image.segments.iter().skip(first).take_while(|segment| segment.start < end) {
        let (from, to) = (segment.start.max(start), segment.known_end().min(end));
        let part = segment.bytes.get(from - segment.start..to.saturating_sub(segment.start));
        for (index, page) in part.unwrap_or_default().chunks(PAGE).enumerate() {
            // What is zero takes no memory.
            if page.iter().any(|byte| *byte != 0) {
                let place = std::ptr::with_exposed_provenance_mut::<u8>(from + index * PAGE);
                // SAFETY: within what was mapped just now.
                unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), place, page.len()) };
                copied += page.len() as u64;
            }
        }
    }
    copied
}

/// What is written. It has its memory beforehand.
struct Out<'a> {
    buffer: Vec<u8>,
    /// Which call sites blocks have, a bit for each.
    sites: Vec<u64>,
    /// Blocks that may still come: the tables had no room for more.
    most: u64,
    image: Option<&'a Image<'a>>,
}

impl Out<'_> {
    fn new() -> Self {
        Self { buffer: Vec::with_capacity(BUFFER), sites: vec![0; (1 << 24) / 64], most: 0, image: None }
    }

    fn add(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(BUFFER) {
            if self.buffer.len() + part.len() > BUFFER {
                self.write();
            }
            self.buffer.extend_from_slice(part);
        }
    }

    fn words(&mut self, words: &[u64]) {
        for word in words {
            self.add(&word.to_le_bytes());
        }
    }

    fn write(&mut self) {
        let mut rest = &*self.buffer;
        while !rest.is_empty() {
            // SAFETY: bytes of this slice.
            let written = unsafe { libc::write(1, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written).ok().and_then(|written| rest.get(written..)) {
                Some(others) if written > 0 => rest = others,
                _ => end(2),
            }
        }
        self.buffer.clear();
    }
}

unsafe extern "C" fn word(context: *mut c_void, address: usize, word: *mut usize) -> bool {
    // SAFETY: the context above, and the caller's own word.
    let (out, word) = unsafe { (&*context.cast::<Out<'_>>(), &mut *word) };
    let found = out.image.and_then(|image| image.word(address));
    *word = found.unwrap_or(0) as usize;
    found.is_some()
}

unsafe extern "C" fn add_block(context: *mut c_void, record: *const BlockRecord) {
    // SAFETY: the context above, and a record that is valid during the visit.
    let (out, record) = unsafe { (&mut *context.cast::<Out<'_>>(), &*record) };
    // Damaged tables may have no end.
    out.most = out.most.checked_sub(1).unwrap_or_else(|| end(2));
    if let Some(bits) = out.sites.get_mut(record.site as usize / 64) {
        *bits |= 1 << (record.site % 64);
    }
    let both = u64::from(record.site) | u64::from(record.age) << 32;
    out.words(&[tags::BLOCK, record.address, record.size, both]);
}

unsafe extern "C" fn add_site(context: *mut c_void, record: *const SiteRecord) {
    // SAFETY: as above.
    let (out, record) = unsafe { (&mut *context.cast::<Out<'_>>(), &*record) };
    if out.sites.get(record.id as usize / 64).is_none_or(|bits| bits >> (record.id % 64) & 1 == 0) {
        return;
    }
    let length = if record.path.is_null() { 0 } else { record.path_len.min(MOST_PATH) as usize };
    // SAFETY: the path of the site, if the tables are whole.
    let path = if length == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(record.path, length) } };
    let both = u64::from(record.id) | u64::from(record.kind.0) << 32;
    out.words(&[tags::SITE, both, u64::from(record.line), record.module_offset, length as u64]);
    out.add(path);
}
