//! What is loaded: the loader's list, and the memory of a module within its segments.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use memintro_abi::ModuleRecord;
use memintro_elf::{Machine, Malformed, Memory, Module, ProgramHeader, build_id};

use super::walkers::Walking;

const _: () = assert!(size_of::<ProgramHeader>() == size_of::<libc::Elf64_Phdr>());

static LOADS: AtomicU32 = AtomicU32::new(0);

const MOST_OF_PATH: usize = 4096;
struct Program(UnsafeCell<[u8; MOST_OF_PATH]>);
// SAFETY: written by the constructor, before anybody reads it.
unsafe impl Sync for Program {}
static PROGRAM: Program = Program(UnsafeCell::new([0; MOST_OF_PATH]));
static PROGRAM_LEN: AtomicUsize = AtomicUsize::new(0);

/// Finds the path of the program. Called once, by the constructor.
pub(crate) fn init() {
    // SAFETY: writes at most the buffer's length, and it is not read before its length is known.
    let len = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), PROGRAM.0.get().cast(), MOST_OF_PATH) };
    PROGRAM_LEN.store(usize::try_from(len).unwrap_or(0), Ordering::Release);
}

/// Changes whenever another module may be at a former module's address.
#[inline]
pub(crate) fn loads() -> u32 {
    LOADS.load(Ordering::Relaxed)
}

/// A module is about to be loaded, or was unloaded.
pub(super) fn count_load() {
    LOADS.fetch_add(1, Ordering::Relaxed);
}

/// A module's path. For the program itself the loader leaves it empty.
pub(crate) fn path_of(name: &CStr) -> &[u8] {
    if !name.is_empty() {
        return name.to_bytes();
    }
    let len = PROGRAM_LEN.load(Ordering::Acquire);
    // SAFETY: so many bytes were written before that was said, and never again.
    let path = unsafe { (&*PROGRAM.0.get()).get(..len) };
    path.filter(|path| !path.is_empty()).unwrap_or(b"(program)")
}

/// The segment of code in which an address lies.
pub(crate) fn code_around(address: usize) -> Option<Range<u64>> {
    let mut found = None;
    walk(|loaded| {
        let is_around = |header: &&ProgramHeader| {
            header.flags & ProgramHeader::EXECUTABLE != 0 && header.holds(loaded.base, address as u64, 1)
        };
        found = loaded.headers.iter().find(is_around).map(|header| header.range(loaded.base));
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// How often modules were loaded and unloaded; equal numbers mean equal lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) loaded: u64,
    pub(super) unloaded: u64,
}

/// One module, while the loader's list is locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded<'a> {
    /// Place in the list, from 0: the program itself.
    pub(super) index: u32,
    /// Load address.
    pub(super) base: u64,
    /// Path; empty for the program.
    pub(super) name: &'a CStr,
    pub(super) changes: Changes,
    headers: &'a [ProgramHeader],
}

impl Memory for Loaded<'_> {
    fn tail(&self, address: u64) -> Option<&[u8]> {
        let readable = |header: &&ProgramHeader| {
            header.kind == ProgramHeader::LOAD && header.flags & ProgramHeader::READABLE != 0
        };
        let holds = |header: &&ProgramHeader| header.holds(self.base, address, 1);
        let segment = self.headers.iter().filter(readable).find(holds)?;
        let len = usize::try_from(segment.range(self.base).end.checked_sub(address)?).ok()?;
        // SAFETY: the loader has mapped the segment readable and keeps it mapped while its list is locked; the
        // tables that are read through this are not written to after relocation.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, len) })
    }
}

impl Loaded<'_> {
    /// The description of the module for other files.
    pub(super) fn record(&self) -> ModuleRecord {
        ModuleRecord {
            path: self.name.as_ptr(),
            base: self.base,
            headers: self.headers.as_ptr().cast(),
            header_count: self.headers.len() as u64,
            loaded: self.changes.loaded,
            unloaded: self.changes.unloaded,
        }
    }

    /// Reads the module's dynamic section.
    pub(super) fn module(&self) -> Result<Module<'_>, Malformed> {
        Module::read(self, self.base, self.headers, Machine::NATIVE.ok_or(Malformed::NoDynamicSection)?)
    }

    /// Tells apart modules that were loaded from one path at different times: the linker's build ID, or else a hash
    /// of the program headers.
    pub(super) fn build(&self) -> u64 {
        match build_id(self, self.base, self.headers) {
            Some(id) => id.iter().fold(0, |hash, byte| mix(hash, u64::from(*byte))),
            None => self.headers.iter().fold(0, |hash, header| {
                [header.kind.into(), header.file_offset, header.address, header.file_size, header.mem_size]
                    .into_iter()
                    .fold(hash, mix)
            }),
        }
    }

    /// Whether the module is never patched or searched for functions: this library, the loader, the vDSO. The
    /// loader must not call the hook for its own allocations while it holds its locks.
    pub(super) fn is_excluded(&self) -> bool {
        // SAFETY: reads the auxiliary vector.
        let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        self.is_own() || (vdso != 0 && self.holds(vdso)) || self.is_loader()
    }

    /// Whether it is the loader. AT_BASE is 0 when the loader was started as a program of its own.
    pub(super) fn is_loader(&self) -> bool {
        // SAFETY: reads the auxiliary vector.
        let loader = unsafe { libc::getauxval(libc::AT_BASE) };
        let names = [&b"ld-linux"[..], b"ld.so", b"ld64.so"];
        (loader != 0 && self.base == loader) || names.iter().any(|name| self.file().starts_with(name))
    }

    /// The last part of its path.
    pub(super) fn file(&self) -> &[u8] {
        self.name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or(&[])
    }

    /// Whether it is this library.
    pub(super) fn is_own(&self) -> bool {
        self.holds(own_code as *const () as u64)
    }

    /// Whether it is libc.
    pub(super) fn is_libc(&self) -> bool {
        self.holds(libc::dl_iterate_phdr as *const () as u64)
    }

    /// Whether `address` lies in one of the module's segments.
    pub(super) fn holds(&self, address: u64) -> bool {
        self.headers
            .iter()
            .any(|header| header.kind == ProgramHeader::LOAD && header.holds(self.base, address, 1))
    }
}

fn own_code() {}

fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

/// As [`Loaded::build`], of the module that was loaded at `base` and is called `name`; 0 where its header cannot be read.
///
/// # Safety
/// `pages` are the module's, and it stays meanwhile.
pub(crate) unsafe fn build_at(base: u64, name: &CStr, pages: Range<usize>) -> u64 {
    /// From the ELF header: where the program headers are, and how many.
    const OFFSET: usize = 32;
    const ENTRY_SIZE: usize = 54;
    const COUNT: usize = 56;
    const SIZE: usize = 64;
    // The first page holds the header and the program headers. A smaller module is not read.
    if pages.end.saturating_sub(pages.start) < SIZE {
        return 0;
    }
    // SAFETY: the module's first bytes, by the caller's promise.
    let header = unsafe { core::slice::from_raw_parts(pages.start as *const u8, SIZE) };
    let word = |at: usize| header.get(at..)?.first_chunk().map(|word| u16::from_le_bytes(*word));
    let offset =
        header.get(OFFSET..).and_then(|tail| tail.first_chunk()).map(|word| u64::from_le_bytes(*word));
    let (Some(offset), Some(count)) = (offset, word(COUNT)) else { return 0 };
    let at = usize::try_from(offset).ok().and_then(|offset| pages.start.checked_add(offset));
    let len = usize::from(count).saturating_mul(size_of::<ProgramHeader>());
    let fits =
        at.and_then(|at| at.checked_add(len)).is_some_and(|end| end <= pages.start.saturating_add(4096));
    let is_elf =
        header.starts_with(b"\x7fELF") && word(ENTRY_SIZE) == Some(size_of::<ProgramHeader>() as u16);
    let (Some(at), true) = (at.filter(|at| at.is_multiple_of(8)), fits && is_elf) else { return 0 };
    // SAFETY: they lie in the first page, as just seen, and are laid out the same.
    let headers = unsafe { core::slice::from_raw_parts(at as *const ProgramHeader, count.into()) };
    Loaded { index: 0, base, name, changes: Changes::default(), headers }.build()
}

/// Walks the list in load order, which is the order of symbol lookup for what was loaded at start-up. The loader
/// keeps the list locked meanwhile, so nothing is unloaded. Another thread may still be relocating a module.
pub(super) fn walk<F: FnMut(&Loaded<'_>) -> ControlFlow<()>>(each: F) {
    let _walking = Walking::begin();
    walk_again(each);
}

/// The same, inside another walk of the same thread.
pub(super) fn walk_again<F: FnMut(&Loaded<'_>) -> ControlFlow<()>>(each: F) {
    unsafe extern "C" fn one<F: FnMut(&Loaded<'_>) -> ControlFlow<()>>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: `walk` passes its own pair, and no other code holds it.
        let (each, index) = unsafe { &mut *context.cast::<(F, u32)>() };
        // SAFETY: the loader's record is valid during the call. Every glibc since 2.4 fills the counters.
        let info = unsafe { &*info };
        let headers = if info.dlpi_phdr.is_null() {
            &[]
        } else {
            // SAFETY: the loader gives that many headers, and ours are laid out the same.
            unsafe {
                core::slice::from_raw_parts(info.dlpi_phdr.cast::<ProgramHeader>(), info.dlpi_phnum.into())
            }
        };
        // SAFETY: not null, terminated.
        let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
        let changes = Changes { loaded: info.dlpi_adds, unloaded: info.dlpi_subs };
        let loaded = Loaded { index: *index, base: info.dlpi_addr, name, changes, headers };
        *index = index.saturating_add(1);
        c_int::from(each(&loaded).is_break())
    }
    let mut context = (each, 0_u32);
    // SAFETY: the callback gets the context that it expects, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(one::<F>), (&raw mut context).cast()) };
}

/// The counters now.
pub(super) fn changes() -> Changes {
    let mut now = Changes::default();
    walk(|loaded| {
        now = loaded.changes;
        ControlFlow::Break(())
    });
    now
}
