//! Loaded modules: their addresses, identities and unwind tables.

use std::borrow::Cow;
use std::ffi::CStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use memintro_abi::ModuleRecord;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, SegmentFlags};

/// Lists the loaded modules.
pub trait Loaded {
    /// Visits each module. None is unloaded meanwhile.
    fn each(&self, visit: &mut dyn FnMut(&ModuleRecord));
}

/// A place in a module. It stays valid when the module is unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Number of the module, as [`Modules::identity`] knows it.
    pub module: u32,
    /// The return address, less the load address.
    pub offset: u64,
}

impl Place {
    /// All other places of a module together.
    #[must_use]
    pub(crate) fn whole(module: u32) -> Self {
        Self { module, offset: u64::MAX }
    }

    /// Whether it is [`Place::whole`].
    #[must_use]
    pub(crate) fn is_whole(self) -> bool {
        self.offset == u64::MAX
    }
}

/// The identity of a module, at any load address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its path.
    pub path: Vec<u8>,
    /// The linker's build ID; empty if it has none.
    pub build: Vec<u8>,
}

/// Unwind tables of more bytes are not read.
const MOST_TABLE_BYTES: u64 = 16 << 20;
/// Most modules. Programs that load more have callers without names.
const MOST_IDENTITIES: usize = 4096;

type Header = libc::Elf64_Phdr;
const READABLE: u32 = libc::PF_R;
const EXECUTABLE: u32 = libc::PF_X;

/// A module's tables, with their addresses as in the file.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) index: Cow<'static, [u8]>,
    pub(crate) index_at: u64,
    pub(crate) frames: Cow<'static, [u8]>,
    pub(crate) frames_at: u64,
}

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) base: u64,
    /// The addresses of its code.
    pub(crate) code: Range<u64>,
    pub(crate) number: u32,
    /// Not read yet, or none.
    tables: Option<Option<Tables>>,
}

/// All modules, as of the last load or unload.
#[derive(Debug, Default)]
pub struct Modules {
    list: Vec<Module>,
    changes: Option<(u64, u64)>,
    known: Vec<Identity>,
    /// Addresses in modules that are never unloaded. Their tables are read where they are.
    lasting: Vec<u64>,
}

impl Modules {
    /// With one address each of some modules that are never unloaded.
    #[must_use]
    pub fn new(lasting: Vec<u64>) -> Self {
        Self { lasting, ..Self::default() }
    }

    /// The modules of a process that has ended, from its /proc/self/maps, with tables from their files. Files that were
    /// replaced since are left out.
    #[must_use]
    pub fn of_maps(maps: &[u8]) -> Self {
        let mut modules = Self::default();
        for map in maps.split(|byte| *byte == b'\n').filter_map(Map::parse) {
            if modules.list.len() < MOST_IDENTITIES
                && let Some((identity, base, tables)) = map.read()
                && let Some(number) = modules.number(identity)
            {
                modules.list.push(Module { base, code: map.range, number, tables: Some(tables) });
            }
        }
        modules.list.sort_unstable_by_key(|module| module.code.start);
        modules
    }

    /// Reads the list again if a module was loaded or unloaded. Returns whether addresses may belong to other
    /// modules now.
    pub(crate) fn refresh(&mut self, loaded: &dyn Loaded) -> bool {
        let before = self.changes;
        let mut changes = None;
        let mut found: Vec<Module> = Vec::new();
        loaded.each(&mut |record| {
            let now = (record.loaded, record.unloaded);
            changes = Some(now);
            if before != Some(now)
                && let Some(module) = self.seen(record)
            {
                found.push(module);
            }
        });
        if changes == before || changes.is_none() {
            return false;
        }
        let keeps = before.zip(changes).is_some_and(|(old, new)| old.1 == new.1);
        if keeps {
            // Nothing was unloaded, so tables that were read are still right.
            for old in self.list.drain(..) {
                if let Some(new) =
                    found.iter_mut().find(|new| new.base == old.base && new.number == old.number)
                {
                    new.tables = old.tables;
                }
            }
        }
        found.sort_unstable_by_key(|module| module.code.start);
        self.list = found;
        self.changes = changes;
        !keeps
    }

    fn seen(&mut self, record: &ModuleRecord) -> Option<Module> {
        // SAFETY: the record is of a module that is loaded, and is visited now.
        let headers = unsafe { headers(record) };
        let code = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & EXECUTABLE != 0)
            .map(|header| range(record.base, header))
            .reduce(|one, other| one.start.min(other.start)..one.end.max(other.end))?;
        // SAFETY: as above.
        let identity = unsafe { Identity { path: path(record), build: build(record.base, headers) } };
        Some(Module { base: record.base, code, number: self.number(identity)?, tables: None })
    }

    fn number(&mut self, identity: Identity) -> Option<u32> {
        let known = self.known.iter().position(|known| *known == identity);
        let number = known.or_else(|| {
            (self.known.len() < MOST_IDENTITIES).then(|| {
                self.known.push(identity);
                self.known.len() - 1
            })
        });
        number.and_then(|number| u32::try_from(number).ok())
    }

    /// The identity of the module with this number.
    #[must_use]
    pub fn identity(&self, number: u32) -> Option<&Identity> {
        self.known.get(number as usize)
    }

    /// The module whose code holds this address.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let after = self.list.partition_point(|module| module.code.start <= address);
        let index = after.checked_sub(1)?;
        self.list.get(index).filter(|module| module.code.contains(&address)).map(|_| index)
    }

    /// How many modules had been loaded and unloaded when the list was read.
    pub(crate) fn changes(&self) -> Option<(u64, u64)> {
        self.changes
    }

    /// The number of a module with this path.
    #[must_use]
    pub fn number_of(&self, path: &[u8]) -> Option<u32> {
        self.known.iter().position(|known| known.path == path).and_then(|number| u32::try_from(number).ok())
    }

    /// How many are loaded.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Module> {
        self.list.get(index)
    }

    /// The module's tables, which are read the first time.
    pub(crate) fn tables(&mut self, index: usize, loaded: &dyn Loaded) -> Option<&Tables> {
        let module = self.list.get_mut(index)?;
        if module.tables.is_none() {
            let lasts = self.lasting.iter().any(|address| module.code.contains(address));
            let (base, number, changes) = (module.base, module.number, self.changes);
            let mut read = None;
            loaded.each(&mut |record| {
                if record.base == base
                    && changes == Some((record.loaded, record.unloaded))
                    && self.known.get(number as usize).is_some_and(|known| {
                        // SAFETY: the record is of a module that is loaded, and is visited now.
                        known.path == unsafe { path(record) }
                    })
                {
                    // SAFETY: as above; what is not copied is of a module that is never unloaded.
                    read = unsafe { tables(record, lasts) };
                }
            });
            module.tables = Some(read);
        }
        self.list.get(index)?.tables.as_ref()?.as_ref()
    }
}

/// A mapping of code.
struct Map {
    range: Range<u64>,
    offset: u64,
    inode: u64,
    path: PathBuf,
}

impl Map {
    /// `start-end r-xp offset device inode path`
    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let (head, path) = text.split_at(text.find('/')?);
        let mut words = head.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let is_code = words.next()?.as_bytes().get(2) == Some(&b'x');
        let offset = hexadecimal(words.next()?)?;
        let inode = words.nth(1)?.parse().ok()?;
        let range = hexadecimal(start)?..hexadecimal(end)?;
        is_code.then(|| Self { range, offset, inode, path: path.into() })
    }

    fn read(&self) -> Option<(Identity, u64, Option<Tables>)> {
        let about = std::fs::metadata(&self.path).ok().filter(|about| about.is_file())?;
        if about.ino() != self.inode || about.len() > MOST_FILE_BYTES {
            return None;
        }
        let bytes = std::fs::read(&self.path).ok()?;
        let object = object::File::parse(&*bytes).ok()?;
        // The segment that was mapped from there gives the load address.
        let segment = object.segments().find(|segment| {
            let (at, len) = segment.file_range();
            let is_code =
                matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & EXECUTABLE != 0);
            is_code && len > 0 && at / PAGE * PAGE <= self.offset && self.offset < at.saturating_add(len)
        })?;
        let mapped_at = segment.address().checked_sub(segment.file_range().0)?.checked_add(self.offset)?;
        let base = self.range.start.checked_sub(mapped_at)?;
        let build = object.build_id().ok().flatten().unwrap_or_default().to_vec();
        let section = |name: &str| {
            let section = object.section_by_name(name)?;
            Some((Cow::Owned(section.data().ok()?.to_vec()), section.address()))
        };
        let tables = section(".eh_frame_hdr")
            .zip(section(".eh_frame"))
            .map(|((index, index_at), (frames, frames_at))| Tables { index, index_at, frames, frames_at });
        let path = self.path.as_os_str().as_bytes().to_vec();
        Some((Identity { path, build }, base, tables))
    }
}

const PAGE: u64 = 4096;
/// Larger files are not read.
const MOST_FILE_BYTES: u64 = 256 << 20;

fn range(base: u64, header: &Header) -> Range<u64> {
    let start = base.wrapping_add(header.p_vaddr);
    start..start.wrapping_add(header.p_memsz)
}

/// # Safety
/// The module is loaded.
unsafe fn headers(record: &ModuleRecord) -> &[Header] {
    if record.headers.is_null() {
        return &[];
    }
    let count = usize::try_from(record.header_count).unwrap_or(0);
    // SAFETY: the loader has that many.
    unsafe { std::slice::from_raw_parts(record.headers.cast(), count) }
}

/// # Safety
/// The module is loaded.
unsafe fn path(record: &ModuleRecord) -> Vec<u8> {
    // SAFETY: a terminated text, if there is one.
    let path = if record.path.is_null() { c"" } else { unsafe { CStr::from_ptr(record.path) } };
    if !path.is_empty() {
        return path.to_bytes().to_vec();
    }
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    program.as_os_str().as_bytes().to_vec()
}

/// The bytes at these addresses of the file, as far as one readable segment holds them.
///
/// # Safety
/// The module is loaded, and stays so for as long as the bytes are used.
unsafe fn bytes<'a>(base: u64, headers: &[Header], at: u64, most: u64) -> Option<&'a [u8]> {
    let segment = headers.iter().find(|header| {
        let end = header.p_vaddr.checked_add(header.p_filesz.min(header.p_memsz));
        header.p_type == libc::PT_LOAD
            && header.p_flags & READABLE != 0
            && header.p_vaddr <= at
            && end.is_some_and(|end| at < end)
    })?;
    let end = segment.p_vaddr.checked_add(segment.p_filesz.min(segment.p_memsz))?;
    let len = usize::try_from((end - at).min(most)).ok()?;
    // SAFETY: the loader has mapped this segment, and it is readable.
    Some(unsafe { std::slice::from_raw_parts(base.wrapping_add(at) as *const u8, len) })
}

/// The build ID; empty if there is none.
///
/// # Safety
/// The module is loaded.
unsafe fn build(base: u64, headers: &[Header]) -> Vec<u8> {
    const KIND: u32 = 3;
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        // SAFETY: the caller's promise.
        let mut notes = unsafe { bytes(base, headers, header.p_vaddr, header.p_memsz) }.unwrap_or_default();
        while let Some((name_len, len, kind)) = note_header(notes) {
            let padded = |len: u32| (len as usize).next_multiple_of(4);
            let Some(rest) = notes.get(12..) else { break };
            let Some(id) = rest.get(padded(name_len)..) else { break };
            if kind == KIND && rest.starts_with(b"GNU\0") {
                return id.get(..len as usize).unwrap_or_default().to_vec();
            }
            notes = id.get(padded(len)..).unwrap_or_default();
        }
    }
    Vec::new()
}

fn note_header(notes: &[u8]) -> Option<(u32, u32, u32)> {
    let word = |at: usize| notes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
    let header = (word(0)?, word(4)?, word(8)?);
    // More would not fit any segment, and their padded lengths could overflow.
    (header.0 < 1 << 24 && header.1 < 1 << 24).then_some(header)
}

/// # Safety
/// The module is loaded; if it `lasts`, it is never unloaded.
unsafe fn tables(record: &ModuleRecord, lasts: bool) -> Option<Tables> {
    // SAFETY: the caller's promise.
    let headers = unsafe { headers(record) };
    let header = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
    // SAFETY: the caller's promise.
    let index: &'static [u8] =
        unsafe { bytes(record.base, headers, header.p_vaddr, header.p_memsz.min(MOST_TABLE_BYTES))? };
    let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr);
    let parsed = gimli::EhFrameHdr::new(index, gimli::LittleEndian).parse(&bases, 8).ok()?;
    parsed.table()?;
    let gimli::Pointer::Direct(frames_at) = parsed.eh_frame_ptr() else { return None };
    // SAFETY: the caller's promise.
    let frames: &'static [u8] = unsafe { bytes(record.base, headers, frames_at, MOST_TABLE_BYTES)? };
    let kept = |bytes: &'static [u8]| if lasts { Cow::Borrowed(bytes) } else { Cow::Owned(bytes.to_vec()) };
    Some(Tables { index: kept(index), index_at: header.p_vaddr, frames: kept(frames), frames_at })
}
